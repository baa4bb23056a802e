"""Verbs of the door about how a cache begins and ends: whether the next owner can trust the rows.

A part of ``door.Catalog``, which has the others. The trade-off: who opens a cache pays a commit for it, and the next
owner of one that ended well walks through nothing.
"""

import logging
from abc import ABC, abstractmethod

from viewcache import errors
from viewcache.catalog import files
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.records import CLEAN

__all__ = ["Ends"]

_log = logging.getLogger("viewcache.catalog")


class Ends(ABC):
    """See ``door.Catalog``."""

    def begin(self) -> bool:
        """Say that the cache is open from now on; whether it had ended well before, so that the rows can be trusted.

        Where a full disk lets nothing be committed, an empty file says it, and the next start looks through the store.

        Raises:
            Full: not even that file can be made, or the disk of PostgreSQL is full.
        """
        layout, clean = self._layout, self.setting(CLEAN) == "yes"
        marked = layout is not None and layout.unclean.exists()
        try:
            if clean:
                self.set_setting(CLEAN, "no")
        except errors.Full as error:
            if layout is None or not files.mark_unclean(layout):
                raise
            _log.warning("the cache opens though nothing can be recorded: %s", error, extra={"action": "opened_full"})
        else:
            if layout is not None and marked:
                layout.unclean.unlink(missing_ok=True)
        return clean and not marked

    def end(self) -> None:
        """Say that all is well; without that, as on a full disk, the next start looks through the store."""
        try:
            self.set_setting(CLEAN, "yes")
        except errors.Full as error:
            _log.warning("the end of the cache cannot be recorded: %s", error, extra={"action": "ended_full"})

    @property
    @abstractmethod
    def _layout(self) -> CatalogFiles | None:
        """The files of a DuckDB catalog; None for PostgreSQL."""

    @abstractmethod
    def setting(self, name: str) -> str | None:
        """The value of a setting; None when it was never set."""

    @abstractmethod
    def set_setting(self, name: str, value: str) -> None:
        """Change a setting."""
