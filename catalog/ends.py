"""Verbs of the door about how a cache begins and ends: whether the next owner can trust the rows.

A part of ``door.Catalog``, which has the others. A clean end leaves the same random token in the database and in a file
of the store's folder, and who opens the cache next removes the file. So a copy of the database that is put back, which
may be older than the store, has another token. The trade-off: who opens a cache flushes a folder for it, and the next
owner of one that ended well walks through nothing.
"""

import logging
import secrets
from abc import ABC, abstractmethod
from pathlib import Path

from viewcache import errors
from viewcache.catalog import files
from viewcache.catalog.log_room import NO_SPACE
from viewcache.catalog.records import CLEAN
from viewcache.failpoints import failpoint

__all__ = ["Ends"]

_log = logging.getLogger("viewcache.catalog")


class Ends(ABC):
    """See ``door.Catalog``."""

    def begin(self) -> bool:
        """Say that the cache is open from now on; whether it had ended well before, so that the rows can be trusted.

        Raises:
            Full: the disk has no room, not even to remove a file.
            Broken: the store's folder cannot be changed.
        """
        token = self._token
        if token is None:
            return False
        try:
            clean = self.setting(CLEAN) == token.read_text("ascii", errors="replace")
            token.unlink()
            files.sync(token.parent)
        except FileNotFoundError:
            return False
        except OSError as error:
            kind = errors.Full if error.errno in NO_SPACE else errors.Broken
            raise kind(f"cannot remove {token}: {error.strerror}; check that its folder is writable") from error
        return clean

    def end(self) -> None:
        """Say that all is well; without that, as on a full disk, the next start looks through the store."""
        token, value = self._token, secrets.token_hex(16)
        if token is None:
            return
        try:
            self.set_setting(CLEAN, value)
            failpoint("catalog.ended")
            with files.published(token) as file:
                file.write(value.encode("ascii"))
        except (errors.Full, OSError) as error:
            _log.warning("the end of the cache cannot be recorded: %s", error, extra={"action": "ended_full"})

    @property
    @abstractmethod
    def _token(self) -> Path | None:
        """The file in the store's folder that a clean end leaves; None if the store is not known."""

    @abstractmethod
    def setting(self, name: str) -> str | None:
        """The value of a setting; None when it was never set."""

    @abstractmethod
    def set_setting(self, name: str, value: str) -> None:
        """Change a setting."""
