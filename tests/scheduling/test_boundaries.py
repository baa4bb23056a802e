"""Between two generations nobody waits: the next one is planned and begun while the last epoch of this one is read."""

from pathlib import Path

import pytest

import viewcache
from tests.faults.caches import config
from tests.scheduling.harness import WAIT_S
from tests.tiny import places


@pytest.mark.parametrize("budget", [10**8, 320_000], ids=["room for all", "room for half a generation"])
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_no_reader_waits_at_a_boundary(tmp_path: Path, videos: Path, kind: str, budget: int) -> None:
    """A reader slower than the workers finds every clip of every later generation made, its first batch included."""
    given = config(tmp_path / "own", videos, epochs=6, budget=budget, worker_kind=kind)
    with viewcache.open(given) as cache:
        dispatcher, reader = cache.owner.dispatcher_now(), cache.task("t")
        missed: dict[tuple[int, int], int] = {}
        for epoch, iteration in places(cache, "t"):
            before = reader.spent.misses
            cache.read("t", epoch, iteration)
            missed[epoch, iteration] = reader.spent.misses - before
            last = epoch % 2 == 1  # of its generation
            following = reader.task.planned(epoch // 2 + 1)
            if last and epoch < 5:
                assert following is not None, "the next generation is not planned in the last epoch of this one"
            cache.owner.look_ahead.wait_idle(WAIT_S)
            assert dispatcher.wait_idle(WAIT_S)
            if last and iteration == 1 and epoch < 5:
                assert following is not None
                assert following.ready()[following.rows(epoch + 1, 0)].all()
        assert sum(misses for place, misses in missed.items() if place > (0, 0)) == 0, missed
