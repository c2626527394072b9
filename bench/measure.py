# SPDX-License-Identifier: GPL-2.0
"""Boot the guests of the benchmark, and read what they leave."""

import json
import re
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boot
import kernel
import steps
import userland
from scenarios import CGROUPS, SCENARIOS, VARIANTS, WORKLOADS

ARCH = "arm64"
HERE = Path(__file__).resolve().parent
# One instruction takes one nanosecond, and time stands still for nobody else.
ICOUNT = "shift=0,sleep=off"
CALLS = ("add", "del", "start", "stop", "read")
TIMEOUT = 1800

USECS = re.compile(r"^ *([0-9.]+) usecs/op", re.M)
SECONDS = re.compile(r"Total time: ([0-9.]+) \[sec\]")


class BadData(Exception):
    """What a guest left does not make sense."""


def script(variant, scenarios, calls, repeat):
    bpf = "--bpf-counters" if variant.bpf else ""
    lines = [f"REPEAT={repeat} CALLS={int(calls)} BPF={bpf} DUP={variant.dup}",
             f"CGROUPS='{' '.join(CGROUPS)}'", (HERE / "guest.sh").read_text()]
    for scenario in scenarios:
        if scenario.runs_on(variant):
            lines += scenario.lines(variant)
    return "\n".join(lines)


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
        lines = [json.loads(line) for line in path.read_text().splitlines()
                 if line.startswith("{")]
        if not lines:
            raise BadData(f"{place.name}: {path.name} has no counts")
        for line in lines:
            value, share = line["counter-value"], float(line.get("pcnt-running", 0))
            if value == "<not supported>":
                raise BadData(f"{place.name}: {line['event']} is not supported")
            if value == "<not counted>":
                share = 0.0
            elif share == 100 and line["event"] in ("cycles", "instructions") \
                    and float(value) <= 0:
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
    """What the sessions' objects take: bytes and perf events."""
    before, after = (read_numbers(place / name) for name in ("slab-before.txt", "slab.txt"))
    return {"bytes": after["slab"] - before["slab"]
            + 1024 * (after["percpu"] - before["percpu"]),
            "perf_events": after["perf_event"] - before["perf_event"]}


def run_guest(variant, scenarios, calls, repeat, base):
    image = kernel.objects(ARCH, "bench", variant.kernel) / boot.ARCHES[ARCH].image
    module = kernel.objects(ARCH, "bench", variant.kernel) / "pmcount/pmcount.ko"
    word = "calls" if calls else "time"
    outcome = boot.Guest(f"bench-{variant.name}-{word}", ARCH, image,
                         script(variant, scenarios, calls, repeat), base=base,
                         files=[("lab/pmcount.ko", module)], smp=1, icount=ICOUNT,
                         append="slab_nomerge" if calls else "", timeout=TIMEOUT,
                         title=f"{word} of {variant.title}", aside=True).run()
    if not outcome.good or outcome.status:
        outcome.explain()
        raise BadData("\n".join([f"guest {outcome.name}: status {outcome.status}",
                                 *outcome.output[-10:]]))
    return outcome.results


def evaluate(variant, scenarios, timed, called):
    rows = []
    for scenario in scenarios:
        if not scenario.runs_on(variant):
            continue
        workload = WORKLOADS[scenario.workload]
        place = timed / scenario.name
        each = times(place, workload)
        row = {"scenario": scenario.name, "variant": variant.name,
               "instructions_per_op": round(statistics.mean(each), 1),
               "spread_pct": round(100 * (max(each) / min(each) - 1), 3),
               "running_pct": running(place), "driver_calls": None}
        if called:
            place = called / scenario.name
            row["switches"], row["driver_calls"], row["counters"] = read_calls(
                place, workload)
            row["memory"] = read_memory(place)
        rows.append(row)
    return rows


def measure(quick, repeat, variants=VARIANTS):
    """The list of results."""
    scenarios = [scenario for scenario in SCENARIOS if scenario.quick or not quick]
    for variant in kernel.VARIANTS:
        kernel.build(ARCH, "bench", variant)
        kernel.pmcount(ARCH, "bench", variant)
    base = userland.programs(ARCH, bpf=True)
    with ThreadPoolExecutor(int(kernel.jobs())) as pool:
        guests = {(variant.name, calls): pool.submit(run_guest, variant, scenarios, calls,
                                                     repeat, base)
                  for calls in (False, True) for variant in variants}
        places = {which: guest.result() for which, guest in guests.items()}
    return [row for variant in variants
            for row in evaluate(variant, scenarios, places[variant.name, False],
                                places[variant.name, True])]
