"""Room on the disk for DuckDB's write-ahead log, claimed before a transaction is committed.

Where there is no room for a commit, DuckDB takes back what it has changed in memory, and where a transaction has
deleted a row and inserted one with the same key it meets that key twice and aborts the process (1.5.6). So the blocks
are claimed behind the end of the log first (`fallocate`, which leaves its length alone), and a transaction that gets
none is rolled back, which is safe. The trade-off: file systems that cannot claim blocks, such as NFS, are as before.
"""

import contextlib
import ctypes
import errno
import os
from functools import cache
from pathlib import Path

from viewcache.errors import Full

__all__ = ["NO_SPACE", "LogRoom"]

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk, or a quota, without room."""

_STEP_BYTES = 1 << 20
"""Claimed at once: some hundreds of small commits."""
_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of Linux."""


class LogRoom:
    """The blocks that are claimed for one log; its owner's writer alone calls it."""

    def __init__(self, log: Path) -> None:
        """Nothing is claimed yet; the log need not be there."""
        self._log = log
        # Kept open while DuckDB has the log open: closing a file takes away all locks that a process has of it.
        self._file = -1

    def claim(self, size: int) -> None:
        """Have blocks for so many more bytes of the log.

        Raises:
            Full: the disk, or a quota, has no room.
        """
        try:
            number = self._claim(size)
        except OSError as error:
            number = error.errno or 0
        if number in NO_SPACE:
            raise Full(f"catalog {self._log}: {os.strerror(number)}; free disk space")

    def _claim(self, size: int) -> int:
        """The number of the system's error; 0 where there is room."""
        try:
            log = os.stat(self._log)
        except FileNotFoundError:  # there was no room for it when the transaction began, or is none now
            self._open(os.O_CREAT)
            log = os.fstat(self._file)
        if log.st_blocks * 512 - log.st_size >= size:
            return 0
        if self._file < 0 or not os.path.samestat(log, os.fstat(self._file)):
            self._open()
        if _libc().fallocate(self._file, _KEEP_SIZE, log.st_size, max(size, _STEP_BYTES)):
            return ctypes.get_errno()
        return 0

    def _open(self, more: int = 0) -> None:
        self.close()
        self._file = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC | more, 0o600)

    def close(self) -> None:
        """Let go of the log, which DuckDB has closed."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return libc
