"""The budget holds at every step, however small it is, and small budgets make progress (law 7)."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import viewcache
from tests.faults.caches import assert_at_rest, config, digest_of, store_bytes, truth_of
from tests.scheduling.harness import WAIT_S, Harness, Looking, Reading, ScriptedPool
from viewcache.api.session.cache import Cache
from viewcache.errors import BudgetTooSmall
from viewcache.materializer.reading.batch import Buffers
from viewcache.materializer.storage.ledger import Copy, Ledger

MINIMUM = 97_568
"""Bytes that one batch of the tests' task takes at most."""

Truth = dict[tuple[int, int], str]


class Watch(Looking):
    """Looks at disk and count all the time and keeps the most it saw."""

    def __init__(self, cache: Cache, store: Path) -> None:
        super().__init__()
        self._cache, self._store = cache, store
        self.most_on_disk = self.most_counted = self.looks = 0

    def look(self) -> None:
        """What moved from one place to the other while it was looked at is seen once, or the look is void."""
        self.most_counted = max(self.most_counted, self._cache.tier.counted_bytes)
        one, two = store_bytes(self._store), store_bytes(self._store)
        if one == two:
            self.most_on_disk = max(self.most_on_disk, one)
            self.looks += 1


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Truth:
    """The batches of an undisturbed run."""
    return truth_of(tmp_path_factory.mktemp("truth"), videos)


def _in_threads(cache: Cache, orders: list[list[tuple[int, int]]]) -> Iterator[tuple[tuple[int, int], str]]:
    """Read batches by several threads at once, each in its own order."""
    found: list[tuple[tuple[int, int], str]] = []
    errors: list[BaseException] = []

    def read(order: list[tuple[int, int]]) -> None:
        try:
            found.extend((place, digest_of(cache.read("t", *place))) for place in order)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(order,), daemon=True) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not [thread for thread in threads if thread.is_alive()], "a reader is stuck"
    if errors:
        raise errors[0]
    yield from found


def test_a_budget_below_the_minimum_is_refused(store: Path, videos: Path) -> None:
    """One byte too few for a batch is refused at opening, with the minimum that would do; the minimum is accepted."""
    with pytest.raises(BudgetTooSmall) as refused:
        viewcache.open(config(store, videos, budget=MINIMUM - 1))
    assert refused.value.minimum == MINIMUM
    viewcache.open(config(store, videos, budget=MINIMUM)).close()


def test_a_budget_that_is_refused_costs_nothing(store: Path, videos: Path, truth: Truth) -> None:
    """What lies in the store stays there for the next start; only a budget that is taken makes room."""
    with viewcache.open(config(store, videos)) as cache:
        for place in truth:
            cache.read("t", *place)
        assert cache.owner.dispatcher_now().wait_idle(60)
    before = store_bytes(store)
    assert before > MINIMUM
    with pytest.raises(BudgetTooSmall):
        viewcache.open(config(store, videos, budget=MINIMUM - 1))
    assert store_bytes(store) == before
    viewcache.open(config(store, videos, budget=MINIMUM)).close()
    assert store_bytes(store) <= MINIMUM


@pytest.mark.parametrize(
    ("budget", "workers"),
    [
        *((MINIMUM, 2), (MINIMUM + 23_768, 1), (2 * MINIMUM, 2)),
        *(pytest.param(*each, marks=pytest.mark.long) for each in [(MINIMUM, 1), (MINIMUM + 23_768, 2)]),
    ],
)
def test_small_budgets_make_progress(store: Path, videos: Path, truth: Truth, budget: int, workers: int) -> None:
    """Two readers in opposite orders on the smallest budget take turns: no deadlock, right bytes, never over it."""
    order = list(truth)
    with viewcache.open(config(store, videos, budget=budget, workers=workers)) as cache:
        with Watch(cache, store) as watch:
            for place, digest in _in_threads(cache, [order * 2, order[::-1] * 2]):
                assert digest == truth[place]
        assert watch.looks
        assert watch.most_on_disk <= budget
        assert watch.most_counted <= budget
    assert_at_rest(store)


def test_what_a_reader_holds_or_waits_for_is_not_evicted(store: Path, videos: Path) -> None:
    """What one reader holds is not evicted for another that needs room; when it is let go the other gets its own."""
    pool = ScriptedPool()
    with Harness(store, videos, pool, budget=MINIMUM) as harness:
        one = Reading(harness, [0, 1, 2, 3], hold=True)
        pool.serve(one.got.is_set, "the first reader's clips")
        held = {harness.active.key(row) for row in one.rows}
        two = Reading(harness, [4, 5, 6, 7])
        looks = pool.count_looks()
        pool.serve(lambda: looks() >= 20, "the dispatcher to look for room again and again")
        assert {path.name for path in store.glob("objects/*/*")} >= held
        assert two.error is None
        one.release()
        pool.serve(two.got.is_set, "the second reader's clips")
        assert two.end() is None


class _SlowToWake(Ledger):
    """A ledger whose oldest reader is slow: its clips are there, but it has not come round to take them."""

    asleep = True
    slow: frozenset[str] = frozenset()

    def hold(self, keys: list[str], tier: str | None = None) -> list[Copy] | None:
        """Nothing yet, for the slow one."""
        return None if self.asleep and self.slow & set(keys) else super().hold(keys, tier)


def test_a_younger_reader_is_not_refused_for_what_an_older_one_is_about_to_take(store: Path, videos: Path) -> None:
    """The older reader's clips fill the budget and it has not woken yet: the younger waits, it does not get Full."""
    pool = ScriptedPool()
    with Harness(store, videos, pool, budget=MINIMUM, ledger=_SlowToWake) as harness:
        ledger = harness.ledger
        assert isinstance(ledger, _SlowToWake)
        ledger.slow = frozenset(harness.active.key(row) for row in range(4))
        old, young = Reading(harness, [0, 1, 2, 3]), Reading(harness, [8, 9, 10, 11])
        pool.serve(lambda: all(ledger.has(key) for key in ledger.slow), "the older reader's clips")
        looks = pool.count_looks()
        pool.serve(lambda: looks() >= 20, "the dispatcher to look for room for the younger")
        ledger.asleep = False
        assert old.end() is None
        pool.serve(lambda: young.got.is_set() or young.error is not None, "the younger reader's clips")
        assert young.end() is None


def test_a_reader_is_not_refused_while_copies_leave(store: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread has forgotten all copies and is about to delete them: who needs that room waits for it."""
    pool, deleting, go = ScriptedPool(), threading.Event(), threading.Event()
    with Harness(store, videos, pool, budget=MINIMUM) as harness:
        one = Reading(harness, [0, 1, 2, 3])
        pool.serve(one.got.is_set, "the first batch")
        assert one.end() is None
        copies = harness.ledger.hold([harness.active.key(row) for row in one.rows])
        assert copies
        harness.ledger.release(copies)
        delete = harness.tiers.delete

        def slowly(copy: Copy) -> None:
            if threading.current_thread() is leaving:
                deleting.set()
                assert go.wait(WAIT_S)
            delete(copy)

        leaving = threading.Thread(target=harness.dispatcher.evictor.give_up, args=(copies,), daemon=True)
        monkeypatch.setattr(harness.tiers, "delete", slowly)
        leaving.start()
        assert deleting.wait(WAIT_S)
        two = Reading(harness, [4, 5, 6, 7])
        looks = pool.count_looks()
        pool.serve(lambda: looks() >= 20, "the dispatcher to look for room again and again")
        assert two.error is None
        go.set()
        leaving.join(WAIT_S)
        pool.serve(two.got.is_set, "the second batch")
        assert two.end() is None


class _NoMemory(Buffers):
    """Memory of which there is none left, such as pinned memory."""

    def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
        """None is given."""
        raise MemoryError("no pinned memory is left")


def test_clips_are_not_held_for_who_has_no_memory(tmp_path: Path, videos: Path) -> None:
    """What could not be loaded may leave, for the next batch."""
    with viewcache.open(config(tmp_path / "s", videos)) as cache:
        cache.read("t", 0, 0)
        with pytest.raises(MemoryError, match="pinned"):
            cache.task("t").read(0, 0, buffers=_NoMemory())
        assert not cache.owner.ledger.held
