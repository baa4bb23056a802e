"""Shared memory between this process and an op worker: frames lie in it on their way there and back.

Its size is sealed, because a mapping whose file is cut shorter kills who looks at it. A larger need gets another one.
"""

import fcntl
import mmap
import os

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arena"]

_PAGE = mmap.PAGESIZE


class Arena:
    """One memory, reused from call to call."""

    def __init__(self, size: int) -> None:
        """Make it, of at least ``size`` bytes; pages that nobody touches cost nothing.

        Raises:
            OSError: the system has no memory or no descriptor for it.
        """
        self.size = -(-size // _PAGE) * _PAGE
        self.descriptor = os.memfd_create("viewcache-op-worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """To send; closed by `hand_over`."""
        try:
            os.ftruncate(self.descriptor, self.size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
            self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
        except BaseException:
            os.close(self.descriptor)
            raise

    def sent(self) -> None:
        """The other side has the descriptor: this side keeps the mapping alone."""
        os.close(self.descriptor)
