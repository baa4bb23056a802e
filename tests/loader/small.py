"""Tasks for the loader's tests, and how their batches are compared."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from tests.tiny import AUGMENTATION, config, single
from viewcache.api.session.cache import Cache
from viewcache.materializer.reading.batch import Batch

__all__ = ["BATCHES", "EPOCHS", "VIDEOS", "Tensors", "as_tensors", "equal", "joined", "tasks", "whole"]

Tensors = dict[str, Any]
"""A batch: tensors, and two numbers."""

VIDEOS = {f"{'cats' if k % 2 else 'dogs'}/v{k}.mp4": 40 + k for k in range(10)}
"""Relative path → frames; the folder is the label."""

EPOCHS = 5
"""Of the task ``train``, in generations of 2, 2 and 1."""

BATCHES = 2
"""In each of its epochs: 6 videos and 4 videos, so that four ranks can share the short one too."""


def tasks(store: Path, videos: Path, *, together: bool = False, **cache: object) -> list[dict[str, object]]:
    """A cache of four tasks: ``train``, ``val`` (drop_last, THWC), ``floats`` (to_dtype at reading) and ``stacked``.

    They draw their orders alone, so that ranks may read them, or ``together``; ``cache`` sets the cache's own keys.
    """
    batch = {"videos_per_batch": 6, "coordination": "shared" if together else "independent"}
    first = config(store, videos, cache=cache, sampling=batch, labels="folders", epochs=EPOCHS)
    views = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["x", "y"]},
        single({"inv_sample": True}, of="y", into="z"),
        {"branch_type": "merge", "inputs": ["x", "z"], "outputs": ["m"], "merge": "stack"},
    ]
    others: dict[str, Mapping[str, Any]] = {
        "val": {"drop_last": True, "layout": "THWC"},
        "floats": {"augmentation": [*AUGMENTATION, single({"to_dtype": "float32"}, of="a", into="b")]},
        "stacked": {"augmentation": views},
    }
    more = [
        {"dataset": config(store, videos, sampling=batch, tag=name, epochs=1, **keys)["dataset"]}
        for name, keys in others.items()
    ]
    return [first, *more]


def as_tensors(batch: Batch) -> Tensors:
    """What a loader makes of a batch in TCHW, said by hand."""
    arrays: dict[str, NDArray[Any]] = {
        "video": batch.video,
        "label": batch.label,
        "index": batch.index,
        "frame": batch.frame,
        "time_s": batch.time_s,
        "sample": batch.sample,
        "item": batch.item,
        "start_s": batch.start_s,
        "end_s": batch.end_s,
    }
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    return tensors | {"epoch": batch.epoch, "iteration": batch.iteration}


def whole(cache: Cache, task: str = "train", epochs: int = 1) -> list[Tensors]:
    """All batches of some epochs, read one by one without a loader."""
    count = cache.task(task).iterations(0)
    return [as_tensors(cache.read(task, epoch, i)) for epoch in range(epochs) for i in range(count)]


def equal(some: Iterable[Tensors], others: Iterable[Tensors]) -> bool:
    """Whether two runs gave the same batches, bit by bit."""
    some, others = list(some), list(others)
    return len(some) == len(others) and all(
        one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
        for one, other in zip(some, others, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int):
        return type(other) is int and one == other
    return torch.equal(one, other)


def joined(shares: Sequence[Tensors]) -> Tensors:
    """The batch that the shares of all ranks make up."""
    first = shares[0]
    assert all((share["epoch"], share["iteration"]) == (first["epoch"], first["iteration"]) for share in shares)
    return {
        name: value if isinstance(value, int) else torch.cat([share[name] for share in shares])
        for name, value in first.items()
    }
