# SPDX-License-Identifier: GPL-2.0
"""What differs between the architectures of the lab."""

import platform
import shutil

import steps

HOST = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())

ICOUNT = "shift=2,sleep=off"


class Arch:
    def __init__(self, name, kernel_arch, triplet, image, target, console,
                 earlycon, qemu, machine, cpu="max", pmu=True, icount=ICOUNT,
                 virtual_cpus=2):
        self.name = name
        self.kernel_arch = kernel_arch
        self.triplet = triplet
        self.image = image
        self.target = target
        self.console = console
        self.earlycon = earlycon
        self.qemu = qemu
        self.machine = machine
        self.cpu = cpu
        # Does QEMU emulate one?
        self.pmu = pmu
        # Of a guest in virtual time: how it runs, and how many CPUs it has.
        self.icount = icount
        self.virtual_cpus = virtual_cpus

    @property
    def cross(self):
        """The prefix of the compiler's name."""
        return "" if self.name == HOST else f"{self.triplet}-"

    @property
    def library_dirs(self):
        """Where the C library for programs of the guest lies here."""
        if self.name == HOST:
            return [f"/lib/{self.triplet}", f"/usr/lib/{self.triplet}",
                    "/lib64", "/lib"]
        return [f"/usr/{self.triplet}/lib", f"/usr/{self.triplet}/lib64"]

    def make(self, jobs):
        """The start of a kernel make command."""
        return ["make", f"-j{jobs}", f"ARCH={self.kernel_arch}",
                f"CROSS_COMPILE={self.cross}"]

    def qemu_program(self):
        program = shutil.which(self.qemu)
        if not program:
            steps.die(f"no {self.qemu} here")
        return program


# Those that guests run on.
ARCHES = {arch.name: arch for arch in (
    Arch("arm64", "arm64", "aarch64-linux-gnu", "arch/arm64/boot/Image",
         "Image", "ttyAMA0", "earlycon",
         "qemu-system-aarch64", "virt,gic-version=3"),
    Arch("x86_64", "x86", "x86_64-linux-gnu", "arch/x86/boot/bzImage",
         "bzImage", "ttyS0", "earlycon=uart8250,io,0x3f8",
         "qemu-system-x86_64", "q35", pmu=False),
    # Not "max", which QEMU 7.2 does not have; and no CPU has the extension for interrupts
    # of counters if it is not asked to. In virtual time one CPU, since with two the guest hangs in
    # QEMU 7.2, and 1 ns for each instruction: the time at which a counter of 63 bits is full
    # would wrap otherwise, and its interrupt come at once and for ever (see README.md).
    Arch("riscv64", "riscv", "riscv64-linux-gnu", "arch/riscv/boot/Image",
         "Image", "ttyS0", "earlycon",
         "qemu-system-riscv64", "virt", "rv64,sscofpmf=on",
         icount="shift=0,sleep=off", virtual_cpus=1),
)}

# And those that are only compiled for, by scripts/check-series.
COMPILED = ARCHES | {arch.name: arch for arch in (
    Arch("powerpc64", "powerpc", "powerpc64le-linux-gnu", *[None] * 6),
    Arch("i386", "i386", "x86_64-linux-gnu", *[None] * 6),
)}
