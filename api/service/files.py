"""The files of a service in its store's folder, and how its socket is reached however long the folder's path is."""

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from viewcache.errors import ServiceDown

__all__ = [
    "LOG",
    "SOCKET",
    "START_LOCK",
    "ServiceFacts",
    "bind",
    "connect",
    "read_facts",
    "remove",
    "started_ticks",
    "write_facts",
]

SOCKET = "service.sock"
FACTS = "service.json"
LOG = "service.log"
START_LOCK = "start.lock"

BACKLOG = 128
"""Clients that may wait to be let in."""

CROWDED_S = 0.005
"""Between two tries where as many wait already."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What a service says of itself, for people and for who must find it; nothing of it is trusted."""

    protocol: int
    version: str
    pid: int
    start_ticks: int
    """When the process started, since the machine did: another process of the number has another one."""
    host: str
    incarnation: str
    started_at: float


def read_facts(root: Path) -> ServiceFacts | None:
    """What the last service said; None if there was none."""
    try:
        return ServiceFacts(**json.loads((root / FACTS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_facts(root: Path, facts: ServiceFacts) -> None:
    """Say what there is, whole or not at all."""
    path = root / f"{FACTS}.{os.getpid()}"
    path.write_text(json.dumps(asdict(facts)), encoding="utf-8")
    path.replace(root / FACTS)


def started_ticks(pid: int) -> int | None:
    """When a process started, see `ServiceFacts.start_ticks`; None if it does not run."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    except (OSError, ValueError, IndexError):
        return None


def remove(root: Path) -> None:
    """Take the socket away; only who owns the store may."""
    (root / SOCKET).unlink(missing_ok=True)


@contextmanager
def _short(root: Path) -> Iterator[str]:
    """A path of the socket that fits into the 107 bytes of an address."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{folder}/{SOCKET}"
        yield short if os.path.isdir("/proc/self/fd") else str(root / SOCKET)
    finally:
        os.close(folder)


def bind(root: Path) -> socket.socket:
    """The listening socket of the store's service, which only this user may use; the store is owned.

    Raises:
        ServiceDown: the folder's file system has no sockets, or the path is too long and there is no /proc.
    """
    remove(root)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(root) as path:
            before = os.umask(0o177)
            try:
                listener.bind(path)
            finally:
                os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ServiceDown(
            f"no service can listen in {root}: {error.strerror or error}; set cache.service: off, or put the store on "
            "a local file system with a shorter path"
        ) from error
    return listener


def connect(root: Path, timeout_s: float) -> socket.socket | None:
    """A connection to the store's service; None if none listens.

    Raises:
        ServiceDown: what listens there belongs to another user.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(timeout_s)
    try:
        with _short(root) as path:
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise ServiceDown(f"{root / SOCKET} is no socket; remove it")
            _connect(line, path, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        line.close()
        return None
    except OSError as error:
        line.close()
        raise ServiceDown(f"cannot reach the service in {root}: {error.strerror or error}") from error
    except BaseException:
        line.close()
        raise
    return line


def _connect(line: socket.socket, path: str, timeout_s: float) -> None:
    """Connect, as soon as there is room among those who wait to be let in."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            line.connect(path)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(CROWDED_S)
