"""Looking at the service of a store without being one of its clients: who uses it, whether it is needed."""

import os
from pathlib import Path

from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.peer import peer
from viewcache.api.service.stopping import stop
from viewcache.errors import CatalogBusy, NotFound, ViewcacheError

__all__ = ["end_idle", "explained", "stats_of"]

PATIENCE_S = 5.0
"""How long the service may take to say how it is."""

MOST_NAMED = 8
"""Clients that an error names."""


def stats_of(root: Path) -> answers.StatsOf | None:
    """What the service of a store does; None if none runs, or it is ending. Asking keeps none alive."""
    try:
        line = files.connect(root, PATIENCE_S)
        if line is None:
            return None
        with line:
            if peer(line)[1] != os.getuid():
                return None
            wire.send(line, asks.Stats())
            answer = wire.decode_answer(wire.receive(line, wire.ANSWER_BYTES)[0])
    except (ViewcacheError, OSError, EOFError):
        return None
    return answer if isinstance(answer, answers.StatsOf) else None


def end_idle(error: CatalogBusy) -> bool:
    """End the service that owns a store, if it began by itself and nobody uses it; whether the store is free now."""
    root = _served(error)
    if root is None or _is_by_hand(error.pid):
        return False
    try:
        stop(root, if_idle=True)
    except NotFound:
        return True  # it has ended by itself
    except ViewcacheError:
        return False
    return True


def explained(error: CatalogBusy, besides: int = 0) -> CatalogBusy:
    """The same error, which names the service if one owns the store: where it runs, who uses it, and how it is ended.

    Args:
        error: of who wanted to own the store.
        besides: a process that is not named among the users: it has asked the service something, and lets go just now.
    """
    if error.folder and (far := files.elsewhere(Path(error.folder), error.pid)):
        return CatalogBusy(far, error.pid, error.folder)
    root = _served(error)
    if root is None:
        return error
    return CatalogBusy(
        f"catalog {root} is owned by process {error.pid}, which is the service of this cache: `viewcache stop {root}` "
        f"ends it, and no work is lost; {_users(root, besides, error.pid)}",
        error.pid,
        str(root),
    )


def _users(root: Path, besides: int, service: int) -> str:
    """Who uses a service, in words."""
    stats = stats_of(root)
    clients = [] if stats is None else [each for each in stats.clients if each.pid != besides]
    told = [
        f"process {each.pid} ({each.program}{f', job {each.job}' if each.job else ''})" for each in clients[:MOST_NAMED]
    ]
    if len(clients) > MOST_NAMED:
        told.append(f"{len(clients) - MOST_NAMED} more")
    if told:
        return f"it is used by {', '.join(told)}"
    return "nobody uses it now" + (
        ", and it stays until it is stopped, because `viewcache serve` began it" if _is_by_hand(service) else ""
    )


def _is_by_hand(service: int) -> bool:
    """Whether `viewcache serve` runs this service, rather than a process that a client started."""
    return files.served_by(service) is None


def _served(error: CatalogBusy) -> Path | None:
    """The store whose service owns it; None if another process does. `viewcache serve` is told by what it says."""
    if error.folder:
        facts = files.read_facts(Path(error.folder))
        if facts is not None and facts.pid == error.pid and files.is_there(facts):
            return Path(error.folder)
    root = files.served_by(error.pid)
    return None if root is None else Path(root)
