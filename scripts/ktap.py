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
