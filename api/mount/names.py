"""Paths below a mount as `view://` paths: one and the same, but for frames after augmentation.

Below ``view://`` such a frame lies under its frame, which is a file; in a file system no file lies under a file. So
``cat/frame3/aug1`` is ``cat/frame3.aug1`` here.
"""

import re

__all__ = ["view_path"]

_AUGMENTED = re.compile(r"([^/]+/[^/]+/frame[0-9]+)\.(aug[^/]*)")


def view_path(path: str) -> str:
    """The `view://` path, without ``view://``, of a path that begins with the mount's own ``/``."""
    inside = path.strip("/")
    augmented = _AUGMENTED.fullmatch(inside)
    return f"{augmented[1]}/{augmented[2]}" if augmented else inside
