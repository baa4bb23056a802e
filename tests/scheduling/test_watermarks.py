"""A folder above its high mark: what nothing wants leaves, and the policy is not asked in vain at every batch."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.tiny import config, encode_folder, pixels
from viewcache.materializer.scheduling import migration
from viewcache.materializer.scheduling.moves import Moves
from viewcache.materializer.storage.ledger import Ledger

MARKS = {"trim": False, "high_water": 0.05, "low_water": 0.05}
"""Every cache that holds something is above them."""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("marks"), {f"v{k}.mp4": 40 + k for k in range(4)})


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the mover look at the tiers, and wait until it has."""
    rested, mine = threading.Semaphore(0), list[Moves]()
    begin, rest = Moves.__init__, Moves.rest

    def beginning(moves: Moves) -> None:
        begin(moves)
        mine.append(moves)

    def resting(moves: Moves) -> None:
        rest(moves)
        if moves in mine:  # caches that others have open have movers, too
            rested.release()

    monkeypatch.setattr(Moves, "__init__", beginning)
    monkeypatch.setattr(Moves, "rest", resting)

    def looking() -> None:
        while rested.acquire(blocking=False):  # what it has looked at before
            pass
        for each in mine:
            each.wake()
        assert rested.acquire(timeout=60)

    return looking


@pytest.mark.parametrize("rest_s", [0.0, 3600.0])
def test_a_policy_that_names_nothing_is_not_asked_at_every_batch(
    tmp_path: Path, videos: Path, rest_s: float, look: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that lies there is wanted: who asks again at once gets the same answer."""
    asked = list[Ledger]()
    candidates = Ledger.candidates

    def asking(ledger: Ledger, *given: Any) -> Any:
        asked.append(ledger)
        return candidates(ledger, *given)

    monkeypatch.setattr(Ledger, "candidates", asking)
    monkeypatch.setattr(migration, "rest_s", lambda took_s: rest_s)
    with viewcache.open(config(tmp_path, videos, cache={"budget": 1_000_000, "eviction": MARKS})) as cache:
        list(cache.materialize())
        for _ in range(20):
            look()
        before = asked.count(cache.owner.ledger)
        for _ in range(20):
            look()
        more = asked.count(cache.owner.ledger) - before
        assert more > 15 if rest_s == 0 else more == 0


def test_what_nothing_wants_leaves(tmp_path: Path, videos: Path, look: Callable[[], None]) -> None:
    """All epochs were read: nothing is left above the low mark, though it was asked in vain before."""
    with viewcache.open(config(tmp_path, videos, cache={"budget": 1_000_000, "eviction": MARKS})) as cache:
        list(cache.materialize())
        look()
        full = cache.tier.used_bytes
        pixels(cache)
        until = time.monotonic() + 60
        while cache.tier.used_bytes > full / 2:
            assert time.monotonic() < until, f"{cache.tier.used_bytes} of {full} bytes still lie there"
            look()
