// SPDX-License-Identifier: GPL-2.0
/*
 * BPF programs read events where they run, with interrupts off. One that runs on
 * a CPU of choice reads the events of two openers and a reference: user
 * instructions, of which there are none in between, so that all three have
 * counted the same from one run of the program to the next.
 */
#include <stddef.h>

#include <linux/bpf.h>

#include "dup.h"

enum {
	EVENT_A,
	EVENT_B,
	EVENT_REF,
	NR_EVENTS,
};

/* What the program leaves in its map. */
struct result {
	__s64				error[NR_EVENTS];
	struct bpf_perf_event_value	event[NR_EVENTS];
};

FIXTURE(dup_bpf)
{
	struct dup_test		t;
	struct perf_event_attr	attr;
	struct target		target;
	int			events;
	int			results;
	int			prog;
	int			fd[NR_EVENTS];
};

FIXTURE_VARIANT(dup_bpf)
{
	bool			cpu_wide;
};

FIXTURE_VARIANT_ADD(dup_bpf, cpu)
{
	.cpu_wide = true,
};

/* A program can only read the events of the task in which it runs: the test's. */
FIXTURE_VARIANT_ADD(dup_bpf, task)
{
	.cpu_wide = false,
};

static int bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static int make_map(enum bpf_map_type type, unsigned int value_size, unsigned int entries)
{
	union bpf_attr attr = {
		.map_type	= type,
		.key_size	= sizeof(__u32),
		.value_size	= value_size,
		.max_entries	= entries,
	};

	return bpf(BPF_MAP_CREATE, &attr);
}

static int set_event(int map, __u32 key, int fd)
{
	union bpf_attr attr = {
		.map_fd		= map,
		.key		= (unsigned long)&key,
		.value		= (unsigned long)&fd,
	};

	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

/* Instructions; the names are those of the kernel's documentation. */
#define INSN(c, d, s, o, i)							\
	((struct bpf_insn) {							\
		.code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV_REG(d, s)		INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define MOV_IMM(d, i)		INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD_IMM(d, i)		INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define STORE_IMM(d, o, i)	INSN(BPF_ST | BPF_MEM | BPF_W, d, 0, o, i)
#define STORE_REG(d, o, s)	INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define JUMP_NOT_ZERO(d, o)	INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, o, 0)
#define CALL(function)		INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##function)
#define EXIT()			INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define MAP_LOW(d, fd)		INSN(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_FD, 0, fd)
#define MAP_HIGH()		INSN(0, 0, 0, 0, 0)

#define MAX_PROGRAM		64

static void append(struct bpf_insn *program, unsigned int *len, const struct bpf_insn *code,
		   unsigned int nr)
{
	memcpy(program + *len, code, nr * sizeof(*code));
	*len += nr;
}

static int load_program(int events, int results)
{
	/* The one element of the results, in register 6. */
	const struct bpf_insn begin[] = {
		STORE_IMM(BPF_REG_10, -4, 0),
		MOV_REG(BPF_REG_2, BPF_REG_10),
		ADD_IMM(BPF_REG_2, -4),
		MAP_LOW(BPF_REG_1, results),
		MAP_HIGH(),
		CALL(map_lookup_elem),
		JUMP_NOT_ZERO(BPF_REG_0, 1),
		EXIT(),
		MOV_REG(BPF_REG_6, BPF_REG_0),
	};
	const struct bpf_insn end[] = {
		MOV_IMM(BPF_REG_0, 0),
		EXIT(),
	};
	struct bpf_insn program[MAX_PROGRAM];
	union bpf_attr attr = {
		.prog_type	= BPF_PROG_TYPE_RAW_TRACEPOINT,
		.insns		= (unsigned long)program,
		.license	= (unsigned long)"GPL",
	};
	int i;

	append(program, &attr.insn_cnt, begin, ARRAY_SIZE(begin));
	for (i = 0; i < NR_EVENTS; i++) {
		const struct bpf_insn read_event[] = {
			MAP_LOW(BPF_REG_1, events),
			MAP_HIGH(),
			MOV_IMM(BPF_REG_2, i),
			MOV_REG(BPF_REG_3, BPF_REG_6),
			ADD_IMM(BPF_REG_3, offsetof(struct result, event[i])),
			MOV_IMM(BPF_REG_4, sizeof(struct bpf_perf_event_value)),
			CALL(perf_event_read_value),
			STORE_REG(BPF_REG_6, offsetof(struct result, error[i]), BPF_REG_0),
		};

		append(program, &attr.insn_cnt, read_event, ARRAY_SIZE(read_event));
	}
	append(program, &attr.insn_cnt, end, ARRAY_SIZE(end));

	return bpf(BPF_PROG_LOAD, &attr);
}

/* Runs the program on a CPU. */
static struct result run_program(struct __test_metadata *_metadata, int prog, int results,
				 int cpu)
{
	union bpf_attr run = {
		.test = {
			.prog_fd	= prog,
			.flags		= BPF_F_TEST_RUN_ON_CPU,
			.cpu		= cpu,
		},
	};
	struct result result = {};
	__u32 key = 0;
	union bpf_attr lookup = {
		.map_fd		= results,
		.key		= (unsigned long)&key,
		.value		= (unsigned long)&result,
	};

	ASSERT_EQ(0, bpf(BPF_PROG_TEST_RUN, &run))
		TH_LOG("BPF_PROG_TEST_RUN: %s", strerror(errno));
	ASSERT_EQ(0, bpf(BPF_MAP_LOOKUP_ELEM, &lookup));

	return result;
}

FIXTURE_SETUP(dup_bpf)
{
	struct perf_event_attr ref_attr;
	struct dup_test *t = &self->t;
	int i;

	if (!dup_setup(_metadata, t))
		return;

	self->events = make_map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, sizeof(__u32), NR_EVENTS);
	if (self->events < 0)
		SKIP(return, "no BPF map for events: %s", strerror(errno));
	self->results = make_map(BPF_MAP_TYPE_ARRAY, sizeof(struct result), 1);
	ASSERT_GE(self->results, 0);
	self->prog = load_program(self->events, self->results);
	if (self->prog < 0 && errno == EINVAL)
		SKIP(return, "no BPF programs for raw tracepoints");
	ASSERT_GE(self->prog, 0)
		TH_LOG("BPF_PROG_LOAD: %s", strerror(errno));

	self->attr = user_instructions();
	ref_attr = reference(self->attr);
	self->target = variant->cpu_wide ? on_cpu(t->cpu) : on_task(getpid());
	leave_counters(_metadata, t, t->cpu, 2);
	self->fd[EVENT_A] = open_event(_metadata, &t->a, &self->attr, self->target);
	self->fd[EVENT_B] = open_event(_metadata, &t->b, &self->attr, self->target);
	self->fd[EVENT_REF] = open_event(_metadata, &t->filler, &ref_attr, self->target);
	for (i = 0; i < NR_EVENTS; i++)
		ASSERT_EQ(0, set_event(self->events, i, self->fd[i]));
}

FIXTURE_TEARDOWN(dup_bpf)
{
	dup_teardown(_metadata, &self->t);
}

/* The same that read() says before and after. */
TEST_F(dup_bpf, read)
{
	struct dup_test *t = &self->t;
	struct result first, result;
	struct counts before, after;
	int i, round;

	first = run_program(_metadata, self->prog, self->results, t->cpu);
	for (round = 0; round < 20; round++) {
		before = read_counts(_metadata, self->fd[EVENT_B]);
		result = run_program(_metadata, self->prog, self->results, t->cpu);
		after = read_counts(_metadata, self->fd[EVENT_B]);

		for (i = 0; i < NR_EVENTS; i++) {
			EXPECT_EQ(0, result.error[i]);
			EXPECT_EQ(result.event[i].enabled, result.event[i].running);
			EXPECT_EQ(result.event[i].counter - first.event[i].counter,
				  result.event[EVENT_REF].counter -
				  first.event[EVENT_REF].counter);
		}
		EXPECT_GT(result.event[EVENT_B].counter, before.value);
		EXPECT_LT(result.event[EVENT_B].counter, after.value);
		EXPECT_GE(result.event[EVENT_B].enabled, before.enabled);
		EXPECT_LE(result.event[EVENT_B].enabled, after.enabled);

		/* Both CPU and task have something to count. */
		if (round % 2)
			burn(LOOPS);
		else
			worker_runs(_metadata, &t->worker);
	}
	EXPECT_GE(result.event[EVENT_A].counter - first.event[EVENT_A].counter, 9 * LOOPS);
}

/* One that does not run keeps its count, and one goes on alone. */
TEST_F(dup_bpf, disabled)
{
	struct dup_test *t = &self->t;
	struct result first, result;
	__u64 value;

	burn(LOOPS);
	ASSERT_EQ(0, ioctl(self->fd[EVENT_A], PERF_EVENT_IOC_DISABLE, 0));
	value = read_value(_metadata, self->fd[EVENT_A]);
	EXPECT_GE(value, LOOPS);
	first = run_program(_metadata, self->prog, self->results, t->cpu);
	burn(LOOPS);
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	EXPECT_EQ(0, result.error[EVENT_A]);
	EXPECT_EQ(value, result.event[EVENT_A].counter);
	EXPECT_EQ(first.event[EVENT_A].running, result.event[EVENT_A].running);
	EXPECT_EQ(result.event[EVENT_B].counter - first.event[EVENT_B].counter,
		  result.event[EVENT_REF].counter - first.event[EVENT_REF].counter);
	EXPECT_GE(result.event[EVENT_B].counter - first.event[EVENT_B].counter, LOOPS);

	/* Nobody is left that runs. */
	ASSERT_EQ(0, ioctl(self->fd[EVENT_B], PERF_EVENT_IOC_DISABLE, 0));
	first = run_program(_metadata, self->prog, self->results, t->cpu);
	burn(LOOPS);
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	EXPECT_EQ(value, result.event[EVENT_A].counter);
	EXPECT_EQ(first.event[EVENT_B].counter, result.event[EVENT_B].counter);
}

/* A pinned event that shares must be running; that one may have no counter. */
TEST_F(dup_bpf, pinned)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct result result;
	int a, b;

	attr.pinned = 1;
	a = open_event(_metadata, &t->filler, &attr, self->target);
	ASSERT_EQ(0, set_event(self->events, EVENT_A, a));
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	EXPECT_EQ(0, result.error[EVENT_A]);
	EXPECT_TRUE(runs_always(a));

	/* Its next equal event has no counter left to share. */
	b = open_event(_metadata, &t->filler, &attr, self->target);
	ASSERT_EQ(0, set_event(self->events, EVENT_B, b));
	EXPECT_FALSE(runs_always(b));
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	EXPECT_EQ(0, result.error[EVENT_A]);
	EXPECT_EQ(-EBUSY, result.error[EVENT_B]);

	ASSERT_EQ(0, ioctl(a, PERF_EVENT_IOC_DISABLE, 0));
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	EXPECT_EQ(-EBUSY, result.error[EVENT_A]);
}

/* Refused as ever: on other CPUs, for other tasks, and with inherit. */
TEST_F(dup_bpf, refused)
{
	struct perf_event_attr attr = self->attr;
	struct dup_test *t = &self->t;
	struct result result;
	int fd, i;

	attr.inherit = 1;
	fd = open_event(_metadata, &t->a, &attr, on_task(t->worker.pid));
	EXPECT_EQ(-1, set_event(self->events, EVENT_A, fd));
	EXPECT_EQ(EOPNOTSUPP, errno);

	if (!variant->cpu_wide) {
		fd = open_event(_metadata, &t->a, &self->attr, on_task(t->worker.pid));
		ASSERT_EQ(0, set_event(self->events, EVENT_A, fd));
		fd = open_event(_metadata, &t->b, &self->attr, on_task(t->worker.pid));
		ASSERT_EQ(0, set_event(self->events, EVENT_B, fd));
		worker_runs(_metadata, &t->worker);
		result = run_program(_metadata, self->prog, self->results, t->cpu);
		EXPECT_EQ(-EINVAL, result.error[EVENT_A]);
		EXPECT_EQ(-EINVAL, result.error[EVENT_B]);
		EXPECT_EQ(0, result.error[EVENT_REF]);
		return;
	}

	if (!leave_cpu(t->cpu))
		SKIP(return, "needs two CPUs");
	result = run_program(_metadata, self->prog, self->results, sched_getcpu());
	for (i = 0; i < NR_EVENTS; i++)
		EXPECT_EQ(-EINVAL, result.error[i]);
	/* From there, by an interrupt. */
	result = run_program(_metadata, self->prog, self->results, t->cpu);
	for (i = 0; i < NR_EVENTS; i++)
		EXPECT_EQ(0, result.error[i]);
}

TEST_HARNESS_MAIN
