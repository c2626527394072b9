# SPDX-License-Identifier: GPL-2.0
"""Tests of the lab itself: a checker that never fires is worth nothing.

Results go to build/results/lab.ktap.
"""

import contextlib
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import boot
import creategroup
import demo
import initramfs
import kconfig
import packaging
import perftest
import scan
import steps
import stress
import suites
from ktap import Ktap

sys.path.append(str(steps.ROOT / "bench"))
import bars                     # noqa: E402
import measure                  # noqa: E402
import scenarios                # noqa: E402

# One line of each kind of report, as kernels print them.
REPORTS = """\
[    1.234567] WARNING: CPU: 0 PID: 1 at kernel/events/core.c:2345 event_sched_in+0x1a/0x20
[    1.234567] WARNING: possible circular locking dependency detected
[    1.234567] WARNING: possible recursive locking detected
[    1.234567] WARNING: possible irq lock inversion dependency detected
[    1.234567] WARNING: inconsistent lock state
[    1.234567] WARNING: bad unlock balance detected!
[    1.234567] WARNING: held lock freed!
[    1.234567] WARNING: suspicious RCU usage
[   12.345678][   T33] WARNING: kernel/events/core.c:12 at foo+0x1/0x2, CPU#1: perf/33
[    1.234567] INFO: trying to register non-static key.
[    1.234567] INFO: task perf:55 blocked for more than 60 seconds.
[    1.234567] INFO: rcu_preempt detected stalls on CPUs/tasks:
[    1.234567] rcu: INFO: rcu_preempt self-detected stall on CPU
[    1.234567] rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-... }
[    1.234567] BUG: kernel NULL pointer dereference, address: 0000000000000008
[    1.234567] BUG: KASAN: slab-use-after-free in perf_event_release_kernel+0x1/0x2
[    1.234567] BUG: KCSAN: data-race in perf_event_read / perf_event_update
[    1.234567] BUG: KFENCE: use-after-free read in foo+0x1/0x2
[    1.234567] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580
[    1.234567] BUG: scheduling while atomic: perf/123/0x00000002
[    1.234567] BUG: Invalid wait context
[    1.234567] [ BUG: Invalid wait context ]
[    1.234567] BUG: MAX_LOCKDEP_CHAINS too low!
[    1.234567] turning off the locking correctness validator.
[    1.234567] BUG: using smp_processor_id() in preemptible [00000000] code: perf/1
[    1.234567] BUG: using __this_cpu_read() in preemptible [00000000] code: perf/1
[    1.234567] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [perf:99]
[    1.234567] watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0
[    1.234567] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 33s!
[    1.234567] BUG: Bad page state in process perf  pfn:12345
[    1.234567] BUG kmalloc-64 (Not tainted): Redzone overwritten
[    1.234567] UBSAN: array-index-out-of-bounds in kernel/events/dup.c:1:2
[    1.234567] refcount_t: underflow; use-after-free.
[    1.234567] list_del corruption. prev->next should be ffff0000, but was ffff0001
[    1.234567] list_add double add: new=ffff0000, prev=ffff0000, next=ffff0001.
[    1.234567] ODEBUG: free active (active state 0) object: ffff type: timer_list
[    1.234567] Unable to handle kernel paging request at virtual address dead000000000100
[    1.234567] Internal error: Oops: 0000000096000004 [#1]  SMP
[    1.234567] Oops: general protection fault, probably for non-canonical address
[    1.234567] Call trace:
[    1.234567] Call Trace:
[    1.234567] ------------[ cut here ]------------
[    1.234567] Kernel panic - not syncing: Attempted to kill init!
[    1.234567] unchecked MSR access error: WRMSR to 0x186
some program's half line[    1.234567] WARNING: CPU: 0 PID: 1 at a.c:1 b+0x1/0x2
""".splitlines()

# What a log may hold.
HARMLESS = """\
[    0.000000] Linux version 7.3.4 (lab@lab) #1 SMP PREEMPT
[    0.000000] rcu: Hierarchical RCU implementation.
[    0.000000] kasan: KernelAddressSanitizer initialized (generic)
[    0.000000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc.
[    1.234567] perf: interrupt took too long (2504 > 2500), lowering it
[    1.234567] hrtimer: interrupt took 1234567 ns
[    1.234567]     ok 4 test_many_breakpoints
[    1.234567] kselftest: Running tests in perf_events
[    1.234567] debug: unmapping init memory
# WARNING: a program may say so
ok 1 selftests: perf_events: sigtrap_threads
WARNING: perf could not find a map
""".splitlines()


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def reports_are_found():
    for line in REPORTS:
        check(scan.reports([line], []), f"not found: {line}")


def harmless_lines_are_not():
    found = scan.reports(HARMLESS, [])
    check(not found, f"taken for a report: {found}")


def known_reports_need_all_fields_and_expire():
    today = datetime.date(2026, 6, 1)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "known.txt"
        path.write_text("# none\n\nfoo\\+0x | a reason | https://example.org/1 | 2026-06-01\n")
        known = scan.known_reports(path, today)
        check(not scan.reports([REPORTS[0].replace("event_sched_in", "foo")], known),
              "a known report was not let through")
        check(scan.reports([REPORTS[0]], known), "an unknown one was")
        for bad in ("foo | a reason | https://example.org/1 | 2026-05-31",
                    "foo | a reason | https://example.org/1 | soon",
                    "foo | | https://example.org/1 | 2026-06-02",
                    "foo | a reason | 2026-06-02",
                    "foo( | a reason | https://example.org/1 | 2026-06-02"):
            path.write_text(bad + "\n")
            try:
                scan.known_reports(path, today)
            except scan.BadList:
                continue
            raise AssertionError(f"accepted: {bad}")


def the_list_of_known_reports_is_good():
    scan.known_reports()


class Actor(boot.Guest):
    """A guest played by a shell script."""

    def __init__(self, script, timeout=20):
        super().__init__("check", "arm64", None, "", timeout=timeout)
        self.script = script

    def initrd(self):
        return None

    def command(self, initrd, interactive=False):
        return ["sh", "-c", self.script]


PROLOGUE = "echo '[    0.000000] Linux version 7.3.4'; echo 'LAB: scenario begins'; "
EPILOGUE = "; echo 'LAB: scenario ended with status 0'; echo 'LAB: end of guest'"


def play(script, timeout=20):
    with contextlib.redirect_stdout(io.StringIO()):
        return Actor(script, timeout).run()


def a_good_guest_is_good():
    outcome = play(PROLOGUE + "echo hello" + EPILOGUE)
    check(outcome.good and outcome.status == 0, str(outcome.problems))
    check(outcome.output == ["hello"], f"its output is {outcome.output}")


def a_scenario_that_fails_is_seen():
    outcome = play(PROLOGUE + "true" + EPILOGUE.replace("status 0", "status 3"))
    check(outcome.good and outcome.status == 3, f"{outcome.status} {outcome.problems}")


def guests_that_break_are_bad():
    for script, word in (
            ("sleep 30", "not finished"),
            (PROLOGUE + "echo bye", "ended before"),
            (PROLOGUE + "echo; echo 'LAB: scenario ended with status 0'", "ended before"),
            (PROLOGUE + f"echo '{REPORTS[0]}'" + EPILOGUE, "kernel report"),
            (PROLOGUE + "true" + EPILOGUE + f"; echo '{REPORTS[5]}'", "kernel report"),
            (f"echo '{REPORTS[6]}'; " + PROLOGUE + "true" + EPILOGUE, "kernel report"),
            (PROLOGUE + "echo 'LAB: results begin'; echo abcd" + EPILOGUE, "cut off"),
            (PROLOGUE + "echo 'LAB: results begin'; echo abcd; echo 'LAB: results end'"
             + EPILOGUE, "cannot be read")):
        outcome = play(script, 2)
        check(any(word in problem for problem in outcome.problems),
              f"{script!r}: {outcome.problems}")


def results_come_out_whole():
    outcome = play(PROLOGUE + "echo; echo 'LAB: results begin'; d=$(mktemp -d); "
                   "echo text > $d/file; tar -C $d -cf - . | gzip | base64; rm -r $d; "
                   "echo 'LAB: results end'" + EPILOGUE)
    check(outcome.good, str(outcome.problems))
    check((outcome.results / "file").read_text() == "text\n", "a file differs")


def a_symbol_that_kconfig_drops_is_named():
    got = kconfig.parse("CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_D=5\n")
    kconfig.check(kconfig.parse("CONFIG_A=y\n# CONFIG_B is not set\n"
                                "# CONFIG_C is not set\nCONFIG_D=5\n"), got)
    for wanted in ("CONFIG_B=y", "CONFIG_C=y", "# CONFIG_A is not set", "CONFIG_D=6"):
        try:
            kconfig.check(kconfig.parse(wanted), got)
        except kconfig.NotTaken as error:
            check("CONFIG_" in str(error), "the symbol is not named")
            continue
        raise AssertionError(f"accepted: {wanted}")


def archives_are_the_same_every_time():
    def make():
        tree = initramfs.Tree("check")
        tree.data("bin/b", b"b", True)
        tree.data("a", b"a")
        tree.link("bin/sh", "b")
        tree.directory("dev")
        return tree.archive()
    check(make() == make(), "two archives of the same files differ")
    check(make().count(b"070701") == 7, "not all entries are there")


def kunit_output_is_taken_from_the_log():
    lines = suites.kunit_lines([
        "[    1.000000] Linux", "[    1.000000] KTAP version 1", "[    1.000000] 1..1",
        "[    1.000000]     ok 1 a_test", "[    1.000000] ok 1 a_suite",
        "[    1.100000] Freeing unused kernel memory",
        "LAB: scenario begins", "KTAP version 1", "not ok 1 other"])
    check(lines == ["KTAP version 1", "1..1", "    ok 1 a_test", "ok 1 a_suite"], str(lines))


def a_stress_run_has_to_end_well():
    good = "TAP version 13\n1..1\nok 1 dup_stress.random\n"
    check(not stress.complaints(good), "complaints about a good run")
    for bad in ("", good.replace("ok 1", "not ok 1"), good + "not ok 2 b\n",
                good.replace("random", "random # SKIP no event for cycles"),
                "TAP version 13\n1..1\n"):
        check(stress.complaints(bad), f"no complaint about {bad!r}")


def the_demo_counts_as_it_should():
    def line(cpu, event, value, running):
        return {"cpu": cpu, "event": event, "value": value, "running": running}
    sessions = [[line("1", "cycles:u", 9.0, 100.0), line("0", "cycles:u", 1000.0, 50.0)],
                [line("1", "cycles:u", 7.0, 100.0), line("0", "cycles:u", 1100.0, 70.0)],
                [line("1", "cycles:u", 1.0, 100.0), line("0", "cycles:u", None, 0.0)]]
    row = demo.evaluate("unpatched", sessions, 7)
    want = {"name": "unpatched", "sessions": 3, "events": 3, "counters_in_use": 7,
            "lines": 6, "not_counted": 1, "min_running_pct": 0.0,
            "mean_running_pct": 70.0, "max_difference": 100}
    got = {name: row[name] for name in want}
    check(got == want, f"{got}")


def the_readme_says_what_the_demo_found():
    readme = (steps.ROOT / "README.md").read_text()
    found = json.loads((steps.ROOT / "bench/demo.json").read_text())
    for name, kind in (("kernels", "equal"), ("mixed", "kinds")):
        for row in found[name]:
            line = ("| {name} | {sessions} " + kind + " | {events} | {counters_in_use} | {not_counted} of "
                    "{lines} | {mean_running_pct:.2f} % | {max_difference} ({max_difference_pct:.2f} %) |"
                    ).format(**row)
            check(line in readme, f"README has not: {line}")


def the_texts_say_what_create_cgroup_counted():
    readme = (steps.ROOT / "lab/README.md").read_text()
    letter = (steps.ROOT / "patches/cover-letter-perf.txt").read_text()
    for row in json.loads((steps.ROOT / "bench/create-cgroup.json").read_text())["counts"]:
        cells = [f"{row[name]['count']:.0f} ({row[name]['running']:.0f} %)"
                 for name in creategroup.SESSIONS]
        line = f"| {' | '.join([row['name'], *cells])} |"
        check(line in readme, f"lab/README.md has not: {line}")
        if row["name"] == "patched":
            check(letter.count(cells[0].split()[0]) == 2, f"the letter has not: {cells[0]}")


def what_the_demo_refuses():
    good = {"sessions": 4, "events": 8, "counters_in_use": 2, "lines": 12,
            "not_counted": 0, "min_running_pct": 100.0}
    check(not demo.faults(good), "a fault of a good row")
    for bad in ({"not_counted": 1}, {"min_running_pct": 99.99}, {"counters_in_use": 1},
                {"counters_in_use": 3}):
        check(len(demo.faults({**good, **bad})) == 1, f"taken for good: {bad}")


def counts_that_name_no_cpu_are_the_workloads():
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "session1.json"
        path.write_text('# started on Mon\n{"counter-value" : "7.000000", '
                        '"event" : "cycles:u", "pcnt-running" : 100.00}\n')
        got = demo.read_session(path)
    check(got == [{"cpu": demo.WORKLOAD_CPU, "event": "cycles:u", "value": 7.0,
                   "running": 100.0}], f"{got}")


PERF_TEST = """\
 42: Event times:
 42: Event times                             : Running (1 active)
---- start ----
test child forked, pid 80
  OK    : ena 16976, run 16976
---- end(0) ----
 42: Event times                             : Ok
136.1: Read samples using the mmap interface:
---- start ----
evsel__new(sys_enter_getsid)
---- end(-1) ----
136.1: Read samples using the mmap interface : FAILED!
136.2: User space counter reading            :
---- start ----
test child forked, pid 81
---- end(-2) ----
136.2: User space counter reading            : Skip (permissions)
=== Test Summary ===
List of failed tests:
  136.1: Read samples using the mmap interface
"""


def perf_test_output_is_understood():
    got = perftest.parse(PERF_TEST)
    check(got == [("Event times", "ok", ""),
                  ("Read samples using the mmap interface", "fail",
                   "evsel__new(sys_enter_getsid)"),
                  ("User space counter reading", "skip", "permissions")], f"{got}")


def entries_of_perf_test_are_compared():
    def judge(unpatched, patched, known=()):
        results = {"unpatched": {("alone", "a", "b"): unpatched} if unpatched else {},
                   "patched": {("alone", "a", "b"): patched} if patched else {}}
        with tempfile.TemporaryDirectory() as place, \
                contextlib.redirect_stdout(io.StringIO()):
            ktap = Ktap("perf-test", Path(place))
            perftest.compare(results, dict(known), ktap)
        return ktap.lines[-1]
    ok, failed, skipped, none = ("ok", ""), ("fail", "x"), ("skip", "x"), ("none", "x")
    known = {("a", "b"): ("skip", "no libbpf")}
    check(judge(ok, ok) == "ok 1 alone: a: b", "the same is not good")
    check(judge(skipped, skipped, known).endswith("# SKIP skip on both: no libbpf"),
          "a known skip is not one")
    for case in ((ok, failed), (failed, ok), (ok, skipped), (skipped, ok), (ok, None),
                 (None, ok), (none, none), (failed, failed), (skipped, skipped),
                 (failed, failed, known), (skipped, ok, known)):
        check(judge(*case).startswith("not ok"), f"taken for good: {case}")


def the_list_of_perf_tests_is_good():
    perftest.read_list()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "list"
        for bad in ("a\na | b | skip", "a\na | b | skip |", "a\na | b | ok | reason",
                    "a\nb | b | skip | reason"):
            path.write_text(bad + "\n")
            try:
                perftest.read_list(path)
            except perftest.BadList:
                continue
            raise AssertionError(f"accepted: {bad!r}")


def the_benchmark_reads_what_its_guests_leave():
    work = scenarios.Workload("command", 100, "operation")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for length, start, usecs, adds in ((100, 1000, "2.000000", 300),
                                           (300, 5000, "1.500000", 700)):
            (place / f"time1-{length}.txt").write_text(f"# x\n  {usecs} usecs/op\n 9 ops/sec\n")
            for word, value, most in (("before", start, 1), ("after", start + adds, 4)):
                (place / f"{word}1-{length}.txt").write_text(
                    f"cpu 1 2 3\nctxt {value}\ncpu0 4\nadd {value}\ndel 7\nstart 0\n"
                    f"stop 0\nread {2 * value}\nmost {most}\n")
        # (1.5 us x 300 - 2 us x 100) / 200, and (700 - 300) / 200
        check(measure.times(place, work) == [1250.0], f"{measure.times(place, work)}")
        got = measure.read_calls(place, work)
        check(got == (2.0, {"add": 2.0, "del": 0, "start": 0, "stop": 0, "read": 4.0}, 4),
              f"{got}")

        def session(value, share, event="cycles"):
            (place / "session1.json").write_text("# started\n" + json.dumps(
                {"counter-value": value, "event": event, "pcnt-running": share}) + "\n")
            return measure.running(place)

        check(session("5.0", 100) == 100 and session("5.0", 43.5) == 43.5, "share")
        check(session("<not counted>", 100) == 0, "not counted")
        check(session("0", 100, "r10") == 100, "an event that never happens")
        for value in ("0.000", "<not supported>"):
            try:
                session(value, 100)
            except measure.BadData:
                continue
            raise AssertionError(f"taken for a count: {value}")


def a_bar_that_is_missed_is_seen():
    calls = {"add": 4, "del": 4, "start": 0, "stop": 0, "read": 0}
    names = [scenario.name for scenario in scenarios.SCENARIOS if scenario.quick]
    check(len(set(names)) == len(names), "two scenarios of one name")

    def missed(function, **changes):
        rows = [{"scenario": name, "variant": variant, "instructions_per_op": cost,
                 "running_pct": 100, "counters": counters,
                 "driver_calls": calls if variant == "unpatched" else dict.fromkeys(calls, 0)}
                for name in names
                for variant, cost, counters in (
                    ("unpatched", 6000, 7), ("dup-0", 6000, 7), ("dup-1", 6000, 4),
                    ("bpf", 9000, 4))]
        for row in rows:
            if row["scenario"].startswith("cgroups") and row["variant"] == "unpatched":
                row["instructions_per_op"] = 12000
            if row["scenario"].startswith("cgroups") and row["variant"] == "dup-1":
                row["instructions_per_op"] = 8000
            if row["variant"] == "dup-1":
                row.update(changes.get(row["scenario"].replace("-", "_"), {}))
        return [bar for bar, value, limit, _ in function(bars.Figures(rows, [])) if value > limit]

    for function in (bars.no_events, bars.nothing_shared, bars.equal_sessions, bars.cgroups,
                     bars.task_beside_cpu, bars.bpf):
        check(not missed(function), f"{function.__name__}: {missed(function)}")
    for function, changes in (
            (bars.no_events, {"none": {"instructions_per_op": 6004}}),
            (bars.nothing_shared, {"cpu_different": {"instructions_per_op": 6031}}),
            (bars.equal_sessions, {"cpu_3": {"counters": 5}}),
            (bars.equal_sessions, {"task_3": {"instructions_per_op": 6001}}),
            (bars.cgroups, {"cgroups_2x4": {"driver_calls": {**calls, "add": 0.02, "del": 0}}}),
            (bars.cgroups, {"cgroups_2x4_cpu": {"instructions_per_op": 8101}}),
            (bars.cgroups, {"cgroups_2x4_cpu": {"running_pct": 99}}),
            (bars.task_beside_cpu, {"task_cpu": {"running_pct": 99}}),
            (bars.bpf, {"task_1": {"instructions_per_op": 9001}})):
        check(len(missed(function, **changes)) == 1, f"{changes}: {missed(function, **changes)}")


def later_packages_have_later_versions():
    day = datetime.datetime(2026, 5, 1)
    versions = [packaging.package_version(*parts) for parts in (
        ("7.3-rc1", day, "f" * 40), ("7.3", day, "a" * 40), ("7.3.4", day, "f" * 40),
        ("7.3.4", day + datetime.timedelta(seconds=1), "0" * 40), ("7.3.10", day, "0" * 40))]
    for one, other in zip(versions, versions[1:]):
        check(subprocess.run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0,
              f"{one} is not before {other}")


def packages_change_no_more_of_a_configuration_than_they_must():
    given = {"CONFIG_LOCALVERSION": '"-mine"', "CONFIG_SYSTEM_TRUSTED_KEYS": '"debian/certs.pem"',
             "CONFIG_MODULE_SIG_KEY": '"my.pem"'}
    local = {"CONFIG_LOCALVERSION": '"-mine-perf-dup"', "CONFIG_LOCALVERSION_AUTO": "n"}
    no_trust = {"CONFIG_SYSTEM_TRUSTED_KEYS": '""'}
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        check(packaging.changes(given, True, tree) == local | no_trust, "of the user's")
        # What was made so once stays as it is.
        check(packaging.changes(given | local, True, tree) == local | no_trust, "once more")
        debians = packaging.changes(given, False, tree)
        check(debians["CONFIG_MODULE_SIG_ALL"] == "n"
              and debians["CONFIG_MODULE_SIG_KEY"] == '""'
              and "CONFIG_SYSTEM_REVOCATION_KEYS" not in debians, "of Debian's")
        (tree / "debian").mkdir()
        (tree / "debian/certs.pem").write_text("")
        check(packaging.changes(given, True, tree) == local, "with a key that is there")


def what_is_no_configuration_is_refused():
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "config"
        for text, good in (("CONFIG_X86_64=y\n", True), ("CONFIG_ARM64=y\n", False),
                           ("a letter\n", False), (None, False)):
            path.unlink() if text is None else path.write_text(text)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                try:
                    taken = bool(packaging.given_config(path, "x86_64"))
                except SystemExit:
                    taken = False
            check(taken == good and (good or f"CONFIG={path}" in said.getvalue()), repr(text))


def the_advice_names_all_that_is_to_be_installed():
    files = [packaging.PACKAGES / f"{name}_1_amd64.deb" for name in (
        "linux-perf-dup", "linux-image-7.3-perf-dup", "linux-image-7.3-perf-dup-dbg")]
    said = packaging.advice(files, "7.3-perf-dup")
    check(f" ./{os.path.relpath(files[0])} " in said, "perf is not installed")
    check("-dbg" not in said, "debug symbols are")
    check("apt remove linux-perf-dup linux-image-7.3-perf-dup\n" in said, "not removed")


TESTS = (
    reports_are_found, harmless_lines_are_not, known_reports_need_all_fields_and_expire,
    the_list_of_known_reports_is_good, a_good_guest_is_good, a_scenario_that_fails_is_seen,
    guests_that_break_are_bad, results_come_out_whole, a_symbol_that_kconfig_drops_is_named,
    archives_are_the_same_every_time, kunit_output_is_taken_from_the_log,
    a_stress_run_has_to_end_well, the_demo_counts_as_it_should,
    the_readme_says_what_the_demo_found, the_texts_say_what_create_cgroup_counted,
    what_the_demo_refuses,
    counts_that_name_no_cpu_are_the_workloads, perf_test_output_is_understood,
    entries_of_perf_test_are_compared, the_list_of_perf_tests_is_good,
    the_benchmark_reads_what_its_guests_leave, a_bar_that_is_missed_is_seen,
    later_packages_have_later_versions, packages_change_no_more_of_a_configuration_than_they_must,
    what_is_no_configuration_is_refused,
    the_advice_names_all_that_is_to_be_installed)


def run():
    print("the lab's own tests:")
    results = Ktap("lab")
    for test in TESTS:
        results.run(test.__name__.replace("_", " "), test)
    (steps.LOGS / "guest-check.log").unlink(missing_ok=True)
    return results.finish()
