"""The boxes that MP4 and QuickTime files are made of (ISO/IEC 14496-12 §4.2)."""

import struct

from viewcache.materializer.media.source import Source

__all__ = ["Boxes", "children", "movie_box"]

MOST_BOXES = 1000
"""Of one level; a box may be of 8 bytes, and a file of nothing else."""
MOST_BYTES = 64 << 20
"""Of a movie box: a day of video takes some ten million."""

_SIZE_AND_KIND = struct.Struct(">I4s")

Boxes = dict[bytes, list[memoryview]]
"""Kind → contents of the boxes of that kind, in the order of the file."""


def movie_box(source: Source) -> memoryview | None:
    """The content of a file's first ``moov`` box; None if there is none, or it is too large to be one."""
    start, end = 0, source.stamp.size
    for _ in range(MOST_BOXES):
        head = source.read_near(start, 16)
        found = _head(memoryview(head), start, end)
        if found is None:
            return None
        kind, content, start = found
        if kind == b"moov":
            size = start - content
            return memoryview(source.read_near(content, size)) if size <= MOST_BYTES else None
    return None


def children(data: memoryview) -> Boxes:
    """The boxes in the content of another; what cannot be a box ends them."""
    found: Boxes = {}
    start = 0
    for _ in range(MOST_BOXES):
        head = _head(data[start : start + 16], start, len(data))
        if head is None:
            break
        kind, content, start = head
        found.setdefault(kind, []).append(data[content:start])
    return found


def _head(head: memoryview, start: int, end: int) -> tuple[bytes, int, int] | None:
    """Kind, begin of the content and end of the box at ``start``; None if there is no whole one."""
    if len(head) < 8:
        return None
    (size, kind), content = _SIZE_AND_KIND.unpack_from(head), start + 8
    if size == 1:
        size, content = int.from_bytes(head[8:16], "big"), start + 16
    stop = start + size if size else end
    return (kind, content, stop) if content <= stop <= end else None
