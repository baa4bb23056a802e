"""The files of a dataset that grows, listed again for each generation that is about to be drawn (docs/design/0033)."""

import logging
import threading

from viewcache.catalog import Catalog
from viewcache.errors import ViewcacheError
from viewcache.materializer.dataset.arrivals import Arrivals
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.listing import list_again
from viewcache.materializer.media.source import shown
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Growing"]

_log = logging.getLogger("viewcache.dataset")


class Growing:
    """Lists a dataset again, for all tasks that draw from it."""

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
        self.lock = threading.Lock()
        """Held from the listing until what is drawn of it is recorded, so that who draws next goes by that."""
        self._spec = spec
        self._catalog = catalog
        self._workers = workers
        self._arrivals = Arrivals(spec)

    def list(self) -> None:
        """See what is new and what is gone; the lock is held.

        A dataset that cannot be listed stays as it is: training goes on.
        """
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
