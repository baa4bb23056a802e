"""Folders that grow: what the tests of streaming input have in common. Nothing sleeps: a file's age is written."""

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from tests.tiny import config
from viewcache.api.session.cache import Cache

__all__ = ["LONG_AGO_S", "aged", "arrive", "epoch_of", "names_of", "streaming"]

LONG_AGO_S = 1_000.0
"""Seconds since a file was written: longer than `settle`, also than what is given to one that cannot be read."""


def arrive(folder: Path, *files: Path, age_s: float = LONG_AGO_S, name: str = "") -> None:
    """Let files come into a folder whole, written so many seconds ago."""
    for each in files:
        target = folder / (name or each.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(each, target.with_suffix(".part"))
        aged(target.with_suffix(".part"), age_s)
        target.with_suffix(".part").rename(target)


def aged(path: Path, age_s: float) -> None:
    """Say that a file was written so many seconds ago."""
    at = time.time() - age_s
    os.utime(path, (at, at))


def streaming(store: Path, folder: Path, **settings: object) -> dict[str, object]:
    """A configuration whose one task grows: one clip a video, 2 videos a batch; keyword arguments as of `config`.

    Workers are threads, which start at once.
    """
    usual: dict[str, object] = {"input_source": "streaming", "epochs": 8, "sampling": {"samples_per_video": 1}}
    given = config(store, folder, **(usual | settings))  # type: ignore[arg-type]
    cache = given["cache"]
    assert isinstance(cache, dict)
    return given | {"cache": {"worker_kind": "threads"} | cache}


def epoch_of(cache: Cache, epoch: int, task: str = "train") -> list[str]:
    """Names of the videos of an epoch in their order, read batch after batch."""
    batches = cache.task(task).iterations(epoch)
    return [name for each in range(batches) for name in cache.read(task, epoch, each).videos]


def names_of(files: Iterable[Path]) -> set[str]:
    """Names of the videos of some files."""
    return {each.stem for each in files}
