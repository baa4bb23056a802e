"""Clips of removed files that are still to be read hold their room only as long as nothing else lacks it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import encode_folder, open_cache, places, single, sql
from viewcache.api.session.cache import Cache

ONE_BATCH = 140_000
"""Bytes that hold one batch, and hardly more."""

READ = 2
"""Epochs."""


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Twelve videos, of which the last one will stay."""
    return encode_folder(tmp_path / "videos", {f"v{number}.mp4": 48 for number in range(12)})


def opened(store: Path, videos: Path, budget: int) -> Cache:
    """A task of which as many clips are stored as there is room for."""
    task: dict[str, Any] = {"epochs": 8, "augmentation": [single({"resize": {"shape": [32, 32]}})]}
    return open_cache(store, videos, cache={"budget": budget, "keep": "leaves"}, **task)


def read(cache: Cache) -> dict[tuple[int, int], Any]:
    """The first epochs; the budget holds all the time."""
    found = {}
    for place in places(cache):
        if place[0] < READ:
            found[place] = cache.read("train", *place)
            assert cache.tier.used_bytes <= cache.tier.budget_bytes
    return found


def given_up(cache: Cache) -> int:
    """How many clips have left for want of room that cannot be made again."""
    ((count,),) = sql(cache, "select count(*) from evictions where detail like 'it cannot be made again%'")
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize(("budget", "lowered"), [(1_000_000, ONE_BATCH), (200_000, None)])
def test_a_budget_holds_and_each_batch_is_read(tmp_path: Path, videos: Path, budget: int, lowered: int | None) -> None:
    """With a budget that is lowered when the files are gone, and with files that go while the cache is open."""
    with opened(tmp_path / "truth", videos, 50_000_000) as cache:
        truth = read(cache)
    with opened(tmp_path / "s", videos, budget) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher_now().wait_idle(60)
        for number in range(11):
            (videos / f"v{number}.mp4").unlink()
        got = read(cache) if lowered is None else {}
    if lowered is not None:
        with opened(tmp_path / "s", videos, lowered) as cache:
            assert cache.tier.used_bytes <= lowered
            assert given_up(cache)
            got = read(cache)
    assert got.keys() == truth.keys()
    for place, batch in got.items():
        same = [k for k, name in enumerate(batch.videos) if name == truth[place].videos[k]]
        assert np.array_equal(batch.video[same], truth[place].video[same])


def test_a_budget_that_is_lowered_a_little_takes_what_nothing_wants_first(tmp_path: Path, videos: Path) -> None:
    """No clip that cannot be made again leaves as long as the policy names enough."""
    with opened(tmp_path / "s", videos, 50_000_000) as cache:
        cache.read("train", 0, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher_now().wait_idle(60)
        used = cache.tier.used_bytes
    for number in range(6):
        (videos / f"v{number}.mp4").unlink()
    with opened(tmp_path / "s", videos, used - 4_000) as cache:
        assert cache.tier.used_bytes <= used - 4_000
        assert not given_up(cache)
        assert sql(cache, "select count(*) from evictions") != [(0,)]
