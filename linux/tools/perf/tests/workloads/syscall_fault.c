// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/types.h>
#include <dwarf-regs.h>
#include "trace/beauty/syscalltbl.h"
#include "../tests.h"

/*
 * Run a program and disturb one of its system calls:
 *
 *	perf test -w syscall_fault START N error ERRNO PROGRAM ARGS...
 *	perf test -w syscall_fault START N signal SIGNAL PROGRAM ARGS...
 *
 * The calls are counted from the first openat() of a path that has START
 * inside. The N-th one is not made but fails with ERRNO, or the program gets
 * SIGNAL right after it. Calls that cannot fail do not. Children are left
 * alone. Prints the name of the call.
 *
 * Exits with 0 if a call was disturbed, with 3 if there are less than N, and
 * with 2 if the kernel is too old. How the program ends does not matter.
 */

/* As in linux/ptrace.h, which does not go along with sys/ptrace.h. */
#define FAULT_GET_SYSCALL_INFO	0x420e
#define FAULT_SET_SYSCALL_INFO	0x4212

enum { FAULT_ENTRY = 1, FAULT_EXIT = 2, };

struct fault_syscall_info {
	__u8	op;
	__u8	reserved;
	__u16	flags;
	__u32	arch;
	__u64	instruction_pointer;
	__u64	stack_pointer;
	union {
		struct {
			__u64	nr;
			__u64	args[6];
		} entry;
		struct {
			__s64	rval;
			__u8	is_error;
		} exit;
		/* The kernel wants room for its largest member, seccomp. */
		__u64	room[8];
	};
};

static bool path_has(pid_t pid, __u64 addr, const char *start)
{
	char buf[256 + sizeof(long)] = "";
	size_t len;
	long word;

	for (len = 0; len < 256; len += sizeof(word)) {
		errno = 0;
		word = ptrace(PTRACE_PEEKDATA, pid, (long)(addr + len), 0L);
		if (errno)
			break;
		memcpy(buf + len, &word, sizeof(word));
		if (memchr(&word, '\0', sizeof(word)))
			break;
	}
	return strstr(buf, start);
}

static bool is_call(__u64 nr, const char *name)
{
	const char *n = syscalltbl__name(EM_HOST, nr);

	return n && !strcmp(n, name);
}

/* Those which never fail, and close() which closes even if it does. */
static bool can_fail(__u64 nr)
{
	static const char * const never[] = {
		"exit", "exit_group", "rt_sigreturn", "getpid", "close",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(never); i++) {
		if (is_call(nr, never[i]))
			return false;
	}
	return true;
}

static int trace(pid_t pid, const char *start, long n, int fail, int sig)
{
	bool started = false, failing = false, disturbed = false;
	struct fault_syscall_info info;
	int status, deliver = 0;

	while (true) {
		if (ptrace(PTRACE_SYSCALL, pid, 0L, (long)deliver) && errno == ESRCH)
			break;
		if (waitpid(pid, &status, 0) < 0 || WIFEXITED(status) || WIFSIGNALED(status))
			break;

		deliver = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			/* Not the stop after exec() */
			if (WSTOPSIG(status) != SIGTRAP)
				deliver = WSTOPSIG(status);
			continue;
		}

		memset(&info, 0, sizeof(info));
		if (ptrace(FAULT_GET_SYSCALL_INFO, pid, sizeof(info), &info) < 0)
			break;

		if (info.op == FAULT_ENTRY) {
			if (!started && is_call(info.entry.nr, "openat"))
				started = path_has(pid, info.entry.args[1], start);
			if (!started || disturbed || --n)
				continue;
			disturbed = true;
			printf("%s\n", syscalltbl__name(EM_HOST, info.entry.nr) ?: "unknown");
			fflush(stdout);
			if (!fail || !can_fail(info.entry.nr))
				continue;
			info.entry.nr = -1;
			failing = true;
		} else if (info.op == FAULT_EXIT && disturbed && (failing || sig)) {
			if (sig) {
				kill(pid, sig);
				sig = 0;
				continue;
			}
			info.exit.rval = -fail;
			info.exit.is_error = 1;
			failing = false;
		} else {
			continue;
		}

		if (ptrace(FAULT_SET_SYSCALL_INFO, pid, sizeof(info), &info) < 0) {
			perror("PTRACE_SET_SYSCALL_INFO");
			kill(pid, SIGKILL);
			return 2;
		}
	}
	return disturbed ? 0 : 3;
}

static int syscall_fault(int argc, const char **argv)
{
	int status, number, ret;
	bool fail;
	pid_t pid;
	long n;

	if (argc < 5) {
		fprintf(stderr, "arguments: START N error|signal NUMBER PROGRAM [ARGS]\n");
		return 1;
	}
	n = atol(argv[1]);
	fail = !strcmp(argv[2], "error");
	number = atoi(argv[3]);

	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(126);
		raise(SIGSTOP);
		execvp(argv[4], (char **)&argv[4]);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
		return 2;
	if (ptrace(PTRACE_SETOPTIONS, pid, 0L, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) {
		kill(pid, SIGKILL);
		return 2;
	}

	ret = trace(pid, argv[0], n, fail ? number : 0, fail ? 0 : number);
	while (waitpid(pid, &status, 0) > 0)
		;
	return ret;
}

DEFINE_WORKLOAD(syscall_fault);
