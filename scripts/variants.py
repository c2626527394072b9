# SPDX-License-Identifier: GPL-2.0
"""What a version of the kernel needs beside the series: patches/X.Y.

 corrections   patches of their own, which come before the series
 variants      have "Instead-of: ID PATH" lines under the "---", and say what the patch
               with the same subject does there to these files; all else is done as the
               patch says. ID is that of what the patch does to the file: when that
               changes, the variant is no longer taken.
"""

import re
import shutil
import subprocess

import series
import source
import steps
from gittree import LINUX, GitError, commit_tree, environment, git, tree_of


class Variant(series.Patch):
    """A file of patches/X.Y."""

    def __init__(self, path):
        super().__init__(path)
        self.shown = path.relative_to(steps.ROOT)
        self.subject = re.search(r"^Subject: (.*)$", self.text, re.M)[1]
        # Nothing in a correction.
        self.files = {name: was for was, name in re.findall(r"^Instead-of: (\S+) (.*)$",
                                                            self.note, re.M)}


def place_of(base):
    """The patches/X.Y of a kernel."""
    version = source.version_of(git("cat-file", "blob", f"{base}:Makefile"))
    return steps.ROOT / "patches" / re.match(r"Linux (\d+\.\d+)", version)[1]


def subject(change):
    return git("show", "-s", "--format=%s", change)


def edit_id(change, path):
    """Stands for what a commit does to a file, at whatever lines."""
    diff = series.diff_of(change, [path])
    return git("patch-id", "--verbatim", data=diff).split()[0] if diff else "nothing"


def correct(tree, patch):
    """Commit a correction; return why that is not possible."""
    try:
        git("am", "-q", "--no-gpg-sign", cwd=tree, data=patch.mail)
    except GitError as error:
        git("am", "--abort", cwd=tree, check=False)
        return f"{error}\nRemove {patch.shown} if the kernel has it now."
    return ""


def take(tree, change, variant):
    """Bring a commit over with the edits of its variant; return why that is not possible."""
    late = [path for path, was in variant.files.items() if edit_id(change, path) != was]
    if late:
        return f"{variant.shown} is for what the patch did before to {', '.join(late)}"
    try:
        git("apply", "--3way", "--allow-empty", "--whitespace=nowarn", cwd=tree,
            data=series.diff_of(change, without=variant.files)
            + "".join(variant.edits.values()).encode())
    except GitError as error:
        git("reset", "-q", "--hard", cwd=tree)
        return f"{variant.shown} does not apply: {error}"
    git("commit", "-q", "--allow-empty", "-C", change, cwd=tree)
    return ""


def mended(old, new):
    """The files of a commit that are not what git makes of them by itself."""
    def side(name, *parents):
        return commit_tree(tree_of(name), parents, "side\n", series.author(old))
    top = side(f"{old}^")
    # It fails when there are conflicts, which are then in its files.
    merged = subprocess.run(["git", "merge-tree", "--write-tree", side(f"{new}^", top),
                             side(old, top)], cwd=LINUX, env=environment(), text=True,
                            stdout=subprocess.PIPE).stdout.split("\n")[0]
    differ = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", merged, new).split("\0")
    return sorted(set(differ) & {path for change in (old, new)
                                 for _, _, path in series.changed(change)})


def keep(place, commits, first, own):
    """Write PLACE anew: what is FIRST, and what is mended in its OWN of the series' COMMITS."""
    texts = [(new, series.stored_form(new, [])) for new in first]
    for old, new in zip(commits, own):
        files = mended(old, new)
        if files:
            head = f"Subject: {subject(old)}\n\n---\n" + "".join(
                f"Instead-of: {edit_id(old, path)} {path}\n" for path in files)
            texts.append((new, head.encode() + b"\n" + series.diff_of(new, files)))
    shutil.rmtree(place, ignore_errors=True)
    for number, (new, text) in enumerate(texts, 1):
        steps.write(place / series.file_name(number, new), text)
    print(f"{place.relative_to(steps.ROOT)}: {len(texts)} files")
