"""Extended attributes of views: what ``fs.info(path)["view"]`` has, each value as JSON (SAND's getxattr)."""

import json
from collections.abc import Mapping

__all__ = ["ERROR", "PREFIX", "encode", "listed"]

PREFIX = "user.viewcache."
"""Before each name."""

ERROR = PREFIX + "error"
"""The text of what failed last at a path or below it; not listed, and there only once something has failed."""


def listed(about: Mapping[str, object]) -> list[str]:
    """Names of the attributes of a path, from its metadata."""
    return [PREFIX + name for name in about]


def encode(value: object) -> bytes:
    """A value as it is read: JSON without spaces, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
