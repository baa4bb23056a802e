"""Look at every packet of a cache's datasets ahead of training (``viewcache scan``); it goes on where it was ended."""

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import numpy as np

from viewcache.api.config.load import Config
from viewcache.catalog import Catalog
from viewcache.catalog.opening import own_store
from viewcache.errors import BadInput
from viewcache.materializer.choices import Media, ProbeMode
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.listing import Progress, list_files
from viewcache.materializer.dataset.listing_spec import files_of, policies_among
from viewcache.materializer.storage.recover import bind_store
from viewcache.store import LocalTier

__all__ = ["ScannedDataset", "scan_datasets"]


@dataclass(frozen=True, slots=True)
class ScannedDataset:
    """What is known of a dataset's files now."""

    dataset: str
    media: Media
    """Of which its files are."""
    videos: int
    """How many, or how many images."""
    frames: int
    """Of all that can be decoded; an image has one."""
    bad: tuple[str, ...]
    """Why files cannot be decoded, or not all of them, by name."""
    changed: tuple[str, ...]
    """What is to be told of files that have other content than when they were drawn."""
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def scan_datasets(config: Config, progress: Progress | None = None) -> list[ScannedDataset]:
    """Look at every packet of all files that nobody has looked at, and record what is found as it is found.

    Args:
        config: the cache, which nobody may have open, and its tasks.
        progress: called while files are looked at, with (done, in all, name); for each dataset anew.

    Raises:
        BadInput: there is no task, or a file was replaced that a task with ``on_changed_video: raise`` has drawn.
        CatalogBusy: another process has the cache open.
        DatasetNotFound: a dataset's folder is not there, or holds no videos.
    """
    if not config.tasks:
        raise BadInput("the configuration has no task; add a dataset: section")
    cache = config.cache
    root = cache.local.url
    local = LocalTier(root, 1)  # makes the store's folder what it is; nothing is reserved
    with ExitStack() as held:
        lock = own_store(cache.catalog, root)
        if lock is not None:
            held.enter_context(lock)
        where = root if cache.catalog == "duckdb" else cache.catalog
        catalog = held.enter_context(Catalog.open(where, beside=root))
        if lock is not None:
            bind_store(catalog, local)
        scanned = []
        for dataset in dict.fromkeys(files_of(task, ProbeMode.FULL) for task in config.tasks):
            policies, begun = policies_among(config.tasks, dataset), time.monotonic()
            files = list_files(
                dataset, catalog, workers=cache.workers, progress=progress, policies=policies, tells=False
            )
            scanned.append(_report(files, dataset.media, time.monotonic() - begun))
        return scanned


def _report(files: Files, media: Media, seconds: float) -> ScannedDataset:
    there = files.there
    bad = tuple(files.error(row) for row in np.flatnonzero(there & ~files.whole).tolist())
    frames = int(files.frames[there & files.whole].sum())
    return ScannedDataset(files.uri, media, int(there.sum()), frames, bad, files.changed, seconds)
