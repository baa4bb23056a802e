"""Small caches for tests that hurt them: tiny clips, a configuration, and what must hold when a cache is at rest."""

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

import viewcache
from tests.clips import encode
from tests.disk import allocated, counted
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.materializer.reading.batch import Batch

__all__ = ["assert_at_rest", "config", "digest_of", "encode_videos", "objects_of", "read_all", "store_bytes"]

FRAMES = 30
"""Of every clip of `encode_videos`."""


def encode_videos(folder: Path, count: int = 4, *, first: int = 0) -> Path:
    """Encode ``count`` clips of 30 frames and 48x32 pixels, each different; `first` numbers them and what they show."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        encode_one(folder / f"v{number}.mp4", number)
    return folder


def encode_one(path: Path, content: int) -> Path:
    """One clip; ``content`` chooses what it shows."""
    noise = np.random.default_rng(content).integers(0, 256, (FRAMES + 32, 48, 3), dtype=np.uint8)
    return encode(path, frames=FRAMES, size=(48, 32), gop=10, source=[noise[n : n + 32] for n in range(FRAMES)])


def config(store: Path, videos: Path, *, budget: int = 10**8, codec: str = "raw", **more: Any) -> dict[str, Any]:
    """One task ``t``: 2 videos a batch, 2 samples a video, clips of 4 frames; ``more`` overrides by key."""
    dataset: dict[str, Any] = {
        "on_bad_video": "raise",
        "on_missing_video": "replace",
        "on_changed_video": "raise",
        "on_short_video": "clamp",
        "epochs": 2,
        "probe": "lazy",
        "drop_last": False,
    }
    dataset |= {k: more.pop(k) for k in list(dataset) if k in more}
    sampling = {"videos_per_batch": 2, "frames_per_video": 4, "frame_stride": 2, "samples_per_video": 2}
    sampling |= {key: more.pop(key) for key in list(sampling) if key in more}
    steps = [{"resize": {"shape": [24, 36]}}, {"random_crop": {"shape": [16, 16]}}, {"flip": {"flip_prob": 0.5}}]
    branch = {"name": "a", "branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}
    return {
        "cache": {
            "store": [{"url": str(store), "budget": budget, "codec": codec}],
            "memory": "1GB",
            "workers": 1,
            "epochs_per_generation": 2,
            **more,
        },
        "dataset": {
            "tag": "t",
            "input_source": "file",
            "video_dataset_path": str(videos),
            "sampling": sampling,
            "augmentation": [branch],
            **dataset,
        },
    }


def digest_of(batch: Batch) -> str:
    """Of everything that a training loop sees of a batch."""
    digest = blake2b(digest_size=16)
    for array in (batch.video, batch.label, batch.frame, batch.time_s):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update("\n".join(batch.videos).encode())
    return digest.hexdigest()


def read_all(cache: Cache, epochs: int = 2) -> Iterator[tuple[tuple[int, int], str]]:
    """Every batch of ``t`` in order: ((epoch, iteration), digest)."""
    for epoch in range(epochs):
        for iteration in range(cache.task("t").iterations(epoch)):
            yield (epoch, iteration), digest_of(cache.read("t", epoch, iteration))


def objects_of(store: Path) -> dict[str, Path]:
    """Key → folder of every object on disk."""
    return {path.name: path for path in store.glob("objects/*/*")}


def store_bytes(store: Path) -> int:
    """What objects and unfinished ones take of the disk now, each with its folder; what vanishes counts nothing."""
    return sum(allocated(folder) for folder in (*store.glob("objects/*/*"), *store.glob("tmp/*")))


def assert_at_rest(store: Path, *, apart_from: Collection[str] = ()) -> Mapping[str, int]:
    """What must hold of a closed cache: rows and folders are the same objects, sizes agree, ``tmp`` is empty.

    Args:
        store: its folder.
        apart_from: keys of objects that were damaged behind its back.

    Returns:
        Key → bytes of every object.
    """
    with Catalog.open(str(store)) as catalog:
        rows = {row["key"]: row["bytes"] for row in catalog.query("read_stored", tier="local").to_pylist()}
    folders = {key: counted(folder) for key, folder in objects_of(store).items()}
    folders, recorded = ({key: one[key] for key in one if key not in apart_from} for one in (folders, rows))
    assert folders == recorded
    assert not list((store / "tmp").iterdir())
    return rows


def truth_of(folder: Path, videos: Path, **how: Any) -> dict[tuple[int, int], str]:
    """The batches of an undisturbed run in a store of its own."""
    with viewcache.open(config(folder, videos, **how)) as cache:
        return dict(read_all(cache))
