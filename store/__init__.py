"""Where bytes are: tiers, Zarr shards, codecs and checksums; knows nothing of plans.

In the order of work:

- ``format``: Zarr v3 metadata, shard index and chunk table, as pure functions
- ``codec``: raw, lz4, zstd1; and the names of encoded pictures
- ``checksum``: crc32c by the fastest library there is
- ``buffers``: aligned, reusable memory for pixels
- ``budget``: the law of every tier: used and reserved bytes stay within the budget
- ``temporary``: names of unfinished folders, and whether their maker lives
- ``blocks``: what files take of a disk: whole blocks, and a folder for each object
- ``spans``: which ranges of a shard to ask for at once
- ``shard_writer``: a shard's bytes, chunk by chunk, into any open file
- ``shard_reader``: chunks out of a shard, checked, from wherever it lies
- ``groups``: encoded pictures, a group to a chunk: bytes whose meaning the store does not know
- ``writer``: write and publish an object of a folder
- ``reader``: read, scan and verify objects of a folder
- ``tier``: what every tier can do, and copying between two
- ``marker``: the file that says that a folder is a store, and of which format
- ``local``: the local tier: a folder's layout, and deletion
- ``headroom``: how much memory the machine and the control groups still give
- ``arena``: the memory behind it: shared, without names, freed by the kernel
- ``region``: a part of it, mapped into its owner's memory
- ``memory``: the memory tier: objects that all processes of the cache can read
- ``passing``: memory for clips that workers write and one reader has, in places that come round
- ``client_tiers``: reading by descriptors that the owner has handed over
- ``opening``: a tier from its URL
- ``client``: requests to a bucket, retried until a deadline, on a thread of their own
- ``retry``: what an error of a remote store means, and how long to wait
- ``window``: how many requests may be under way
- ``fetch``: what a bucket sent, checked: wrong on the way, or where it lies
- ``remote``: the remote tier: objects in a bucket
- ``quiet``: libraries below fsspec log no requests, which hold tokens
- ``codec_trial``: what each codec would do to a chunk, or to a sample of an object
- ``codec_choice``: the codec of one object, by what that costs and a sample of it
"""

from viewcache.store.arena import MemoryHandle, MemoryReader
from viewcache.store.budget import Budget, Reservation
from viewcache.store.buffers import aligned_empty
from viewcache.store.codec import CODECS, ENCODED, Codec, codec
from viewcache.store.format import FORMAT, ArrayMeta, ChunkTable, physical_of
from viewcache.store.groups import join_packets, read_group, split_packets
from viewcache.store.local import LocalTier, check_place, make_root
from viewcache.store.marker import MARKER
from viewcache.store.memory import MemoryTier
from viewcache.store.opening import open_tier
from viewcache.store.reader import read_into, read_slots, scan_object, verify_object
from viewcache.store.remote import RemoteTier
from viewcache.store.shard_reader import FoundObject, Stored
from viewcache.store.shard_writer import Written, bound_bytes, groups_bound
from viewcache.store.tier import Tier, copy_object
from viewcache.store.writer import ObjectWriter, find_written, write_object

__all__ = [
    "CODECS",
    "ENCODED",
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
    "check_place",
    "codec",
    "copy_object",
    "find_written",
    "groups_bound",
    "join_packets",
    "make_root",
    "open_tier",
    "physical_of",
    "read_group",
    "read_into",
    "read_slots",
    "scan_object",
    "split_packets",
    "verify_object",
    "write_object",
]
