# SPDX-License-Identifier: GPL-2.0
"""The series in its three forms.

 stored      linux/ + patches/: new files whole, as the last commit leaves them,
             one patch file per commit with its message and its edits to files
             that are there before it. New files are named under the "---" line
             of the patch as "Adds: PATH", before whatever else is written there
             for reviewers.
 commits     in build/linux. Text under "---" is a git note of the commit.
 mail        build/series and build/series-perf: what is sent, complete diffs and a
             cover letter each.
"""

import os
import re
import shutil
import subprocess
from email.utils import formataddr, parseaddr
from pathlib import Path

import steps
from gittree import (LINUX, GitError, commit_tree, environment, git, sparse_worktree,
                     tree_of)

ZERO = "0" * 40
# The mailed series: the cover letter in patches/, and where all that a patch touches has
# to be for it to go there and not into the first. The perf tool has its own maintainers'
# tree.
MAILED = {"series": ("cover-letter.txt", ()),
          "series-perf": ("cover-letter-perf.txt", ("tools/perf/", "tools/lib/perf/"))}
DIFF = ["--no-renames", "--abbrev=12", "--binary", "--no-color", "--no-ext-diff",
        "--no-textconv", "--diff-algorithm=histogram", "--unified=3",
        "--src-prefix=a/", "--dst-prefix=b/"]


class SeriesError(Exception):
    """The series cannot be brought into the other form; says why."""


class Patch:
    """One file of patches/."""

    def __init__(self, path):
        self.path = path
        self.name = path.name
        self.text = path.read_bytes().decode()
        head, line, rest = self.text.partition("\n---\n")
        if not line:
            raise SeriesError(f"{path.name}: no line \"---\" after the message")
        under, *diffs = re.split(r"^(?=diff --git )", rest, flags=re.M)
        self.adds = re.findall(r"^Adds: (.*)$", under, re.M)
        self.note = re.sub(r"^Adds: .*\n", "", under, flags=re.M).strip()
        # What git am gets: it takes the text for a broken diff if none follows.
        self.mail = head + "\n" + "".join(["---\n", *diffs] if diffs else [])
        self.edits = {match[1]: diff for diff in diffs
                      if (match := re.match(r"diff --git a/(.*) b/\1\n", diff))}


def read_patches(directory):
    return [Patch(path) for path in sorted(Path(directory).glob("*.patch"))]


def stored_files(directory):
    """The new files below linux/, as paths in the kernel tree."""
    directory = Path(directory)
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*")
                  if path.is_symlink() or path.is_file())


# Stored -> commits

def check_adds(patches, base, linux):
    """Each file of linux/ belongs to exactly one patch and is new."""
    owner = {}
    for patch in patches:
        for path in patch.adds:
            if path in owner:
                raise SeriesError(f"{path} is added by {owner[path]} and {patch.name}")
            owner[path] = patch.name
            if not (linux / path).is_file():
                raise SeriesError(f"{patch.name} adds {path}, but linux/{path} is missing")
            if git("cat-file", "-e", f"{base}:{path}", check=False) is not None:
                raise SeriesError(f"{patch.name} adds {path}, but the base has it already")
    for path in stored_files(linux):
        if path not in owner:
            raise SeriesError(f"linux/{path} is in no \"Adds:\" line of patches/*.patch")


def assemble(base, linux, patches_dir, scratch="assemble"):
    """Make the commits of a stored series on BASE; return the last one.

    Who commits and when is taken from the patch: the same series has the same
    commit ids everywhere.
    """
    linux, patches = Path(linux), read_patches(patches_dir)
    check_adds(patches, base, linux)
    paths = {path for patch in patches for path in [*patch.adds, *patch.edits]}
    head = base
    if not patches:
        return head
    with sparse_worktree(scratch, base, paths) as where:
        for number, patch in enumerate(patches, 1):
            try:
                git("am", "-q", "--empty=keep", "--keep-non-patch", "--no-gpg-sign",
                    cwd=where, data=patch.mail,
                    env={"GIT_COMMITTER_NAME": "am", "GIT_COMMITTER_EMAIL": "am@localhost"})
            except GitError as error:
                raise SeriesError(f"{patch.name} does not apply:\n{error}") from None
            for path in patch.adds:
                (where / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(linux / path, where / path)
                as_added(path, patches[number:], where)
            if patch.adds:
                git("add", "-f", "--sparse", "--", *patch.adds, cwd=where)
            who = author("HEAD", where)
            head = commit_tree(git("write-tree", cwd=where), [head],
                               message("HEAD", where), who)
            git("reset", "-q", "--soft", head, cwd=where)
            if patch.note:
                git("notes", "add", "-f", "-F", "-", head, data=patch.note + "\n")
            else:
                git("notes", "remove", "--ignore-missing", head)
        # A file may have places that look alike, and a mode that the edits do not know.
        for path in stored_files(linux):
            if not same_file(linux / path, where / path):
                raise SeriesError(f"linux/{path} is not what the patches that edit it make of "
                                  f"it\n{advice(path)}")
    return head


def as_added(path, later, where):
    """Make WHERE/PATH, which is as the LATER patches leave it, what it was before them."""
    for patch in reversed(later):
        if path in patch.edits:
            try:
                git("apply", "-R", cwd=where, data=patch.edits[path])
            except GitError as error:
                raise SeriesError(f"the edit that {patch.name} makes to {path} is not found in "
                                  f"linux/{path}:\n{error}\n{advice(path)}") from None


def advice(path):
    return (f"To change what a patch edits: undo the change of linux/{path}, make it in "
            "build/linux, commit it there and run: make export")


def author(commit, where=None):
    return tuple(git("show", "-s", "--date=raw", "--format=%an%n%ae%n%ad", commit,
                     **({"cwd": where} if where else {})).split("\n"))


def message(commit, where=None):
    return git("show", "-s", "--format=%B", commit,
               **({"cwd": where} if where else {})).rstrip("\n") + "\n"


def note_of(commit):
    return (git("notes", "show", commit, check=False) or "").strip()


# Commits -> stored

def commits_between(base, head):
    if git("merge-base", "--is-ancestor", base, head, check=False) is None:
        raise SeriesError("the commits do not start from the base commit")
    if git("rev-list", "--merges", f"{base}..{head}"):
        raise SeriesError("there is a merge commit; the series has to be a straight line")
    return git("rev-list", "--reverse", f"{base}..{head}").split()


def changed(commit):
    """(status, mode, path) of each file that a commit changes."""
    fields = git("diff-tree", "-r", "-z", "--no-renames", "--no-commit-id",
                 commit).split("\0")
    for info, path in zip(fields[0::2], fields[1::2]):
        _, mode, _, _, status = info.split()
        yield status, mode, path


def added_files(commits):
    """The new files of each commit: {commit: [path]}. A new file is in linux/ as
    the last commit leaves it, so that it has to be there, and of one mode."""
    owner, added = {}, {}
    for commit in commits:
        added[commit] = []
        for status, mode, path in changed(commit):
            if path in owner and mode != owner[path][1]:
                raise SeriesError(
                    f"{path} is new in {short(owner[path][0])}; {short(commit)} deletes or "
                    "renames it or changes its mode, and may only edit it: have it right from "
                    "the start (git commit --fixup and git rebase -i --autosquash)")
            if status == "A":
                if mode not in ("100644", "100755"):
                    raise SeriesError(f"{path} in {short(commit)} is not a plain file")
                owner[path] = commit, mode
                added[commit].append(path)
    return added


def short(commit):
    return git("show", "-s", "--abbrev=12", "--format=%h (\"%s\")", commit)


def export(base, head, dest):
    """Write the commits BASE..HEAD in their stored form to DEST/linux and
    DEST/patches, and make sure that they come back from there unchanged."""
    commits = commits_between(base, head)
    added = added_files(commits)
    for name in ("linux", "patches"):
        shutil.rmtree(dest / name, ignore_errors=True)
        (dest / name).mkdir(parents=True)
    for number, commit in enumerate(commits, 1):
        (dest / "patches" / file_name(number, commit)).write_bytes(
            stored_form(commit, added[commit]))
        for path in added[commit]:
            target = dest / "linux" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(git("cat-file", "blob", f"{head}:{path}", text=False))
            if any(mode == "100755" for _, mode, name in changed(commit) if name == path):
                target.chmod(0o755)
    made = assemble(base, dest / "linux", dest / "patches", "export")
    compare_commits(commits, commits_between(base, made))
    return made


def file_name(number, commit):
    subject = git("show", "-s", "--format=%f", commit)[:52].rstrip("-.")
    return f"{number:04}-{subject}.patch"


def diff_of(commit, only=(), without=()):
    """What a commit does to the files ONLY, or to all but those WITHOUT."""
    paths = [*(f":(literal,top){path}" for path in only),
             *(f":(exclude,literal,top){path}" for path in without)]
    return git("diff-tree", "-p", "--no-commit-id", *DIFF, commit, "--",
               *([] if only else ["."]), *paths, text=False)


def stored_form(commit, added):
    mail = git("show", "-s", "--pretty=email", "--encode-email-headers",
               "--no-notes", commit, text=False).rstrip(b"\n")
    mail = re.sub(rb"\AFrom [0-9a-f]+ ", f"From {ZERO} ".encode(), mail)
    under = "".join(f"Adds: {path}\n" for path in added)
    note = note_of(commit)
    if note:
        under += ("\n" if under else "") + note + "\n"
    diff = diff_of(commit, without=added)
    return b"".join((mail, b"\n---\n", under.encode(), b"\n" if under and diff else b"", diff))


def compare_commits(wanted, made):
    """Nothing may be lost on the way: not a file, not a word of a message."""
    if len(wanted) != len(made):
        raise SeriesError(f"{len(wanted)} commits became {len(made)}")
    for old, new in zip(wanted, made):
        for what, get in (("files", tree_of), ("message", message), ("author", author),
                          ("note", note_of)):
            if get(old) != get(new):
                raise SeriesError(f"the {what} of {short(old)} would not survive git am: "
                                  f"{get(old)!r} would become {get(new)!r}")


def install(source, dest):
    """Make DEST/linux and DEST/patches what they are in SOURCE; files that
    are right already are left alone."""
    def files(root):
        return set(stored_files(root / "linux")), {
            path.name for path in (root / "patches").glob("*.patch")}
    new, old = files(source), files(dest)
    for part, wanted, present in zip(("linux", "patches"), new, old):
        for path in sorted(present - wanted):
            (dest / part / path).unlink()
            prune(dest / part / path, dest / part)
        for path in sorted(wanted):
            origin, target = source / part / path, dest / part / path
            if path not in present or not same_file(origin, target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, target)


def same_file(one, other):
    return (one.read_bytes() == other.read_bytes()
            and one.stat().st_mode & 0o100 == other.stat().st_mode & 0o100)


def prune(path, top):
    """Remove the directories above PATH that have become empty."""
    for parent in path.parents:
        if parent == top or any(parent.iterdir()):
            return
        parent.rmdir()


def differences(one, other):
    """Names of the files in which two stored series differ."""
    def read(root):
        return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o100)
                for path in [*(root / "patches").glob("*.patch"),
                             *(root / "linux" / name for name in stored_files(root / "linux"))]}
    first, second = read(one), read(other)
    return sorted(name for name in first.keys() | second.keys()
                  if first.get(name) != second.get(name))


def stored_key(root):
    """A hash of a stored series; the cover letter is no part of it."""
    return steps.key([root / "linux", *sorted((root / "patches").glob("*.patch"))])


# Commits -> mail

def mail(base, head, patches, build):
    """Write the mailable series to BUILD/NAME for each NAME of MAILED; return the heads
    of what is in them, each on BASE."""
    parts, heads = parts_of(base, head), {}
    for name, (cover, _) in MAILED.items():
        shutil.rmtree(build / name, ignore_errors=True)
        if parts[name]:
            heads[name] = mail_part(base, parts[name], patches / cover, build / name)
    return heads


def parts_of(base, head):
    """The commits BASE..HEAD by the series that they are mailed in."""
    commits = commits_between(base, head)
    if not commits:
        raise SeriesError("there are no patches yet")
    parts = {name: [] for name in MAILED}
    for commit in commits:
        parts[part_of(commit)].append(commit)
    return parts


def part_of(commit):
    """Which of MAILED a commit goes with."""
    paths = [path for _, _, path in changed(commit)]
    for name, (_, prefixes) in MAILED.items():
        if prefixes and paths and all(path.startswith(prefixes) for path in paths):
            return name
    return next(iter(MAILED))


def replay(base, commits):
    """The same COMMITS one after the other on BASE, without those that lie between;
    return the last one. With none between they keep their ids."""
    index = steps.BUILD / "scratch/replay.index"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.unlink(missing_ok=True)
    env, head = {"GIT_INDEX_FILE": str(index)}, base
    git("read-tree", base, env=env)
    for commit in commits:
        diff = git("diff-tree", "-p", "--no-commit-id", "--full-index", *DIFF, commit, text=False)
        try:
            if diff:
                git("apply", "--cached", env=env, data=diff)
        except GitError as error:
            raise SeriesError(f"{short(commit)} is mailed in another series than what it is "
                              f"based on:\n{error}") from None
        head = commit_tree(git("write-tree", env=env), [head], message(commit), author(commit))
    index.unlink()
    return head


def mail_part(base, commits, cover, dest):
    """Write COMMITS as a series on BASE to DEST; return its last commit."""
    try:
        subject, _, blurb = cover.read_text().strip().partition("\n")
    except FileNotFoundError:
        raise SeriesError(f"{cover.relative_to(cover.parent.parent)} is missing: the subject "
                          "in its first line, an empty line, the text") from None
    if not blurb.startswith("\n") or not blurb.strip():
        raise SeriesError(f"{cover.name}: an empty line and the text belong below the subject")
    head = replay(base, commits)
    dest.mkdir(parents=True)
    # "[PATCH v2] subject" in the cover letter is the prefix of all.
    prefix = re.match(r"\[([^]]+)\]\s*(.*)", subject)
    prefix, subject = prefix.groups() if prefix else ("PATCH", subject)
    who = dict(zip(("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"),
                   author(head)))
    git("format-patch", "-q", "--numbered", "--cover-letter", "--no-signature", "--no-notes",
        "--no-attach", "--no-thread", "--stat=72", f"--subject-prefix={prefix}", f"--base={base}",
        "--encode-email-headers", *DIFF, "-o", dest, f"{base}..{head}", env=who)
    # Without ".patch" so that "git am *.patch" takes what has a diff.
    letter = (dest / "0000-cover-letter.patch").rename(dest / "0000-cover-letter")
    text = letter.read_text()
    text = re.sub(r"^Date: .*$", lambda _: git("show", "-s", "--format=Date: %aD", head),
                  text, count=1, flags=re.M)
    text = text.replace("*** SUBJECT HERE ***", subject)
    letter.write_text(text.replace("*** BLURB HERE ***", blurb.strip()))
    patches = sorted(dest.glob("*.patch"))
    for commit, path in zip(commits, patches):
        note = note_of(commit)
        if note:
            path.write_text(path.read_text().replace("\n---\n", f"\n---\n{note}\n\n", 1))
    address(letter, patches)
    return head


def address(letter, patches):
    """Whom the kernel's own script names for PATCHES: recipients.txt says why each, To and
    Cc of the cover letter are for git send-email --to-cover --cc-cover."""
    if not (LINUX / "scripts/get_maintainer.pl").exists():
        return
    done = subprocess.run(["perl", "scripts/get_maintainer.pl", "--nogit", "--nogit-fallback",
                           "--nofixes", "--roles", *patches], cwd=LINUX, env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode or done.stderr.strip():
        raise SeriesError(f"get_maintainer.pl failed:\n{done.stderr}")
    headers = {"To": [], "Cc": []}
    for line in done.stdout.splitlines():
        # A name may have parentheses, too.
        match = re.match(r"(?P<who>.*<\S+>|\S+) \((?P<role>.*)\)$", line)
        if not match:
            raise SeriesError(f"get_maintainer.pl says: {line}")
        to = match["role"].startswith(("maintainer", "supporter"))
        headers["To" if to else "Cc"].append(formataddr(parseaddr(match["who"])))
    steps.write(letter.parent / "recipients.txt", done.stdout)
    lines = "".join(f"{field}: " + ",\n ".join(all_of) + "\n"
                    for field, all_of in headers.items() if all_of)
    letter.write_text(letter.read_text().replace("\nSubject: ", f"\n{lines}Subject: ", 1))


def check_mail(base, head, heads, build):
    """The mailed patches, applied with git am, give the same commits: each series on
    BASE, and a later one on those before it as well."""
    together = base
    for name, top in heads.items():
        compare_mailed(commits_between(base, top), applied(base, build / name))
        together = top if together == base else applied(together, build / name)[-1]
    if tree_of(together) != tree_of(head):
        raise SeriesError("the mailed series together do not give the files of build/linux")


def applied(start, directory):
    """The commits that git am makes of the mails in DIRECTORY on START."""
    patches = sorted(directory.glob("*.patch"))
    paths = {path for patch in patches
             for path in re.findall(r"^diff --git a/(.*) b/\1$", patch.read_text(), re.M)}
    with sparse_worktree("mail", start, paths) as where:
        try:
            git("am", "-q", *(patch.resolve() for patch in patches), cwd=where,
                env={"GIT_COMMITTER_NAME": "am", "GIT_COMMITTER_EMAIL": "am@localhost"})
        except GitError as error:
            raise SeriesError(f"the mailed series does not apply:\n{error}") from None
        return commits_between(start, git("rev-parse", "HEAD", cwd=where))


def compare_mailed(wanted, made):
    if len(made) != len(wanted):
        raise SeriesError(f"{len(wanted)} commits were mailed as {len(made)}")
    for old, new in zip(wanted, made):
        if (tree_of(old), message(old), author(old)) != (
                tree_of(new), message(new), author(new)):
            raise SeriesError(f"{short(old)} is another commit after git am")
