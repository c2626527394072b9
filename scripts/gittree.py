# SPDX-License-Identifier: GPL-2.0
"""The git tree build/linux and its helpers, free of the user's git settings."""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import steps

LINUX = steps.BUILD / "linux"
BASE = steps.BUILD / "base"
STATE = steps.BUILD / "tree.json"
LOCK = steps.BUILD / ".tree.lock"
BRANCH = "series"


class GitError(Exception):
    pass


def environment(extra=None):
    """The environment for git: no settings but the tree's own, so that the
    same series gives the same bytes for everybody."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("GIT_")}
    env.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1",
               LC_ALL="C", **(extra or {}))
    return env


def git(*args, cwd=LINUX, env=None, data=None, check=True, text=True):
    """Run git and return what it printed (None when it failed unchecked)."""
    if not Path(cwd).is_dir():
        if check:
            raise GitError(f"{cwd} is not there")
        return None
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0",
               "-c", "advice.updateSparsePath=false", *map(str, args)]
    if isinstance(data, str):
        data = data.encode()
    done = subprocess.run(command, cwd=cwd, env=environment(env), input=data,
                          stdin=None if data is not None else subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        if not check:
            return None
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise GitError(f"git {args[0]}: {said}")
    return done.stdout.decode().rstrip("\n") if text else done.stdout


def create():
    """Make the (still empty) git tree build/linux, and its settings."""
    if not (LINUX / ".git/HEAD").exists():
        LINUX.mkdir(parents=True, exist_ok=True)
        git("init", "-q", "-b", BRANCH)
    # Of a pattern git does not say that there are no notes yet.
    for name, value in (("gc.auto", "0"), ("notes.rewriteRef", "refs/notes/*"),
                        ("notes.rewrite.amend", "true"),
                        ("notes.rewrite.rebase", "true")):
        configure(name, value)


def configure(name, value):
    if git("config", "--local", name, check=False) != value:
        git("config", name, value)


def set_identity():
    """Who commits in build/linux is who commits in this repository."""
    for name in ("user.name", "user.email"):
        value = subprocess.run(["git", "config", name], cwd=steps.ROOT, text=True,
                               stdout=subprocess.PIPE).stdout.strip()
        if value:
            configure(name, value)


def commit(name):
    """The id of the commit NAME, or None."""
    return git("rev-parse", "--verify", "-q", f"{name}^{{commit}}", check=False)


def tree_of(name):
    return git("rev-parse", f"{name}^{{tree}}")


def commit_tree(tree, parents, message, who):
    """Make a commit with a fixed identity: WHO is (name, email, date)."""
    env = {}
    for role in ("AUTHOR", "COMMITTER"):
        for field, value in zip(("NAME", "EMAIL", "DATE"), who):
            env[f"GIT_{role}_{field}"] = value
    args = [word for parent in parents for word in ("-p", parent)]
    return git("commit-tree", tree, *args, data=message, env=env)


@contextmanager
def sparse_worktree(name, start, paths):
    """A worktree of the commit START that has only the files PATHS."""
    where = steps.BUILD / "scratch" / name
    git("worktree", "prune")
    remove_worktree(where)
    git("worktree", "add", "-q", "--detach", "--no-checkout", where, start)
    try:
        # Every file starts as "not checked out"; a pattern that matches
        # nothing is needed when the series touches nothing.
        patterns = "".join(f"/{path}\n" for path in sorted(paths)) or "/.none\n"
        git("sparse-checkout", "set", "--no-cone", "--stdin", cwd=where, data=patterns)
        git("read-tree", "-m", "-u", "HEAD", cwd=where)
        yield where
    finally:
        remove_worktree(where)


def remove_worktree(where):
    if git("worktree", "remove", "--force", "--force", where, check=False) is None:
        shutil.rmtree(where, ignore_errors=True)
        git("worktree", "prune")


def read_state():
    """What build/linux was when it last agreed with linux/ and patches/."""
    try:
        return json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}


def write_state(**state):
    steps.write(STATE, json.dumps(state, indent=1) + "\n")
