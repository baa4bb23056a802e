"""The files of a service in its store's folder, and how its socket is reached however long the folder's path is."""

import errno
import json
import logging
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from viewcache.errors import ServiceDown, Timeout, within_limits

__all__ = [
    "LOG",
    "SOCKET",
    "START_LOCK",
    "ServiceFacts",
    "absent",
    "bind",
    "connect",
    "elsewhere",
    "is_there",
    "of_another_user",
    "read_facts",
    "remove",
    "served_by",
    "started_ticks",
    "wait_ended",
    "write_facts",
]

_log = logging.getLogger("viewcache.service")

END_S = 20.0
"""How long a service may take to end: it lets what is under way end first."""

LOOK_S = 0.02

SOCKET = "service.sock"
FACTS = "service.json"
LOG = "service.log"
START_LOCK = "start.lock"

SERVES = "viewcache.api.service.run"
"""What a service runs that was started for whoever came first."""

BACKLOG = 128
"""Clients that may wait to be let in."""

_NOBODY = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
"""Of a folder without a service, also of one that cannot be: who would make the store says what is wrong with it."""

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
    """Say what there is, whole or not at all; where the disk is full nothing is said, and the last one's word goes."""
    path = root / f"{FACTS}.{os.getpid()}"
    try:
        path.write_text(json.dumps(asdict(facts)), encoding="utf-8")
        path.replace(root / FACTS)
    except OSError as error:
        _log.warning("cannot write %s: %s", root / FACTS, error.strerror, extra={"action": "service_facts"})
        for stale in (path, root / FACTS):
            with suppress(OSError):
                stale.unlink()


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


def _check_system() -> None:
    """Refuse a system without /proc: sockets are reached, memory is shared and processes are told apart by it."""
    if not os.path.isdir("/proc/self/fd"):
        raise ServiceDown("this system has no /proc, which a service needs: mount it, or set cache.service: off")


@contextmanager
def _short(root: Path) -> Iterator[str]:
    """A path of the socket that fits into the 107 bytes of an address."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


def bind(root: Path) -> socket.socket:
    """The listening socket of the store's service, which only this user may use; the store is owned.

    Raises:
        ServiceDown: the folder's file system has no sockets, or there is no /proc.
    """
    _check_system()
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
            "a local file system"
        ) from error
    return listener


def connect(root: Path, timeout_s: float) -> socket.socket | None:
    """A connection to the store's service; None if none listens.

    Raises:
        ServiceDown: what listens there cannot be reached, or is no socket, or there is no /proc.
        Full: this process has no descriptor left.
    """
    _check_system()
    with within_limits(f"cannot reach the service in {root}"):
        return _connected(root, timeout_s)


def _connected(root: Path, timeout_s: float) -> socket.socket | None:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(timeout_s)
    try:
        with _short(root) as path:
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise ServiceDown(f"{root / SOCKET} is no socket; remove it")
            _connect(line, path, timeout_s)
    except OSError as error:
        line.close()
        if error.errno in _NOBODY:
            return None
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        if isinstance(error, PermissionError) and (owner := os.stat(root).st_uid) != os.getuid():
            raise of_another_user(root, owner) from error
        raise ServiceDown(f"cannot reach the service in {root}: {error.strerror or error}") from error
    except BaseException:
        line.close()
        raise
    return line


def of_another_user(root: Path, owner: int) -> ServiceDown:
    """The error of who comes to the store or the service of another user, root too: it would be turned away."""
    return ServiceDown(
        f"the service of {root} is user {owner}'s, and this process is user {os.getuid()}'s: use a store of your own, "
        "or run as that user"
    )


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


def is_there(facts: ServiceFacts) -> bool:
    """Whether the very process still runs here: another one may have got its number, also on another host."""
    return facts.host == socket.gethostname() and started_ticks(facts.pid) == facts.start_ticks


def served_by(pid: int) -> str | None:
    """The folder of the store that a process of this host was started to serve, maybe not yet; None if none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    return words[words.index(SERVES) + 1] if SERVES in words else None


def absent(root: Path) -> str:
    """That no service of a store can be reached, in words; and where the last one was, if it was on another host."""
    facts = read_facts(root)
    if facts is None or facts.host == socket.gethostname():
        return f"no service runs for {root}"
    return f"no service runs for {root} on this host; the last one was process {facts.pid} of host {facts.host}"


def elsewhere(root: Path, owner: int) -> str:
    """Where the service runs that owns a store, if that is another host; empty if it is not.

    The lock of a store works across hosts of a network file system, and its socket does not.

    Args:
        root: the store's folder.
        owner: the process that holds the store's lock; 0 if it is none of this host.
    """
    facts = read_facts(root)
    if facts is None or facts.host == socket.gethostname() or owner not in (0, facts.pid):
        return ""
    return (
        f"the service of {root} runs on host {facts.host}, as process {facts.pid}, and cannot be reached from host "
        f"{socket.gethostname()}: work or end it there, or use a store of this host's own"
    )


def wait_ended(root: Path, facts: ServiceFacts) -> None:
    """Wait until a service that was told to end has.

    Raises:
        Timeout: it did not end.
    """
    until = time.monotonic() + END_S
    while is_there(facts):
        if time.monotonic() > until:
            raise Timeout(
                f"the service of {root}, process {facts.pid}, has not ended after {END_S:.0f} s; "
                "`viewcache stop --now` kills it, and nothing that was made is lost"
            )
        time.sleep(LOOK_S)
