"""The process that serves a cache: ``python -m viewcache.api.service.run FOLDER READY STARTER``.

It owns the store as a process that opens a cache does, and says on the descriptor ``READY`` that it listens, or why it
does not. It reads its configuration from its standard input. ``STARTER`` is the process that is about to come: should
it end before, and nobody else have come, the service is not needed.
"""

import logging
import logging.handlers
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

import viewcache
from viewcache.api.config.documents import TextSource, load_texts
from viewcache.api.config.load import Config
from viewcache.api.service import answers, asks, files, wire
from viewcache.api.service.server import Server
from viewcache.api.service.verbs import Verbs
from viewcache.api.session.cache import Cache
from viewcache.errors import is_unforeseen

__all__ = ["main", "serve", "tell_starter"]

_log = logging.getLogger("viewcache.service")

LOG_BYTES = 4 << 20
"""Of each of two logs."""


def main(folder: str, ready: int, starter: int) -> int:
    """Serve the cache in a folder; returns the exit status."""
    root = Path(folder)
    awaited = _process_file(starter)
    _log_to(root / files.LOG)
    try:
        documents = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[asks.Document, ...])
        config = load_texts([TextSource(each.name, each.folder, each.text) for each in documents])
    except BaseException as error:
        tell_starter(ready, wire.failed_of(error))
        return 1
    try:
        cache, listener = _own(config, root)
    except BaseException as error:
        unforeseen = is_unforeseen(error)
        _log.error("the cache could not be opened: %s", error, exc_info=unforeseen, extra={"action": "service_failed"})
        tell_starter(ready, wire.failed_of(error))
        return 1
    idle_s = config.cache.service_idle_s
    return _serve(cache, listener, root, idle_s, lambda: tell_starter(ready, answers.Ok()), awaited)


def serve(config: Config, root: Path, idle_s: float, ready: Callable[[], None]) -> int:
    """Own a store and answer clients, begun by hand, until nobody needs it; returns the exit status.

    Args:
        config: of which only the cache's own settings count: tasks come with the clients.
        root: the store's folder.
        idle_s: how long it goes on without clients, seconds.
        ready: told once that it listens.

    Raises:
        ViewcacheError: why it cannot: another process owns the store, say.
    """
    return _serve(*_own(config, root), root, idle_s, ready)


def _own(config: Config, root: Path) -> tuple[Cache, socket.socket]:
    """The cache, owned, and where its clients come."""
    cache = Cache(replace(config, tasks=()), serves=True)
    try:
        return cache, files.bind(root)
    except BaseException:
        cache.close()
        raise


def _serve(
    cache: Cache,
    listener: socket.socket,
    root: Path,
    idle_s: float,
    ready: Callable[[], None],
    awaited: int | None = None,
) -> int:
    """Answer clients; ``awaited`` can be read once the process has ended that is about to come, None if none is."""
    incarnation = uuid.uuid4().hex
    _introduce(root, incarnation)
    server = Server(Verbs(cache, incarnation, begun_by_hand=awaited is None), listener, root, idle_s, awaited)
    ready()
    _log.info("serving %s", root, extra={"action": "service_began"})
    try:
        server.run()
    finally:
        cache.close()
        _log.info("ended", extra={"action": "service_ended"})
    return 0


def _introduce(root: Path, incarnation: str) -> None:
    ticks = files.started_ticks(os.getpid()) or 0
    files.write_facts(
        root,
        files.ServiceFacts(
            wire.PROTOCOL, viewcache.__version__, os.getpid(), ticks, socket.gethostname(), incarnation, time.time()
        ),
    )


def _process_file(starter: int) -> int | None:
    """A descriptor that can be read once a process has ended; None if the system gives none."""
    try:
        return os.pidfd_open(starter)
    except OSError:  # it has ended, and will be missed when it is told that the service listens
        return None


def tell_starter(ready: int, answer: answers.Answer) -> None:
    """Tell who started the service that it listens, or why not, by a descriptor; whether anybody hears it or not."""
    try:
        with open(ready, "wb") as file:
            file.write(wire.encode(answer))
    except BrokenPipeError:
        _log.info("who started this service ended before it listened", extra={"action": "starter_gone"})


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("viewcache")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until it serves: Ctrl-C is for who started it
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
