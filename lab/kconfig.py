# SPDX-License-Identifier: GPL-2.0
"""Kernel configurations: tinyconfig and fragments, with nothing lost.

Kconfig drops silently what it does not know or what lacks a dependency, so
each line of the fragments is looked up in the result.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import steps
from arches import COMPILED

FRAGMENTS = Path(__file__).resolve().parent / "config"
LINE = re.compile(r"^(?:(CONFIG_\w+)=(.*)|# (CONFIG_\w+) is not set)$")


class NotTaken(Exception):
    """Symbols that did not end up as a fragment asks."""


def fragments(arch, flavour, source):
    """The files that make a configuration; later ones win.

    series.config names symbols that the series brings, so it counts only for
    a tree that has the tests of the series.
    """
    names = ["common", arch, *(["series"] if has_series(source) else []), flavour,
             f"{flavour}-{arch}"]
    paths = [FRAGMENTS / f"{name}.config" for name in names]
    return [path for path in paths if path.exists()]


def has_series(source):
    return (Path(source) / "kernel/events/dup_test.c").exists()


def parse(text):
    """Symbol to value; a symbol that is not set has the value "n"."""
    symbols = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            symbols[match[1] or match[3]] = match[2] if match[1] else "n"
    return symbols


def check(wanted, got):
    """Raise NotTaken when a symbol of WANTED is different in GOT."""
    lost = [f"{name}: asked for {value}, got {got.get(name, 'n')}"
            for name, value in sorted(wanted.items())
            if got.get(name, "n") != value]
    if lost:
        raise NotTaken("\n  ".join(["configuration symbols not taken:", *lost]))


def make_config(arch, flavour, source, out):
    """Write OUT/.config; keep the file untouched when it would not change."""
    wanted = {}
    for path in fragments(arch, flavour, source):
        wanted.update(parse(path.read_text()))
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    # Made elsewhere: tinyconfig would leave files here that look newer than
    # the configuration that counts.
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        make = [*COMPILED[arch].make(2), "-s", "-C", str(source), f"O={temporary}"]
        config = Path(temporary) / ".config"

        def run(target):
            done = subprocess.run([*make, target], text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode:
                steps.die(f"make {target} for {arch}-{flavour} failed:\n{done.stdout}")

        run("tinyconfig")
        with config.open("a") as file:
            for name, value in wanted.items():
                file.write(f"# {name} is not set\n" if value == "n"
                           else f"{name}={value}\n")
        run("olddefconfig")
        check(wanted, parse(config.read_text()))
        target = out / ".config"
        if not target.exists() or target.read_bytes() != config.read_bytes():
            shutil.copyfile(config, target)
