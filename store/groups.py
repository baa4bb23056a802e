"""Groups of encoded pictures: the bytes of one inner chunk, a packet for each picture, each group whole in itself.

The store knows where packets begin and that no bit of them changed; what they mean is known to who encoded them, and
told in the object's attributes. The trade-off: a Zarr array has chunks of one size, so a group is padded to the
longest one's, and its packets begin with a table of their lengths; any Zarr client reads them as bytes.
"""

import math
import struct
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import ChunkDamaged, Misuse
from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import ENCODED, codec, zstd_content_size
from viewcache.store.format import CRC_BYTES, ChunkTable
from viewcache.store.shard_reader import Stored

__all__ = ["join_packets", "read_group", "split_packets"]

Bytes = NDArray[np.uint8]
Read = Callable[[Stored, Bytes], None]
"""Reads a whole object into a buffer, as `viewcache.store.Tier.read` does."""

_NUMBER = struct.Struct("<I")


def join_packets(packets: Sequence[bytes]) -> Bytes:
    """The bytes of a group: how many packets there are and the length of each (little-endian, four bytes), then all.

    Args:
        packets: one a picture, in order.
    """
    head = struct.pack(f"<{1 + len(packets)}I", len(packets), *map(len, packets))
    return np.frombuffer(head + b"".join(packets), np.uint8)


def split_packets(group: Bytes) -> list[memoryview]:
    """What `join_packets` was given; the padding behind it does not matter.

    Raises:
        ChunkDamaged: the table of lengths does not fit the bytes.
    """
    data = memoryview(group.data)
    count = _NUMBER.unpack_from(data)[0] if len(data) >= _NUMBER.size else 0
    head = _NUMBER.size * (1 + count)
    if not 0 < head <= len(data):
        raise ChunkDamaged(f"a group of {len(data)} bytes does not hold the lengths of {count} pictures")
    lengths = struct.unpack_from(f"<{count}I", data, _NUMBER.size)
    if head + sum(lengths) > len(data):
        raise ChunkDamaged(f"a group of {len(data)} bytes does not hold {count} pictures of {sum(lengths)} bytes")
    packets, at = [], head
    for length in lengths:
        packets.append(data[at : at + length])
        at += length
    return packets


def read_group(read: Read, stored: Stored, chunk: int) -> Bytes:
    """The bytes of one group, padding included, checked.

    Args:
        read: of the tier in which the object lies.
        stored: an object whose codec is one of `viewcache.store.ENCODED`.
        chunk: ordinal of the group.

    Raises:
        ChunkDamaged: the chunk is missing, short, or not the one whose checksum the catalog has.
        Misuse: no such group, or the object's pixels are not encoded.
    """
    table = stored.table
    if stored.codec not in ENCODED or not 0 <= chunk < len(table.offsets):
        raise Misuse(f"{stored.physical} ({stored.codec}) has {len(table.offsets)} chunks and no group {chunk}")
    size = table.sizes[chunk] - CRC_BYTES
    most = codec(stored.codec).bound(stored.chunk_rows * math.prod(stored.shape[1:]))
    if not 0 < size <= most:
        raise ChunkDamaged(f"{stored.physical}: group {chunk} cannot have {size} bytes")
    # As it is stored, a chunk is a raw object of its own: every tier reads and checks it as it does any other.
    shape = (*(1,) * (len(stored.shape) - 1), size)
    alone = ChunkTable((table.offsets[chunk],), (table.sizes[chunk],), (table.crcs[chunk],))
    packed = aligned_empty(shape)
    read(Stored(stored.physical, shape, 1, "raw", alone), packed)
    packed = packed.reshape(-1)
    holds = zstd_content_size(packed)
    if holds is None or not 0 < holds <= most:
        raise ChunkDamaged(f"{stored.physical}: group {chunk} says that it unpacks to {holds} bytes")
    group = aligned_empty((holds,))
    codec(stored.codec).decode_into(packed, group)
    return group
