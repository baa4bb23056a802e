"""A video whose frames all hang on one key frame, of which pictures are kept: the same bytes as by decoding it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.tiny import config, same, single, sql
from viewcache.api.session.cache import Cache
from viewcache.materializer.media.probe import probe
from viewcache.materializer.planning.cost import CostModel

FRAMES, EPOCHS, READ = 1_000, 60, 4
STEPS = [single({"resize": {"shape": [16, 16]}}, {"random_crop": {"shape": [12, 12]}})]
KEPT = "select codec from objects where kind in ('frames', 'aug') and state = 'ready' and video = 'long'"


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of one group of pictures each: of a thousand frames, and of eight."""
    folder = tmp_path_factory.mktemp("group")
    y, x = np.mgrid[:32, :32]
    for name, frames in (("long", FRAMES), ("short", 8)):
        options = {"preset": "ultrafast", "sc_threshold": "0", "crf": "35"}
        source = [np.stack([x * 6 + at, y * 7, x + y + at // 9], 2).astype(np.uint8) for at in range(frames)]
        encode(folder / f"{name}.mp4", frames=frames, size=(32, 32), gop=FRAMES, options=options, source=source)
    index = probe(str(folder / "long.mp4"))
    assert (index.frames, index.keyframes) == (FRAMES, 1)
    return folder


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small videos decide by their metadata otherwise."""
    cost = CostModel(decode_s_per_pixel=1e-4, convert_s_per_pixel=1e-6)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def opened(store: Path, videos: Path, cache: dict[str, object], **dataset: Any) -> Cache:
    """A task of sixty epochs, of which two are planned at once."""
    return viewcache.open(config(store, videos, cache=cache, epochs=EPOCHS, augmentation=STEPS, **dataset))


def read(cache: Cache) -> dict[tuple[int, int], Any]:
    """The first batches, each epoch made ahead as far as there is room."""
    found = {}
    for epoch in range(READ):
        found[epoch, 0] = cache.read("train", epoch, 0)
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher_now().wait_idle(60)
        assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
    return found


@pytest.mark.parametrize("given", [{}, {"intermediate": {"quality": "45dB"}}], ids=["exact", "45dB"])
def test_pictures_of_a_long_group(tmp_path: Path, videos: Path, given: dict[str, Any]) -> None:
    """Kept, found again after a restart, or not kept at all: one meaning of each path, with loss too."""
    with opened(tmp_path / "leaves", videos, {"keep": "leaves"}, **given) as cache:
        expected = read(cache)
        assert not sql(cache, KEPT)
    for _ in range(2):
        with opened(tmp_path / "kept", videos, {"budget": 20_000_000}, **given) as cache:
            assert same(read(cache), expected)
            assert sql(cache, KEPT)
