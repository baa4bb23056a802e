"""Which ranges of a shard to ask a remote store for, and reading chunks out of what came.

A request costs a wait of its own, so chunks that lie near one another are asked for together, with what is between
them. The trade-off: bytes that nobody wants are moved, up to `GAP_BYTES` between two chunks.
"""

from collections.abc import Sequence

from viewcache.errors import ChunkDamaged
from viewcache.store.format import ChunkTable, aligned
from viewcache.store.shard_reader import Fill

__all__ = ["GAP_BYTES", "SPAN_BYTES", "fill_from", "spans_of"]

GAP_BYTES = 2 << 20
"""Moved rather than asking twice: what comes in the time of one wait (20 ms at 100 MB/s)."""
SPAN_BYTES = 64 << 20
"""Of one request at most, so that a lost answer does not cost much and memory is bounded."""


def spans_of(table: ChunkTable, picks: Sequence[int]) -> list[tuple[int, int]]:
    """(start, end) of the ranges that hold these chunks, in the order of the shard; each chunk is whole in one."""
    spans: list[tuple[int, int]] = []
    for place, size in sorted({(table.offsets[chunk], aligned(table.sizes[chunk])) for chunk in picks}):
        end = place + size
        if spans and place <= spans[-1][1] + GAP_BYTES and end - spans[-1][0] <= SPAN_BYTES:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((place, end))
    return spans


def fill_from(path: str, parts: Sequence[tuple[int, bytes]]) -> Fill:
    """A `Fill` of ranges that were brought.

    Args:
        path: of the shard, for messages.
        parts: offset in the shard and bytes, in the order of the shard.
    """
    held = [(start, memoryview(data)) for start, data in parts]

    def fill(views: Sequence[memoryview | bytearray], offset: int) -> None:
        start, data = next((part for part in reversed(held) if part[0] <= offset), (0, memoryview(b"")))
        at = offset - start
        for view in views:
            if at + len(view) > len(data):
                raise ChunkDamaged(f"{path} ends at byte {start + len(data)}, {at + len(view) - len(data)} too early")
            view[:] = data[at : at + len(view)]
            at += len(view)

    return fill
