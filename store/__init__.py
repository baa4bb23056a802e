"""Where bytes are: tiers, Zarr shards, codecs and checksums; knows nothing of plans."""

from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import CODECS, Codec, codec
from viewcache.store.format import FORMAT, ArrayMeta, ChunkTable, physical_of
from viewcache.store.local import MARKER, LocalTier, Reservation
from viewcache.store.planes import PIXEL_FORMATS, PlaneLayout, pack, plane_layout, unpack
from viewcache.store.reader import FoundObject, Stored, read_into, read_slots, scan_object, verify_object
from viewcache.store.writer import ObjectWriter, Written, bound_bytes, write_object

__all__ = [
    "CODECS",
    "FORMAT",
    "MARKER",
    "PIXEL_FORMATS",
    "ArrayMeta",
    "ChunkTable",
    "Codec",
    "FoundObject",
    "LocalTier",
    "ObjectWriter",
    "PlaneLayout",
    "Reservation",
    "Stored",
    "Written",
    "aligned_empty",
    "bound_bytes",
    "codec",
    "pack",
    "physical_of",
    "plane_layout",
    "read_into",
    "read_slots",
    "scan_object",
    "unpack",
    "verify_object",
    "write_object",
]
