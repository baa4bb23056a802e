"""Where a task's videos may lie: never inside the store, nor on the web where they are decoded in this process.

What lies in a store may be evicted, and who makes a video must not be able to end a process.
"""

import os
from collections.abc import Iterable
from itertools import product

from viewcache.api.config.entries import Entries
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.choices import WorkerKind
from viewcache.materializer.places import places_of
from viewcache.materializer.spec import TierSpec

__all__ = ["check_link_roots", "distrusted", "keep_apart", "trust"]


def keep_apart(tiers: Iterable[TierSpec], uri: str, entries: Entries) -> None:
    """Refuse a store that holds the videos: what lies in a store may be evicted, sources never (law 6).

    Raises:
        ConfigError: so it is.
    """
    for tier, videos in product(tiers, map(_real, places_of(uri))):
        if f"{videos}/".startswith(f"{_real(tier.url).rstrip('/')}/"):
            task = f"task {entries.value('tag')!r}"
            raise error_at(
                entries.place("video_dataset_path"),
                ConfigCode.VIDEOS_IN_STORE,
                f"the videos of {task} lie inside the cache's store {tier.url}; choose another cache.store",
            )


def _real(place: str) -> str:
    """A path with its links resolved, as far as it exists; a URL as it is."""
    return os.path.realpath(place) if os.path.isabs(place) else place


def trust(worker_kind: WorkerKind, uri: str, entries: Entries) -> None:
    """Refuse strangers' files where they would be decoded in this process.

    Raises:
        ConfigError: so it is.
    """
    if why := distrusted(worker_kind, uri, entries.value("tag")):
        raise error_at(entries.place("video_dataset_path"), ConfigCode.UNTRUSTED_VIDEOS, why)


def distrusted(worker_kind: WorkerKind, uri: str, task: str) -> str | None:
    """Why strangers' files are not decoded in this process: who makes a video must not be able to end it."""
    from_web = any(each.startswith(("http://", "https://")) for each in places_of(uri))
    if worker_kind == WorkerKind.THREADS and from_web:
        return (
            f"the videos of task {task!r} come from the web, and worker_kind: threads decodes in this process, "
            "which a hostile file could end; use worker_kind: processes"
        )
    return None


def check_link_roots(roots: tuple[str, ...], entries: Entries, *, follow: bool) -> None:
    """Refuse folders that links may lead into where none is followed, and what is no local folder.

    Raises:
        ConfigError: so it is.
    """
    name, place = entries.name_of("link_roots"), entries.place("link_roots")
    if roots and not follow:
        message = f"{name} says where links may lead: set follow_links: true, or leave it out"
        raise error_at(place, ConfigCode.MISPLACED_KEY, message)
    if far := next((each for each in roots if not os.path.isabs(each)), None):
        raise error_at(place, ConfigCode.WRONG_FORMAT, f"{name}: {far} is no local folder; only these have links")
