"""Which files of a dataset that grows are complete, so that no video is taken half (docs/design/0033).

A file tells by its time when it was written last; a clock that is off is outlasted by looking twice. What cannot be
read yet is asked again for a while before it is called bad, since many writers put a container's table last.
"""

import logging
import time
from collections.abc import Callable, Sequence

from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.media.source import Stamp, is_local, shown
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Arrivals"]

UNREADABLE = 30.0
"""For so many times `settle` a file that cannot be read is taken for one that is still being written."""

_log = logging.getLogger("viewcache.dataset")


class Arrivals:
    """Remembers files that were seen and are not complete. Used by one thread at a time."""

    def __init__(
        self, spec: DatasetSpec, *, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        """Nothing was seen yet.

        Args:
            spec: ``settle`` and the largest frame allowed.
            clock: seconds that only go forward.
            now: seconds since 1970, by which files have their times.
        """
        self._spec = spec
        self._clock = clock
        self._now = now
        self._seen: dict[str, tuple[Stamp, float]] = {}
        """URI of a file that is not complete → how it was, and since when."""

    @property
    def waiting(self) -> int:
        """How many files were not complete when they were looked at last."""
        return len(self._seen)

    def complete(self, new: Sequence[Found], workers: int = 0) -> list[Found]:
        """The new files that may join; the others are looked at again the next time.

        Args:
            new: files that have not joined, as they are now.
            workers: processes that read the headers of young files; 0 = one per core.

        Raises:
            Full: a scanning process may open no more files.
        """
        clock, now, before = self._clock(), self._now(), self._seen
        since: dict[str, tuple[Stamp, float]] = {}
        for each in new:
            stamp, at = before.get(each.uri, (each.stamp, clock))
            since[each.uri] = (each.stamp, at if stamp == each.stamp else clock)
        quiet_s = {each.uri: _quiet_s(each, now, clock - since[each.uri][1]) for each in new}
        settle = self._spec.settle
        settled = [each for each in new if quiet_s[each.uri] >= settle]
        young = [each for each in settled if quiet_s[each.uri] < settle * UNREADABLE]
        unread = set()
        for file, found in scan(young, self._spec.max_pixels, probe=self._spec.probe, workers=workers):
            if found.error or (found.facts is not None and not found.facts.stamp.same(file.stamp)):
                unread.add(file.uri)
                _log.info("%s is not complete yet (%s)", shown(file.uri), found.error, extra={"action": "not_complete"})
        ready = [each for each in settled if each.uri not in unread]
        done = {each.uri for each in ready}
        self._seen = {uri: seen for uri, seen in since.items() if uri not in done}
        return ready


def _quiet_s(file: Found, now: float, seen_s: float) -> float:
    """Seconds for which nobody has written to a file, as far as is known; objects in a bucket are there whole."""
    if file.problem or file.stamp.etag or not (is_local(file.uri) or file.stamp.mtime_ns):
        return float("inf")
    return max(now - file.stamp.mtime_ns / 1e9, seen_s)
