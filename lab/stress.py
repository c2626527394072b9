# SPDX-License-Identifier: GPL-2.0
"""The stress test: several processes do at random what can be done with events
that share counters. The kernel's own checks must find nothing, nor the program."""

import os
import random
from pathlib import Path

import boot
import kernel
import steps
import userland
from ktap import Ktap, leaves

GUEST = Path(__file__).resolve().parent / "guest"
ARCH = "arm64"
SMP = 4
FLAVOURS = ("debug", "kcsan")
# The PMU interrupts as an NMI, so that counts are read and groups throttled
# at any instruction.
APPEND = {"debug": "irqchip.gicv3_pseudo_nmi=1"}


def complaints(text):
    """What speaks against the output of the test program."""
    tests = leaves(text)
    found = [line for test in tests if test.status != "ok"
             for line in (f"{test.name}: {test.status} {test.reason}", *test.detail)]
    return found or ([] if tests else ["the program left no result"])


def run(flavour, seconds, seed):
    image = os.environ.get("LAB_KERNEL") or kernel.build(ARCH, flavour, "patched")
    base = userland.programs(ARCH, with_perf=False)
    scenario = "\n".join([f"export DUP_STRESS_SECONDS={seconds} DUP_STRESS_SEED={seed}",
                          (GUEST / "stress.sh").read_text()])
    results = Ktap(f"stress-{flavour}")
    outcome = boot.Guest(f"stress-{flavour}", ARCH, image, scenario, base=base, smp=SMP,
                         append=APPEND.get(flavour, ""), timeout=2 * seconds + 300,
                         accel=boot.accelerator(ARCH, image),
                         title=f"stress for {seconds} s on the {flavour} kernel, "
                               f"seed {seed}").run()
    outcome.judge(results, f"the {flavour} kernel", f"seed {seed}")
    output = outcome.results and outcome.results / "stress.ktap"
    text = output.read_text(errors="replace") if output and output.exists() else ""
    found = complaints(text)
    results.result(not found, f"the stress test passes on the {flavour} kernel",
                   "\n".join([f"seed {seed}", *found]))
    for line in text.splitlines():
        if "operations" in line:
            print(f"    {line.split(':', 3)[-1].strip()}")
    return results.finish()


def stress(flavours, seconds, seed=None):
    """Run the test on each kernel; return the exit status."""
    if seed is None:
        seed = random.randrange(1, 1 << 31)
    return max([run(flavour, seconds, seed) for flavour in flavours])


def from_environment():
    """TIME and SEED of the Makefile, or None."""
    found = []
    for name in ("TIME", "SEED"):
        text = os.environ.get(name) or None
        if text and not text.isdecimal():
            steps.die(f"{name}={text}: not a number")
        found.append(int(text) if text else None)
    return found
