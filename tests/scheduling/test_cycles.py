"""Open, iterate, go away in the middle, again and again: nothing is stuck, nothing is left."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config
from tests.scheduling.stopped import KINDS
from viewcache.api.session.cache import Cache
from viewcache.errors import Closed

STUCK_S = 30.0
"""No cycle may take longer; each takes well under a second on an idle machine."""

ENDINGS = ("break", "leave", "kill", "close")


def _cycle(cache: Cache, ending: str, batches: int) -> None:
    """Read a few batches of a loader and go away: by a break, by leaving, past a killed worker, or by closing."""
    loader = cache.loader("t").all_epochs()
    for _ in range(batches):
        next(loader)
    if ending == "kill":
        dispatcher = cache.owner.dispatcher
        assert dispatcher is not None
        for pid in dispatcher.pool.pids():
            os.kill(pid, signal.SIGKILL)
        next(loader)
    elif ending == "leave":
        cache.leave("t")
    elif ending == "close":
        reading = threading.Thread(target=_read_on, args=(cache,), name="test-reader")
        reading.start()
        cache.close()
        reading.join(STUCK_S)
        assert not reading.is_alive(), "a reader is stuck"
    loader.close()  # type: ignore[attr-defined]  # a generator, as `break` leaves it


def _read_on(cache: Cache) -> None:
    with suppress(Closed):
        for epoch in range(2):
            cache.read("t", epoch, 0)


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("cycles", [12, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_going_away_in_the_middle(tmp_path: Path, videos: Path, cycles: int) -> None:
    """After any number of cycles no thread, child, descriptor, hold, promise or temporary file is left or stuck."""
    chance = random.Random(8)
    for number in range(cycles):
        begun = time.monotonic()
        kind, ending = KINDS[number // len(ENDINGS) % len(KINDS)], ENDINGS[number % len(ENDINGS)]
        store = tmp_path / str(number // 20)
        with viewcache.open(config(store, videos, worker_kind=kind, budget=310_000)) as cache:
            _cycle(cache, ending, chance.randint(1, 3))
            ledger, tier = cache.owner.ledger, cache.tier
        assert not ledger.held
        assert tier.reserved_bytes == 0
        assert_at_rest(store)
        assert time.monotonic() - begun < STUCK_S


def test_a_read_that_comes_with_the_close_is_told(tmp_path: Path, videos: Path) -> None:
    """Where the planner has ended and the cache is not closed yet, a reader gets the error of a closed cache."""
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        cache.owner.look_ahead.close()
        with pytest.raises(Closed):
            cache.read("t", 0, 0)
