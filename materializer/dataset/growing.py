"""The files of a dataset that grows, listed again for each generation that is about to be drawn (docs/design/0033)."""

import logging
import threading
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.errors import ViewcacheError
from viewcache.materializer.dataset.arrivals import Arrivals
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.listing import list_again
from viewcache.materializer.media.source import shown
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Growing"]

REMEMBERED = 32
"""Generations of which it is remembered which files they had, for tasks that draw them later than others."""

_log = logging.getLogger("viewcache.dataset")


class Growing:
    """Lists a dataset again, and remembers what each generation had. Thread-safe."""

    def __init__(self, spec: DatasetSpec, catalog: Catalog, files: Files, workers: int) -> None:
        """Begin with what `list_files` gave.

        Args:
            spec: what it was given.
            catalog: what is known of the dataset.
            files: those that are there.
            workers: processes that look into files; 0 = one per core.
        """
        self.files = files
        """As they were listed last."""
        self._spec = spec
        self._catalog = catalog
        self._workers = workers
        self._arrivals = Arrivals(spec)
        self._lock = threading.Lock()
        self._had: dict[tuple[Hashable, int], NDArray[np.int64]] = {}
        """Who draws, and number of the generation → ids of the videos that had joined."""

    def for_generation(
        self, who: Hashable, number: int, newest_drawn: Callable[[], int | None]
    ) -> tuple[Files, NDArray[np.int64]]:
        """The files that a generation is drawn from.

        The first who asks has the dataset listed, unless an earlier run has drawn of the generation; all others get
        the same videos. A dataset that cannot be listed stays as it is: training goes on.

        Args:
            who: a task, or those that draw together.
            number: of the generation, the same for all of them.
            newest_drawn: the largest ``video_id`` that one of them has drawn of it in an earlier run.

        Returns:
            The files as they are known now, and ids of those that may be drawn.
        """
        with self._lock:
            had = self._had.get((who, number))
            if had is None:
                newest = newest_drawn()
                if newest is None:
                    self._list()
                there = self.files.ids[self.files.there]
                had = there if newest is None else there[there <= newest]
                self._had[who, number] = had
                for each in list(self._had)[:-REMEMBERED]:
                    del self._had[each]
            return self.files, had

    def forget(self, who: Hashable, number: int) -> None:
        """A generation could not be drawn: the dataset is listed again for who tries next."""
        with self._lock:
            self._had.pop((who, number), None)

    def _list(self) -> None:
        before = self.files
        try:
            self.files = list_again(self._spec, self._catalog, before, self._arrivals, self._workers)
        except ViewcacheError as error:
            _log.warning("nothing new joins: %s", error, extra={"action": "not_listed_again"})
            return
        joined, gone = len(self.files) - len(before), len(self.files.missing - before.missing)
        if joined or gone:
            _log.info(
                "%s: %d new videos, %d are gone", shown(self._spec.uri), joined, gone, extra={"action": "videos_joined"}
            )
