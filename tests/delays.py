"""All threads are slow in places, at random: `make test ARGS='-p tests.delays'`.

It delays what dispatchers, movers, the catalog's writer, decisions and deletions do, and has threads take turns fifteen
times as often. What then fails counts on what another thread has done by now: a test that looks too early, or a fault.
Tests that hold a time are to be expected among them; they are run once more without it.
"""

import random
import sys
import time
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import pytest

DELAYED = {
    "viewcache.catalog.writer": ["Writer._write"],
    "viewcache.materializer.retention.keeper": ["Keeper.decide"],
    "viewcache.materializer.scheduling.dispatcher": ["Dispatcher._handle"],
    "viewcache.materializer.scheduling.evictor": ["Evictor._leave"],
    "viewcache.materializer.scheduling.migration": ["copy_object"],
    "viewcache.materializer.storage.removal": ["remove"],
    "viewcache.materializer.workers.worker": ["_send"],
}
"""Module → its functions and methods."""

SWITCH_S = 0.0003
"""After so long another thread may have its turn; Python's own is 5 ms."""

SHORT_S, LONG_S = (0.001, 0.01, 0.05), 0.4
SHORT, LONG = 0.15, 0.02
"""Of all calls so many wait for a short and for a long time before they begin."""

_random = random.Random()


def pytest_configure(config: pytest.Config) -> None:
    """Slow them down in this process, and in those that are forked from it."""
    sys.setswitchinterval(SWITCH_S)
    for name, places in DELAYED.items():
        module = import_module(name)
        for place in places:
            *path, last = place.split(".")
            owner: Any = module
            for each in path:
                owner = getattr(owner, each)
            setattr(owner, last, _delayed(getattr(owner, last)))


def _delayed(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    def late(*given: Any, **named: Any) -> Any:
        drawn = _random.random()
        if drawn < SHORT + LONG:
            time.sleep(_random.choice(SHORT_S) if drawn < SHORT else LONG_S)
        return work(*given, **named)

    return late
