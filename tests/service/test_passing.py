"""Clips that pass through the owner's memory reach clients too, with the same bytes, whoever is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.service.served import Opener, described, start
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
