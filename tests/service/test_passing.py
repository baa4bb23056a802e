"""Clips that pass through the owner's memory reach clients too, with the same bytes, whoever is killed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.scheduling.harness import until
from tests.service.served import Opener, described, start
from viewcache.api.cli.main import main
from viewcache.api.cli.terminal import UNCOUNTED
from viewcache.api.config.find import locate
from viewcache.api.page.gather import gather
from viewcache.api.page.overview import Overview, Verdict
from viewcache.api.queries.ask import ask_all
from viewcache.api.service.attached import AttachedCache
from viewcache.materializer.reading.batch import Batch

LITTLE: dict[str, Any] = {
    "cache": {"budget": 600_000, "epochs_per_generation": 3},
    "sampling": {"samples_per_video": 3},
}
"""Room for a part of the clips of three epochs."""

PLACES = [(epoch, iteration) for epoch in range(3) for iteration in range(5)]

READS = """
with viewcache.open(given, service="auto") as cache:
    for epoch in range(3):
        for iteration in range(5):
            print(json.dumps(digest(cache.read("train", epoch, iteration))), flush=True)
"""


@pytest.fixture(scope="module")
def whole(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[int, int], Batch]]:
    """Every batch, by an owner with room for all."""
    plenty = {**LITTLE, "cache": {"budget": "50MB", "epochs_per_generation": 3}}
    with viewcache.open(described(tmp_path_factory.mktemp("own"), videos, **plenty), service="off") as cache:
        yield {place: cache.read("train", *place) for place in PLACES}


def test_clients_read_what_passes(attach: Opener, whole: dict[tuple[int, int], Batch]) -> None:
    """An attached process reads clips out of the owner's memory, with the bytes of a cache with room for all."""
    cache = attach(**LITTLE)
    for place, batch in whole.items():
        assert np.array_equal(cache.read("train", *place).video, batch.video)
        memory = cache.snapshot().passing
        assert 0 <= memory.used + memory.reserved <= memory.budget
    now = cache.snapshot()
    assert now.work["passed"] > 10
    assert now.passing.budget > 0
    loader = cache.loader("train")
    for place, read in zip(PLACES, loader.all_epochs(), strict=True):
        assert read["index"].tolist() == whole[place].index.tolist()


def test_a_killed_client_leaves_nothing(
    store: Path, videos: Path, attach: Opener, whole: dict[tuple[int, int], Batch]
) -> None:
    """A client that is killed while it reads takes nothing with it: others read on, to the same bytes."""
    cache = attach(**LITTLE)
    for lines in (1, 3, 4):
        with start(READS, described(store, videos, **LITTLE)) as child:
            assert child.stdout is not None
            for _ in range(lines):
                assert child.stdout.readline()
            child.kill()
    for place, batch in whole.items():
        assert np.array_equal(cache.read("train", *place).video, batch.video)
    assert cache.snapshot().work["passed"] > 0
    assert cache.snapshot().passing.reserved == 0 or cache.snapshot().jobs_running


def test_what_lies_in_memory_is_ready(attach: Opener, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`top` and `status` count it, though the catalog has no copy of it, and a batch with all its clips is ready."""
    cache = attach(**LITTLE)
    seat = cache.task("train").sit()
    for place in PLACES:
        seat.read(*place)
        if cache.snapshot().work.get("passed"):
            break
    ready: dict[int, int] = {}
    stored: dict[int, int] = {}
    found: Overview | None = None

    def is_still() -> bool:
        """Look, and whether a batch is whole and nothing went on meanwhile, so that all that was seen is of one moment.

        A slow machine stands still in the middle of a batch too.
        """
        nonlocal found
        before = state(cache, store)
        found = gather(locate(str(store)))
        assert main(["status", str(store)]) == 0
        told = capsys.readouterr()
        if before != state(cache, store) or all(each.ready < each.clips for each in found.due):
            return False
        lying, copies, to_come = before
        ready.update(Counter(ahead for ahead, key in to_come if key in lying | copies))
        stored.update(Counter(ahead for ahead, key in to_come if key in copies))
        assert f"{sum(ready.values())} of {len(to_come)}" in told.out
        assert UNCOUNTED not in told.err
        return True

    until(is_still, "look-ahead has made what it can")
    assert found is not None
    assert found.counts_memory
    assert {each.ahead: each.ready for each in found.due if each.ready} == {k: n for k, n in ready.items() if k < 6}
    assert sum(ready.values()) > sum(stored.values())
    assert [task.ready_to_come for task in found.tasks] == [sum(ready.values())]
    assert {each.verdict for each in found.due if each.ready == each.clips} == {Verdict.READY}
    seat.rise()


def test_what_no_service_tells_of_is_no_reason_to_call_a_batch_late(
    store: Path, videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An owner that is no service cannot be asked what lies in its memory: so no batch is called late."""
    with viewcache.open(described(store, videos, **LITTLE), service="off") as cache:
        for place in PLACES:
            cache.read("train", *place)
            if cache.snapshot().work.get("passed"):
                break
        cache.owner.publish()
        found = gather(locate(str(store)))
        assert not found.counts_memory
        lacking = [each for each in found.due if each.ready < each.clips]
        assert lacking
        assert {each.verdict for each in lacking} == {Verdict.UNKNOWN}
        assert main(["top", str(store), "--once"]) == 0
        assert UNCOUNTED in " ".join(capsys.readouterr().out.split())
        assert main(["status", str(store)]) == 0
        assert UNCOUNTED in capsys.readouterr().err


def state(cache: AttachedCache, store: Path) -> tuple[set[object], set[object], list[tuple[int, object]]]:
    """Objects that lie in memory, objects with copies, and which are to come in how many batches."""
    needed = "select iterations_ahead, object_id from deadlines where sample >= 0 order by 1, 2"
    copies, to_come = ask_all(str(store), ["select object_id from copies", needed])
    ahead = [(int(str(batches)), key) for batches, key in to_come.rows]
    return set(cache.stats().in_memory or ()), {key for (key,) in copies.rows}, ahead
