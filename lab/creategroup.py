# SPDX-License-Identifier: GPL-2.0
"""lab create-cgroup: the tests of perf stat --create-cgroup, and its counts.

The tests are entries of perf test. They run in guests that have a fresh cgroup v2
first, then the v1 hierarchy of perf_event (lab/guest/create-cgroup.sh), most of them
with a perf that is built with the address sanitizer. The counts are those of one task
by three sessions: one with a counter of its own, one on all CPUs and one with
--create-cgroup, with one counter for the latter two (lab/guest/create-cgroup-counts.sh).
"""

import json
import re
from pathlib import Path

import boot
import demo
import kernel
import perftest
import steps
import userland
from ktap import RESULTS, Ktap

ARCH = "arm64"
GUEST = Path(__file__).resolve().parent / "guest"
# Entries of perf test: (sanitized perf or not, names). Under ptrace, and a thousand
# times, the sanitizer takes too long, and its own system calls would be made to fail.
TESTS = {"tests": (True, ("perf stat --create-cgroup: parsing",
                          "perf stat --create-cgroup tests")),
         "faults": (False, ("perf stat --create-cgroup fault tests",))}
HIERARCHIES = ("v2", "v1")
# In the order of create-cgroup-counts.sh; the reference has a counter of its own.
SESSIONS = ("reference", "-a", "--create-cgroup")
TIMEOUT = {"tests": 900, "faults": 1800, "counts": 300}

# What a test says about each of its parts.
PART = re.compile(r"^(?P<name>\S.*) \[(?P<result>Success|Failed|Skipped)(?: - (?P<reason>.*))?\]$",
                  re.M)
# perf on arm64 forgets a map of CPUs there, whatever it is to do.
KNOWN_LEAK = re.compile(r" in get_cpuid ")
REPORTS = "/results/asan"


def check_log(results, hierarchy, entry, text):
    """A line of KTAP for each part of one entry of perf test."""
    parts = list(PART.finditer(text))
    for part in parts:
        results.result(part["result"] != "Failed", f"{hierarchy}: {part['name']}",
                       part["reason"] or "",
                       skip=part["reason"] if part["result"] == "Skipped" else None)
    cases = perftest.parse(text)
    last = [line for line in text.splitlines() if line.strip()][-5:]
    results.result(bool(cases) and all(case[1] == "ok" for case in cases),
                   f"{hierarchy}: {entry}", "\n".join([*map(str, cases), *last]))


def complaint(text):
    """What a report of the sanitizer says against perf, or nothing."""
    if "detected memory leaks" not in text:
        return text
    blocks = [block for block in text.split("\n\n") if re.search(r"^(In)?[Dd]irect leak", block)]
    return "\n\n".join(block for block in blocks if not KNOWN_LEAK.search(block))


def run_tests(results, name):
    """Boot a guest that runs the tests on one hierarchy and then on the other."""
    sanitize, entries = TESTS[name]
    base = perftest.archive(userland.perf(ARCH, sanitize))
    image = kernel.build(ARCH, "bench", "patched")
    lines = "\n".join(entries)
    options = f"export ASAN_OPTIONS=log_path={REPORTS}:detect_leaks=0" if sanitize else ""
    scenario = "\n".join([f"TESTS='{lines}'", options,
                          (GUEST / "create-cgroup.sh").read_text()])
    outcome = boot.Guest(f"create-cgroup-{name}", ARCH, image, scenario, base=base,
                         append="lab.fresh_cgroups", timeout=TIMEOUT[name],
                         accel=boot.accelerator(ARCH, image),
                         title=f"{name} of perf stat --create-cgroup").run()
    outcome.judge(results, name)
    for hierarchy in HIERARCHIES:
        for number, entry in enumerate(entries, 1):
            log = outcome.results and outcome.results / f"{hierarchy}-{number}.log"
            text = log.read_text(errors="replace") if log and log.exists() else ""
            check_log(results, hierarchy, entry, text)
    if not sanitize:
        return
    found = [path.read_text(errors="replace")
             for path in sorted(outcome.results.glob("asan.*"))] if outcome.results else []
    # Each of the runs with the search for leaks has one; without it, nobody searched.
    results.result(any("detected memory leaks" in text for text in found),
                   "the leak that perf is known to have is found")
    reports = [text for text in map(complaint, found) if text]
    results.result(bool(outcome.results) and not reports,
                   "the address sanitizer finds nothing else", "\n".join(reports[:3]))


def session(place, number):
    """(count or None, percent of the time) of a session's only event on CPU 0."""
    lines = [line for line in demo.read_session(place / f"session{number}.json")
             if line["cpu"] == demo.WORKLOAD_CPU]
    if len(lines) != 1:
        raise demo.BadData(f"session {number} has {len(lines)} counts")
    return lines[0]["value"], lines[0]["running"]


def count(variant, results):
    """One row: what the sessions counted on one kernel."""
    outcome = demo.run_sessions("create-cgroup", variant, "create-cgroup-counts.sh",
                                userland.programs(ARCH), TIMEOUT["counts"],
                                "counts of perf stat --create-cgroup")
    outcome.judge(results, f"the {variant} kernel")
    if not outcome.results:
        return None
    try:
        counts = {name: session(outcome.results / "counts", number)
                  for number, name in enumerate(SESSIONS, 1)}
    except (OSError, demo.BadData) as error:
        results.result(False, f"the sessions on the {variant} kernel have counts", str(error))
        return None
    return {"name": variant, **{name: {"count": value, "running": running}
                                for name, (value, running) in counts.items()}}


def check_counts(rows, results):
    """With the series all is counted, always, and the same as the reference says."""
    row = rows.get("patched")
    if not row:
        return
    for name in SESSIONS:
        results.result(row[name]["count"] is not None and row[name]["running"] == 100,
                       f"{name} counts all the time", str(row[name]))
    wanted = row["reference"]["count"]
    for name in ("--create-cgroup", "-a"):
        results.result(wanted and row[name]["count"] == wanted,
                       f"{name} counts what the reference counts", f"{row[name]}, {wanted}")


def table(rows):
    cells = [["kernel", *SESSIONS]]
    for row in rows.values():
        cells.append([row["name"], *(
            "<not counted>" if row[name]["count"] is None else
            f"{row[name]['count']:.0f} ({row[name]['running']:.2f} %)" for name in SESSIONS)])
    return demo.align(cells)


def run():
    results = Ktap("create-cgroup")
    for name in TESTS:
        run_tests(results, name)
    rows = {variant: row for variant in kernel.VARIANTS if (row := count(variant, results))}
    check_counts(rows, results)
    path = RESULTS / "create-cgroup.json"
    steps.write(path, json.dumps({"counts": list(rows.values())}, indent=1) + "\n")
    print(f"\nInstructions of a task, one counter for --create-cgroup and -a ({ARCH}):\n")
    print(table(rows))
    return results.finish()
