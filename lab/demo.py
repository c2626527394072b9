# SPDX-License-Identifier: GPL-2.0
"""make demo: perf stat sessions on the unpatched and the patched kernel.

What runs in the guests, and why the sessions' counts can be compared, is in
lab/guest/sessions.sh and demo.sh.
"""

import json
import re
from pathlib import Path

import boot
import kernel
import steps
import userland
from arches import ARCHES

ARCH = "arm64"
GUEST = Path(__file__).resolve().parent / "guest"
TIMEOUT = 600
WORKLOAD_CPU = "0"

# What each table is about, by its name in demo.json and in the guest's results.
TABLES = {
    "kernels": "Eight perf stat -a sessions of two events each, on both CPUs",
    "mixed": "One machine, five kinds of session (-a, -p, -C 0, -G, -p --create-cgroup) of the\n"
             "same four events"}


class BadData(Exception):
    """What a guest left does not make sense."""


def read_session(path):
    """The lines of one perf stat -j session.

    What it did not count by CPU is what the workload did.
    """
    lines = []
    for text in path.read_text().splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            value = line["counter-value"]
            if value == "<not supported>":
                raise BadData(f"{line['event']} is not supported")
            counted = value != "<not counted>"
            lines.append({"cpu": line.get("cpu", WORKLOAD_CPU), "event": line["event"],
                          "value": float(value) if counted else None,
                          "running": float(line["pcnt-running"]) if counted else 0.0})
    if not lines:
        raise BadData(f"{path.name} has no counts")
    return lines


def read_counters(path):
    """The most counters that any CPU had on in any sample."""
    samples = [int(count) for count in
               re.findall(r"^cpu\d+ (\d+)$", path.read_text(), re.M)]
    if not samples:
        raise BadData("no sample of the PMU's counters")
    return max(samples)


def evaluate(name, sessions, counters):
    """One row of the table."""
    lines = [line for session in sessions for line in session]
    shares = [line["running"] for line in lines]
    difference, mean = 0.0, 0.0
    events = sorted({line["event"] for line in lines})
    for event in events:
        values = [line["value"] for line in lines
                  if line["event"] == event and line["cpu"] == WORKLOAD_CPU
                  and line["value"] is not None]
        if len(values) < 2:
            continue
        spread = max(values) - min(values)
        if spread >= difference:
            difference, mean = spread, sum(values) / len(values)
    return {"name": name, "sessions": len(sessions),
            "events": len(sessions) * len(events),
            "counters_in_use": counters, "lines": len(lines),
            "not_counted": sum(line["value"] is None for line in lines),
            "min_running_pct": min(shares),
            "mean_running_pct": round(sum(shares) / len(shares), 2),
            "max_difference": int(difference),
            "max_difference_pct": round(100 * difference / mean, 3) if mean else 0.0}


def faults(row):
    """What is wrong with a row, when every event should have one counter to itself."""
    found = []
    if row["not_counted"]:
        found.append(f"{row['not_counted']} of {row['lines']} lines are not counted")
    if row["min_running_pct"] < 100:
        found.append(f"an event counts only {row['min_running_pct']:.2f} % of the time")
    wanted = row["events"] // row["sessions"]
    if row["counters_in_use"] != wanted:
        found.append(f"{row['counters_in_use']} counters are in use and not {wanted}")
    return found


def run_sessions(name, variant, script, base, timeout, title):
    """Boot one kernel for a script of lab/guest that follows sessions.sh."""
    image = kernel.build(ARCH, "bench", variant)
    module = kernel.pmcount(ARCH, "bench", variant)
    scenario = "\n".join((GUEST / part).read_text() for part in ("sessions.sh", script))
    return boot.Guest(f"{name}-{variant}", ARCH, image, scenario, base=base,
                      files=[("lab/pmcount.ko", module)], icount=ARCHES[ARCH].icount,
                      timeout=timeout, title=f"{title} on the {variant} kernel").run()


def measure(variant, base):
    """A row for each table, from one guest."""
    outcome = run_sessions("demo", variant, "demo.sh", base, TIMEOUT, "perf stat sessions")
    if not outcome.good or outcome.status:
        outcome.explain()
        steps.die("\n".join([f"the guest failed with status {outcome.status}",
                             *outcome.output[-10:]]))
    rows = {}
    for name in TABLES:
        place = outcome.results / name
        rows[name] = evaluate(variant, [read_session(path)
                                        for path in sorted(place.glob("session*.json"))],
                              read_counters(place / "counters.txt"))
    return rows


COLUMNS = (
    ("sessions", "{sessions}"), ("events asked for", "{events}"),
    ("counters in use", "{counters_in_use}"),
    ("lines <not counted>", "{not_counted} of {lines}"),
    ("lowest running", "{min_running_pct:.2f} %"),
    ("mean running", "{mean_running_pct:.2f} %"),
    ("largest difference", "{max_difference} ({max_difference_pct:.2f} %)"))


def align(cells):
    """Lines of text: names on the left, figures on the right of their columns."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(text.ljust(width) if column == 0 else text.rjust(width)
                               for column, (text, width) in enumerate(zip(line, widths)))
                     for line in cells)


def table(rows):
    cells = [["kernel", *(title for title, _ in COLUMNS)]]
    cells += [[row["name"], *(form.format(**row) for _, form in COLUMNS)] for row in rows]
    return align(cells)


def demo():
    base = userland.programs(ARCH)
    try:
        measured = [measure(variant, base) for variant in ("unpatched", "patched")]
    except BadData as error:
        steps.die(str(error))
    tables = {name: [rows[name] for rows in measured] for name in TABLES}
    path = steps.BUILD / "results/demo.json"
    steps.write(path, json.dumps(tables, indent=1) + "\n")
    for name, title in TABLES.items():
        print(f"\n{title} ({ARCH}, PMUv3):\n")
        print(table(tables[name]))
    print("\nCounters: the most that any CPU had on at a time. Difference: between the\n"
          "sessions' counts of the same workload. The figures are in "
          f"{path.relative_to(steps.ROOT)}.")
    found = [f"{name}: on the patched kernel {fault}"
             for name in TABLES for fault in faults(tables[name][-1])]
    if found:
        steps.die("\n".join(found))
    return 0
