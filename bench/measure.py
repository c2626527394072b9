# SPDX-License-Identifier: GPL-2.0
"""Boot the guests of the benchmark, and read what they leave."""

import re
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import boot
import initramfs
import kernel
import steps
import userland
from arches import ARCHES
from demo import BadData, read_session
from scenarios import (CGROUPS, DUP_2, KERNELS, MEMORY, OPENS, SCENARIOS, VARIANTS,
                       WORKLOADS)

ARCH = "arm64"
HERE = Path(__file__).resolve().parent
# One instruction takes one nanosecond, and none passes while the guest sleeps.
ICOUNT = "shift=0,sleep=off"
CALLS = ("add", "del", "start", "stop", "read")
PROGRAMS = ("open", "read")
TIMEOUT = 2400

USECS = re.compile(r"^ *([0-9.]+) usecs/op", re.M)
SECONDS = re.compile(r"Total time: ([0-9.]+) \[sec\]")


@dataclass(frozen=True)
class Built:
    """What the guests are made of: by kernel.VARIANTS, and for all."""
    images: dict
    modules: dict
    base: Path


def script(variant, lines, calls=False, repeat=1):
    bpf = "--bpf-counters" if variant.bpf else ""
    return "\n".join([f"REPEAT={repeat} CALLS={int(calls)} BPF={bpf} DUP={variant.dup}",
                      f"CGROUPS='{' '.join(CGROUPS)}'", (HERE / "guest.sh").read_text(),
                      *lines])


def scenario_lines(variant, scenarios):
    return [line for scenario in scenarios if scenario.runs_on(variant)
            for line in scenario.lines(variant)]


def total_time(path, loops):
    """Nanoseconds, which are instructions, that a workload took for all its loops."""
    text = path.read_text()
    found = USECS.search(text)
    if found:
        return float(found[1]) * 1000 * loops
    found = SECONDS.search(text)
    if found:
        return float(found[1]) * 1e9
    raise BadData(f"no time in {text!r}")


def repeats(place, workload):
    """(files of the short run, files of the long run, operations between) of each
    repetition; the files by their names without number and length."""
    lengths = workload.loops, 3 * workload.loops
    for number in range(1, 1 + len(list(place.glob(f"time*-{lengths[0]}.txt")))):
        yield (*({word: place / f"{word}{number}-{length}.txt"
                  for word in ("before", "time", "after")} for length in lengths),
               (lengths[1] - lengths[0]) * workload.operations)


def times(place, workload):
    """Instructions per operation, of each repetition."""
    return [(total_time(long["time"], 3 * workload.loops)
             - total_time(short["time"], workload.loops)) / operations
            for short, long, operations in repeats(place, workload)]


def running(place):
    """The smallest share of the time that an event of a session ran; None where
    nothing is counted. QEMU counts cycles and instructions, so they must be counted."""
    lowest = None
    for path in sorted(place.glob("*.json")):
        for line in read_session(path):
            share = line["running"]
            if share == 100 and line["event"] in ("cycles", "instructions") \
                    and line["value"] <= 0:
                raise BadData(f"{place.name}: {line['event']} of {path.name} counts nothing")
            lowest = share if lowest is None else min(lowest, share)
    return lowest


def read_numbers(path):
    return {words[0]: int(words[1])
            for words in map(str.split, path.read_text().splitlines()) if len(words) == 2}


def read_calls(place, workload):
    """(context switches and calls per operation, the most counters in use)."""
    names = ("ctxt", *CALLS)
    each, most = dict.fromkeys(names, 0), 0
    number = 0
    for short, long, operations in repeats(place, workload):
        for files, sign in ((short, -1), (long, 1)):
            before, after = read_numbers(files["before"]), read_numbers(files["after"])
            most = max(most, after["most"])
            for name in names:
                each[name] += sign * (after[name] - before[name]) / operations
        number += 1
    each = {name: round(calls / number, 3) for name, calls in each.items()}
    return each.pop("ctxt"), each, most


def read_memory(place):
    """What the sessions take: bytes of the kernel's objects, and perf events."""
    before, after = (read_numbers(place / name) for name in ("slab-before.txt", "slab.txt"))
    return {"bytes": after["slab"] - before["slab"]
            + 1024 * (after["percpu"] - before["percpu"]),
            "perf_events": after["perf_event"] - before["perf_event"]}


def run_guest(built, name, title, variant, text, files=(), smp=1, append=""):
    outcome = boot.Guest(f"bench-{name}-{variant.name}", ARCH, built.images[variant.kernel],
                         text, base=built.base, files=files, smp=smp, append=append,
                         icount=ICOUNT, timeout=TIMEOUT,
                         title=f"{title}: {variant.title}", aside=True).run()
    if not outcome.good or outcome.status:
        outcome.explain()
        raise BadData("\n".join([f"guest {outcome.name}: status {outcome.status}",
                                 *outcome.output[-10:]]))
    return outcome.results


def run_timed(built, variant, scenarios, repeat):
    return run_guest(built, "time", "time", variant,
                     script(variant, scenario_lines(variant, scenarios), repeat=repeat))


def run_called(built, variant, scenarios):
    """A pass of its own, since to count the calls takes time. All kinds of objects in
    the kernel's memory have a cache of their own there."""
    return run_guest(built, "calls", "calls of the driver", variant,
                     script(variant, scenario_lines(variant, scenarios), calls=True),
                     files=[("lab/pmcount.ko", built.modules[variant.kernel])],
                     append="slab_nomerge")


def program_files():
    return [(f"bench/{name}", steps.BUILD / "bench" / name) for name in PROGRAMS]


def run_programs(built, variant):
    lines = [f"program open-{target}-{openers} /bench/open {target} {openers}"
             for target, openers in OPENS]
    return run_guest(built, "programs", "opens and reads", variant,
                     script(variant, [*lines, "program read /bench/read"]),
                     files=program_files())


def run_remote(built, variant):
    """Reads of another CPU's events need another CPU."""
    return run_guest(built, "remote", "remote reads", variant,
                     script(variant, ["program read /bench/read"]), files=program_files(),
                     smp=2)


def row(scenario, variant, instructions, share=None, **more):
    return {"scenario": scenario, "variant": variant.name,
            "instructions_per_op": round(instructions, 1), "running_pct": share,
            "driver_calls": None, **more}


def evaluate(variant, scenarios, timed, called):
    for scenario in scenarios:
        if not scenario.runs_on(variant):
            continue
        workload = WORKLOADS[scenario.workload]
        each = times(timed / scenario.name, workload)
        middle = statistics.median if scenario.repeat > 1 else statistics.mean
        found = row(scenario.name, variant, middle(each),
                    running(timed / scenario.name),
                    spread_pct=round(100 * (max(each) / min(each) - 1), 3))
        place = called / scenario.name
        found["switches"], found["driver_calls"], found["counters"] = read_calls(
            place, workload)
        found["memory"] = read_memory(place)
        yield found


def evaluate_programs(variant, place, remote):
    for target, openers in OPENS:
        name = f"open-{target}-{openers}"
        costs = {}
        for line in (place / f"{name}.txt").read_text().splitlines():
            words = line.split()
            costs[int(words[2])] = float(words[3])
        early = statistics.median(costs[index] for index in range(3, 11))
        yield row(f"{name}-1", variant, costs[1])
        yield row(f"{name}-early", variant, early)
        for index in (64, 100, 1000):
            if index in costs:
                yield row(f"{name}-{index}", variant, costs[index])
    reads = [(place, lambda case: not case.startswith("remote"))]
    if remote:
        reads.append((remote, lambda case: case.startswith("remote")))
    for found, wanted in reads:
        for line in (found / "read.txt").read_text().splitlines():
            words = line.split()
            if wanted(words[0]) and words[1] != "skipped":
                yield row(f"read-{words[0]}", variant, float(words[1]), float(words[2]))


def build():
    images = {variant: kernel.build(ARCH, "bench", variant) for variant in kernel.VARIANTS}
    modules = {variant: kernel.pmcount(ARCH, "bench", variant) for variant in kernel.VARIANTS}
    base = initramfs.programs(ARCH, userland.perf(ARCH, bpf=True))
    (steps.BUILD / "bench").mkdir(exist_ok=True)
    for name in PROGRAMS:
        steps.run(f"build bench/{name}.c",
                  [f"{ARCHES[ARCH].cross}gcc", "-O2", "-static", "-Wall", "-Wextra", "-o",
                   steps.BUILD / "bench" / name, HERE / f"{name}.c"], "bench")
    return Built(images, modules, base)


def repetitions(quick):
    return 2 if quick else 4


def measure(built, quick):
    """(results, memory): rows of all variants, and (scenario, variant) to what its
    sessions take."""
    scenarios = [scenario for scenario in SCENARIOS if scenario.quick or not quick]
    repeat = repetitions(quick)
    programs = [*KERNELS, DUP_2]
    with ThreadPoolExecutor(int(kernel.jobs())) as pool:
        timed = {variant: pool.submit(run_timed, built, variant, scenarios, repeat)
                 for variant in VARIANTS}
        called = {variant: pool.submit(run_called, built, variant, [*scenarios, *MEMORY])
                  for variant in VARIANTS}
        alone = {variant: pool.submit(run_programs, built, variant) for variant in programs}
        remote = {} if quick else {variant: pool.submit(run_remote, built, variant)
                                   for variant in KERNELS}
        results = [found for variant in VARIANTS
                   for found in evaluate(variant, scenarios, timed[variant].result(),
                                         called[variant].result())]
        for variant in programs:
            elsewhere = remote[variant].result() if variant in remote else None
            results += evaluate_programs(variant, alone[variant].result(), elsewhere)
        memory = [{"scenario": scenario.name, "variant": variant.name,
                   **read_memory(called[variant].result() / scenario.name)}
                  for scenario in MEMORY for variant in KERNELS]
    return results, memory
