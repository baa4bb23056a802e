"""The file of a video goes while the cache is open: kept pictures go on serving it, and damage of these is told of."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.tiny import config, make_decoding_dear, same, single, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo

EPOCHS, GONE = 12, 6
STEPS = [single({"resize": {"shape": [37, 51]}}, {"random_crop": {"shape": [32, 32]}})]
LOSS = pytest.mark.parametrize("given", [{}, {"intermediate": {"quality": "45dB"}}], ids=["exact", "45dB"])
PICTURES = (
    "select physical from objects join copies using (object_id) where kind = 'aug' and state = 'ready' and video = 'v0'"
)
TOLD = (
    r"v0\.mp4: no such file; (nothing of it is stored|what is stored of it can still be read: \d+ clips, "
    r"\d+ objects of kept pictures); restore the file, or set on_missing_video: replace$"
)


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two videos."""
    folder = tmp_path / "videos"
    folder.mkdir()
    y, x = np.mgrid[:48, :64]
    for number in range(2):
        source = [np.stack([x * 3 + k, y * 4 + number * 9, (x * y) // 9 + k], 2).astype(np.uint8) for k in range(48)]
        encode(folder / f"v{number}.mp4", frames=48, size=(64, 48), gop=8, source=source)
    return folder


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small videos decide by their metadata otherwise."""
    make_decoding_dear(monkeypatch)


def opened(store: Path, videos: Path, **dataset: Any) -> Cache:
    """A task of which resized pictures of all frames are kept."""
    cache = {"budget": 3_000_000}
    return viewcache.open(config(store, videos, cache=cache, epochs=EPOCHS, augmentation=STEPS, **dataset))


def read(cache: Cache, epochs: range) -> dict[tuple[int, int], Any]:
    """Every batch of some epochs, each made ahead as far as there is room."""
    found = {}
    for epoch in epochs:
        found[epoch, 0] = cache.read("train", epoch, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher_now().wait_idle(60)
    return found


@LOSS
def test_damage_of_what_is_kept_of_a_video_that_is_gone(tmp_path: Path, videos: Path, given: dict[str, Any]) -> None:
    """Nothing wrong is served: batches are right, or an error tells what is still stored and what to do."""
    with opened(tmp_path / "s", videos, **given) as cache:
        expected = read(cache, range(EPOCHS))
    with opened(tmp_path / "t", videos, on_missing_video="raise", **given) as cache:
        got = read(cache, range(GONE))
        kept, fed = sql(cache, PICTURES), cache.owner.dispatcher_now().tally.frames["packets"]
        assert kept
        (videos / "v0.mp4").unlink()
        got |= read(cache, range(GONE, EPOCHS))
        assert cache.owner.dispatcher_now().tally.frames["packets"] == fed, "kept pictures serve it"
        for (physical,) in kept:
            (shard,) = (tmp_path / "t" / str(physical)).glob("c*")
            os.truncate(shard, shard.stat().st_size // 2)
        told = []
        for epoch in range(EPOCHS):
            try:
                got[epoch, 0] = cache.read("train", epoch, 0)
            except BadVideo as error:
                told.append(str(error))
    assert told
    assert all(re.search(TOLD, each) for each in told)
    assert same(got, {place: expected[place] for place in got})
