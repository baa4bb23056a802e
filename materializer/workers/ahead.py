"""Let the device read what a job will need while the job's worker still decodes what came before.

A worker reads and decodes by turns: without a word ahead it waits for the device, and the device for it, and a mix of
kept and encoded pictures gains nothing of its balance (Liquid §3). The kernel reads ahead when it is told
(`posix_fadvise`). The trade-off: to tell it takes 10 µs a file, so it is told only of files of which the first one is
not in memory.
"""

import os
from collections.abc import Sequence

__all__ = ["announce"]


def announce(paths: Sequence[str]) -> None:
    """Ask the kernel for files that will be read soon and in this order, unless the first one is in memory already.

    What cannot be opened is left out: its own reader says what is wrong.

    Args:
        paths: of local files that lie alike, so that all are in memory if one is.
    """
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"):
        return
    for number, path in enumerate(paths):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if number == 0 and _is_in_memory(file):
                return
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
        except OSError:
            return  # no such file system can be told
        finally:
            os.close(file)


def _is_in_memory(file: int) -> bool:
    try:
        return bool(os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))
    except BlockingIOError:
        return False
