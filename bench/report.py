# SPDX-License-Identifier: GPL-2.0
"""bench/RESULTS.md and its picture, of the figures in bench.json."""

import subprocess

import steps
from scenarios import DUP_2, KERNELS, MEMORY, SCENARIOS, VARIANTS, WORKLOADS

COLOURS = {"unpatched": "#888888", "dup-1": "#2266aa", "bpf": "#dd8833"}
# What the picture shows.
SHOWN = (("cpu-1", "-a"), ("cpu-3", "3 x -a"), ("task-1", "task"),
         ("task-cpu", "task,\\n-a"), ("task-3", "3 x task"), ("cgroups-2x4", "2 cgroups"),
         ("cgroups-200x4", "200\\ncgroups"), ("cgroups-2x4-cpu", "2 cgroups,\\n-a"))


def thousands(row):
    """Thousands of instructions, and how much of the time events ran if not always."""
    if row is None:
        return ""
    text = f"{row['instructions_per_op'] / 1000:.2f}"
    share = row["running_pct"]
    return text if share in (None, 100) else f"{text} ({share:.0f} %)"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |",
             "| --- |" + " ---: |" * (len(head) - 1)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows] + [""]


def pick(results):
    rows = {(row["scenario"], row["variant"]): row for row in results}
    return lambda scenario, variant: rows.get((scenario, variant))


def costs(get):
    for name, workload in WORKLOADS.items():
        yield f"`{workload.command.replace('$loops', 'N')}`, for {workload.unit}:"
        yield ""
        yield from table(["", *(variant.title for variant in VARIANTS)],
                         [[scenario.title, *(thousands(get(scenario.name, variant.name))
                                             for variant in VARIANTS)]
                          for scenario in SCENARIOS if scenario.workload == name])


def calls(get):
    rows = []
    for scenario in SCENARIOS:
        cells = []
        for variant in ("unpatched", "dup-1", "bpf"):
            row = get(scenario.name, variant)
            if row is None or (variant == "unpatched" and not row["counters"]):
                cells.append("")
                continue
            counted = row["driver_calls"]
            cells.append(" / ".join(f"{abs(counted[name]):.2f}".rstrip("0").rstrip(".")
                                    for name in ("add", "del", "read"))
                         + f"; {row['counters']}")
        if any(cells):
            rows.append([scenario.title, *cells])
    yield from table(["", "unpatched", "patched", "BPF counters"], rows)


def opens(get):
    variants = [*KERNELS, DUP_2]
    titles = {"many": "each by another process", "one": "all by one process",
              "keys": "all different"}
    rows = []
    for target, where in (("cpu", "of a CPU"), ("task", "of a task")):
        for openers, whose in titles.items():
            for index, which in (("1", "1st"), ("early", "3rd to 10th"), ("64", "64th"),
                                 ("100", "100th"), ("1000", "1000th")):
                name = f"open-{target}-{openers}-{index}"
                if get(name, "dup-1"):
                    rows.append([f"{where}, {whose}, {which}",
                                 *(thousands(get(name, variant.name))
                                   for variant in variants)])
    yield from table(["open and close", *(variant.title for variant in variants)], rows)


def reads(results, get):
    names = [row["scenario"] for row in results
             if row["scenario"].startswith("read-") and row["variant"] == "dup-1"]
    yield from table(["read()", *(variant.title for variant in KERNELS)],
                     [[name.removeprefix("read-"),
                       *(thousands(get(name, variant.name)) for variant in KERNELS)]
                      for name in names])


def sizes_of(data):
    before, after = data["structures"]["unpatched"], data["structures"]["patched"]
    yield from table(["bytes", "unpatched", "patched"],
                     [[f"`struct {name}`", before.get(name, ""), after[name]]
                      for name in sorted(after)])
    offset, pmu = data["pointer_offset"]
    yield (f"`perf_event::dup` is at byte {offset}, in 64 byte line {offset // 64}; "
           f"`perf_event::pmu` is at {pmu}, in line {pmu // 64}.")
    yield ""
    found = {(row["scenario"], row["variant"]): row for row in data["memory"]}
    found.update({(row["scenario"], row["variant"]): row["memory"]
                  for row in data["results"] if row.get("memory")})
    names = [(scenario.name, scenario.title) for scenario in MEMORY]
    rows = [[title, *(f"{row['bytes'] / 1024:.0f} KB, {row['perf_events']}"
                      for row in (found[name, variant.name] for variant in KERNELS))]
            for name, title in (*names, ("cgroups-200x8", "8 events on 200 cgroups"))]
    yield from table(["memory in use, `perf_event` objects",
                      *(variant.title for variant in KERNELS)], rows)
    text = data["text"]
    rows = [[f"`{name}`", *size, f"{size[1] - size[0]:+}"] for name, size in text.items()]
    rows.append(["all", *(sum(size[side] for size in text.values()) for side in (0, 1)),
                 f"{sum(size[1] - size[0] for size in text.values()):+}"])
    yield from table(["text, bytes", "unpatched", "patched", ""], rows)


def bars(data):
    rows = [[bar["bar"], "met" if bar["met"] else "**missed**", bar["figure"]]
            for bar in data["bars"]]
    yield from table(["bar", "", "figure"], rows)
    for bar in data["bars"]:
        if not bar["met"]:
            yield f"- {bar['bar']}: {bar.get('reason', 'not explained yet')}"
    yield ""


INTRODUCTION = """\
# What it costs

`make bench` makes this page, its picture and `build/results/bench.json` in one run: the
unpatched kernel, the same with the series and `kernel.perf_event_dup` at 0 and at 1 (or 2), and
`perf stat --bpf-counters` on the unpatched kernel, on QEMU's arm64 with virtual time
(`-icount shift=0,sleep=off -smp 1`), where an instruction takes a nanosecond. What is said
of time is thousands of instructions, which do not depend on the machine but on the compiler
({compiler}). Figures of workloads are means of {repeats} differences of a long and a short run
(medians of more, without events), those of opens are medians, those of reads means; remote reads have two CPUs.

Events are `cycles,instructions,r10,r3`, or with `8` four more; a percentage says how much of
the time the worst of them ran, where that is not 100. The scheduler's feature
`WAKEUP_PREEMPTION` is off, so that a write to a pipe is one context switch, always.

BPF counters need BTF, `FILE_LOCKING`, a bpffs, and for cgroups `FHANDLE`: without that, perf
takes -1 for the id of each cgroup, and prints `<not counted>` and nothing else. Their sessions
on cgroups share no counters with others, so that beside an `-a` session they are multiplexed.
They count what plain perf counts: for tasks that are in their cgroups when it begins, user instructions of
both ways were equal to the last one (`lab/lab perf arm64 --bpf` builds a perf to try that).
"""


def markdown(data):
    get = pick(data["results"])
    lines = [INTRODUCTION.format(compiler=data["compiler"], repeats=data["repeats"]),
             "![Instructions for a context switch](results.svg)", "",
             "## A context switch, and other work", "", *costs(get),
             "## What reaches the driver", "",
             "Calls of `pmu::add` / `del` / `read` for one operation (see above), and the most "
             "counters in use at a time; counted in a pass of its own by `lab/pmcount`. An add "
             "that finds no counter counts, too:", "",
             *calls(get),
             "## To open and to close an event, and to read one", "",
             "While so many equal events are open on the target (`open.c`, `read.c`), in "
             "thousands of instructions:", "",
             *opens(get),
             "An event of the CPU that reads it (local), of another CPU (remote), of the reader "
             "(self); N more processes have an equal one (sharers-N); eight events (group); "
             "beside an equal one of the CPU (borrowed):", "", *reads(data["results"], get),
             "## Memory and text", "", *sizes_of(data),
             "## Bars", "", *bars(data)]
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip("\n") + "\n"


def picture(data, path):
    """Drawn by gnuplot, as a clustered histogram."""
    get = pick(data["results"])
    variants = [variant for variant in VARIANTS if variant.name in COLOURS]
    lines = []
    for name, label in SHOWN:
        cells = [f'"{label}"']
        for variant in variants:
            row = get(name, variant.name)
            cells.append(f"{row['instructions_per_op'] / 1000:.3f}" if row else "NaN")
        lines.append(" ".join(cells))
    columns = ", ".join(
        f"$data using {number}:xtic(1) title '{variant.title}' linecolor rgb "
        f"'{COLOURS[variant.name]}'" for number, variant in enumerate(variants, 2))
    level = get("none", "unpatched")["instructions_per_op"] / 1000
    script = "\n".join([
        "$data << EOD", *lines, "EOD",
        "set terminal svg size 860,420 font 'sans-serif,12' background '#ffffff'",
        f"set output '{path}'",
        "set style data histograms", "set style histogram clustered gap 1",
        "set style fill solid 1.0 border -1", "set boxwidth 0.9", "set yrange [0:18]",
        "set ylabel 'thousands of instructions'", "set grid ytics", "set key top left",
        "set title 'A context switch while four events count (less is better)'",
        f"set arrow 1 from graph 0, first {level:.3f} to graph 1, first {level:.3f} nohead "
        "dashtype 2",
        f"set label 1 'no events' at graph 0.005, first {level:.3f} left offset 0,0.5",
        "set bmargin 4",
        f"plot {columns}", ""])
    steps.write(steps.BUILD / "bench/results.gp", script)
    subprocess.run(["gnuplot", str(steps.BUILD / "bench/results.gp")], check=True)
