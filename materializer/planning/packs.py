"""Packs: kept pictures of several images that are made, stored and left together as one object.

A picture is small, and an object for each would cost more than decoding it does. Pictures of one pack may differ in
size: each begins with a chunk of its own, so that it is read and checked alone, and what it leaves of its last chunk is
zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from viewcache.materializer.keys import content_key

__all__ = ["PackLayout", "pack_key", "pack_layout", "pieces"]

MOST_BYTES = 32 << 20
"""Of a pack's pictures: a worker holds all of them."""
MOST_PICTURES = 64
"""Of a pack: no block has more."""
_LEAST_CHUNK, _MOST_CHUNK = 1 << 12, 1 << 15
_CHUNKS = 8
"""Chunks of a picture of middling size: on average half of the last one is zeros."""


@dataclass(frozen=True, slots=True)
class PackLayout:
    """Where the pictures of a pack lie in its bytes."""

    chunk_bytes: int
    firsts: tuple[int, ...]
    """Of each picture its first byte, a multiple of that."""
    bytes: int
    """Of the pack, a multiple of that too."""


def pack_layout(sizes: Sequence[int]) -> PackLayout:
    """Lay pictures of some bytes one behind the other.

    Pictures of one size have a chunk each, and nothing is wasted. Otherwise a chunk is about an eighth of a picture.
    """
    chunk = sizes[0]
    if min(sizes) < max(sizes):
        eighth = sum(sizes) // len(sizes) // _CHUNKS
        chunk = min(_MOST_CHUNK, max(_LEAST_CHUNK, 1 << max(0, eighth.bit_length() - 1)))
    firsts, end = [], 0
    for size in sizes:
        firsts.append(end)
        end += -(-size // chunk) * chunk
    return PackLayout(chunk, tuple(firsts), end)


def pack_key(parts: Sequence[str]) -> str:
    """Content key of a pack, from those of its pictures in their order."""
    return content_key("pack", *map(bytes.fromhex, parts))


def pieces(sizes: Sequence[int], most_bytes: int) -> list[range]:
    """Part pictures of some bytes into packs, in their order: the places of those of each pack.

    No pack has more than ``most_bytes``, unless it is of one picture.
    """
    found, start, held = list[range](), 0, 0
    most_bytes = min(MOST_BYTES, most_bytes)
    for place, size in enumerate(sizes):
        if place > start and (place - start == MOST_PICTURES or held + size > most_bytes):
            found.append(range(start, place))
            start, held = place, 0
        held += size
    return [*found, range(start, len(sizes))] if sizes else []
