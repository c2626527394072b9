# SPDX-License-Identifier: GPL-2.0
"""Initial file systems for guests, made the same way every time.

A guest gets two archives one after the other, which the kernel unpacks as
one: a large one with the programs, kept between runs and named by the hash of
its contents, and a small one with the scenario to run.
"""

import gzip
import hashlib
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import debian
import steps
from arches import ARCHES

GUEST = Path(__file__).resolve().parent / "guest"
# Archives of one kind that are kept; the older ones are removed.
KEEP = 4
DIRECTORIES = ("bin", "dev", "etc", "lab", "lib", "lib64", "proc", "sbin", "sys",
               "tmp", "usr", "usr/bin")


class Tree:
    """Files to pack: a name in the guest for each (mode, content)."""

    def __init__(self, name):
        self.name = name
        self.entries = {}

    def _parents(self, name):
        for parent in list(Path(name).parents)[:-1]:
            self.entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, b""))

    def directory(self, name):
        self._parents(name)
        self.entries.setdefault(name, (stat.S_IFDIR | 0o755, b""))

    def data(self, name, content, executable=False):
        self._parents(name)
        mode = 0o755 if executable else 0o644
        self.entries[name] = (stat.S_IFREG | mode, content)

    def file(self, name, path):
        path = Path(path)
        self.data(name, path.read_bytes(), os.access(path, os.X_OK))

    def copy(self, name, directory):
        """A directory with all that is in it."""
        for path in sorted(Path(directory).rglob("*")):
            inner = f"{name}/{path.relative_to(directory)}"
            if path.is_dir():
                self.directory(inner)
            else:
                self.file(inner, path)

    def link(self, name, target):
        self._parents(name)
        self.entries[name] = (stat.S_IFLNK | 0o777, target.encode())

    def archive(self):
        """The cpio archive ("newc"), with no trace of when or by whom."""
        out = bytearray()

        def add(number, name, mode, content, device=(0, 0)):
            encoded = name.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0,
                      *device, len(encoded), 0)
            out.extend(b"070701" + b"".join(b"%08X" % field for field in fields))
            out.extend(encoded)
            out.extend(b"\0" * (-len(out) % 4))
            out.extend(content)
            out.extend(b"\0" * (-len(out) % 4))

        number = 1
        for name in sorted(self.entries):
            mode, content = self.entries[name]
            add(number, name, mode, content)
            number += 1
            if name == "dev":
                # Until devtmpfs is mounted over it.
                add(number, "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))
                number += 1
        add(0, "TRAILER!!!", 0, b"")
        out.extend(b"\0" * (-len(out) % 512))
        return bytes(out)


def needed(path):
    """The interpreter and libraries that an ELF file names."""
    if Path(path).read_bytes()[:4] != b"\x7fELF":
        return None, []
    said = subprocess.run(["readelf", "-W", "-l", "-d", path], text=True, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=dict(os.environ, LC_ALL="C")).stdout
    interpreter = re.search(r"Requesting program interpreter: ([^]]+)\]", said)
    return (interpreter and interpreter.group(1),
            re.findall(r"\(NEEDED\).*\[(.+)\]", said))


def executables(directory):
    return [path for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and os.access(path, os.X_OK)]


def add_libraries(tree, arch, programs, places=()):
    """Put the C library, and what else the programs name, beside them; PLACES are
    directories to look in after those of the cross compiler."""
    queue = [Path(path) for path in programs]
    done = set()

    def find(name):
        for directory in (*ARCHES[arch].library_dirs, *places):
            path = Path(directory) / name
            if path.exists():
                return path.resolve()
        steps.die(f"no {name} for {arch} here, which {queue[0].name} needs")

    while queue:
        interpreter, libraries = needed(queue[0])
        wanted = [(f"lib/{name}", name) for name in libraries]
        if interpreter:
            wanted.append((interpreter.lstrip("/"), Path(interpreter).name))
        for inner, name in wanted:
            if inner not in done:
                done.add(inner)
                found = find(name)
                tree.data(inner, found.read_bytes(), True)
                queue.append(found)
        queue.pop(0)


def programs_tree(arch, perf=None, selftests=None):
    """What is in the large archive: busybox, the C library, perf and the kselftests."""
    tree = Tree(f"programs-{arch}")
    for name in DIRECTORIES:
        tree.directory(name)
    tree.file("bin/busybox", debian.program(arch, "busybox-static", "busybox"))
    tree.link("bin/sh", "busybox")
    # The selftests' runner uses it only by this name, with one option more.
    tree.data("usr/bin/timeout", b"#!/bin/sh\n[ \"$1\" = --foreground ] && shift\n"
              b"exec busybox timeout \"$@\"\n", True)
    tree.data("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n"
              b"nobody:x:65534:65534:nobody:/:/bin/sh\n")
    tree.data("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    binaries = []
    if perf:
        tree.file("usr/bin/perf", perf)
        binaries.append(perf)
    if selftests:
        tree.copy("kselftest", selftests)
        binaries += executables(selftests)
    add_libraries(tree, arch, binaries)
    return tree


def programs(arch, perf=None, selftests=None):
    """The large archive, made when missing."""
    return pack(programs_tree(arch, perf, selftests))


def pack(tree):
    """The path of the compressed archive of a tree, made when missing."""
    content = tree.archive()
    place = steps.BUILD / "initramfs"
    path = place / f"{tree.name}-{hashlib.sha256(content).hexdigest()[:16]}.cpio.gz"
    if not path.exists():
        steps.write(path, gzip.compress(content, 6, mtime=0))
        for old in sorted(place.glob(f"{tree.name}-*.cpio.gz"),
                          key=lambda file: file.stat().st_mtime)[:-KEEP]:
            old.unlink(missing_ok=True)
    return path


def image(name, arch, base, scenario, files=()):
    """The file system of one guest: BASE, init, the scenario (a shell
    script), and FILES with the libraries that they need: pairs of a name in the
    guest and a path here."""
    tree = Tree(name)
    tree.file("init", GUEST / "init")
    tree.data("lab/scenario", scenario.encode())
    for inner, path in files:
        if Path(path).is_dir():
            tree.copy(inner.strip("/"), path)
            add_libraries(tree, arch, executables(path))
        else:
            tree.file(inner.strip("/"), path)
            add_libraries(tree, arch, [path])
    path = steps.BUILD / "initramfs" / f"guest-{name}.cpio.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as out:
        with open(base, "rb") as large:
            shutil.copyfileobj(large, out)
        out.write(b"\0" * (-out.tell() % 512))
        out.write(gzip.compress(tree.archive(), 1, mtime=0))
    os.replace(temporary, path)
    return path
