// SPDX-License-Identifier: GPL-2.0
/*
 * What perf stat --create-cgroup reads and writes: /proc/PID/cgroup, the state
 * and start in /proc/PID/stat, and names of cgroups.
 */
#include "cgroup-target.h"
#include "tests.h"
#include "debug.h"

#include <linux/kernel.h>
#include <linux/string.h>
#include <errno.h>
#include <string.h>

static const char v2_only[] = "0::/user.slice/a\n";

static const char hybrid[] =
	"12:net_cls,perf_event,net_prio:/v1/a:b\n"
	"11:cpu,cpuacct:/cpu\n"
	"1:name=systemd:/init.scope\n"
	"0::/v2\n";

/* No controller of its own is called perf_event. */
static const char similar[] =
	"4:perf_event2:/two\n"
	"3:xperf_event:/x\n"
	"2:name=perf_event:/named\n"
	"10::/not-v2\n"
	"1:cpu:/a:perf_event:/b\n";

static char path[64];

static int parse(const char *text, bool v2)
{
	return cgroup_target__parse_proc_cgroup(text, v2, path, sizeof(path));
}

static int test__parse_proc_cgroup(struct test_suite *test __maybe_unused,
				   int subtest __maybe_unused)
{
	TEST_ASSERT_EQUAL("v2", 0, parse(v2_only, true));
	TEST_ASSERT_VAL("path on v2", !strcmp(path, "/user.slice/a"));
	TEST_ASSERT_VAL("no v1 hierarchy", !cgroup_target__on_v1(v2_only));

	/* Either hierarchy, a controller amid others, a colon in the path. */
	TEST_ASSERT_VAL("v1 hierarchy", cgroup_target__on_v1(hybrid));
	TEST_ASSERT_EQUAL("v1", 0, parse(hybrid, false));
	TEST_ASSERT_VAL("path on v1", !strcmp(path, "/v1/a:b"));
	TEST_ASSERT_EQUAL("both", 0, parse(hybrid, true));
	TEST_ASSERT_VAL("path on v2 beside v1", !strcmp(path, "/v2"));

	/* Similar names are not taken for perf_event, nor 10:: for 0::. */
	TEST_ASSERT_EQUAL("similar v1", -ENOENT, parse(similar, false));
	TEST_ASSERT_EQUAL("similar v2", -ENOENT, parse(similar, true));

	/* The last line may lack its end, or its path. */
	TEST_ASSERT_EQUAL("no newline", 0, parse("0::/", true));
	TEST_ASSERT_VAL("root", !strcmp(path, "/"));
	TEST_ASSERT_EQUAL("no path", -ENOENT, parse("0::", true));
	TEST_ASSERT_EQUAL("empty", -ENOENT, parse("", true));

	/* A path just fits, or does not. */
	TEST_ASSERT_EQUAL("fits", 0,
			  cgroup_target__parse_proc_cgroup("0::/abc\n", true, path, 5));
	TEST_ASSERT_EQUAL("does not fit", -ENAMETOOLONG,
			  cgroup_target__parse_proc_cgroup("0::/abc\n", true, path, 4));
	return TEST_OK;
}

#define FIELDS	"S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "

static int test__parse_stat(struct test_suite *test __maybe_unused,
			    int subtest __maybe_unused)
{
	unsigned long long start = 0;
	char state = 0;
	int ret;

	ret = cgroup_target__parse_stat("7 (perf) " FIELDS "678186 123 4\n", &state, &start);
	TEST_ASSERT_EQUAL("plain", 0, ret);
	TEST_ASSERT_VAL("plain start", start == 678186);
	TEST_ASSERT_VAL("plain state", state == 'S');

	/* A process can be called like the fields that follow. */
	ret = cgroup_target__parse_stat("7 (a) R 1 (b) c) " FIELDS "99 123 4\n", &state, &start);
	TEST_ASSERT_EQUAL("odd name", 0, ret);
	TEST_ASSERT_VAL("start after odd name", start == 99);
	TEST_ASSERT_VAL("state after odd name", state == 'S');

	TEST_ASSERT_VAL("too short", cgroup_target__parse_stat("7 (perf) S 1 7", &state, &start));
	TEST_ASSERT_VAL("no state", cgroup_target__parse_stat("7 (perf)", &state, &start));
	TEST_ASSERT_VAL("no name", cgroup_target__parse_stat("7 perf S 1 7", &state, &start));
	return TEST_OK;
}

static int test__names(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	static const char * const foreign[] = {
		"perf-stat-", "perf-stat-1-2", "perf-stat-1-2-3", "perf-stat-1-2-3-",
		"perf-stat-1-2-3-4-5", "perf-stat-1-2-3-4x", "perf-stat-1-2-03-4",
		"perf-stat-1-2- 3-4", "perf-stat-1-2-+3-4", "perf-stat-1-2--3-4",
		"perf-stat-1-2-0-4", "xperf-stat-1-2-3-4", "Perf-stat-1-2-3-4", "",
		"perf-stat-99999999999999999999999-2-3-4",
	};
	const struct cgroup_target_owner max = {
		.pid = 0x7fffffff, .starttime = ~0ULL, .pid_ns = ~0ULL, .time_ns = ~0ULL,
	};
	struct cgroup_target_owner owner;
	char name[96];
	size_t i;

	/* The longest name survives, thus all do. */
	cgroup_target__scnprintf_name(name, sizeof(name), &max);
	TEST_ASSERT_EQUAL("longest name", 0, cgroup_target__parse_name(name, &owner));
	TEST_ASSERT_VAL("same owner", owner.pid == max.pid && owner.pid_ns == max.pid_ns &&
			owner.time_ns == max.time_ns && owner.starttime == max.starttime);

	/* What perf does not write may be somebody else's cgroup. */
	for (i = 0; i < ARRAY_SIZE(foreign); i++) {
		if (!cgroup_target__parse_name(foreign[i], &owner)) {
			pr_debug("took %s for a cgroup of perf\n", foreign[i]);
			return TEST_FAIL;
		}
	}
	return TEST_OK;
}

static int test__split(struct test_suite *test __maybe_unused, int subtest __maybe_unused)
{
	const char *name;
	char above[16];

	name = cgroup_target__split("/a/b/c", above, sizeof(above));
	TEST_ASSERT_VAL("deep", name && !strcmp(name, "c") && !strcmp(above, "/a/b"));
	name = cgroup_target__split("/a", above, sizeof(above));
	TEST_ASSERT_VAL("below the root", name && !strcmp(name, "a") && !strcmp(above, "/"));
	TEST_ASSERT_VAL("root", !cgroup_target__split("/", above, sizeof(above)));
	TEST_ASSERT_VAL("no slash", !cgroup_target__split("a", above, sizeof(above)));
	TEST_ASSERT_VAL("too long", !cgroup_target__split("/0123456789abcdef/x", above,
							  sizeof(above)));
	return TEST_OK;
}

static struct test_case tests__cgroup_target[] = {
	TEST_CASE("/proc/PID/cgroup", parse_proc_cgroup),
	TEST_CASE("/proc/PID/stat", parse_stat),
	TEST_CASE("Names of cgroups", names),
	TEST_CASE("Paths of cgroups", split),
	{ .name = NULL, }
};

struct test_suite suite__cgroup_target = {
	.desc = "perf stat --create-cgroup: parsing",
	.test_cases = tests__cgroup_target,
};
