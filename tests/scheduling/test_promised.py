"""What lasts is promised what its packed pictures take, not what they take as pixels; who takes more is told no lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.tiny import config, make_decoding_dear, pixels, same, sql
from viewcache.api.session.cache import Cache
from viewcache.materializer.planning.ladder import GUESSED
from viewcache.materializer.retention.lasting import PART_BYTES, part_of

EPOCHS = 16


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small videos decide by their metadata otherwise."""
    make_decoding_dear(monkeypatch)


def videos_of(folder: Path, noise: int) -> Path:
    """Three videos of which all pictures together take 2 MB as pixels after the resize, with so many bits of noise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:48, :64]
    for number in range(3):
        soft = [np.stack([x * 3 + k, y * 4 + number * 9, x + y + 2 * k], 2).astype(np.uint8) for k in range(160)]
        source = [each ^ rng.integers(0, 1 << noise, each.shape, np.uint8) for each in soft]
        options = {"qp": "0", "preset": "ultrafast"}  # no noise of an encoder
        encode(folder / f"v{number}.mp4", frames=160, size=(64, 48), gop=16, source=source, options=options)
    return folder


def opened(store: Path, videos: Path, budget: int, **cache: Any) -> Cache:
    """A task of many epochs, of which two are planned at once."""
    return viewcache.open(
        config(store, videos, cache={"budget": budget, "epochs_per_generation": 2, **cache}, epochs=EPOCHS)
    )


def read_all(cache: Cache, seen: list[Any] | None = None) -> dict[tuple[int, int], Any]:
    """Every batch, each made ahead as far as there is room; ``seen`` gets the codecs of what lies there half-way."""
    found = {}
    for epoch in range(EPOCHS):
        for iteration in range(cache.task("train").iterations(epoch)):
            found[epoch, iteration] = cache.read("train", epoch, iteration)
            assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        if seen is not None and epoch == EPOCHS // 2:
            seen += lasting(cache)
    return found


def lasting(cache: Cache) -> list[tuple[object, ...]]:
    """What pictures lie there."""
    return sql(cache, "select codec from objects where kind <> 'clip' and state = 'ready'")


@pytest.fixture
def expected(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """The videos, and every batch by a cache that keeps clips."""
    videos = videos_of(tmp_path / "videos", request.param)
    with opened(tmp_path / "plenty", videos, 10**8, keep="leaves") as cache:
        return videos, pixels(cache)


@pytest.mark.parametrize("expected", [0], indirect=True)
def test_a_budget_below_all_pixels(tmp_path: Path, expected: Any) -> None:
    """Half of the budget cannot hold a video's pixels, and holds its packed pictures: they last."""
    videos, batches = expected
    with opened(tmp_path / "s", videos, 900_000) as cache:
        seen: list[Any] = []
        assert same(read_all(cache, seen), batches)
        assert {codec for (codec,) in seen} <= {"delta-lz4", "delta-zstd1", "h264"}
        assert len(seen) >= 2


@pytest.mark.parametrize("expected", [8], indirect=True)
@pytest.mark.parametrize("budget", [900_000, 4_000_000])
def test_pictures_that_do_not_pack(tmp_path: Path, expected: Any, budget: int) -> None:
    """Noise takes more than was promised: nothing is written beyond that, and every batch is as it should be."""
    videos, batches = expected
    with opened(tmp_path / "s", videos, budget) as cache:
        assert same(read_all(cache), batches)


@pytest.mark.parametrize("expected", [1], indirect=True)
def test_pictures_that_pack_worse_than_others(tmp_path: Path, expected: Any) -> None:
    """They take more than was promised at first, and less than as pixels: so much is promised then, and they last."""
    videos, batches = expected
    with opened(tmp_path / "s", videos, 1_000_000) as cache:
        seen: list[Any] = []
        assert same(read_all(cache, seen), batches)
        assert seen


def test_parts_by_codec() -> None:
    """An object has as many pictures as its promise allows, in the same few sizes whatever was measured."""
    for part in PART_BYTES:
        for codec, rung in GUESSED.items():
            size = part_of(codec, part)
            assert size in PART_BYTES
            assert size == part or size * rung.promised <= part
        assert part_of("raw", part) == part
