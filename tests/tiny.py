"""Small caches of small videos: what the tests of laws, plans and loader have in common.

Videos have 64x48 pixels and 40 frames, so that a cache opens in a second and a batch is made in milliseconds.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests.catalog.samples import select
from tests.clips import encode
from viewcache.api.session.cache import Cache
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.reading.batch import Batch

__all__ = [
    "AUGMENTATION",
    "SIZE",
    "config",
    "drawn",
    "encode_folder",
    "make_decoding_dear",
    "open_cache",
    "pixels",
    "places",
    "same",
    "single",
    "sql",
]

SIZE = (64, 48)
"""Width and height of the videos in pixels."""


def make_decoding_dear(patch: pytest.MonkeyPatch) -> None:
    """Let decoding cost the same on every machine, and more than it does: of small pictures noise would decide."""
    cost = CostModel(decode_s_per_pixel=1e-5, convert_s_per_pixel=1e-6)
    patch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def single(*operations: object, of: str = "frame", into: str = "a") -> dict[str, object]:
    """One step with operations in a row."""
    return {"branch_type": "single", "inputs": [of], "outputs": [into], "config": list(operations)}


AUGMENTATION = [
    single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [32, 32]}}, {"flip": {"flip_prob": 0.5}})
]
"""Resize, crop at random, flip at random: 32x32."""


def encode_folder(folder: Path, frames: Mapping[str, int]) -> Path:
    """Encode videos: relative path → number of frames. Equal lengths give equal bytes."""
    for name, count in frames.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encode(path, frames=count, size=SIZE, gop=8, options={"bf": "2", "preset": "ultrafast"})
    return folder


def config(
    store: Path,
    videos: Path,
    *,
    cache: Mapping[str, object] | None = None,
    sampling: Mapping[str, object] | None = None,
    **dataset: object,
) -> dict[str, object]:
    """One task ``train``: 2 videos a batch, 2 samples of 4 frames with stride 2, 3 epochs, 2 of them a generation.

    Nothing is trimmed, since most tests look at what was read; `tests/scheduling/test_trim.py` is about that.
    """
    usual = {"store": str(store), "budget": "50MB", "workers": 1, "epochs_per_generation": 2, "seed": 7}
    return {
        "cache": usual | {"eviction": {"trim": False}} | dict(cache or {}),
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(videos),
            "epochs": 3,
            "sampling": {"videos_per_batch": 2, "frames_per_video": 4, "frame_stride": 2, "samples_per_video": 2}
            | dict(sampling or {}),
            "augmentation": AUGMENTATION,
            **dataset,
        },
    }


def open_cache(
    store: Path,
    videos: Path,
    *,
    cache: Mapping[str, object] | None = None,
    sampling: Mapping[str, object] | None = None,
    **dataset: object,
) -> Cache:
    """An open cache of `config`."""
    return viewcache.open(config(store, videos, cache=cache, sampling=sampling, **dataset))


def places(cache: Cache, task: str = "train") -> Iterator[tuple[int, int]]:
    """(epoch, iteration) of all batches of a task, in order."""
    of = cache.task(task).task
    for epoch in range(of.spec.epochs):
        for iteration in range(of.iterations(epoch)):
            yield epoch, iteration


def pixels(cache: Cache, task: str = "train") -> dict[tuple[int, int], Batch]:
    """All batches of a task, read in order."""
    return {place: cache.read(task, *place) for place in places(cache, task)}


def same(one: Mapping[tuple[int, int], Batch], other: Mapping[tuple[int, int], Batch]) -> bool:
    """Whether two readings of a task gave the same places, pixels, frames and videos."""
    return one.keys() == other.keys() and all(
        np.array_equal(batch.video, other[place].video)
        and np.array_equal(batch.frame, other[place].frame)
        and batch.videos == other[place].videos
        for place, batch in one.items()
    )


def drawn(batches: Mapping[tuple[int, int], Batch]) -> dict[int, list[str]]:
    """Epoch → names of the clips' videos, in order."""
    names: dict[int, list[str]] = {}
    for (epoch, _), batch in sorted(batches.items()):
        names.setdefault(epoch, []).extend(batch.videos)
    return names


def sql(cache: Cache, text: str) -> list[tuple[object, ...]]:
    """What a person's query over the public relations gives now."""
    cache.catalog.flush()
    return select(cache.catalog, text)
