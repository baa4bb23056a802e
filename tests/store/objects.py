"""Types of what the tests of the store share; what they share with the tests of others is in `viewcache.testing`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache import store
from viewcache.testing import pixels, stored_of

__all__ = ["Bytes", "Put", "copied", "pixels", "stored_of"]

Bytes = NDArray[np.uint8]
Put = Callable[..., store.Stored]


def copied(source: store.Tier, stored: store.Stored, target: store.Tier, codec: str, key: str) -> store.Written:
    """Copy an object into another tier, which has room for a megabyte of it."""
    reserved = target.reserve(1 << 20)
    assert reserved is not None
    with reserved:
        written = store.copy_object(source, stored, target, codec, key)
        reserved.commit(written.bytes)
    return written
