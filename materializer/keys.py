"""Content keys: an object's name is a hash of all that decides its bytes, so equal names are equal pixels."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEY_BYTES", "as_text", "as_texts", "content_digests", "content_key", "digests", "hash_of"]

KEY_BYTES = 16
"""Of a content key."""

DATA_VERSION = b"viewcache-data-2"
"""Raised when decoding or conversion give other bytes for the same recipe; a test pins the bytes."""


def digests(base: "hashlib.blake2b", data: memoryview, width: int) -> list[bytes]:
    """The hashes of ``base`` and then each ``width`` bytes of ``data``."""
    found = []
    for k in range(0, len(data), width):
        one = base.copy()
        one.update(data[k : k + width])
        found.append(one.digest())
    return found


def as_text(keys: NDArray[np.void]) -> "pa.StringArray":
    """Content keys, (n,) of 16 bytes, as 32 hex digits each: a column, since a million strings take 80 MB."""
    import pyarrow as pa  # which worker processes need not load

    ends = np.arange(0, 32 * len(keys) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(ends), pa.py_buffer(keys.tobytes().hex().encode()))


def as_texts(keys: NDArray[Any]) -> list[str]:
    """The same of a few keys as strings; they may also be (n, 16) bytes."""
    digits, width = keys.tobytes().hex(), 2 * KEY_BYTES
    return [digits[at : at + width] for at in range(0, len(digits), width)]


def hash_of(purpose: str) -> "hashlib.blake2b":
    """The hash that content keys of one purpose begin with; each part follows its length in 8 bytes."""
    state = hashlib.blake2b(digest_size=KEY_BYTES, person=f"viewcache-{purpose}".encode())
    state.update(DATA_VERSION)
    return state


def content_digests(purpose: str, firsts: Iterable[bytes], *rest: bytes) -> list[bytes]:
    """`content_key` of many objects that differ in the first part, 16 bytes, as bytes: a third of the time of each."""
    base = hash_of(purpose)
    base.update(KEY_BYTES.to_bytes(8, "little"))
    behind = b"".join(len(part).to_bytes(8, "little") + part for part in rest)
    found = []
    for first in firsts:
        one = base.copy()
        one.update(first + behind)
        found.append(one.digest())
    return found


def content_key(purpose: str, *parts: bytes) -> str:
    """Key of an object that is not a clip: 32 hex digits of a hash over the parts."""
    state = hash_of(purpose)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()
