"""How a process finds the service of a store, and starts it where there is none.

The service is nobody's child: a trial or a rank that ends must not take it with it. So it is started twice removed, in
a session of its own, with an environment that says nothing of the rank that happened to be first.
"""

import errno
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.renewal import settings_stay
from viewcache.errors import Broken, CatalogBusy, Full, ServiceDown, ViewcacheError
from viewcache.materializer.child import import_path
from viewcache.store import make_root

__all__ = ["START_S", "Documents", "start", "start_lock", "start_renewed"]

Documents: TypeAlias = tuple[asks.Document, ...]

START_S = 60.0
"""How long a start may take."""

_DROPPED = ("OMP_", "MKL_", "MASTER_", "TORCHELASTIC_", "RAY_")
_DROPPED_NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "VIEWCACHE_SERVICE"}
"""What a launcher sets for one of its processes."""

_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Lets the service give back memory that a large plan took; see docs/scale.md."""

_TWICE_REMOVED = """
import os, resource, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
os.sched_setaffinity(0, range(os.cpu_count() or 1))
try:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
except OSError:
    pass  # lowered by a launcher, such as Ray for its workers, and only root may raise it
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-P", "-m", "viewcache.api.service.run", *sys.argv[1:]])
"""


@contextmanager
def start_lock(root: Path) -> Iterator[bool]:
    """Hold the right to start a service of a store; False if another process has it just now.

    Raises:
        BadInput: the folder in which the store would lie is not there.
        ServiceDown: this user may not write there.
        Full: the disk has no room for the folder.
        Broken: there can be no such folder.
    """
    try:
        make_root(root)
        file = os.open(root / files.START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise ServiceDown(
            f"no service can be started in {root}: user {os.getuid()} may not write there; use a store of your own"
        ) from error
    except OSError as error:  # the same words as of who makes the store without a service
        text = f"cannot make a store of {root}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Full(f"{text}; free disk space") from error
        raise Broken(f"{text}; check that it is writable") from error
    try:
        yield _is_locked(file)
    finally:
        os.close(file)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start(root: Path, documents: Documents) -> None:
    """Start a service and wait until it listens; the start lock is held.

    Args:
        root: the store's folder.
        documents: the configuration, whose cache section counts.

    Raises:
        ServiceDown: it ended, or did not begin in time; the message has the end of its log.
        ViewcacheError: what opening the cache raised there.
    """
    listening, ready = os.pipe()
    try:
        try:
            _spawn(root, ready, documents)
        finally:
            os.close(ready)
        answer = _wait(root, listening)
    finally:
        os.close(listening)
    if isinstance(answer, answers.Failed):
        raise wire.error_of(answer)


def start_renewed(root: Path, now: Documents, before: Documents) -> Documents:
    """Start one with the configuration as its files have it now, or as it was, if none can begin with that.

    Args:
        root: the store's folder.
        now: the configuration of now.
        before: that of when this process opened the cache.

    Returns:
        That with which it began.

    Raises:
        ServiceDown, ViewcacheError: as `start`.
    """
    if now != before:
        try:
            start(root, now)
            return now
        except CatalogBusy:
            raise
        except ViewcacheError as error:
            settings_stay(error)
    start(root, before)
    return before


def _spawn(root: Path, ready: int, documents: Documents) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_DROPPED) and name not in _DROPPED_NAMES
    }
    log = os.open(root / files.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _TWICE_REMOVED, str(root), str(ready), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[ready],
            cwd="/",
            env={**environment, **_MEMORY, "PYTHONPATH": import_path()},
            umask=0o077,
        )
    finally:
        os.close(log)
    process.communicate(msgspec.msgpack.encode(documents))


def _wait(root: Path, listening: int) -> answers.Answer:
    """What the service says first."""
    until, said = time.monotonic() + START_S, bytearray()
    while select.select([listening], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(listening, 1 << 16)
        if part:
            said += part
        elif said:
            return wire.decode_answer(bytes(said))
        else:
            raise ServiceDown(f"the service of {root} ended before it listened:\n{_end_of_log(root)}")
    raise ServiceDown(f"the service of {root} did not listen within {START_S:.0f} s:\n{_end_of_log(root)}")


def _end_of_log(root: Path) -> str:
    try:
        lines = (root / files.LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return "\n".join(lines[-12:]) or "its log is empty"
