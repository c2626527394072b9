# SPDX-License-Identifier: GPL-2.0
"""Boot a guest, watch its console, and judge it.

A guest is good when it ran its scenario to the end, powered off within its
time, and logged no report of kernel trouble (lab/scan.py).
"""

import base64
import binascii
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

import initramfs
import scan
import steps
from arches import ARCHES, HOST

PROBE_SECONDS = 20

BEGIN = re.compile(r"LAB: scenario begins")
STATUS = re.compile(r"LAB: scenario ended with status (\d+)")
RESULTS = re.compile(r"LAB: results begin")
RESULTS_END = re.compile(r"LAB: results end")
END = re.compile(r"LAB: end of guest")


class Outcome:
    """What became of a guest."""

    def __init__(self, name, log):
        self.name = name
        self.log = log
        self.status = None
        self.output = []
        self.results = None
        self.problems = []
        self.seconds = 0.0

    @property
    def good(self):
        """No hang, no panic, no report; the scenario may still have failed."""
        return not self.problems

    def explain(self):
        """Print what is wrong with the guest, and where its log is."""
        for problem in self.problems:
            print(f"guest {self.name}: {problem}")
        print(f"guest {self.name}: its log is {os.path.relpath(self.log)}")

    def judge(self, results, which, *more):
        """A line of KTAP: was the guest good, and its scenario content?"""
        if not self.good:
            self.explain()
        results.result(self.good and self.status == 0,
                       f"the guest of {which} ended by itself and reported no trouble",
                       "\n".join([*self.problems, *more, f"log: build/logs/{self.log.name}"]))


class Guest:
    def __init__(self, name, arch, kernel, scenario, base=None, files=(),
                 smp=2, memory="1G", append="", icount=None, timeout=300,
                 accel="tcg", title=None, echo=False, aside=False):
        self.name = name
        self.arch = ARCHES[arch]
        self.kernel = kernel
        self.scenario = scenario
        self.base = base
        self.files = files
        self.smp = smp
        self.memory = memory
        self.append = append
        self.icount = icount
        self.timeout = timeout
        self.accel = accel
        self.title = title or f"guest {name}"
        self.echo = echo
        # Others run at the same time: say all in one line, at the end.
        self.aside = aside
        self.log = steps.LOGS / f"guest-{name}.log"

    def command(self, initrd, interactive=False):
        arch = self.arch
        cpu = "host" if self.accel == "kvm" else arch.cpu
        append = [f"console={arch.console}", arch.earlycon, "loglevel=8", "panic=-1",
                  "printk.time=1"]
        if interactive:
            append = [f"console={arch.console}", "loglevel=4", "lab.shell"]
        if arch.name == "x86_64":
            # TCG has no invariant time stamp counter, and on a busy machine
            # its timer may come too late for the kernel's check of it.
            append.append("tsc=unstable no_timer_check")
        append.append(f"lab.cpus={self.smp}")
        if self.append:
            append.append(self.append)
        smp = f"{self.smp}"
        if arch.name == "x86_64":
            # The firmware's MP table has only one entry per socket.
            smp += f",sockets={self.smp}"
        command = [arch.qemu_program(), "-machine", arch.machine, "-cpu", cpu,
                   "-accel", self.accel, "-smp", smp, "-m", self.memory,
                   "-nodefaults", "-no-user-config", "-no-reboot",
                   "-display", "none", "-kernel", str(self.kernel),
                   "-initrd", str(initrd), "-append", " ".join(append)]
        if self.icount:
            command += ["-icount", self.icount]
        if interactive:
            return command + ["-serial", "mon:stdio"]
        return command + ["-serial", "stdio", "-monitor", "none"]

    def initrd(self):
        base = self.base or initramfs.programs(self.arch.name)
        return initramfs.image(self.name, self.arch.name, base, self.scenario, self.files)

    def interact(self):
        """Hand the terminal to the guest."""
        return subprocess.call(self.command(self.initrd(), interactive=True))

    def run(self):
        """Boot, wait for the end, judge."""
        outcome = Outcome(self.name, self.log)
        initrd = self.initrd()
        command = self.command(initrd)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        begun = f"{self.title} ... "
        if not self.echo and not self.aside:
            print(begun, end="", flush=True)
        start = time.monotonic()
        try:
            lines, timed_out = self._watch(command)
        finally:
            if initrd:
                initrd.unlink(missing_ok=True)
        outcome.seconds = time.monotonic() - start
        self._judge(outcome, lines, timed_out)
        steps.record(self.title, outcome.seconds, f"guest-{self.name}",
                     outcome.good and outcome.status == 0)
        if not self.echo:
            word = begun if self.aside else ""
            word += "" if outcome.good else "failed after "
            print(f"{word}{outcome.seconds:.1f} s", flush=True)
        return outcome

    def _watch(self, command):
        """Run QEMU within the time limit; return the lines of its console."""
        lines = []
        with open(self.log, "w", encoding="utf-8") as log:
            qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT,
                                    start_new_session=True)
            expired = threading.Event()

            def expire():
                expired.set()
                qemu.kill()

            timer = threading.Timer(self.timeout, expire)
            timer.start()
            show = False
            try:
                for raw in qemu.stdout:
                    line = raw.decode("utf-8", "replace").rstrip("\r\n")
                    lines.append(line)
                    log.write(line + "\n")
                    log.flush()
                    if self.echo:
                        if STATUS.search(line):
                            show = False
                        if show or steps.verbose():
                            print(line, flush=True)
                        if BEGIN.search(line):
                            show = True
                qemu.wait()
            finally:
                timer.cancel()
                if qemu.poll() is None:
                    qemu.send_signal(signal.SIGKILL)
                    qemu.wait()
        return lines, expired.is_set()

    def _judge(self, outcome, lines, timed_out):
        outside, block = [], []
        place, begun, ended = outside, False, False
        for line in lines:
            if RESULTS_END.search(line):
                place = outside
            place.append(line)
            if RESULTS.search(line):
                place = block
            status = STATUS.search(line)
            if status:
                outcome.status = int(status.group(1))
            if END.search(line):
                ended = True
        for line in outside:
            if STATUS.search(line):
                break
            if begun:
                outcome.output.append(line)
            begun = begun or bool(BEGIN.search(line))

        if timed_out:
            outcome.problems.append(f"not finished after {self.timeout} s")
        elif outcome.status is None or not ended:
            outcome.problems.append("ended before its scenario did")
        try:
            found = scan.reports(outside)
        except scan.BadList as error:
            outcome.problems.append(str(error))
            found = []
        for report in found[:5]:
            outcome.problems.append(f"kernel report: {report}")
        if len(found) > 5:
            outcome.problems.append(f"and {len(found) - 5} more such lines")
        if block and place is outside:
            self._unpack(outcome, block)
        elif block:
            outcome.problems.append("its results were cut off")

    def _unpack(self, outcome, block):
        """Put what the scenario left in /results under build/guests."""
        place = steps.BUILD / "guests" / self.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            packed = base64.b64decode("".join(block), validate=True)
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
                archive.extractall(place)
        except (binascii.Error, tarfile.TarError, EOFError, OSError) as error:
            outcome.problems.append(f"its results cannot be read: {error}")
            return
        outcome.results = place


def accelerator(arch, kernel):
    """What ACCEL asks for, if it can be had: KVM only after a probe."""
    wanted = os.environ.get("ACCEL") or "tcg"
    if wanted not in ("tcg", "kvm"):
        steps.die(f"ACCEL={wanted}: it is tcg or kvm")
    if wanted == "tcg":
        return "tcg"
    if arch != HOST:
        print(f"note: no KVM for {arch} on {HOST}; using TCG")
        return "tcg"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("note: /dev/kvm cannot be opened; using TCG")
        return "tcg"
    # It may open and still hang, so let a guest prove that it works.
    probe = Guest(f"probe-{arch}", arch, kernel, "true\n", timeout=PROBE_SECONDS,
                  accel="kvm", title="probe KVM").run()
    if probe.good and probe.status == 0:
        return "kvm"
    print("note: the probe guest did not come through with KVM; using TCG")
    sys.stdout.flush()
    return "tcg"
