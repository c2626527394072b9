# SPDX-License-Identifier: GPL-2.0
"""Long steps: say what they do, time them, log them, and do none twice.

  steps.run("unpack the source", ["tar", ...], log="source")

prints "unpack the source ... 12.3 s", appends what the tool says to
build/logs/source.log and shows the end of that file when the tool fails.

  if not steps.fresh(stamp, inputs):
      steps.run(...)
      steps.mark(stamp, inputs)

does the work again when an input changed, and when it was interrupted.
"""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A place of its own for the lab to try another tree in: LAB_BUILD/linux.
BUILD = Path(os.environ.get("LAB_BUILD") or ROOT / "build").resolve()
LOGS = BUILD / "logs"
TIMES = LOGS / "times.json"
TAIL = 30

_keys = {}


def _leave(*_):
    raise SystemExit(1)


# A closed terminal or a kill ends what was started from here, too: that is
# done in except and finally blocks. Whoever ignores a signal goes on doing so.
for _number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_DFL:
        signal.signal(_number, _leave)


def verbose():
    return os.environ.get("V", "0") not in ("", "0")


def die(message):
    """End with a message and status 1."""
    sys.stdout.flush()
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    raise SystemExit(1)


@contextmanager
def locked(path):
    """Hold an exclusive lock on the file PATH (made when missing)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write(path, data):
    """Replace a file at once, so that nobody ever sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data if isinstance(data, bytes) else data.encode())
    os.replace(temporary, path)


def record(title, seconds, log, ok=True):
    """Add one step to build/logs/times.json."""
    with locked(LOGS / ".times.lock"):
        try:
            times = json.loads(TIMES.read_text())
        except (OSError, ValueError):
            times = []
        times.append({"title": title, "seconds": round(seconds, 1),
                      "log": log, "ok": ok})
        write(TIMES, json.dumps(times, indent=1) + "\n")


def show_tail(path, lines=TAIL):
    with open(path, errors="replace") as log:
        last = deque(log, maxlen=lines)
    print(f"--- the last lines of {os.path.relpath(path)} ---")
    sys.stdout.write("".join(last))
    print(f"--- end of {os.path.relpath(path)} ---", flush=True)


def _end_group(process):
    """Stop a tool and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def attempt(title, cmd, log, cwd=None, env=None, timeout=None):
    """Like run(), but return the exit status instead of exiting.

    A tool that ran out of time has the status "timeout".
    """
    cmd = [str(word) for word in cmd]
    path = LOGS / f"{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"{title} ... ", end="\n" if verbose() else "", flush=True)
    start = time.monotonic()
    with open(path, "ab") as out:
        out.write(f"\n### {title}\n### {' '.join(cmd)}\n".encode())
        out.flush()
        process = subprocess.Popen(cmd, cwd=cwd, env=env,
                                   stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE if verbose() else out,
                                   stderr=subprocess.STDOUT,
                                   start_new_session=True)
        copier = None
        if verbose():
            def copy():
                for line in process.stdout:
                    out.write(line)
                    out.flush()
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
            copier = threading.Thread(target=copy, daemon=True)
            copier.start()
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _end_group(process)
            status = "timeout"
        except BaseException:
            _end_group(process)
            raise
        if copier:
            copier.join(5)
    seconds = time.monotonic() - start
    record(title, seconds, log, status == 0)
    if status == 0:
        end = f"{seconds:.1f} s"
    elif status == "timeout":
        end = f"not finished after {timeout} s"
    else:
        end = f"failed ({status}) after {seconds:.1f} s"
    print(f"{title} ... {end}" if verbose() else end, flush=True)
    return status


def run(title, cmd, log, cwd=None, env=None, timeout=None):
    """Run a tool as one step; when it fails, show its last lines and exit."""
    if attempt(title, cmd, log, cwd, env, timeout) != 0:
        show_tail(LOGS / f"{log}.log")
        raise SystemExit(1)


def _hash_file(digest, path, name):
    if path.is_symlink():
        digest.update(f"link {name} {os.readlink(path)}\0".encode())
    elif not path.exists():
        digest.update(f"none {name}\0".encode())
    else:
        runs = bool(path.stat().st_mode & 0o100)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"file {name} {runs} {content}\0".encode())


def key(inputs):
    """One hash over inputs: Path objects are files or directories and count
    with their names and contents, everything else counts as a string."""
    digest = hashlib.sha256()
    for item in inputs:
        if not isinstance(item, Path):
            digest.update(f"text {item}\0".encode())
        elif item.is_dir() and not item.is_symlink():
            for path in sorted(item.rglob("*")):
                if "__pycache__" not in path.parts and (
                        path.is_symlink() or not path.is_dir()):
                    _hash_file(digest, path, path.relative_to(item))
        else:
            _hash_file(digest, item, item.name)
    return digest.hexdigest()


def fresh(stamp_path, inputs):
    """Was the step of this stamp finished with these inputs?

    A stamp that no longer holds is removed at once: the step that follows
    may be interrupted half-way, and then its old result is gone too.
    """
    stamp = Path(stamp_path)
    wanted = key(inputs)
    # What counts is what the inputs were before the step, not after it.
    _keys[str(stamp), repr(list(inputs))] = wanted
    try:
        if stamp.read_text().strip() == wanted:
            return True
    except OSError:
        pass
    stamp.unlink(missing_ok=True)
    return False


def mark(stamp_path, inputs):
    """The step of this stamp is finished; only call it after success."""
    stamp = Path(stamp_path)
    wanted = _keys.get((str(stamp), repr(list(inputs)))) or key(inputs)
    write(stamp, wanted + "\n")
