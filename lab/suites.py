# SPDX-License-Identifier: GPL-2.0
"""The tests that run in a guest: KUnit while it boots, then the selftests."""

import re
import sys
from pathlib import Path

import boot
import kconfig
import kernel
import scan
import steps
import userland
from arches import ARCHES
from ktap import RESULTS, Ktap, leaves

SKIPS = Path(__file__).resolve().parent / "selftest-skips.txt"
GUEST = Path(__file__).resolve().parent / "guest"
TIMEOUT = 1800
SUITES = {"arm64": ["min_heap"], "x86_64": ["min_heap", "hw_breakpoint"],
          "riscv64": ["min_heap"]}
SERIES_SUITES = ["perf_event_dup"]
# What the PMU that QEMU emulates, and the series, do not have, and what perf core gets
# wrong with and without it. x86_64 has no PMU at all, so its skips say nothing; but
# here a skip could hide a lost test.
EXPECTED_SKIPS = {"arm64": re.compile(
    r"dup_rdpmc\.|dup_attr\.(exclude_idle|branch_stack)\.|perf_mmap\.aux\.|"
    r"dup_cgroup_switch\.with_tasks\.enable_and_disable_running|sigtrap_threads: "),
    # Those of selftest-skips.txt have spaces in their names.
    "riscv64": re.compile(
    r"dup_rdpmc\.|dup_attr\.branch_stack\.|perf_mmap\.aux\.|"
    r"dup_ride_flexible\.never_switched|perf_events: \w+: ")}
# What the series' selftests say when they skip on a kernel without it.
NOT_THERE = "kernel without shared counters"
# What KUnit says when it skips in a guest with one CPU.
ONLY_ONE_CPU = "needs two CPUs"

# In virtual time QEMU has one count of instructions for all CPUs, so with two of
# them a task's counter also advances while the other CPU has its turn. This
# test counts a thousand instructions per signal, and would get a signal in
# each handler of a signal.
ONE_CPU = ["perf_events:remove_on_exec"]


def selftest_skips(arch, path=SKIPS):
    """(collection, program, case, reason) of what is left out on ARCH."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", 4)]
        if len(fields) != 5 or not all(fields):
            steps.die(f"{path.name}:{number}: five fields are needed")
        if fields[0] == arch:
            found.append(fields[1:])
    return found


def arguments(skips):
    """The runner's variables and options that leave these cases out."""
    programs, whole = {}, []
    for collection, program, case, _ in skips:
        if case == "*":
            whole.append(f"-S {collection}:{program}")
        else:
            programs.setdefault(program, []).append(f"-T {case}")
    return [f"export KSELFTEST_{re.sub(r'[^A-Za-z0-9]', '_', program).upper()}_ARGS="
            f"'{' '.join(words)}'" for program, words in sorted(programs.items())] + [
                f"SKIP='{' '.join(whole)}'"]


def kunit_lines(log):
    """KUnit's results in a console log, without the stamps of the kernel."""
    found, started = [], False
    for line in log:
        if boot.BEGIN.search(line):
            break
        stamped = scan.STAMP.search(line)
        text = stamped.group(1) if stamped else line
        if not started and text.startswith("KTAP version"):
            started = True
        if started:
            found.append(text)
    # The kernel goes on talking after the last result.
    while found and not re.match(r" *(?:(?:not )?ok \d|# |1\.\.|KTAP)", found[-1]):
        found.pop()
    return found


def check_kunit(arch, source, log, smp, results):
    """build/results/kunit-ARCH.ktap; all suites must be there and pass."""
    lines = kunit_lines(log.read_text(errors="replace").splitlines())
    text = "\n".join(lines) + "\n"
    if not lines:
        results.result(False, f"KUnit on {arch}", "no KUnit output in the log")
        return
    steps.write(RESULTS / f"kunit-{arch}.ktap", text)
    parsed = steps.attempt(f"read the KUnit results of {arch}",
                           [sys.executable, "-B", source / "tools/testing/kunit/kunit.py",
                            "parse", RESULTS / f"kunit-{arch}.ktap"], f"kunit-{arch}")
    results.result(parsed == 0, f"kunit.py finds the results of {arch} whole and good",
                   f"see {steps.LOGS.name}/kunit-{arch}.log")
    expected = SUITES[arch] + (SERIES_SUITES if kconfig.has_series(source) else [])
    skipped = [f"{test.name}: {test.reason}" for test in leaves(text)
               if test.status == "skip" and (smp > 1 or test.reason != ONLY_ONE_CPU)]
    results.result(not skipped, f"KUnit skips nothing "
                   f"{'' if smp > 1 else 'but what needs two CPUs '}on {arch}",
                   "\n".join(skipped))
    for suite in expected:
        ran = re.search(rf"^ok \d+ {suite}", text, re.M)
        results.result(bool(ran), f"KUnit suites {suite}* ran on {arch}",
                       "no result line in the KUnit output")


def check_selftests(arch, outcome, skips, one_cpu, series, results):
    """build/results/kselftest-ARCH.ktap: the runner's output, and a line with
    the reason for each case that is left out."""
    texts = {}
    for name, output in (("", "kselftest.ktap"), ("-one-cpu", "one-cpu.ktap")):
        if name and not one_cpu:
            continue
        path = outcome.results and outcome.results / output
        text = path.read_text(errors="replace") if path and path.exists() else ""
        if not leaves(text):
            results.result(False, f"selftests on {arch}{name}", "the runner left no results")
            continue
        # busybox's tee may get what a child printed as a binary value.
        texts[name] = text.replace("\0", "")
    if "" in texts:
        plan = re.search(r"^1\.\.(\d+)$", texts[""], re.M)
        count = int(plan.group(1)) if plan else 0
        lines = [f"ok {count + number} {collection}: {program}: {case} # SKIP {reason}"
                 for number, (collection, program, case, reason) in enumerate(skips, 1)]
        texts[""] = re.sub(r"^1\.\.\d+$", f"1..{count + len(lines)}", texts[""].rstrip("\n"),
                           count=1, flags=re.M) + "".join(f"\n{line}" for line in lines) + "\n"
    for name, text in texts.items():
        steps.write(RESULTS / f"kselftest-{arch}{name}.ktap", text)
        bad = [test for test in leaves(text) if test.status == "fail"]
        results.result(not bad, f"selftests pass on {arch}{name}",
                       "\n".join(line for test in bad
                                 for line in (test.name, *test.detail[-5:])))
        if arch in EXPECTED_SKIPS:
            odd = [f"{test.name}: {test.reason}" for test in leaves(text)
                   if test.status == "skip" and not EXPECTED_SKIPS[arch].search(test.name)]
            results.result(not odd, f"nothing else is skipped on {arch}{name}", "\n".join(odd))
        if series:
            blind = [test.name for test in leaves(text)
                     if test.status == "skip" and NOT_THERE in test.reason]
            results.result(not blind, f"no selftest misses the series on {arch}{name}",
                           "\n".join(blind))


def test(arch):
    """Boot the patched debug kernel, run KUnit and the selftests."""
    image = kernel.build(arch, "debug", "patched")
    source = kernel.source("patched")
    base = userland.programs(arch, with_perf=False)
    skips = selftest_skips(arch)
    # QEMU's PMUs count instructions only in virtual time.
    icount = ARCHES[arch].icount if ARCHES[arch].pmu else None
    smp = ARCHES[arch].virtual_cpus if icount else 2
    one_cpu = ONE_CPU if icount and smp > 1 else []
    scenario = "\n".join([*arguments(skips), f"ONE_CPU='{' '.join(one_cpu)}'",
                          (GUEST / "kselftest.sh").read_text()])
    results = Ktap(f"guest-{arch}")
    guest = boot.Guest(f"test-{arch}", arch, image, scenario, base=base,
                       append="kunit.autorun=1", timeout=TIMEOUT, icount=icount, smp=smp,
                       accel="tcg" if icount else boot.accelerator(arch, image),
                       title=f"KUnit and selftests on {arch}")
    outcome = guest.run()
    outcome.judge(results, arch)
    check_kunit(arch, source, outcome.log, smp, results)
    check_selftests(arch, outcome, skips, one_cpu, kconfig.has_series(source), results)
    return results.finish()
