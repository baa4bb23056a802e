"""Writes into the catalog what a cache takes of cores and energy, seldom: `kill -9` loses what was not written yet.

It is also written before a snapshot, so who looks from another process sees it as of then; on PostgreSQL, which has no
snapshots, it is up to `WRITE_S` old.

So it does with what a batch takes beside what is kept, which tells those who predict what epochs cost.
"""

import threading

from viewcache.catalog import Catalog
from viewcache.errors import ViewcacheError
from viewcache.materializer.telemetry.beside import Beside
from viewcache.materializer.telemetry.usage import Usage

__all__ = ["WRITE_S", "Accounting"]

WRITE_S = 30.0
"""How often, seconds."""


class Accounting:
    """A thread that hands the news of a `Usage` to a catalog."""

    def __init__(self, usage: Usage, catalog: Catalog) -> None:
        """Start the thread."""
        self.usage = usage
        self.beside = Beside(usage.charged_s, usage.beside_s)
        self._catalog = catalog
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewcache-usage", daemon=True)
        self._thread.start()
        catalog.before_snapshots(self.write)  # what it tells is then of one moment with what was read until then

    def write(self) -> None:
        """Hand over what has come; the catalog commits it within a second.

        Raises:
            Closed: the catalog was closed.
        """
        self._catalog.add_usage(self.usage.news())
        if beside := self.beside.news():
            self._catalog.add_io_samples(beside)

    def close(self) -> None:
        """Hand over the last and end the thread."""
        self._ending.set()
        self._thread.join()
        self.write()

    def _run(self) -> None:
        while not self._ending.wait(WRITE_S):
            try:
                self.write()
            except ViewcacheError:
                return  # the catalog is closed: who closed it does not count any more
