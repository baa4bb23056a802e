"""Named places at which a test can make this process die or fail; inert unless VIEWCACHE_FAILPOINT is set.

``VIEWCACHE_FAILPOINT="store.before-rename:3:kill"`` sends SIGKILL to the process when it comes to the place for the
third time; ``raise`` in the place of ``kill`` raises ``OSError(EIO)``, as a failing disk would. The variable is read
at the first call, so that workers started with it in their environment obey it too. The trade-off: one function call
and one comparison stay in the released code, so that crash tests exercise the code that people run.

Places: ``store.temp-made`` · ``store.shard-written`` · ``store.before-rename`` · ``store.after-rename`` ·
``store.mid-delete``, ``dataset.listed`` · ``dataset.found``, ``uses.before-move``, ``catalog.…`` around commits,
checkpoints and the snapshot, ``worker.source-piece``, and ``service.before-fetch`` · ``service.after-fetch``, so for
every verb: before and after what a client asked is done, of which it knows nothing yet. This module imports nothing of
viewcache: every folder may use it.
"""

import errno
import os
import signal
import threading
from dataclasses import dataclass

__all__ = ["VARIABLE", "failpoint", "reload"]

VARIABLE = "VIEWCACHE_FAILPOINT"


@dataclass(slots=True)
class _Armed:
    """What the variable asks for; ``left`` counts the visits down under the lock."""

    name: str
    left: int
    action: str


_lock = threading.Lock()
_armed: _Armed | None = None
_read = False


def failpoint(name: str) -> None:
    """Die, raise or (nearly always) do nothing, as the environment says for this place.

    Raises:
        OSError: EIO, when the action is ``raise`` and this is the N-th visit.
    """
    if _read and _armed is None:
        return
    _visit(name)


def reload() -> None:
    """Forget what was read, so that the next visit reads the environment again (tests that set it in process)."""
    global _armed, _read
    with _lock:
        _armed, _read = None, False


def _visit(name: str) -> None:
    global _armed, _read
    with _lock:
        if not _read:
            _armed, _read = _parse(os.environ.get(VARIABLE, "")), True
        armed = _armed
        if armed is None or armed.name != name:
            return
        armed.left -= 1
        if armed.left:
            return
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(errno.EIO, f"failpoint {name} was reached ({VARIABLE} is set)")


def _parse(text: str) -> _Armed | None:
    if not text:
        return None
    name, _, rest = text.partition(":")
    count, _, action = rest.partition(":")
    if not (name and count.isdecimal() and int(count) > 0 and action in {"kill", "raise"}):
        # A typing error must not turn a crash test into a test that always passes.
        raise ValueError(f"{VARIABLE}={text!r} is not NAME:N:kill or NAME:N:raise with N from 1")
    return _Armed(name, int(count), action)
