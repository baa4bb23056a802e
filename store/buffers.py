"""Memory for pixels that the kernel can copy into at full speed.

Where NumPy's own allocation starts 16 bytes into a page, a read from the page cache takes twice the CPU time, and an
odd address four times (docs/design/0002): buffers for `read_into` and sources for writes should come from here.
"""

import math
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["aligned_empty"]


def aligned_empty(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An uninitialized, page-aligned, contiguous uint8 array; keep it and use it again, fresh pages cost faults."""
    size = math.prod(shape)
    # NumPy, unlike mmap, asks for huge pages; one page more leaves room to begin at a boundary.
    memory = np.empty(size + mmap.PAGESIZE, np.uint8)
    start = -memory.ctypes.data % mmap.PAGESIZE
    return memory[start : start + size].reshape(shape)
