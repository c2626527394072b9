# SPDX-License-Identifier: GPL-2.0
"""The kernel source that the series starts from, as one commit.

It is the Debian package linux-source-7.3, fetched by apt with a configuration
of its own under build/apt, or the user's tree (LINUX=DIR), which is only read.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import steps
from gittree import LINUX, commit, commit_tree, create, environment, git, tree_of

PACKAGE = "linux-source-7.3"
# The system\'s apt.conf.d is read after our file; options are read last.
APT_OPTIONS = ["-o", "APT::Default-Release="]
SUITE = "trixie-backports"
APT = steps.BUILD / "apt"
KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg",
            "/usr/share/keyrings/debian-archive-keyring.pgp")
WHO = ("Linux source", "source@localhost", "2026-01-01T00:00:00+00:00")

IMPORTED = "refs/bases/imported"
# The rules at the end of Debian's .gitignore.
DEBIAN_IGNORES = re.compile(r"\n#\n# Debian packaging:[^\n]*\n(?:#[^\n]*\n)*/\*\n!/debian/?\n?\Z")
# Rules for the top directory in place of those that Debian's hide.
BUILT_AT_TOP = ("/.*", *(f"!/.{name}" for name in (
    "clang-format", "clippy.toml", "cocciconfig", "editorconfig", "get_maintainer.ignore",
    "gitattributes", "gitignore", "mailmap", "pylintrc", "rustfmt.toml")),
    "/*.o", "/*.a", "/*.symvers", "/vmlinux*", "/System.map", "/modules.*", "/tags", "/TAGS")


def base_commit():
    """The commit of the source; fetch and unpack it where that is needed."""
    create()
    place = os.environ.get("LINUX")
    if not place:
        return from_package()
    return from_place(place)


def from_place(place):
    """The commit of a user's tree."""
    place = Path(place).expanduser().resolve()
    if not (place / "Kbuild").exists() or not (place / "Makefile").exists():
        steps.die(f"LINUX={place} is not a kernel source tree")
    top = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=place, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    if top and Path(top).resolve() == place:
        return from_git(place)
    return from_directory(place)


# The user's tree

def from_git(place):
    """The user's HEAD itself, so that base-commit is known to others too."""
    def ask(*args):
        return subprocess.run(["git", "--no-optional-locks", *args], cwd=place, text=True,
                              stdout=subprocess.PIPE, check=True).stdout.strip()
    head = ask("rev-parse", "HEAD")
    if ask("status", "--porcelain", "--untracked-files=no"):
        print(f"note: {place} has uncommitted changes; its last commit is used")
    if not commit(head):
        steps.run(f"fetch {head[:12]} from {place}",
                  ["git", "fetch", "-q", "--depth=1", "--no-tags", "--update-shallow",
                   # Looking for deltas takes minutes and saves nothing here.
                   "--upload-pack", "git -c pack.window=0 upload-pack",
                   f"file://{place}", "HEAD"], "source", cwd=LINUX)
    git("update-ref", f"refs/bases/{head}", head)
    return head


def from_directory(place):
    """A tree without git: its source files, as one commit."""
    name = re.sub(r"\W+", "-", str(place)).strip("-")
    index = steps.BUILD / f"source/{name}.index"
    index.parent.mkdir(parents=True, exist_ok=True)
    # What was built there is no source. The tree's own rules say what that is,
    # but for the top: Debian's hide everything there.
    rules = ["!/*", *BUILT_AT_TOP]
    base = commit_index(place, index, version_of((place / "Makefile").read_text()), [
        "git add -u .", "git ls-files -z --others --exclude-per-directory=.gitignore "
        + " ".join(f"-x '{rule}'" for rule in rules)
        + " | git update-index -z --add --stdin"])
    git("update-ref", f"refs/bases/{base}", base)
    return base


def without_debian_ignores(rules):
    """.gitignore without what Debian adds: it hides every new file."""
    return DEBIAN_IGNORES.sub("", rules)


def version_of(makefile):
    """The "Linux 7.3.4" of the tree with this Makefile."""
    part = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(\S*)$", makefile[:400], re.M))
    number = ".".join(part[name] for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL")
                      if part.get(name))
    return f"Linux {number}{part.get('EXTRAVERSION', '')}"


def commit_index(place, index, title, commands):
    """Let git COMMANDS put the files below PLACE into INDEX; commit that."""
    env = environment({"GIT_DIR": str(LINUX / ".git"), "GIT_WORK_TREE": str(place),
                       "GIT_INDEX_FILE": str(index)})
    steps.run("read the kernel source into git",
              ["bash", "-c", "set -e -o pipefail\n" + "\n".join(commands)],
              "source", cwd=place, env=env)
    own = {"GIT_INDEX_FILE": str(index)}
    rules = git("cat-file", "blob", ":.gitignore", env=own, check=False, text=False)
    if rules:
        blob = git("hash-object", "-w", "--stdin", env=own,
                   data=without_debian_ignores(rules.decode()))
        git("update-index", "--cacheinfo", f"100644,{blob},.gitignore", env=own)
    return commit_tree(git("write-tree", env=own), [], title + "\n", WHO)


# The Debian package

def from_package(name=PACKAGE):
    ref = f"refs/bases/{name}"
    known = commit(ref)
    if known:
        return known
    package = download(name)
    # Straight from the archive into one pack: to unpack and add some 100000
    # files takes several times as long on a slow disk.
    version = package.name.split("_")[1].replace("%3a", ":")
    steps.run(f"read {package.name} into git",
              ["bash", "-c", "set -o pipefail; dpkg-deb --fsys-tarfile \"$1\" | "
               f"tar -xO ./usr/src/{name}.tar.xz | xz -dc | "
               "/usr/bin/python3 \"$2\" | git -c core.compression=1 "
               "fast-import --quiet --force --depth=0",
               "read", package, Path(__file__).parent / "fast_import.py"],
              "source", cwd=LINUX, env=environment())
    version_line = version_of(git("cat-file", "blob", f"{IMPORTED}:Makefile"))
    base = commit_tree(tree_of(IMPORTED), [], f"{version_line}, {name} {version}\n", WHO)
    git("update-ref", ref, base)
    git("update-ref", "-d", IMPORTED)
    for path in APT.glob("*.deb"):
        path.unlink()
    return base


def download(package, options=(),
             instead="say LINUX=DIR to use a kernel tree of your own"):
    """Fetch a package with apt, its signatures checked; return its path."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            steps.die(f"no {program} here to fetch {package} with; {instead}")
    mirrors = debian_mirrors()
    if not mirrors:
        steps.die(f"no Debian mirror in the apt configuration to fetch {package} from; "
                  f"{instead}")
    for uri, keyring in mirrors:
        configure(uri, keyring)
        env = dict(os.environ, APT_CONFIG=str(APT / "apt.conf"), LC_ALL="C")
        if steps.attempt(f"ask {SUITE} for {package}",
                         ["apt-get", "-q", *APT_OPTIONS, *options, "update", "--error-on=any"],
                         "source", env=env, timeout=600) == 0:
            break
    else:
        steps.show_tail(steps.LOGS / "source.log")
        steps.die(f"no mirror of the apt configuration offers {SUITE}; {instead}")
    for path in APT.glob("*.deb"):
        path.unlink()
    offered = offers(package.rstrip("0123456789."), env, options)
    if package not in offered:
        steps.die(f"{SUITE} has no {package}; it has {', '.join(offered) or 'nothing like it'}")
    steps.run(f"download {package}",
              ["apt-get", "-q", *APT_OPTIONS, *options, "download", package],
              "source", cwd=APT, env=env, timeout=3600)
    found = list(APT.glob("*.deb"))
    if len(found) != 1:
        steps.die(f"apt-get download left {len(found)} packages in {APT}")
    return found[0]


def offers(start, env, options=()):
    """The packages of the suite whose names begin with START."""
    said = subprocess.run(["apt-cache", *APT_OPTIONS, *options, "pkgnames", start], env=env,
                          text=True, stdout=subprocess.PIPE, check=True).stdout
    return sorted(said.split())


def configure(uri, keyring):
    """A private apt: its own lists, cache, status and list of sources."""
    for name in ("lists/partial", "cache/archives/partial"):
        (APT / name).mkdir(parents=True, exist_ok=True)
    (APT / "status").write_text("")
    (APT / "sources.list").write_text(f"deb [signed-by={keyring}] {uri} {SUITE} main\n")
    settings = [f'{name} "{value}";' for name, value in (
        ("Dir::State::Lists", APT / "lists"), ("Dir::State::status", APT / "status"),
        ("Dir::Cache", APT / "cache"), ("Dir::Etc::SourceList", APT / "sources.list"),
        ("Dir::Etc::SourceParts", "-"), ("Dir::Etc::Preferences", "-"),
        ("Dir::Etc::PreferencesParts", "-"), ("Acquire::Languages", "none"),
        ("APT::Get::AllowUnauthenticated", "false"),
        ("Acquire::AllowInsecureRepositories", "false"))]
    (APT / "apt.conf").write_text("\n".join(settings) + "\n")


def debian_mirrors():
    """(URI, keyring) of the system's sources that may be a Debian mirror,
    the likely ones first."""
    default = next((path for path in KEYRINGS if os.path.exists(path)), None)
    found = []
    for uris, suites, components, signed_by in system_sources():
        if "main" not in components or all("security" in suite for suite in suites):
            continue
        keyring = signed_by if os.path.isfile(signed_by) else default
        for uri in uris:
            if keyring and uri.split(":")[0] != "cdrom" and (uri, keyring) not in found:
                found.append((uri, keyring))
    return sorted(found, key=lambda entry: not re.search(r"\bdebian\b(?!-)", entry[0]))


def system_sources(etc=Path("/etc/apt")):
    """All enabled entries for binary packages: URIs, suites, components and
    the Signed-By of each."""
    parts = sorted(etc.glob("sources.list.d/*"))
    for path in [etc / "sources.list", *parts]:
        if path.suffix == ".list" and path.is_file():
            yield from one_line_entries(path.read_text(errors="replace"))
        elif path.suffix == ".sources" and path.is_file():
            yield from stanza_entries(path.read_text(errors="replace"))


def one_line_entries(text):
    """deb [options] URI suite component..."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s*)?([^\s#]+)\s+([^\s#]+)([^#]*)", line)
        if match:
            options = dict(re.findall(r"([\w-]+)=(\S+)", match[1] or ""))
            yield ([match[2]], [match[3]], match[4].split(),
                   options.get("signed-by", "").split(",")[0])


def stanza_entries(text):
    """Stanzas of "Field: value", values going on in indented lines."""
    text = re.sub(r"^#.*\n?", "", text, flags=re.M)
    for stanza in re.split(r"\n\s*\n", text):
        fields = {name.lower(): value.split() for name, value in
                  re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza, re.M)}
        if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"])[0] not in (
                "no", "false", "0"):
            # A key may be given in place of its file name; then it has several words.
            signed_by = fields.get("signed-by", [])
            yield (fields.get("uris", []), fields.get("suites", []),
                   fields.get("components", []),
                   signed_by[0] if len(signed_by) == 1 else "")
