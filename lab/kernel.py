# SPDX-License-Identifier: GPL-2.0
"""Build kernels and the one module of the lab.

Objects stay in build/kernel/ARCH-FLAVOUR-VARIANT between runs; what has to be
compiled again is for make to decide.
"""

import os
from pathlib import Path

import kconfig
import steps
from arches import ARCHES

FLAVOURS = ("debug", "kcsan", "bench")
# Only compiled: the drivers that go with perf events, and less than all of perf.
COMPILED_FLAVOURS = ("drivers", "nocgroup", "noperf")
VARIANTS = ("patched", "unpatched")
SOURCES = {"patched": steps.BUILD / "linux", "unpatched": steps.BUILD / "base"}
PMCOUNT = Path(__file__).resolve().parent / "pmcount"

# The same image for everybody, and none of it made anew because time passed.
CONSTANT = ["LOCALVERSION=", "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab",
            "KBUILD_BUILD_VERSION=1", "KBUILD_BUILD_TIMESTAMP=2026-01-01"]


def jobs():
    return os.environ.get("JOBS") or str(os.cpu_count())


def environment():
    """The environment for the kernel's makefiles, without our own variables."""
    return {name: value for name, value in os.environ.items()
            if name not in ("ARCH", "V", "O", "LINUX", "JOBS", "TIME", "SEED", "MAKEFLAGS",
                            "MFLAGS", "MAKEOVERRIDES", "CROSS_COMPILE", "CONFIG",
                            "DEBUG_INFO")}


def source(variant):
    place = SOURCES[variant]
    if not (place / "Kbuild").exists():
        steps.die(f"no kernel source in {os.path.relpath(place)}; "
                  "'make assemble' puts it there")
    return place


def objects(arch, flavour, variant):
    return steps.BUILD / "kernel" / f"{arch}-{flavour}-{variant}"


def configure(arch, flavour, place, out):
    try:
        kconfig.make_config(arch, flavour, place, out)
    except kconfig.NotTaken as error:
        steps.die(f"{arch}-{flavour}: {error}")


def build(arch, flavour, variant):
    """Configure and build; return the path of the bootable image."""
    place, out = source(variant), objects(arch, flavour, variant)
    target = ARCHES[arch]
    with steps.locked(out.parent / f".{out.name}.lock"):
        configure(arch, flavour, place, out)
        steps.run(f"build the {variant} {flavour} kernel for {arch}",
                  [*target.make(jobs()), *CONSTANT, "-C", place, f"O={out}",
                   target.target, "modules"],
                  f"kernel-{out.name}", env=environment())
    return out / target.image


def pmcount(arch, flavour, variant):
    """Build lab/pmcount for a kernel that was built before."""
    out = objects(arch, flavour, variant)
    build_dir = out / "pmcount"
    build_dir.mkdir(parents=True, exist_ok=True)
    steps.run(f"build the module pmcount for the {variant} kernel",
              [*ARCHES[arch].make(jobs()), *CONSTANT, "-C", out, f"M={PMCOUNT}",
               f"MO={build_dir}", "modules"],
              f"kernel-{out.name}", env=environment())
    return build_dir / "pmcount.ko"
