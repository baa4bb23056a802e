"""Types of what the tests of the store share; what they share with the tests of others is in `viewcache.testing`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from viewcache import store
from viewcache.testing import pixels, stored_of

__all__ = ["Bytes", "Put", "pixels", "stored_of"]

Bytes = NDArray[np.uint8]
Put = Callable[..., store.Stored]
