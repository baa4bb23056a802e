"""viewcache: video preprocessing, planned ahead and cached as views of a training run.

The public names load on first use, so that ``import viewcache`` costs nothing (PEP 562).
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from viewcache.errors import UnsupportedPlatform, ViewcacheError

if TYPE_CHECKING:
    from viewcache.api.service.opening import open
    from viewcache.api.session.cache import Cache
    from viewcache.api.training.loader import Loader

__all__ = ["Cache", "Loader", "ViewcacheError", "__version__", "open"]

__version__ = "0.1.0"

_HOMES = {
    "Cache": "viewcache.api.session.cache",
    "open": "viewcache.api.service.opening",
    "Loader": "viewcache.api.training.loader",
}


if find_spec("fcntl") is None:
    raise UnsupportedPlatform(
        f"viewcache runs on Linux only: Python on {sys.platform} has no module fcntl, by which a cache is locked; on "
        "Windows use it inside WSL 2 or a Linux container"
    )


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'viewcache' has no attribute {name!r}; public names: {', '.join(__all__)}")
