"""What is counted, for Prometheus, OpenTelemetry and traces; the names load on first use.

In the order of work:

- ``metrics``: what is counted, for Prometheus, OpenTelemetry and traces
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewcache.api.metrics.metrics import METRICS, Counted, Endpoint, Metric, collector, instrument, page, serve

__all__ = ["METRICS", "Counted", "Endpoint", "Metric", "collector", "instrument", "page", "serve"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("viewcache.api.metrics.metrics"), name)
    raise AttributeError(f"module 'viewcache.api.metrics' has no attribute {name!r}; it has: {', '.join(__all__)}")
