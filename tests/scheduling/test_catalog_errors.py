"""An error of the catalog is told to the readers who wait for what it holds up; the dispatcher goes on."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.faults.caches import assert_at_rest, config, digest_of, truth_of
from tests.scheduling.harness import Harness, Reading, ScriptedPool, until
from viewcache.catalog import Catalog
from viewcache.errors import CatalogBusy, CatalogDamaged, Full
from viewcache.materializer.scheduling import candidates
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.storage.ledger import Copy, Ledger

BUDGET = 124_000


def failing(error: Exception, is_down: Callable[[], bool], really: Callable[..., Any]) -> Callable[..., Any]:
    """What fails while it is down."""

    def asked(*given: Any, **named: Any) -> Any:
        if is_down():
            raise error
        return really(*given, **named)

    return asked


@pytest.mark.parametrize("ahead", [False, True], ids=["asked", "asked ahead"])
@pytest.mark.parametrize("error", [CatalogDamaged("it was lost"), CatalogBusy("it does not answer")])
def test_nobody_can_say_what_may_leave(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ahead: bool
) -> None:
    """Who needs room is told why there is none, once for each read; when the catalog is back every batch is right."""
    truth = truth_of(tmp_path / "truth", videos)
    if ahead:
        monkeypatch.setattr(candidates, "SLOW_S", -1.0)
    down: list[bool] = []
    monkeypatch.setattr(Catalog, "victims", failing(error, lambda: bool(down), Catalog.victims))
    with viewcache.open(config(tmp_path / "s", videos, budget=BUDGET)) as cache:
        for _ in range(2):
            down.append(True)
            told: list[Exception] = []
            while not told:  # what was asked ahead before it was down may serve a whole pass
                for place in truth:
                    try:
                        assert digest_of(cache.read("t", *place)) == truth[place]
                    except type(error) as failure:
                        told.append(failure)
            assert all(each is error for each in told)
            down.clear()
            for place in reversed(truth):
                assert digest_of(cache.read("t", *place)) == truth[place]
        assert cache.owner.dispatcher_now().wait_idle(60)
        assert not cache.owner.dispatcher_now().making()
    assert_at_rest(tmp_path / "s")


@pytest.mark.parametrize("error", [Full("its disk is full"), CatalogBusy("it did not answer in time")])
def test_rows_that_cannot_be_written_hold_up_nobody(
    tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """What leaves is chosen by what the catalog has: every batch is read, and right."""
    truth = truth_of(tmp_path / "truth", videos)
    down: list[bool] = []
    monkeypatch.setattr(Catalog, "flush", failing(error, lambda: bool(down), Catalog.flush))
    with viewcache.open(config(tmp_path / "s", videos, budget=BUDGET)) as cache:
        down.append(True)
        for place in truth:
            assert digest_of(cache.read("t", *place)) == truth[place]
        assert "evict_behind" in {getattr(each, "action", "") for each in caplog.records}
        down.clear()
    assert_at_rest(tmp_path / "s")


def test_what_left_before_the_error_is_deleted(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are free, and no file is left of which nobody knows."""
    monkeypatch.setattr(candidates, "SLOW_S", -1.0)
    pool = ScriptedPool()
    with Harness(store, videos, pool) as h:
        reading = Reading(h, list(range(4)))
        pool.serve(reading.got.is_set, "four clips")
        reading.end()
        leaves, before, asked = h.active.key(3), h.tier.used_bytes, list[str]()

        def choose(self: Ledger, tier: str, need: int, protected: set[str]) -> list[Copy]:
            ahead = threading.current_thread().name == "viewcache-candidates"
            asked.append("ahead" if ahead else "now")
            if asked.count("now") > 1 and not ahead:
                raise CatalogBusy("it does not answer")
            found = self.find(leaves, tier) if ahead else None
            return [] if found is None else [found]

        monkeypatch.setattr(Ledger, "choose", choose)
        h.dispatcher.evictor.evict(h.tier.budget_bytes, None)  # it takes long, so it is asked ahead from here on

        def has_left() -> bool:
            with pytest.raises(CatalogBusy, match="does not answer"):
                h.dispatcher.evictor.evict(h.tier.budget_bytes, None)
            return h.ledger.find(leaves, "local") is None

        until(has_left, "what was asked ahead to leave")
        assert h.tier.used_bytes < before
        h.assert_counted()


@pytest.mark.parametrize("demanded", [True, False])
def test_a_job_that_cannot_be_described(
    store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch, demanded: bool
) -> None:
    """Nothing stays promised, held or "being made"; the reader is told, and whoever reads next gets the clips."""
    pool = ScriptedPool()
    down = [True]
    error = CatalogBusy("it does not answer")
    monkeypatch.setattr(ActiveGeneration, "source", failing(error, lambda: bool(down), ActiveGeneration.source))
    with Harness(store, videos, pool) as h:
        if demanded:
            assert Reading(h, [0, 1]).end() is error
        else:
            h.dispatcher.look_ahead([h.active])
            assert h.dispatcher.wait_idle(20)
        assert not pool.given
        assert not h.dispatcher.making()
        assert h.dispatcher.counts([h.active])["planned"] == len(h.active.plan)
        h.assert_counted()
        down.clear()
        reading = Reading(h, [0, 1])
        pool.serve(reading.got.is_set, "two clips")
        assert reading.end() is None
