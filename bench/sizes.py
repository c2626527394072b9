# SPDX-License-Identifier: GPL-2.0
"""What the series adds to structures, to the kernel's text, and to what runs when no
event is open: read from the two kernels, not measured."""

import functools
import os
import re
import subprocess

import kernel
import steps
from arches import ARCHES
from measure import ARCH

STRUCTURES = ("perf_event", "perf_event_context", "perf_event_dup", "perf_cpu_pmu_context",
              "task_struct", "pmu")
# Where perf's part of a context switch and of a tick is, and what else runs without
# events: at a fork, an exec, an exit and for a new mapping.
OFTEN = ("__schedule", "finish_task_switch", "sched_tick", "perf_event_task_tick")
HOOKS = (*OFTEN, "perf_event_init_task", "perf_event_fork", "perf_event_exec", "perf_event_comm",
         "perf_event_exit_task", "perf_event_free_task", "perf_event_delayed_put",
         "perf_event_mmap", "perf_event_namespaces")
POINTER = "dup"


def _said(*command):
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=dict(os.environ, LC_ALL="C")).stdout


def _vmlinux(variant):
    return kernel.objects(ARCH, "bench", variant) / "vmlinux"


@functools.cache
def structures(variant):
    """Name to size in bytes, of those that are there."""
    sizes = {}
    for line in _said("pahole", "--sizes", _vmlinux(variant)).splitlines():
        name, size, _ = line.split()
        if name in STRUCTURES:
            sizes[name] = int(size)
    return sizes


def pointer_line(variant="patched"):
    """(offset of perf_event::dup, offset of perf_event::pmu), in bytes."""
    text = _said("pahole", "-C", "perf_event", _vmlinux(variant))

    def offset(member):
        found = re.search(rf"\b{member};\s+/\* +(\d+) +\d+ \*/", text)
        if not found:
            steps.die(f"pahole shows no perf_event::{member}")
        return int(found[1])

    return offset(POINTER), offset("pmu")


def text_size():
    """Path of each object that differs: bytes of its text, unpatched and patched."""
    places = {variant: kernel.objects(ARCH, "bench", variant) for variant in kernel.VARIANTS}
    sizes = {}
    for variant, place in places.items():
        source = kernel.source(variant)
        for path in sorted(place.glob("kernel/events/*.o")) \
                + sorted(place.glob("drivers/perf/*.o")):
            name = path.relative_to(place).with_suffix(".c")
            if not (source / name).exists() or name.stem.endswith("_test"):
                continue
            line = _said(f"{ARCHES[ARCH].cross}size", path).splitlines()[1]
            sizes.setdefault(str(name), {})[variant] = int(line.split()[0])
    found = {name: (size.get("unpatched", 0), size.get("patched", 0))
             for name, size in sizes.items()}
    return {name: size for name, size in found.items() if size[0] != size[1]}


INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+[0-9a-f]{8}\s+(\S+)\s*(.*)$")
# A place in the kernel differs when anything before it has grown.
PLACE = re.compile(r"\b[0-9a-f]{6,}\b|#0x[0-9a-f]+|<[^>]*>|#-?\d+")


def hook(variant, name):
    """The instructions of a function, without where what they refer to is; or None when
    the compiler has made it a part of others."""
    text = _said(f"{ARCHES[ARCH].cross}objdump", "-d", f"--disassemble={name}",
                 _vmlinux(variant))
    found = [PLACE.sub("", f"{match[1]} {match[2].split('//')[0]}").strip()
             for match in map(INSTRUCTION.match, text.splitlines()) if match]
    return found or None


def symbols(variant):
    """Names of functions, with what the compiler put behind them."""
    return [line.split()[2] for line in
            _said(f"{ARCHES[ARCH].cross}nm", _vmlinux(variant)).splitlines()
            if line.split()[-2] in "tT" and len(line.split()) == 3]


def hooks():
    """For each hook: (name, instructions unpatched, patched, are they the same)."""
    there = {variant: symbols(variant) for variant in kernel.VARIANTS}
    rows = []
    for name in HOOKS:
        code = {}
        for variant, names in there.items():
            full = [other for other in names if other.split(".")[0] == name]
            code[variant] = hook(variant, full[0]) if full else None
        if all(code.values()):
            rows.append((name, len(code["unpatched"]), len(code["patched"]),
                         code["unpatched"] == code["patched"]))
    return rows
