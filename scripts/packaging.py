# SPDX-License-Identifier: GPL-2.0
"""Debian packages of the kernel and of the perf that the series makes.

The kernel's own makefiles pack the kernel (bindeb-pkg), debhelper packs perf
(scripts/linux-perf-dup). Objects are in build/deb, packages in build/packages.
"""

import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from email.utils import format_datetime
from datetime import datetime, timezone
from pathlib import Path

import series
import source
import steps
from gittree import git, read_state

sys.path.append(str(steps.ROOT / "lab"))

import kconfig                  # noqa: E402
import kernel                   # noqa: E402
import userland                 # noqa: E402
from arches import ARCHES, HOST # noqa: E402
from debian import DEBIAN_ARCH  # noqa: E402

PACKAGES = steps.BUILD / "packages"
TEMPLATES = steps.ROOT / "scripts/linux-perf-dup"
CONFIG_PACKAGE = source.PACKAGE.replace("source", "config")
CONFIG_INSTEAD = "say CONFIG=FILE to use a configuration of your own"
# With this the kernel installs beside the distribution's.
SUFFIX = "-perf-dup"
PERF_PACKAGE = "linux-perf-dup"
# perf finds its files below this, wherever its program is called from.
PREFIX = "/usr/lib/perf-dup"

# The distribution's key is not here, and one made for this build would lie beside the
# packages. bindeb-pkg could not sign the kernel itself for Secure Boot either.
NO_KEYS = {"CONFIG_MODULE_SIG_ALL": "n", "CONFIG_MODULE_SIG_KEY": '""',
           "CONFIG_SYSTEM_TRUSTED_KEYS": '""', "CONFIG_SYSTEM_REVOCATION_KEYS": '""'}
# It makes the objects several times as large; what needs BTF goes with it.
NO_DEBUG_INFO = {"CONFIG_DEBUG_INFO_NONE": "y"}

# Its scripts run in Debian's Python, whichever else comes first in the PATH.
PYTHON = ("PYTHON=/usr/bin/python3", "PYTHON_CONFIG=/usr/bin/python3-config")
# What the packaged perf is built without: said here, so that it does not depend on what
# happens to be installed. For another architecture, where there are no libraries,
# userland.WITHOUT counts.
PERF_WITHOUT = ("NO_LIBPERL", "NO_GTK2", "NO_LIBUNWIND", "NO_LIBCRYPTO", "NO_LIBBABELTRACE",
                "NO_CAPSTONE", "NO_LIBLLVM", "NO_LIBPFM4", "NO_LIBDEBUGINFOD", "NO_SDT",
                "NO_JVMTI", "NO_RUST", "NO_PERF_READ_VDSO32", "NO_PERF_READ_VDSOX32")


def place(arch):
    return steps.BUILD / "deb" / arch


def asked(name):
    return os.environ.get(name, "0") not in ("", "0")


# Version

class Version:
    """What the packages of a tree are called: by its kernel, and by the commit and the
    latest date of the series. Later states of the series have later versions."""

    def __init__(self, tree):
        makefile = (tree / "Makefile").read_text()
        self.kernel = source.version_of(makefile).removeprefix("Linux ")
        base, head = read_state()["base"], git("rev-parse", "HEAD", cwd=tree)
        dates = [int(git("show", "-s", "--format=%ct", commit, cwd=tree))
                 for commit in series.commits_between(base, head)]
        self.date = datetime.fromtimestamp(max(dates), timezone.utc)
        self.package = package_version(self.kernel, self.date, head)


def package_version(number, date, commit):
    """7.3.4-rc1 comes before 7.3.4, and all after the last "-" goes into uname -v."""
    upstream = re.sub(r"-(rc\d+)", r"~\1", number)
    return f"{upstream}-1.{date:%Y%m%d%H%M%S}.{commit[:7]}"


def maintainer():
    """(name, address): DEBFULLNAME and DEBEMAIL, as all of Debian's tools have them, or
    who commits in this repository."""
    def setting(name, default):
        said = subprocess.run(["git", "config", name], cwd=steps.ROOT, text=True,
                              stdout=subprocess.PIPE).stdout.strip()
        return said or default
    return (os.environ.get("DEBFULLNAME") or setting("user.name", "unknown"),
            os.environ.get("DEBEMAIL") or setting("user.email", "root@localhost"))


def environment(version):
    """For dpkg-buildpackage and what it calls."""
    name, address = maintainer()
    return dict(kernel.environment(), DEBFULLNAME=name, DEBEMAIL=address,
                SOURCE_DATE_EPOCH=str(int(version.date.timestamp())),
                DEB_BUILD_OPTIONS=f"parallel={kernel.jobs()} terse nocheck noautodbgsym")


# The kernel's configuration

def debian_config(arch):
    """The configuration of Debian's kernel, and its name."""
    kept = place(arch) / "config.debian"
    name = DEBIAN_ARCH[arch]
    options = ["-o", f"APT::Architecture={name}", "-o", f"APT::Architectures::={name}"]
    if not kept.exists():
        package = source.download(CONFIG_PACKAGE, options, CONFIG_INSTEAD)
        with tempfile.TemporaryDirectory() as files:
            steps.run(f"unpack {package.name}", ["dpkg-deb", "-x", package, files], "source")
            path = next(Path(files).rglob(f"config.{name}_none_{name}.xz"), None)
            if not path:
                steps.die(f"no configuration for {name} in {package.name}")
            steps.write(kept, lzma.decompress(path.read_bytes()))
        package.unlink()
    return kept.read_text(), CONFIG_PACKAGE


def running_config():
    """That of the kernel that runs here, and its name."""
    path = Path(f"/boot/config-{platform.release()}")
    return (path.read_text(), str(path)) if path.exists() else None


def given_config(path, arch):
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        steps.die(f"CONFIG={path} cannot be read: {error}")
    if kconfig.parse(text).get(f"CONFIG_{arch.upper()}") != "y":
        steps.die(f"CONFIG={path} is no kernel configuration for {arch}")
    return text, path


def local_version(symbols):
    own = symbols.get("CONFIG_LOCALVERSION", "").strip('"').removesuffix(SUFFIX)
    return f'"{own}{SUFFIX}"'


def changes(symbols, own, tree):
    """What has to differ in the packages. The user's OWN configuration keeps the rest,
    but for keys that are files which are not there."""
    wanted = {"CONFIG_LOCALVERSION": local_version(symbols),
              "CONFIG_LOCALVERSION_AUTO": "n"}
    if own:
        keys = {name for name in NO_KEYS if name.endswith("_KEYS")
                and not (tree / symbols.get(name, "").strip('"')).is_file()}
    else:
        keys = set(NO_KEYS)
        if not asked("DEBUG_INFO"):
            wanted.update(NO_DEBUG_INFO)
    # A key that nothing asks for has no symbol.
    return wanted | {name: NO_KEYS[name] for name in keys
                     if name in symbols or name.startswith("CONFIG_MODULE_SIG")}


def start_config(arch):
    """(text, name) of the configuration to start with."""
    given = os.environ.get("CONFIG")
    if given:
        return given_config(given, arch)
    try:
        return debian_config(arch)
    except SystemExit:
        found = running_config() if arch == HOST else None
        if not found:
            raise
        print(f"note: no {CONFIG_PACKAGE} to be had; {found[1]} is used")
        return found


def configure(arch, given, tree, out, make):
    """Write OUT/.config; say how it differs from what it starts with, (text, name)."""
    text, name = given
    symbols = kconfig.parse(text)
    wanted = changes(symbols, bool(os.environ.get("CONFIG")), tree)
    start, config = place(arch) / "config.start", out / ".config"
    steps.write(start, text)
    steps.write(config, text + "\n" + "".join(
        f"# {symbol} is not set\n" if value == "n" else f"{symbol}={value}\n"
        for symbol, value in wanted.items()))
    steps.run(f"configure the kernel as {name}", [*make, "olddefconfig"], f"deb-{arch}",
              env=kernel.environment())
    got = kconfig.parse(config.read_text())
    try:
        kconfig.check({"CONFIG_PERF_EVENTS": "y", "CONFIG_MODULES": "y"} | {
            symbol: value for symbol, value in wanted.items()
            if symbol in got or value == "n"}, got)
    except kconfig.NotTaken as error:
        steps.die(f"{name}: {error}")
    differ = subprocess.run([tree / "scripts/diffconfig", start, config], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    steps.write(place(arch) / "config.diff", differ)
    print(f"{len(differ.splitlines())} symbols differ from {name}: "
          f"{os.path.relpath(place(arch) / 'config.diff')}")


# The packages

def kernel_packages(arch, version, config):
    """Build and pack the kernel, configured as CONFIG; return the packages."""
    tree, out = kernel.source("patched"), place(arch) / "linux"
    out.mkdir(parents=True, exist_ok=True)
    make = [*ARCHES[arch].make(kernel.jobs()), "-C", tree, f"O={out}", "LOCALVERSION=",
            f"KBUILD_BUILD_TIMESTAMP={format_datetime(version.date)}",
            "KBUILD_BUILD_USER=perf-dup", "KBUILD_BUILD_HOST=perf-dup"]
    configure(arch, config, tree, out, make)
    # The headers' programs would need libraries of the other architecture.
    profiles = ["nokernelheaders"] if arch != HOST else []
    if not asked("DEBUG_INFO"):
        profiles.append("nokerneldbg")
    env = dict(environment(version), DEB_BUILD_PROFILES=" ".join(
        f"pkg.linux-upstream.{name}" for name in profiles))
    steps.run("build and pack the kernel",
              [*make, f"KDEB_PKGVERSION={version.package}", "KDEB_CHANGELOG_DIST=unstable",
               "bindeb-pkg"], f"deb-{arch}", env=env)
    # Headers of the C library would take the place of the distribution's.
    return [package for package in made(out) if not package.name.startswith("linux-libc-dev")]


def made(directory):
    """The packages that dpkg-buildpackage made from DIRECTORY: they lie beside it."""
    lines = (directory / "debian/files").read_text().splitlines()
    return [directory.parent / line.split()[0] for line in lines if ".deb " in line]


def build_perf(arch, out):
    """Build perf and its manual in OUT, and install them below OUT/installed."""
    tree, target = kernel.source("patched"), place(arch) / "perf"
    native = arch == HOST
    without = PERF_WITHOUT if native else [name for name in userland.WITHOUT
                                           if name != "NO_JEVENTS"]
    installed = out / "installed"
    shutil.rmtree(installed, ignore_errors=True)
    make = [*userland.make_perf(arch, tree, target, bpf=native, without=without), "WERROR=0",
            *PYTHON, f"prefix={PREFIX}", f"DESTDIR={installed}"]
    env = kernel.environment()
    stamp, inputs = place(arch) / ".perf", [str(word) for word in make[2:]]
    if not steps.fresh(stamp, inputs):
        # perf's makefile does not build all again that other flags change.
        shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    steps.mark(stamp, inputs)
    steps.run("build perf", [*make, "install-bin"], f"deb-{arch}", env=env)
    if native and not userland.has_bpf(target / "perf"):
        # perf's makefile only warns about what it leaves out.
        steps.die(f"perf has no BPF programs; see build/logs/deb-{arch}.log")
    steps.run("write perf's manual", [*make, "USE_ASCIIDOCTOR=1", "install-man"], f"deb-{arch}",
              env=env)
    arrange(installed)


def arrange(installed):
    """Put what make install-bin and install-man wrote where it meets nobody else's."""
    own = installed / PREFIX.strip("/")
    # A completion of "perf", another name of it, and a header that linux-perf has, too.
    for name in ("etc", "bin/trace", "include"):
        path = own / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    program = installed / "usr/bin/perf-dup"
    program.parent.mkdir(parents=True)
    program.symlink_to("../lib/perf-dup/bin/perf")
    # perf puts this directory first in the PATH of its tests and scripts, which say "perf".
    (own / "libexec/perf-core/perf").symlink_to("../../bin/perf")
    # "perf-dup help stat" finds the manual below the prefix, "man perf-dup-stat" by a link.
    manual = installed / "usr/share/man/man1"
    manual.mkdir(parents=True)
    for page in sorted((own / "share/man/man1").glob("perf*.1")):
        # debhelper looks for pages in no other place than usr/share/man.
        subprocess.run(["gzip", "-9n", page], check=True)
        name = page.name.replace("perf", "perf-dup", 1) + ".gz"
        (manual / name).symlink_to(f"../../../lib/perf-dup/share/man/man1/{page.name}.gz")


def perf_package(arch, version):
    """Build and pack perf; return the package."""
    out = place(arch) / PERF_PACKAGE
    debian = out / "debian"
    shutil.rmtree(debian, ignore_errors=True)
    build_perf(arch, out)
    shutil.copytree(TEMPLATES, debian)
    name, address = maintainer()
    control = (debian / "control.in").read_text().replace("@MAINTAINER@", f"{name} <{address}>")
    steps.write(debian / "control", control)
    steps.write(debian / "changelog",
                f"{PERF_PACKAGE} ({version.package}) unstable; urgency=low\n\n"
                f"  * perf of Linux {version.kernel} with the series.\n\n"
                f" -- {name} <{address}>  {format_datetime(version.date)}\n")
    steps.run("pack perf", ["dpkg-buildpackage", f"-a{DEBIAN_ARCH[arch]}", "-b", "-us", "-uc",
                            "-d"], f"deb-{arch}", cwd=out, env=environment(version))
    return made(out)


def collect(arch, packages):
    """Move the packages to build/packages, in place of earlier ones for ARCH."""
    PACKAGES.mkdir(parents=True, exist_ok=True)
    for old in PACKAGES.glob(f"*_{DEBIAN_ARCH[arch]}.deb"):
        old.unlink()
    return [Path(shutil.move(package, PACKAGES / package.name)) for package in packages]


# What to do with them

ADVICE = """
Install; update-grub runs by itself, and the distribution's kernel and perf stay:
  sudo apt install {files}

Boot it: choose "{release}" below "Advanced options" of the boot menu, or
  sudo grub-reboot "{entry}" && sudo reboot
The boot loader starts the kernel with the highest number when nothing is chosen: from
now on that may be this one. With Secure Boot, which wants a signature, it does not start.

Look at it:
  uname -r                        # {release}
  sysctl kernel.perf_event_dup    # kernel.perf_event_dup = 1
  sudo perf-dup stat --create-cgroup -e cycles,instructions -- sleep 1

Go back: boot the other kernel from the same menu, and then
  sudo apt remove {names}
"""


def advice(packages, release):
    """The commands for these packages, whose files are given."""
    files = [f"./{os.path.relpath(path)}" for path in packages
             if not path.name.startswith(f"linux-image-{release}-dbg")]
    names = [Path(path).name.split("_")[0] for path in files]
    entry = ("Advanced options for Debian GNU/Linux>"
             f"Debian GNU/Linux, with Linux {release}")
    return ADVICE.format(files=" \\\n      ".join(files), names=" ".join(names), entry=entry,
                         release=release)


def build(arch):
    """Make all packages for ARCH and say what to do with them."""
    version = Version(kernel.source("patched"))
    print(f"{PERF_PACKAGE} and the kernel for {DEBIAN_ARCH[arch]}, version {version.package}")
    # What can be refused is, before anything is built.
    config = start_config(arch)
    packages = collect(arch, perf_package(arch, version)
                       + kernel_packages(arch, version, config))
    release = (place(arch) / "linux/include/config/kernel.release").read_text().strip()
    print("\nIn " + os.path.relpath(PACKAGES) + ":")
    for path in packages:
        print(f"  {path.name} ({path.stat().st_size / 1e6:.1f} MB)")
    if arch != HOST:
        print("Built for another architecture: without the kernel's headers, and perf without "
              "the libraries that it\nneeds to read symbols and trace events; it counts.")
    print(advice(packages, release), end="")
