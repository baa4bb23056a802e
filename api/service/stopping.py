"""Ending the service of a store, from any process of its user."""

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from viewcache.api.service import files
from viewcache.api.service.client import ask_to_end
from viewcache.api.service.peer import peer
from viewcache.errors import BadInput, NotFound, ServiceDown, ServiceVersion

__all__ = ["stop"]


def stop(root: Path, *, if_idle: bool = False, now: bool = False) -> int:
    """End the service of a store; returns the process that it was.

    Args:
        root: the store's folder.
        if_idle: only if no other process uses it.
        now: kill it, whatever it does; nothing that was made is lost.

    Raises:
        NotFound: none runs.
        Busy: it is used, and was to end only if idle.
        ServiceVersion, BadInput: it is of another release, which cannot be asked whether it is idle.
        Timeout: it did not end.
    """
    facts = files.read_facts(root) or _of_listener(root)
    if now and facts is not None and files.is_there(facts):
        os.kill(facts.pid, signal.SIGKILL)
        files.wait_ended(root, facts)
        return facts.pid
    if facts is None or (line := files.connect(root, 1.0)) is None:
        raise NotFound(files.absent(root))
    line.close()
    with suppress(ServiceDown):  # it was about to end by itself
        try:
            ask_to_end(root, if_idle=if_idle)
        except (ServiceVersion, BadInput):  # of other code: it speaks another protocol, or does not know the question
            if if_idle or not files.is_there(facts):
                raise
            os.kill(facts.pid, signal.SIGTERM)  # the same to every service
    files.wait_ended(root, facts)
    return facts.pid


def _of_listener(root: Path) -> files.ServiceFacts | None:
    """What the socket tells of a service that a full disk kept from saying it; None if none listens."""
    if (line := files.connect(root, 1.0)) is None:
        return None
    with line:
        pid, _ = peer(line)
    ticks = files.started_ticks(pid)
    return None if ticks is None else files.ServiceFacts(0, "", pid, ticks, socket.gethostname(), "", 0.0)
