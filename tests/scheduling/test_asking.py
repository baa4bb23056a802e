"""A policy that takes long to say what may leave holds up nobody but those who need what would leave."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scheduling.harness import WAIT_S, Harness, Reading, ScriptedPool, until
from viewcache.errors import Full
from viewcache.materializer.scheduling import dispatcher
from viewcache.materializer.storage.ledger import Copy, Ledger

BOUND = 23_768
"""Most bytes of a clip of the tests' task."""


class _Gated(Ledger):
    """Asks its policy once the test says so."""

    asked = ""
    """By which thread."""
    gate, begun = threading.Event(), threading.Event()

    def choose(self, tier: str, need: int, protected: set[str]) -> list[Copy]:
        """As usual, behind the gate."""
        self.asked = threading.current_thread().name
        self.begun.set()
        assert self.gate.wait(WAIT_S), "the test never opened the gate"
        return super().choose(tier, need, protected)


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Closed; the dispatcher looks again only if it is told."""
    monkeypatch.setattr(dispatcher, "IDLE_S", 10 * WAIT_S)
    gate = threading.Event()
    monkeypatch.setattr(_Gated, "gate", gate)
    monkeypatch.setattr(_Gated, "begun", threading.Event())
    yield gate
    gate.set()


def _filled(harness: Harness, pool: ScriptedPool, rows: list[int]) -> _Gated:
    """Have a reader fill the tier with clips and go away."""
    with_all = Reading(harness, rows)
    pool.serve(with_all.got.is_set, "the first reader's clips")
    assert with_all.end() is None
    assert isinstance(harness.ledger, _Gated)
    return harness.ledger


def test_the_dispatcher_goes_on_meanwhile(store: Path, videos: Path, gate: threading.Event) -> None:
    """While a policy is being asked for a reader, jobs that run are taken in; then the reader has its clips."""
    pool = ScriptedPool(2)
    with Harness(store, videos, pool, budget=4 * BOUND, ledger=_Gated) as harness:
        ledger = _filled(harness, pool, [0, 1])
        before, running = len(pool.given), Reading(harness, [8])
        job = pool.nth(before)
        lacking = Reading(harness, [4, 5, 6, 7])
        until(ledger.begun.is_set, "the policy to be asked")
        assert ledger.asked == "viewcache-candidates"
        pool.make(job)
        pool.end(job)
        assert running.end() is None
        until(lambda: job not in pool.running, "the job to end")
        assert not gate.is_set()
        assert lacking.error is None
        gate.set()
        pool.serve(lacking.got.is_set, "the clips of the reader that lacked room")
        assert lacking.end() is None
        harness.assert_counted()


def test_readers_are_served_from_what_is_left_to_them(store: Path, videos: Path, gate: threading.Event) -> None:
    """While a policy is being asked for look-ahead, readers get new jobs; look-ahead goes on when it has answered."""
    pool = ScriptedPool(2)
    with Harness(store, videos, pool, budget=8 * BOUND, reserve=6 * BOUND, ledger=_Gated) as harness:
        ledger = _filled(harness, pool, [0, 1, 2, 3])
        harness.dispatcher.look_ahead([harness.active])
        until(ledger.begun.is_set, "the policy to be asked")
        reading = Reading(harness, [8])
        pool.serve(reading.got.is_set, "the reader's clip")
        assert reading.end() is None
        assert not gate.is_set()
        assert not harness.dispatcher.wait_idle(0)
        gate.set()
        pool.serve(lambda: harness.dispatcher.wait_idle(0.01), "look-ahead to have made what it can")
        harness.assert_counted()


def test_nobody_is_refused_before_there_is_an_answer(store: Path, videos: Path, gate: threading.Event) -> None:
    """A reader whose clip the budget cannot hold is told so when the policy has answered, and not before."""
    pool = ScriptedPool()
    with Harness(store, videos, pool, budget=BOUND - 1, ledger=_Gated) as harness:
        reading = Reading(harness, [0])
        assert isinstance(harness.ledger, _Gated)
        until(harness.ledger.begun.is_set, "the policy to be asked")
        looks = pool.count_looks()
        until(lambda: looks() >= 20, "the dispatcher to look for room again and again")
        assert reading.error is None
        gate.set()
        assert isinstance(reading.end(), Full)
