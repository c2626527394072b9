# SPDX-License-Identifier: GPL-2.0
"""Fetch Debian packages of a guest's architecture and unpack them.

apt does it, from the system's own sources and with its keys, but with lists,
cache and status of its own under build/apt-ARCH: no foreign architecture is
added to the system, and nothing is installed.
"""

import os
import shutil

import source
import steps

DEBIAN_ARCH = {"arm64": "arm64", "x86_64": "amd64", "riscv64": "riscv64"}
# An architecture that Debian 12 does not have comes from Debian 13 there, too.
SUITES = {"riscv64": "trixie"}

# Architectures whose lists this process has brought up to date.
_asked = set()


def _configure(arch):
    """Write the private configuration; return its directory."""
    place = steps.BUILD / f"apt-{arch}"
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    steps.write(place / "status", "")
    settings = [f'{name} "{value}";' for name, value in (
        ("APT::Architecture", DEBIAN_ARCH[arch]),
        ("Dir::State::Lists", place / "lists"),
        ("Dir::State::status", place / "status"),
        ("Dir::Cache", place / "cache"),
        ("Acquire::Languages", "none"),
        ("APT::Get::AllowUnauthenticated", "false"),
        ("Acquire::AllowInsecureRepositories", "false"))]
    # Not the system's list of architectures.
    settings += ["#clear APT::Architectures;"]
    settings += [f'APT::Architectures {{ "{DEBIAN_ARCH[arch]}"; }};']
    if arch in SUITES:
        steps.write(place / "sources.list", "".join(
            f"deb [signed-by={keyring}] {uri} {SUITES[arch]} main\n"
            for uri, keyring in source.debian_mirrors()))
        settings += [f'{name} "{value}";' for name, value in (
            ("Dir::Etc::SourceList", place / "sources.list"), ("Dir::Etc::SourceParts", "-"),
            ("Dir::Etc::Preferences", "-"), ("Dir::Etc::PreferencesParts", "-"))]
    steps.write(place / "apt.conf", "\n".join(settings) + "\n")
    return place


def package(arch, name):
    """The directory that holds the unpacked files of a package."""
    if not shutil.which("apt-get"):
        steps.die(f"no apt-get here to fetch {name} with")
    place = _configure(arch)
    files = place / name
    stamp = place / f".{name}"
    if steps.fresh(stamp, [name]) and files.is_dir():
        return files
    env = dict(os.environ, APT_CONFIG=str(place / "apt.conf"), LC_ALL="C")
    for old in place.glob(f"{name}_*.deb"):
        old.unlink()
    if arch not in _asked:
        steps.run(f"ask apt for packages of {arch}",
                  ["apt-get", "-q", *source.APT_OPTIONS, "update"],
                  "packages", env=env, timeout=600)
        _asked.add(arch)
    steps.run(f"download {name} for {arch}", ["apt-get", "-q", *source.APT_OPTIONS, "download", name],
              "packages", cwd=place, env=env, timeout=600)
    found = list(place.glob(f"{name}_*.deb"))
    if len(found) != 1:
        steps.die(f"apt-get download left {len(found)} packages of {name}")
    shutil.rmtree(files, ignore_errors=True)
    steps.run(f"unpack {name} for {arch}",
              ["dpkg-deb", "-x", found[0], files], "packages")
    steps.mark(stamp, [name])
    return files


def program(arch, name, inner):
    """A program of a package; Debian 13 has some in usr/bin that 12 has in bin."""
    place = package(arch, name)
    for directory in ("bin", "usr/bin"):
        if (path := place / directory / inner).is_file():
            return path
    steps.die(f"no {inner} in the package {name}")
