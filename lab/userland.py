# SPDX-License-Identifier: GPL-2.0
"""Build what runs in the guests: perf and the kernel's selftests."""

import shutil
import subprocess

import debian
import initramfs
import kernel
import steps
from arches import ARCHES

SELFTESTS = ("perf_events",)

# The counting and benchmark parts of perf need none of these, and most of
# their libraries do not exist for a foreign architecture.
WITHOUT = ("NO_LIBELF", "NO_LIBDW", "NO_LIBTRACEEVENT", "NO_LIBPYTHON", "NO_LIBPERL",
           "NO_LIBBPF", "NO_SLANG", "NO_GTK2", "NO_LIBUNWIND", "NO_LIBCAP",
           "NO_LIBNUMA", "NO_LIBCRYPTO", "NO_LZMA", "NO_ZLIB", "NO_LIBZSTD",
           "NO_AUXTRACE", "NO_LIBBABELTRACE", "NO_CAPSTONE", "NO_LIBLLVM",
           "NO_LIBPFM4", "NO_LIBDEBUGINFOD", "NO_SDT", "NO_JVMTI", "NO_JEVENTS",
           "NO_RUST")

# What perf stat --bpf-counters needs of those, and where it comes from: libbpf from
# the kernel tree, the rest from Debian, linked into the program. libzstd is for
# libelf, where it knows of it.
FOR_BPF = ("NO_LIBELF", "NO_LIBBPF", "NO_ZLIB")
BPF_PACKAGES = ("libelf-dev", "zlib1g-dev", "libzstd-dev")
# perf's makefile looks for a libssl of the guest, and then for this among the flags. But
# what uses one is bpftool, which runs here.
BPF_FLAGS = "-DHAVE_LIBOPENSSL_SUPPORT"

# Enough of a report to find the place, and no more to load than that needs.
SANITIZE = "-fsanitize=address -fno-omit-frame-pointer -g1"

# Where the sources of either are.
PERF_PATHS = [f"tools/{name}" for name in ("perf", "lib", "build", "include", "scripts",
                                           "arch")]
SELFTEST_PATHS = [f"tools/testing/selftests/{name}" for name in (
    *SELFTESTS, "kselftest", "kselftest.h", "kselftest_harness.h", "lib.mk", "Makefile",
    "run_kselftest.sh")] + ["tools/include", "include/uapi", "arch/arm64/include/uapi",
                            "arch/x86/include/uapi"]


def source_key(place, *paths):
    """What identifies some paths of a source tree: their commit, and the
    changes that are not committed."""
    def git(*args):
        return subprocess.run(["git", *args], cwd=place, stdout=subprocess.PIPE,
                              check=True).stdout
    untracked = git("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return [git("ls-tree", "HEAD", *paths).hex(), git("diff", "HEAD", "--", *paths).hex(),
            *(place / name for name in untracked.decode().split("\0") if name)]


def make_perf(arch, place, out, bpf=False, without=WITHOUT):
    """The command that builds tools/perf of the source tree PLACE in OUT."""
    target = ARCHES[arch]
    without = [name for name in without if not (bpf and name in FOR_BPF)]
    return ["make", f"-j{kernel.jobs()}", "-C", place / "tools/perf", f"O={out}",
            f"ARCH={target.kernel_arch}", f"CROSS_COMPILE={target.cross}",
            f"BUILD_BPF_SKEL={int(bpf)}", *(f"{name}=1" for name in without)]


def bpf_libraries(arch, out):
    """A directory with the libraries that libbpf needs, for the linker. The headers are
    those of this machine's libelf-dev, where the cross compiler looks, too."""
    archives = [path for package in BPF_PACKAGES
                for path in debian.package(arch, package).rglob("lib*.a")]
    # One name for all of them: the check for libelf links with nothing else.
    group = " ".join(str(path) for path in archives)
    for path in archives:
        steps.write(out / f"{path.stem}.so", f"GROUP({group})\n")
    return out


def perf(arch, sanitize=False, bpf=False):
    """Build tools/perf of the series, with the address sanitizer or with BPF programs
    for perf stat --bpf-counters if asked to; return the program's path."""
    place = kernel.source("patched")
    name = arch + "-asan" * sanitize + "-bpf" * bpf
    out = steps.BUILD / "perf" / name
    program, stamp = out / "perf", out / ".done"
    flags = SANITIZE.split() if sanitize else []
    with steps.locked(out.parent / f".{name}.lock"):
        if bpf:
            flags += [BPF_FLAGS, f"-L{bpf_libraries(arch, out / 'lab-lib')}"]
        command = [*make_perf(arch, place, out, bpf), "WERROR=0"]
        if flags:
            command.append(f"EXTRA_CFLAGS={' '.join(flags)}")
        inputs = [*source_key(place, *PERF_PATHS), *map(str, command[2:])]
        if steps.fresh(stamp, inputs) and program.exists():
            return program
        out.mkdir(parents=True, exist_ok=True)
        steps.run(f"build perf for {name}", command, f"perf-{name}",
                  env=kernel.environment())
        if bpf and not has_bpf(program):
            # perf's makefile only warns about what it leaves out.
            steps.die(f"the perf for {name} has no BPF programs; "
                      f"see build/logs/perf-{name}.log")
        steps.mark(stamp, inputs)
    return program


def has_bpf(program):
    """Does that perf have the programs of perf stat --bpf-counters, with and without
    cgroups?"""
    content = program.read_bytes()
    return all(name + b"\0" in content
               for name in (b"bperf_leader_bpf", b"bperf_follower_bpf", b"bperf_cgroup_bpf"))


def selftests(arch):
    """Build and install the selftests; return the directory for the guest."""
    place = kernel.source("patched")
    out = steps.BUILD / "kselftest" / arch
    installed, stamp = out / "install", out / ".done"
    with steps.locked(out.parent / f".{arch}.lock"):
        inputs = [*source_key(place, *SELFTEST_PATHS), *SELFTESTS]
        if steps.fresh(stamp, inputs) and installed.is_dir():
            return installed
        shutil.rmtree(installed, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        target = ARCHES[arch]
        env = kernel.environment()
        make = ["make", f"-j{kernel.jobs()}", "-C", place, f"O={out}",
                f"ARCH={target.kernel_arch}", f"CROSS_COMPILE={target.cross}"]
        steps.run(f"install the kernel's headers for {arch}", [*make, "headers"],
                  f"kselftest-{arch}", env=env)
        # FORCE_TARGETS: a test that does not compile is an error, not left out.
        steps.run(f"build the selftests for {arch}",
                  [*make, "-C", "tools/testing/selftests", "install",
                   f"TARGETS={' '.join(SELFTESTS)}", f"KSFT_INSTALL_PATH={installed}",
                   "FORCE_TARGETS=1"],
                  f"kselftest-{arch}", env=env)
        steps.mark(stamp, inputs)
    return installed


def programs(arch, with_perf=True):
    """The archive with all programs for the guests of an architecture."""
    return initramfs.programs(arch, perf(arch) if with_perf else None, selftests(arch))
