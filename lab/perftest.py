# SPDX-License-Identifier: GPL-2.0
"""lab perf-test: entries of "perf test" on the unpatched and the patched kernel.

Both kernels have the same configuration, that of the benchmarks, and run the same perf.
Every entry runs twice on each: alone, where hardly anything shares, and beside
sessions that count the same events, where with the series nearly everything does
(lab/guest/perf-test.sh). A case is well when its result is the same on both
kernels; which ones cannot pass here is written down in lab/perf-tests.txt.
"""

import json
import re
import sys
from pathlib import Path

import boot
import debian
import initramfs
import kernel
import steps
import userland
from arches import ARCHES
from ktap import RESULTS, Ktap

ARCH = "arm64"
LIST = Path(__file__).resolve().parent / "perf-tests.txt"
GUEST = Path(__file__).resolve().parent / "guest"
TIMEOUT = 1200
VARIANTS = ("unpatched", "patched")
SETTINGS = ("alone", "beside")

# What the shell tests use and busybox lacks: arrays, mktemp with five X, a sleep that
# is a dynamic program, setpriv with a user, and a Python for those that check the
# output. That of Debian's own version, since the packages come from the release that runs here.
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PROGRAMS = (("bash", "bash", "bin/bash"), ("coreutils", "mktemp", "usr/bin/mktemp"),
            ("coreutils", "sleep", "usr/bin/sleep"),
            ("util-linux", "setpriv", "usr/bin/setpriv"),
            (f"{PYTHON}-minimal", PYTHON, "usr/bin/python3"))
LIBRARIES = ("libtinfo6", "libexpat1", "zlib1g", "libcap-ng0")
PYTHON_FILES = (f"lib{PYTHON}-minimal", f"lib{PYTHON}-stdlib")
# perf looks for its tests beside itself.
SHELL_TESTS = "usr/bin/tests/shell"

LINE = re.compile(r" *(?P<number>\d+)(?:\.\d+)?: (?P<name>.*?) *: "
                  r"(?P<result>Ok|FAILED!|Skip)(?: \((?P<reason>.*)\))?$")
INSIDE = re.compile(r"^---- start ----$(.*?)^---- end", re.M | re.S)


class BadList(Exception):
    """The list of entries cannot be used as it stands."""


def read_list(path=LIST):
    """The entries, and (entry, case) to the (results, reason) of what cannot pass."""
    entries, known = [], {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|", 3)]
        if not all(fields) or len(fields) not in (1, 4):
            raise BadList(f"{path.name}:{number}: one field or four are needed")
        if len(fields) == 1:
            entries.append(fields[0])
        elif fields[2] not in ("skip", "fail"):
            raise BadList(f"{path.name}:{number}: the result is skip or fail")
        else:
            known[fields[0], fields[1]] = (fields[2], fields[3])
    unused = {entry for entry, _ in known} - set(entries)
    if unused:
        raise BadList(f"{path.name}: no entry is called {', '.join(sorted(unused))}")
    return entries, known


def archive(perf=None):
    """The programs of all guests, with that perf, and what its tests need besides."""
    tree = initramfs.programs_tree(ARCH, perf or userland.perf(ARCH))
    tree.name = f"perf-test-{ARCH}"
    programs = []
    for package, name, inner in PROGRAMS:
        path = debian.program(ARCH, package, name)
        tree.file(inner, path)
        programs.append(path)
    tree.link("usr/bin/python", "python3")
    places = [path.parent for package in LIBRARIES
              for path in sorted(debian.package(ARCH, package).rglob("*.so.*"))]
    initramfs.add_libraries(tree, ARCH, programs, places)
    for package in PYTHON_FILES:
        place = debian.package(ARCH, package)
        for path in sorted((place / "usr/lib" / PYTHON).rglob("*")):
            if path.is_file():
                tree.file(str(path.relative_to(place)), path)
    tree.copy(SHELL_TESTS, kernel.source("patched") / "tools/perf/tests/shell")
    return initramfs.pack(tree)


def parse(log):
    """(case, result, reason) of each case in what perf test -vv wrote."""
    found, before = [], 0
    for match in re.finditer(r"^.*$", log, re.M):
        line = LINE.match(match[0])
        if not line:
            continue
        result = {"Ok": "ok", "FAILED!": "fail", "Skip": "skip"}[line["result"]]
        reason = ""
        if result != "ok":
            # What the test said last is mostly why.
            said = INSIDE.search(log, before, match.start())
            words = said.group(1).split("\n") if said else []
            words = [word.strip() for word in words
                     if word.strip() and not word.startswith("test child forked")]
            reason = line["reason"] or ""
            if words and (not reason or reason == "permissions"):
                reason = words[-1]
        found.append((line["name"], result, reason))
        before = match.end()
    return found


def read_results(place, entries):
    """(setting, entry, case) to (result, reason), in the order of the list."""
    results = {}
    for setting in SETTINGS:
        for number, entry in enumerate(entries, 1):
            log = place / setting / f"{number}.log"
            text = log.read_text(errors="replace") if log.exists() else ""
            cases = parse(text)
            if not cases:
                last = [line for line in text.splitlines() if line.strip()][-1:]
                cases = [(entry, "none", *(last or ["it left no log"]))]
            for case, result, reason in cases:
                results[setting, entry, case] = (result, reason)
    return results


def measure(variant, base, entries, results):
    """Boot one kernel; return what became of the entries there."""
    image = kernel.build(ARCH, "bench", variant)
    scenario = "\n".join([f"KERNEL={variant}", "cat > /tmp/entries << 'END'", *entries,
                          "END", (GUEST / "perf-test.sh").read_text()])
    # Virtual time: without it QEMU's PMU does not count instructions, and the
    # tests' time limits would depend on the host.
    outcome = boot.Guest(f"perf-test-{variant}", ARCH, image, scenario, base=base,
                         icount=ARCHES[ARCH].icount, timeout=TIMEOUT,
                         title=f"perf test on the {variant} kernel").run()
    good = outcome.good and outcome.status == 0 and outcome.results
    if not good:
        outcome.explain()
    results.result(good, f"the guest with the {variant} kernel ended by itself and "
                   "reported no trouble",
                   "\n".join([*outcome.problems, *outcome.output[-10:],
                              f"log: build/logs/{outcome.log.name}"]))
    return read_results(outcome.results, entries) if outcome.results else {}


def compare(found, known, results):
    """A line of KTAP for each case, and the rows for the table and the file."""
    rows = []
    keys = list(dict.fromkeys(key for variant in VARIANTS for key in found[variant]))
    for setting, entry, case in keys:
        (result, reason), (second, why) = (
            found[variant].get((setting, entry, case), ("none", "no such case"))
            for variant in VARIANTS)
        wanted, cause = known.get((entry, case), ("ok", ""))
        name = f"{setting}: {entry}" + ("" if case == entry else f": {case}")
        same = result == second and result != "none"
        if not same:
            results.result(False, name, f"unpatched: {result} {reason}\n"
                           f"patched: {second} {why}")
        elif result == "ok":
            results.result(True, name)
        elif result == wanted:
            results.result(True, name, skip=f"{result} on both: {cause}")
        else:
            results.result(False, name, f"{result} on both kernels, and {LIST.name} "
                           f"does not say why: {reason}")
        rows.append({"setting": setting, "entry": entry, "case": case, "same": same,
                     "unpatched": {"result": result, "reason": reason},
                     "patched": {"result": second, "reason": why}, "known": cause})
    return rows


def table(rows):
    """One line per case, one column for each kernel and setting."""
    lines = {}
    for row in rows:
        name = row["case"] if row["case"] == row["entry"] else f"{row['entry']}: {row['case']}"
        for variant in VARIANTS:
            lines.setdefault(name, {})[row["setting"], variant] = row[variant]["result"]
    columns = [(setting, variant) for setting in SETTINGS for variant in VARIANTS]
    cells = [["", *(f"{setting}, {variant}" for setting, variant in columns)]]
    cells += [[name, *(line.get(column, "-") for column in columns)]
              for name, line in lines.items()]
    widths = [max(len(line[number]) for line in cells) for number in range(len(cells[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in cells)


def run():
    try:
        entries, known = read_list()
    except BadList as error:
        steps.die(str(error))
    results = Ktap("perf-test")
    base = archive()
    found = {variant: measure(variant, base, entries, results) for variant in VARIANTS}
    rows = compare(found, known, results)
    path = RESULTS / "perf-test.json"
    steps.write(path, json.dumps({"cases": rows}, indent=1) + "\n")
    print(f"\nperf test on {ARCH}:\n")
    print(table(rows))
    print(f"\nThe figures are in {path.relative_to(steps.ROOT)}, what each test said in\n"
          f"build/guests/perf-test-*/.")
    return results.finish()
