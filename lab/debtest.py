# SPDX-License-Identifier: GPL-2.0
"""make test-deb: build the packages with the lab's small configuration, and use them.

Perf's is installed beside Debian's linux-perf in a chroot, run, and removed; the
kernel's is installed there, too, and booted in a guest from where it was installed.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import boot
import kconfig
import kernel
import packaging
import source
import steps
from arches import ARCHES, HOST
from debian import DEBIAN_ARCH
from ktap import Ktap

FLAVOUR = "bench"
LOG = "deb-test"
# Of the guest, which has the kernel and no modules.
SCENARIO = """uname -r
cat /proc/sys/kernel/perf_event_dup
"""
# What installing and removing packages leaves behind by itself.
NOT_OURS = re.compile(r"\./(proc|sys|dev|tmp|var/(lib/dpkg|log|cache)|usr/share/man/.*cat)(/|$)"
                      r"|\./etc/ld\.so\.cache$")


class Failed(Exception):
    """A test that raises this has failed."""


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()


def contents(package):
    """The names of the files of a package, without its directories."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package],
                          stdout=subprocess.PIPE) as dpkg:
        with tarfile.open(fileobj=dpkg.stdout, mode="r|") as archive:
            return {entry.name.removeprefix("./") for entry in archive if not entry.isdir()}


def dependencies(package):
    """The names in Depends; where there is a choice, the first."""
    return [part.split("|")[0].split("(")[0].strip().split(":")[0]
            for part in field(package, "Depends").split(",")]


class Packages:
    """What scripts/deb made for an architecture."""

    def __init__(self, arch):
        self.arch = arch
        self.all = sorted(packaging.PACKAGES.glob(f"*_{DEBIAN_ARCH[arch]}.deb"))
        self.perf = self.one(packaging.PERF_PACKAGE + "_")
        self.image = self.one("linux-image-")
        self.headers = self.one("linux-headers-") if arch == HOST else None
        self.release = field(self.image, "Package").removeprefix("linux-image-")

    def one(self, prefix):
        found = [path for path in self.all if path.name.startswith(prefix)]
        if len(found) != 1:
            steps.die(f"{len(found)} packages {prefix}* were made")
        return found[0]


def build(arch):
    """Build the packages with the lab's configuration, which the user could have given."""
    place = steps.BUILD / "deb" / arch / "lab"
    kconfig.make_config(arch, FLAVOUR, kernel.source("patched"), place)
    sys.stdout.flush()
    done = subprocess.run([steps.ROOT / "scripts/deb"],
                          env=dict(os.environ, ARCH=arch, CONFIG=str(place / ".config")))
    if done.returncode:
        raise SystemExit(1)
    return Packages(arch)


# What is in them

def check_fields(packages):
    wanted = [path for path in (packages.headers, packages.image, packages.perf) if path]
    if sorted(packages.all) != sorted(wanted):
        raise Failed(f"made: {' '.join(path.name for path in packages.all)}")
    versions = {field(path, "Version") for path in wanted}
    if len(versions) != 1 or not re.fullmatch(r"[\d.]+(~rc\d+)?-1\.\d{14}\.[0-9a-f]{7}",
                                              *versions):
        raise Failed(f"versions: {' '.join(versions)}")
    if not packages.release.endswith(packaging.SUFFIX):
        raise Failed(f"the kernel is {packages.release}")
    for path in wanted:
        if field(path, "Architecture") != DEBIAN_ARCH[packages.arch]:
            raise Failed(f"{path.name} is for {field(path, 'Architecture')}")


def check_names(packages, theirs):
    """No file of ours is in THEIRS, a package of Debian's perf."""
    files = contents(theirs)
    if "usr/bin/perf" not in files:
        raise Failed(f"{theirs.name} has no usr/bin/perf")
    both = contents(packages.perf) & files
    if both:
        raise Failed("\n".join(sorted(both)))


def check_kernel_files(packages):
    release = packages.release
    places = (f"boot/vmlinuz-{release}", f"boot/config-{release}", f"boot/System.map-{release}",
              f"lib/modules/{release}/", f"usr/share/doc/linux-image-{release}/",
              f"usr/lib/linux-image-{release}/")
    stray = [name for name in contents(packages.image) if not name.startswith(places)]
    if stray:
        raise Failed("\n".join(stray))


def lintian(packages):
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error",
                           "--tag-display-limit", "0", packages.perf], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    steps.write(steps.LOGS / "lintian.log", done.stdout)
    if done.returncode:
        raise Failed("\n".join(line for line in done.stdout.splitlines()
                               if not line.startswith(("W:", "I:"))))


# In a chroot

class Chroot:
    """A small Debian of the release that runs here, for its libraries are what the
    packaged perf needs, with linux-perf."""

    def __init__(self, packages):
        self.root = steps.BUILD / "deb/chroot"
        self.wanted = [*dependencies(packages.perf), "linux-perf"]

    def make(self):
        self.remove()
        self.root.parent.mkdir(parents=True, exist_ok=True)
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$',
                                  Path("/etc/os-release").read_text(), re.M))
        uri, keyring = source.debian_mirrors()[0]
        steps.run(f"make a chroot of {release['VERSION_CODENAME']} with linux-perf",
                  ["mmdebstrap", "--mode=root", "--variant=minbase",
                   f"--include={','.join(self.wanted)}", release["VERSION_CODENAME"], self.root,
                   f"deb [signed-by={keyring}] {uri} {release['VERSION_CODENAME']} main"], LOG)

    def remove(self):
        # Nothing is mounted there: run() does that in a namespace of its own.
        shutil.rmtree(self.root, ignore_errors=True)

    def attempt(self, command):
        """(status, output) of a shell command in the chroot."""
        # perf looks for PMUs in sysfs. What is mounted goes with its namespace.
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root / 'proc'}",
             "sh", "-c", 'mount --bind /sys "$0/sys" && exec chroot "$0" sh -c "$1"',
             self.root, command], text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root",
                 "DEBIAN_FRONTEND": "noninteractive"})
        with open(steps.LOGS / f"{LOG}.log", "a") as log:
            log.write(f"\n### chroot: {command}\n{done.stdout}")
        return done.returncode, done.stdout

    def run(self, command, *wanted, status=0):
        """A command must end with STATUS and print what the WANTED expressions match."""
        got, said = self.attempt(command)
        if got != status:
            raise Failed(f"{command}: status {got}\n{said[-2000:]}")
        for pattern in wanted:
            if not re.search(pattern, said, re.M):
                raise Failed(f"{command}: does not say {pattern!r}\n{said[-2000:]}")
        return said

    def install(self, *packages):
        for package in packages:
            shutil.copy(package, self.root / "tmp")
        self.run("dpkg -i " + " ".join(f"/tmp/{package.name}" for package in packages))
        for package in packages:
            (self.root / "tmp" / package.name).unlink()

    def files(self):
        """All files, but those of dpkg itself."""
        said = self.run("find . -xdev")
        return {name for name in said.splitlines() if not NOT_OURS.match(name)}


def check_perf(tests, chroot, packages):
    """Use perf-dup beside Debian's perf."""
    number = re.escape(field(packages.perf, "Version").split("-")[0].split("~")[0])
    before = chroot.files()
    tests.run("linux-perf-dup installs beside linux-perf", chroot.install, packages.perf)
    for name, command, wanted, status in (
            ("it says its version", "perf-dup --version", [rf"^perf version {number}"], 0),
            ("it counts", "perf-dup stat -e task-clock true", [r"^ +[\d.,]+ +.*task-clock"], 0),
            ("--create-cgroup without a target says what is missing",
             "perf-dup stat --create-cgroup",
             [r"^--create-cgroup needs a target: -p, -t or a command$", "Usage: perf stat"],
             22),
            ("its own files are those it uses", "perf-dup --exec-path",
             [f"^{packaging.PREFIX}/libexec/perf-core$"], 0),
            ("its tests are there", "perf-dup test list 2>&1", ["create-cgroup"], 0),
            ("it can read symbols and trace events, and has its BPF programs",
             "perf-dup version --build-options",
             [rf"^ *{name}: \[ *on *\]" for name in
              ("dwarf", "libelf", "libpython", "libslang", "libtraceevent", "zlib", "bpf",
               "bpf_skeletons")], 0),
            ("its manual is there", "zgrep -l 'create.*cgroup' "
             "/usr/share/man/man1/perf-dup-stat.1* /usr/lib/perf-dup/share/man/man1/perf-stat.1*",
             ["/perf-dup-stat.1", "/perf-stat.1"], 0),
            ("all its files are as packed", "dpkg --verify linux-perf-dup; ldconfig -p >/dev/null;"
             " find -L /usr/bin/perf-dup /usr/lib/perf-dup /usr/share/man/man1/perf-dup* -type l",
             [r"\A\Z"], 0)):
        tests.run(name, lambda: chroot.run(command, *wanted, status=status))
    tests.run("linux-perf is still the other perf", chroot.run,
              "perf --version && ! perf stat --create-cgroup true 2>&1", r"^perf version",
              "unknown option `create-cgroup'")

    def removed():
        chroot.run("dpkg --purge linux-perf-dup")
        left = before ^ chroot.files()
        if left:
            raise Failed("\n".join(sorted(left)))

    tests.run("removing it leaves nothing behind and takes nothing with it", removed)
    tests.run("and perf of linux-perf runs", chroot.run,
              "perf --version && perf stat -e task-clock true", "^perf version", "task-clock")

    def alone():
        chroot.run("dpkg --remove linux-perf")
        chroot.install(packages.perf)
        chroot.run("! command -v perf && perf-dup test 'perf header tests' 2>&1", ": Ok")

    tests.run("its shell tests run, and find it as perf, where no other is", alone)


def check_kernel(tests, chroot, packages):
    """Install the kernel, return where it then lies; nothing starts it here."""
    before, release = chroot.files(), packages.release
    image = steps.BUILD / "deb" / f"vmlinuz-{packages.arch}"
    image.unlink(missing_ok=True)

    def installed():
        chroot.install(packages.image, packages.headers)
        shutil.copyfile(chroot.root / f"boot/vmlinuz-{release}", image)
        chroot.run(f"grep -x CONFIG_PERF_EVENTS=y /boot/config-{release}")
        chroot.run(f"test -e /lib/modules/{release}/build/Makefile")

    def removed():
        chroot.run(f"dpkg --purge linux-image-{release} linux-headers-{release}")
        left = before ^ chroot.files()
        if left:
            raise Failed("\n".join(sorted(left)))

    tests.run("the kernel and its headers install", installed)
    tests.run("removing them leaves nothing behind", removed)
    return image


def unpacked(packages):
    """The kernel of the package, where no chroot can install it."""
    image = steps.BUILD / "deb" / f"vmlinuz-{packages.arch}"
    with tempfile.TemporaryDirectory() as files:
        subprocess.run(["dpkg-deb", "-x", packages.image, files], check=True)
        shutil.copyfile(Path(files) / f"boot/vmlinuz-{packages.release}", image)
    return image


def check_boot(tests, packages, image):
    outcome = boot.Guest(f"deb-{packages.arch}", packages.arch, image, SCENARIO,
                         accel=boot.accelerator(packages.arch, image),
                         title=f"boot the packaged kernel for {packages.arch}").run()
    outcome.judge(tests, "the packaged kernel")
    # Messages of the kernel may come in between.
    said = [line for line in outcome.output if not line.startswith("[")]
    tests.result(said == [packages.release, "1"],
                 "it is the kernel of the package, and events share counters", "\n".join(said))


def no_chroot(arch):
    """Why there can be none here."""
    if arch != HOST:
        return f"programs of {arch} do not run on this machine"
    if os.geteuid() != 0:
        return "only root can make a chroot"
    for program in ("mmdebstrap", "unshare", "chroot"):
        if not shutil.which(program):
            return f"no {program} here"
    return None


def run(arch):
    tests = Ktap(f"deb-{arch}")
    packages = build(arch)
    tests.run("the packages are perf and the kernel, of one version", check_fields, packages)
    tests.run("the kernel's files have its release in their names", check_kernel_files, packages)
    # Debian's perf of the release of the kernel, which is not that of this machine.
    name = DEBIAN_ARCH[arch]
    theirs = source.download("linux-perf", ["-o", f"APT::Architecture={name}",
                                            "-o", f"APT::Architectures::={name}"])
    tests.run(f"no file of perf is one of {theirs.name}", check_names, packages, theirs)
    if shutil.which("lintian"):
        tests.run("lintian finds no error in the package of perf", lintian, packages)
    else:
        tests.result(False, "lintian", skip="no lintian here")
    reason = no_chroot(arch)
    if reason:
        tests.result(False, "perf and the kernel in a chroot", skip=reason)
        image = unpacked(packages)
    else:
        chroot = Chroot(packages)
        chroot.make()
        check_perf(tests, chroot, packages)
        image = check_kernel(tests, chroot, packages)
        chroot.remove()
    if image.exists():
        check_boot(tests, packages, image)
    else:
        tests.result(False, "the packaged kernel boots", "it was not installed")
    return tests.finish()
