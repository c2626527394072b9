// SPDX-License-Identifier: GPL-2.0
/*
 * Hundreds of cgroups with the same events, from two openers: as many counters as
 * one cgroup needs, and opening does not get slower with their number.
 */
#include <time.h>

#include <sys/resource.h>

#include "dup_cgroup.h"

#define NR_CGROUPS	200
/* With a reference, all that the PMU which QEMU emulates has counters for. */
#define NR_EVENTS	6
/* Cgroups in which something runs. */
#define STRIDE		20

FIXTURE(dup_cgroup_many)
{
	struct dup_test		t;
	struct cgroups		c;
	int			cgroup[NR_CGROUPS];
	int			fd[2][NR_CGROUPS][NR_EVENTS];
	int			ref[NR_CGROUPS / STRIDE];
};

static void cgroup_path(struct cgroups *c, int nr, char *path, size_t size)
{
	snprintf(path, size, "%s/many.%d", c->parent.path, nr);
}

FIXTURE_SETUP(dup_cgroup_many)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 8192 };
	struct dup_test *t = &self->t;
	char path[PATH_MAX / 2 + 32];
	int i;

	if (setrlimit(RLIMIT_NOFILE, &limit))
		SKIP(return, "no permission to open that many files");
	if (!dup_setup(_metadata, t) || !cgroups_setup(_metadata, &self->c, t))
		return;

	for (i = 0; i < NR_CGROUPS; i++) {
		cgroup_path(&self->c, i, path, sizeof(path));
		ASSERT_EQ(0, mkdir(path, 0755));
		self->cgroup[i] = open(path, O_RDONLY | O_CLOEXEC);
		ASSERT_GE(self->cgroup[i], 0);
	}
}

FIXTURE_TEARDOWN(dup_cgroup_many)
{
	char path[PATH_MAX / 2 + 32];
	int i;

	stop(&self->t.worker);
	for (i = 0; i < NR_CGROUPS; i++) {
		cgroup_path(&self->c, i, path, sizeof(path));
		rmdir(path);
	}
	cgroups_teardown(&self->c);
	dup_teardown(_metadata, &self->t);
}

/* Four that count what the reference counts, and two other ones. */
static struct perf_event_attr nth_event(int nr)
{
	struct perf_event_attr attr = nr < NR_TWINS ? twin(nr) : instructions();

	if (nr == NR_TWINS) {
		attr = user_instructions();
		attr.config = PERF_COUNT_HW_CPU_CYCLES;
	}

	return attr;
}

TEST_F_TIMEOUT(dup_cgroup_many, all_run, 300)
{
	struct perf_event_attr attr, ref_attr = reference(user_instructions());
	__u64 start, cost, first = 0, last = 0;
	struct dup_test *t = &self->t;
	char path[PATH_MAX / 2 + 32];
	int i, j, k, round;

	leave_counters(_metadata, t, t->cpu, NR_EVENTS + 1);
	for (i = 0; i < NR_CGROUPS; i++) {
		struct target target = on_cgroup(self->cgroup[i], t->cpu);

		if (i % STRIDE == 0)
			self->ref[i / STRIDE] = open_event(_metadata, &t->filler, &ref_attr,
							   target);
		start = nanoseconds();
		for (j = 0; j < 2; j++) {
			for (k = 0; k < NR_EVENTS; k++) {
				attr = nth_event(k);
				self->fd[j][i][k] = open_event(_metadata, j ? &t->b : &t->a,
							       &attr, target);
			}
		}
		cost = nanoseconds() - start;
		/* Not the very first, which bring the masters. */
		if (i >= 10 && i < 20)
			first += cost;
		if (i >= NR_CGROUPS - 10)
			last += cost;
	}
	TH_LOG("ten cgroups' events open in %llu us, and at the end in %llu us",
	       first / 1000, last / 1000);
	EXPECT_LT(last, 2 * first);

	for (round = 1; round <= 2; round++) {
		for (i = 0; i < NR_CGROUPS; i += STRIDE) {
			cgroup_path(&self->c, i, path, sizeof(path));
			move_to(_metadata, &t->worker, path);
			worker_does(_metadata, &t->worker, WORK_CALL, 10 * LOOPS);
		}
	}

	for (i = 0; i < NR_CGROUPS; i++) {
		__u64 value = 0;

		if (i % STRIDE == 0) {
			value = read_value(_metadata, self->ref[i / STRIDE]);
			EXPECT_GE(value, 20 * LOOPS);
		}
		for (k = 0; k < NR_EVENTS; k++) {
			struct counts a = read_counts(_metadata, self->fd[0][i][k]);
			struct counts b = read_counts(_metadata, self->fd[1][i][k]);

			EXPECT_EQ(a.value, b.value);
			EXPECT_EQ(a.enabled, a.running);
			EXPECT_EQ(b.enabled, b.running);
			EXPECT_EQ(!value, !a.running);
			EXPECT_EQ(!value, !a.value);
			if (k < NR_TWINS)
				EXPECT_EQ(value, a.value);
		}
		if (!__test_passed(_metadata)) {
			TH_LOG("cgroup %d", i);
			break;
		}
	}
}

TEST_HARNESS_MAIN
