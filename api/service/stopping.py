"""Ending the service of a store, from any process of its user."""

import os
import signal
import time
from pathlib import Path

from viewcache.api.service import answers, asks, files
from viewcache.api.service.client import Client
from viewcache.errors import NotFound, ServiceDown, Timeout

__all__ = ["stop"]

END_S = 20.0
"""How long a service may take to end: it lets what is under way end first."""

LOOK_S = 0.02


def stop(root: Path, *, if_idle: bool = False, now: bool = False) -> int:
    """End the service of a store; returns the process that it was.

    Args:
        root: the store's folder.
        if_idle: only if no other process uses it.
        now: kill it, whatever it does; nothing that was made is lost.

    Raises:
        NotFound: none runs.
        Misuse: it is used, and was to end only if idle.
        Timeout: it did not end.
    """
    facts = files.read_facts(root)
    if now and facts is not None and _is_there(facts):
        os.kill(facts.pid, signal.SIGKILL)
        _wait(root, facts)
        return facts.pid
    if facts is None or (line := files.connect(root, 1.0)) is None:
        raise NotFound(f"no service runs for {root}")
    line.close()
    try:
        client = Client(root, (), may_start=False)
        try:
            client.ask(answers.Ok, asks.Stop(if_idle=if_idle))
        finally:
            client.close()
    except ServiceDown:
        pass  # it was about to end by itself
    _wait(root, facts)
    return facts.pid


def _wait(root: Path, facts: files.ServiceFacts) -> None:
    until = time.monotonic() + END_S
    while _is_there(facts):
        if time.monotonic() > until:
            raise Timeout(
                f"the service of {root}, process {facts.pid}, has not ended after {END_S:.0f} s; "
                "`viewcache stop --now` kills it, and nothing that was made is lost"
            )
        time.sleep(LOOK_S)


def _is_there(facts: files.ServiceFacts) -> bool:
    """Whether the very process still runs: another one may have got its number."""
    return files.started_ticks(facts.pid) == facts.start_ticks
