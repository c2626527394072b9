# SPDX-License-Identifier: GPL-2.0
"""Results in the Kernel Test Anything Protocol (Documentation/dev-tools/ktap.rst):
write them, read them."""

import re
import time

import steps

RESULTS = steps.BUILD / "results"


class Ktap:
    """A file build/results/NAME.ktap, one line per test.

    It is written at the end: a run that broke off leaves no file that looks
    like a result.
    """

    def __init__(self, name, directory=RESULTS):
        self.path = directory / f"{name}.ktap"
        self.path.unlink(missing_ok=True)
        self.lines, self.count, self.failed = [], 0, 0

    def result(self, ok, name, detail="", skip=None):
        """One test; DETAIL is shown with a failure, SKIP is the reason."""
        self.count += 1
        self.failed += not ok and skip is None
        if not ok and skip is None:
            for line in str(detail).splitlines():
                self.lines.append(f"# {line}")
        name = name.replace("#", "\\#")
        word = "ok" if ok or skip is not None else "not ok"
        end = f" # SKIP {skip}" if skip is not None else ""
        self.lines.append(f"{word} {self.count} {name}{end}")
        print(f"  {'skip' if skip is not None else 'ok' if ok else 'FAIL'}: {name}"
              + (f": {skip}" if skip else ""), flush=True)
        if not ok and skip is None:
            for line in str(detail).splitlines()[:20]:
                print(f"      {line}", flush=True)

    def run(self, name, test, *args):
        """A test is a function that raises when it fails."""
        start = time.monotonic()
        try:
            test(*args)
            self.result(True, name)
        except Exception as error:
            self.result(False, name, str(error) or repr(error))
        steps.record(name, time.monotonic() - start, self.path.stem)

    def finish(self):
        """Write the file; return the exit status."""
        steps.write(self.path, "\n".join(["KTAP version 1", f"1..{self.count}",
                                          *self.lines]) + "\n")
        return 1 if self.failed or not self.count else 0


class Test:
    """One result line, with the tests that it sums up."""

    def __init__(self, status, name, reason="", detail=(), below=()):
        self.status, self.name, self.reason = status, name, reason
        self.detail, self.below = list(detail), list(below)

    def leaves(self):
        found = [leaf for test in self.below for leaf in test.leaves()]
        # A line that failed although all below it is well failed by itself.
        if not found or self.status == "fail" and all(
                leaf.status != "fail" for leaf in found):
            found.append(self)
        return found


RESULT = re.compile(r"(?P<word>not ok|ok) (?P<number>\d+)(?: -)?"
                    r"(?P<name>(?: (?:\\#|[^#\s])+)*)\s*"
                    r"(?:#\s*(?P<directive>\w+)(?P<reason>.*))?$")
PLAN = re.compile(r"1\.\.(?P<count>\d+)(?:\s*#\s*(?P<directive>\w+)(?P<reason>.*))?$")
FORGIVEN = ("SKIP", "XFAIL", "TODO")


def status_of(match):
    directive = (match["directive"] or "").upper()
    if directive in FORGIVEN:
        return "skip"
    return "ok" if match["word"] == "ok" else "fail"


def tests_in(items):
    """The tests among (depth, item), with a failure for each broken plan."""
    tests = [item for _, item in items if isinstance(item, Test)]
    for depth, plan in items:
        if isinstance(plan, int):
            seen = sum(isinstance(item, Test) and at == depth for at, item in items)
            if seen != plan:
                tests.append(Test("fail", "number of tests", detail=[
                    f"{plan} were planned, {seen} have a result"]))
    return tests


def leaves(text):
    """The tests of a KTAP text, without those that only sum up others."""
    pending = []        # (depth, Test, planned number or other text)
    for line in text.splitlines():
        depth = 0
        # KUnit indents by four spaces, the kselftest runner by "# ".
        while line.startswith(("    ", "# ")):
            line, depth = line[4 if line[0] == " " else 2:], depth + 1
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan and plan["directive"] and plan["count"] == "0":
            pending.append((depth, Test("skip", "all", plan["reason"].strip(" :"))))
        elif plan:
            pending.append((depth, int(plan["count"])))
        elif result:
            below = []
            while pending and (pending[-1][0] > depth or isinstance(pending[-1][1], str)):
                below.insert(0, pending.pop())
            name = (result["name"] or "").strip() or f"test {result['number']}"
            pending.append((depth, Test(
                status_of(result), name, (result["reason"] or "").strip(" :"),
                [item for _, item in below if isinstance(item, str)], tests_in(below))))
        elif line.strip() and not line.startswith(("KTAP version", "TAP version")):
            pending.append((depth, line.strip()))
    return [leaf for test in tests_in(pending) for leaf in test.leaves()]
