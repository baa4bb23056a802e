"""Where bytes are: tiers, Zarr shards, codecs and checksums; knows nothing of plans."""

from viewcache.store.arena import MemoryHandle, MemoryReader
from viewcache.store.budget import Budget, Reservation
from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import CODECS, Codec, codec
from viewcache.store.format import FORMAT, ArrayMeta, ChunkTable, physical_of
from viewcache.store.local import LocalTier
from viewcache.store.marker import MARKER
from viewcache.store.memory import MemoryTier
from viewcache.store.opening import open_tier
from viewcache.store.reader import read_into, read_slots, scan_object, verify_object
from viewcache.store.remote import RemoteTier
from viewcache.store.shard_reader import FoundObject, Stored
from viewcache.store.shard_writer import Written, bound_bytes
from viewcache.store.tier import Tier, copy_object
from viewcache.store.writer import ObjectWriter, find_written, write_object

__all__ = [
    "CODECS",
    "FORMAT",
    "MARKER",
    "ArrayMeta",
    "Budget",
    "ChunkTable",
    "Codec",
    "FoundObject",
    "LocalTier",
    "MemoryHandle",
    "MemoryReader",
    "MemoryTier",
    "ObjectWriter",
    "RemoteTier",
    "Reservation",
    "Stored",
    "Tier",
    "Written",
    "aligned_empty",
    "bound_bytes",
    "codec",
    "copy_object",
    "find_written",
    "open_tier",
    "physical_of",
    "read_into",
    "read_slots",
    "scan_object",
    "verify_object",
    "write_object",
]
