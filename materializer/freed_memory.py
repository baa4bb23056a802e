"""Free memory that allocators keep for themselves, where much of it was just let go.

Recording a large dataset or plan takes buffers of tens of megabytes for a moment. NumPy's come from the C library and
Arrow's from its own pool; neither gives them back at once, so that the process would stay as large as all its steps
together.
"""

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa

__all__ = ["give_back_after", "give_back_memory"]

MANY = 1 << 14
"""What was gone through for fewer files is not worth the time."""


def give_back_after(files: int) -> None:
    """Do so where something was worked out for many files, which takes more memory for a moment than what is kept."""
    if files > MANY:
        give_back_memory()


def give_back_memory() -> None:
    """Give what is free to the system; takes a few milliseconds, and nothing that is used changes."""
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    """``malloc_trim`` of the GNU C library; None where there is another."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
