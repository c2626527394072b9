# SPDX-License-Identifier: GPL-2.0
"""What scripts/check and scripts/check-series are made of: checkpatch over the mails, the
compiler and sparse in the directories that the series touches, perf."""

import os
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatch

import series
import steps
from gittree import LINUX, git, read_state, remove_worktree

sys.path.append(str(steps.ROOT / "lab"))

import userland                 # noqa: E402
from arches import COMPILED     # noqa: E402

CHECK = steps.BUILD / "check"
SOURCE = CHECK / "linux"
ALLOWED = steps.ROOT / "scripts/checkpatch-allowed.txt"
LAB = steps.ROOT / "lab/lab"
SPARSE = steps.ROOT / "scripts/sparse"
LOUD = ("W=1", "C=1", f"CHECK={SPARSE}")
ALWAYS = "kernel/events/"
PERF = ("tools/perf/", "tools/lib/")
# What is not needed to compile a few directories: to check out a whole kernel
# takes minutes on a slow disk. The touched directories are added.
SPARSE_TREE = """/*
!/Documentation/
!/arch/*/
/arch/x86/
/arch/arm64/
!/tools/
/tools/arch/
/tools/build/
/tools/docs/
/tools/include/
/tools/lib/
/tools/objtool/
/tools/scripts/
!/drivers/**/*.[chS]
!/fs/**/*.[ch]
!/net/**/*.[ch]
!/samples/**/*.[ch]
!/sound/**/*.[ch]
Kconfig*
"""


def assembled():
    """The base commit and the commits of build/linux, which must have been mailed."""
    base = read_state().get("base")
    if not base:
        steps.die("build/linux is not there yet; run: make assemble")
    commits = series.commits_between(base, git("rev-parse", "HEAD"))
    if not commits:
        steps.die("there are no patches yet")
    if len(mailed()) != len(commits):
        steps.die("what was mailed is not the series of build/linux; run: make series")
    return base, commits


# checkpatch

def read_allowed():
    for line in ALLOWED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            kind, path, reason = line.split(maxsplit=2)
            yield kind, path, reason


def mailed():
    """The patches of all mailed series."""
    return [patch for name in series.MAILED
            for patch in sorted((steps.BUILD / name).glob("*.patch"))]


def checkpatch(tests):
    allowed = {(kind, path): 0 for kind, path, _ in read_allowed()}
    for patch in mailed():
        done = subprocess.run(
            ["perl", "scripts/checkpatch.pl", "--strict", "--terse", "--showfile",
             "--show-types", "--no-summary", "--color=never", patch],
            cwd=LINUX, text=True, env=dict(os.environ, PATH=f"/usr/bin:{os.environ['PATH']}"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        bad = []
        for line in done.stdout.splitlines():
            match = re.match(r"(?P<path>\S*?):\d*:? ?(?:FILE: \S+ )?"
                             r"(?:ERROR|WARNING|CHECK):(?P<kind>\w+): ", line)
            known = [entry for entry in allowed if match and entry[0] == match["kind"]
                     and fnmatch(match["path"], entry[1])]
            if known:
                allowed[known[0]] += 1
            else:
                # Outside of the diff it has no file, and its line number is none.
                bad.append(re.sub(r"^:\d+:", "commit message:", line))
        # Its status counts the allowed ones too, but it also tells of a crash.
        if done.returncode not in (0, 1):
            bad.append(f"checkpatch ended with status {done.returncode}")
        tests.result(not bad, f"checkpatch {patch.stem}", "\n".join(bad))
    unused = [" ".join(entry) for entry, count in allowed.items() if not count]
    tests.result(not unused, "each entry of checkpatch-allowed.txt is needed",
                 "\n".join(unused))


# Compiler and sparse

def kernel_environment():
    """Without the variables of our own Makefile, which mean something there too."""
    return {name: value for name, value in os.environ.items() if name not in (
        "ARCH", "V", "LINUX", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}


class Compile:
    """A build directory: a configuration of the lab for an architecture, and what is to
    be built of SOURCE (some directories, or GOALS), LOUD with W=1 and sparse."""

    def __init__(self, arch, flavour, head, goals, out, source=SOURCE, loud=()):
        self.arch, self.flavour, self.head, self.goals = arch, flavour, head, goals
        self.out, self.source, self.loud = out, source, loud
        self.make = [*COMPILED[arch].make(os.environ.get("JOBS") or os.cpu_count()),
                     "-s", "-C", source, f"O={out}"]
        self.log = f"check-{out.name}"

    def prepare(self):
        """A configuration and what every object needs, once."""
        checkout(self.head, self.source)
        steps.run(f"configure the checks for {self.out.name}",
                  [LAB, "config", self.arch, self.flavour, self.source, self.out], self.log)
        self.config = (self.out / ".config").read_bytes()
        steps.run(f"prepare the checks for {self.out.name}", [*self.make, *self.loud, "prepare"],
                  self.log, env=kernel_environment())

    def forget_objects(self):
        for directory in self.goals:
            for path in (self.out / directory).rglob("*.o"):
                path.unlink()

    def build(self, commit, keep=None):
        """Build at COMMIT; return whether it compiled and all that was said. The file KEEP
        gets it, too, as it is said, and may have what an earlier build said that was broken
        off."""
        checkout(commit, self.source)
        # Symbols that the series brings later fall out of the configuration.
        if (self.out / ".config").read_bytes() != self.config:
            (self.out / ".config").write_bytes(self.config)
        goals = [goal for goal in self.goals
                 if not goal.endswith("/") or (self.source / goal).is_dir()]
        keep, mode = (keep, "a") if keep else (self.out / ".said", "w")
        with open(keep, mode) as out:
            for words in (["olddefconfig"], [*self.loud, *goals]):
                done = subprocess.run([str(word) for word in (*self.make, *words)], stdout=out,
                                      env=kernel_environment(), stdin=subprocess.DEVNULL,
                                      stderr=subprocess.STDOUT)
                if done.returncode:
                    break
        said = keep.read_text(errors="replace")
        keep.unlink()
        with open(steps.LOGS / f"{self.log}.log", "a") as log:
            log.write(f"\n### {commit}: {' '.join(goals)}\n{said}")
        return done.returncode == 0, said


def make_source(commit, patterns, source=SOURCE):
    """A worktree, build/check/linux if none is said, with the files of PATTERNS."""
    if git("rev-parse", "-q", "--verify", "HEAD", cwd=source, check=False) is None:
        remove_worktree(source)
        git("worktree", "add", "-q", "--detach", "--no-checkout", source, commit)
    git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=source, data=patterns)
    checkout(commit, source)


def checkout(commit, source=SOURCE):
    """Put COMMIT into build/check/linux; only files that differ are written."""
    git("checkout", "-q", "--force", "--detach", commit, cwd=source)


def messages(said, source=SOURCE):
    """Messages without the place in the file, which every edit moves."""
    lines = (re.sub(r":\d+(:\d+)?(?=[: ])", "", line).replace(f"{source}/", "")
             for line in said.splitlines()
             if re.search(r": (warning|error|fatal error): |^Warning: |\*\*\*|not available", line))
    return Counter(lines)


def touched_directories(arch, commits):
    """The directories with kernel code of ARCH among the touched files."""
    kernel_arch = {"i386": "x86"}.get(arch, COMPILED[arch].kernel_arch)
    found = {ALWAYS}
    for commit in commits:
        for _, _, path in series.changed(commit):
            top = path.split("/")[0]
            foreign = top == "arch" and path.split("/")[1] != kernel_arch
            if top not in ("tools", "Documentation", "include", "scripts", "samples") and (
                    path.endswith((".c", ".S", ".h")) and "/include/" not in path
                    and "/" in path and not foreign):
                found.add(path.rpartition("/")[0] + "/")
    return sorted(path for path in found if not any(
        path != other and path.startswith(other) for other in found))


def named(number, commit):
    """What a commit is called in results, as in patches/."""
    return f"{number:04}-{git('show', '-s', '--format=%f', commit)[:52]}"


def touches_perf(commit):
    return any(path.startswith(PERF) for _, _, path in series.changed(commit))


def build_perf(arch, number, commit, source=SOURCE):
    """Build perf at a commit; it takes all warnings of the compiler and of shellcheck for
    errors. Return what is wrong, or ""."""
    out, log = CHECK / f"perf-{arch}", f"check-perf-{arch}"
    out.mkdir(parents=True, exist_ok=True)
    checkout(commit, source)
    status = steps.attempt(f"build perf of {number:04}", userland.make_perf(arch, source, out),
                           log, env=kernel_environment())
    return f"log: build/logs/{log}.log" if status else ""
