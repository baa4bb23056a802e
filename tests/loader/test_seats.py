"""Several readers of one task in one cache: none sets the place of another, and who looks moves nobody."""

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import viewcache
from tests.loader.small import BATCHES, EPOCHS, Tensors, equal, tasks
from tests.tiny import config, sql
from viewcache.api.session.cache import Cache
from viewcache.materializer.scheduling.generation import ActiveGeneration


def generation(cache: Cache) -> ActiveGeneration:
    """The first of the task ``train``."""
    return cache.task("train").task.generation(0)


def test_a_slow_rank_keeps_what_it_needs(own: Callable[..., Cache]) -> None:
    """Rank 0 is through two epochs, rank 1 has its first batches: what rank 1 needs next is needed, and soonest."""
    with own() as cache:
        fast, slow = (cache.loader("train", rank=rank, world=2, prefetch=1).all_epochs() for rank in range(2))
        next(slow)
        list(islice(fast, 2 * BATCHES))
        work = generation(cache)
        needs = [work.next_due_in_s(work.key(row)) for row in work.rows(1, 0)]
        assert all(need is not None for need in needs), "one batch was read ahead, the next one was not"
        rows = sql(cache, "select rank, epoch from progress where task = 'train' order by rank")
        assert rows in ([(0, 2), (1, 1)], [(0, 2), (1, 0)])


def test_a_look_at_the_first_batch_moves_nobody(own: Callable[..., Cache], truth: list[Tensors]) -> None:
    """A notebook that reads 0/0 while a loop trains leaves the task where it is; the loop goes on."""
    with own() as cache:
        loop = cache.loader("train", prefetch=1).all_epochs()
        read = list(islice(loop, BATCHES + 1))
        place = cache.task("train").task.seats.positions()
        from_rank = generation(cache).from_rank
        cache.read("train", 0, 0)
        assert cache.task("train").task.seats.positions()[0].place >= place[0].place
        assert generation(cache).from_rank >= from_rank
        read += list(loop)
        assert equal(read, truth)
        assert sql(cache, "select epoch, iteration from progress where task = 'train'") == [(EPOCHS, 0)]


def test_without_a_loop_reading_by_path_moves_the_task(own: Callable[..., Cache]) -> None:
    """A script that uses nothing but paths is a reader like any other, also one that goes back."""
    with own() as cache:
        for place in ((0, 1), (2, 0), (0, 0)):
            cache.read("train", *place)
            (position,) = cache.task("train").task.seats.positions()
            epochs, iteration = divmod(place[1] + 1, BATCHES)
            assert position.place == (place[0] + epochs, iteration)


def test_joining_stops_no_reader(own: Callable[..., Cache], tmp_path: Path, videos: Path) -> None:
    """While a task joins, and its videos are looked at, others are read."""
    looking, read = threading.Event(), threading.Event()

    def progress(_done: int, _total: int, _name: str) -> None:
        looking.set()
        assert read.wait(60), "reading waited for the task that joins"

    copies = tmp_path / "more"
    copies.mkdir()
    for path in videos.rglob("*.mp4"):
        (copies / path.name).write_bytes(path.read_bytes())
    with own() as cache:
        more = {"dataset": config(tmp_path, copies, tag="late", epochs=1)["dataset"]}
        joining = threading.Thread(target=lambda: cache.join(more, progress=progress))
        joining.start()
        assert looking.wait(60)
        assert len(list(cache.loader("train", epochs=1))) == BATCHES
        assert len(cache.read("val", 0, 0).index) == 12
        read.set()
        joining.join(60)
        assert cache.tasks[-1] == "late"


def test_each_rank_has_a_row_until_fewer_train(videos: Path, tmp_path: Path) -> None:
    """The catalog knows where each rank is; a training of another size begins with its own rows."""
    with viewcache.open(tasks(tmp_path / "store", videos)[:1]) as cache:
        for rank in range(3):
            list(islice(cache.loader("train", rank=rank, world=3, prefetch=1), rank + 1))
        assert [rank for (rank,) in sql(cache, "select rank from progress order by rank")] == [0, 1, 2]
        list(cache.loader("train", epochs=1))
        assert sql(cache, "select rank, part, epoch, iteration from progress") == [(0, 0, 1, 0)]
