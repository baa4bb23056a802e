"""viewcache: video preprocessing, planned ahead and cached as views of a training run.

The public names load on first use, so that ``import viewcache`` costs nothing (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

from viewcache.errors import ViewcacheError

if TYPE_CHECKING:
    from viewcache.api.session.cache import Cache, open
    from viewcache.api.training.loader import Loader

__all__ = ["Cache", "Loader", "ViewcacheError", "__version__", "open"]

__version__ = "0.1.0"

_HOMES = {
    "Cache": "viewcache.api.session.cache",
    "open": "viewcache.api.session.cache",
    "Loader": "viewcache.api.training.loader",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'viewcache' has no attribute {name!r}; public names: {', '.join(__all__)}")
