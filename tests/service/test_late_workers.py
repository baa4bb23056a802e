"""A DataLoader's worker that begins a pass late: each pass still reads one epoch, every video of it once."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.service.served import Opener
from tests.service.test_workers import BATCHES, of, places, wrapped
from viewcache.api.training.loader import Loader
from viewcache.api.training.passes import SharedPasses, Worker, WorkerCopy
from viewcache.api.training.places import Place

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LONG_S = 120


class HeldBack(IterableDataset[dict[str, Any]]):
    """A loader of which worker 1 begins one pass late: when it is let go, or worker 0 has begun the pass behind it."""

    def __init__(self, loader: Loader, context: str, late: int) -> None:
        """Hold back the pass of a number, from 1."""
        self.loader = loader
        self.late = late
        self.let_go = multiprocessing.get_context(context).Event()
        self.passes = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin a pass in a worker."""
        worker = get_worker_info()
        assert worker is not None
        self.passes += 1
        if worker.id == 1 and self.passes == self.late:
            assert self.let_go.wait(LONG_S)
        batches = iter(self.loader)
        if worker.id == 0 and self.passes == self.late + 1:
            self.let_go.set()
        return batches


def clips_of(batches: "DataLoader[dict[str, Any]]", epoch: int) -> list[tuple[int, int]]:
    """Video and ordinal of each clip of a pass, which is of one epoch."""
    read = list(batches)
    assert places(read) == of(epoch)
    pairs = (zip(batch["index"].tolist(), batch["sample"].tolist(), strict=True) for batch in read)
    return [clip for pair in pairs for clip in pair]


@pytest.mark.parametrize(("context", "late"), [("fork", 1), ("fork", 2), ("spawn", 1)])
@pytest.mark.parametrize("moved", [False, True])
def test_passes_behind_one_that_was_left_are_of_one_epoch(attach: Opener, context: str, late: int, moved: bool) -> None:
    """A peek, while a worker that torch keeps has not begun that pass; ``set_epoch`` before a pass is for that pass."""
    loader = attach(epochs=4).loader("train")
    batches = wrapped(HeldBack(loader, context, late), context=context, persistent_workers=True)
    for epoch in range(late - 1):
        assert places(batches) == of(epoch)
    for batch in batches:
        assert (batch["epoch"], batch["iteration"]) == (late - 1, 0)
        break
    for number in range(2):
        epoch = number if moved else late + number
        if moved:
            loader.set_epoch(epoch)
        clips = clips_of(batches, epoch)
        assert len(set(clips)) == len(clips) == 4 * BATCHES


@pytest.mark.parametrize(("context", "late"), [("fork", 1), ("fork", 2), ("spawn", 1)])
def test_a_pass_that_has_begun_stays_where_it_is(attach: Opener, context: str, late: int) -> None:
    """A move is for the next pass, also where a worker begins this one behind it."""
    loader = attach().loader("train")
    held = HeldBack(loader, context, late)
    batches = wrapped(held, context=context, persistent_workers=True)
    for epoch in range(late - 1):
        assert places(batches) == of(epoch)
    loader.set_epoch(1)
    under_way = iter(batches)
    found = places([next(under_way)])
    loader.set_epoch(2)
    loader.set_epoch(0)
    held.let_go.set()
    assert found + places(under_way) == of(1)
    assert places(batches) == of(0)


def test_the_count_of_passes_survives_what_happens_to_workers() -> None:
    """Workers that never came, that were killed, and seeds that come again: all workers of a pass count the same."""
    passes = SharedPasses()

    def begin(number: int, seed: int, workers: int = 3) -> int:
        return begun(WorkerCopy(), number, seed, workers)

    def begun(copy: WorkerCopy, number: int, seed: int, workers: int = 3) -> int:
        start = copy.start(Worker(number, workers, seed), passes, 0, Place(0, 0, exactly=True), 10)
        return start.place.epoch

    assert [begin(k, 11) for k in (0, 1, 2)] == [0, 0, 0]
    assert [begin(k, 12) for k in (1, 0)] == [1, 1], "worker 2 was killed before it began"
    assert [begin(k, 13) for k in (2, 0, 1)] == [2, 2, 2]
    assert [begin(k, 13) for k in (1, 2, 0)] == [3, 3, 3], "the same seed again"
    assert [begin(k, 13, 4) for k in (3, 0, 1, 2)] == [4, 4, 4, 4], "and with more workers"
    assert passes.last(passes.version) == 4
    kept = [WorkerCopy() for _ in range(2)]
    assert [begun(kept[0], 0, 2**62, 2) for _ in range(2)] == [5, 6]
    assert [begun(kept[1], 1, 2**62, 2) for _ in range(2)] == [5, 6], "it began late"
    passes.move(Place(7, 0, exactly=True))
    assert passes.last(passes.version) is None
    assert begin(0, 14) == 7


def test_workers_that_were_started_before_a_move_begin_there() -> None:
    """The first one sees the move, the other one joins it."""
    passes = SharedPasses()
    copies, version = [WorkerCopy(), WorkerCopy()], passes.version
    passes.move(Place(2, 0, exactly=True))
    workers = [Worker(number, 2, 5) for number in range(2)]
    starts = [
        copy.start(worker, passes, version, Place(0, 0, exactly=True), 3)
        for copy, worker in zip(copies, workers, strict=True)
    ]
    assert [start.place.epoch for start in starts] == [2, 2]
