"""The on-disk format as pure functions: one object = one Zarr v3 array = ``zarr.json`` + one shard.

Any Zarr client reads it; the trade-off is that we write and accept one narrow subset (uint8 or float32, one shard,
inner chunks along axis 0, crc32c always) and call everything else damage. See docs/design/0002-store-format.md.
"""

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from viewcache.errors import ChunkDamaged, Misuse
from viewcache.store.checksum import crc32c
from viewcache.store.codec import CODECS, ENCODED, codec

__all__ = [
    "ALIGNMENT",
    "CRC_BYTES",
    "ELEMENT_BYTES",
    "FORMAT",
    "MAX_METADATA_BYTES",
    "METADATA_NAME",
    "ArrayMeta",
    "ChunkTable",
    "aligned",
    "check_key",
    "check_physical",
    "dump_metadata",
    "is_physical",
    "parse_metadata",
    "physical_of",
    "remote_entries",
    "remote_entries_bytes",
    "remote_table",
]

FORMAT = 1
"""Version of everything on this page; a store of another version is refused."""
METADATA_NAME = "zarr.json"
ELEMENT_BYTES = {"uint8": 1, "float32": 4}
"""What arrays may be made of, and how many bytes each element takes."""
MAX_METADATA_BYTES = 16 << 20
"""Of ``zarr.json``; who reads one brings no more."""
CRC_BYTES = 4
ALIGNMENT = 64
"""Inner chunks start at multiples of this, in bytes: the kernel copies twice as fast to and from whole cache lines."""

_MAX_CHUNK_BYTES = 1 << 30  # blosc and one read call both end just below 2 GiB
_MAX_OFFSET = 1 << 62  # the system's file offsets are signed
_MAX_CHUNKS = 1 << 21  # ten hours of single frames at 60 Hz; their index has 32 MiB
_MAX_DIMENSIONS = 16
_MAX_NESTED = 1 << 16  # arrays and objects in zarr.json, which take twenty times their text in memory
_RESERVED = "viewcache"  # our own attribute beside those of the caller
_REMOTE = ("table", "write")  # entries of our own that only copies in a remote tier have
_WRITE_ID_DIGITS = 16
_KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PHYSICAL = re.compile(r"objects/([0-9a-f]{2})/(\1[0-9a-f]{30})", re.ASCII)
_TABLE_HEAD = struct.Struct("<2sBxI")  # magic, version, number of chunks
_TABLE_MAGIC, _TABLE_VERSION = b"VT", 1

# Python's JSON values; the type checker has no recursive alias that also admits the caller's tuples.
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """What ``zarr.json`` says about one object.

    The store counts bytes: of elements wider than uint8 the last axis of shape and chunk is as long as their bytes.
    """

    shape: tuple[int, ...]
    """Of the whole array; axis 0 is frames, clips or samples."""
    chunk: tuple[int, ...]
    """Of one inner chunk: ``(rows, *shape[1:])``. Rows need not divide ``shape[0]``: the last chunk is padded."""
    codec: str
    """A name in `viewcache.store.codec.CODECS` or ``ENCODED``."""
    attributes: Json = field(default_factory=dict)
    """JSON values that make the object describe itself (kind, recipe, frame numbers); ``viewcache`` is reserved."""
    element: str = "uint8"
    """A name in `ELEMENT_BYTES`: what the bytes are, little-endian, for whoever reads the array."""
    width: int = 0
    """Of a codec of ``ENCODED``: bytes of the longest group. Shape and chunk then say what pictures are encoded, and
    the Zarr array has a row of so many bytes for each group, in as many axes."""

    def __post_init__(self) -> None:
        """Refuse what the format cannot hold."""
        codec(self.codec)
        if max(len(self.shape), len(self.chunk)) > _MAX_DIMENSIONS:
            raise Misuse(f"a shape of {len(self.shape)} dimensions was given; at most {_MAX_DIMENSIONS} are possible")
        if not all(type(side) is int for side in (*self.shape, *self.chunk)):
            raise Misuse(f"shape {self.shape} and chunk {self.chunk} must be whole numbers")
        if not self.shape or len(self.chunk) != len(self.shape) or min(*self.shape, *self.chunk) < 1:
            raise Misuse(f"shape {self.shape} and chunk {self.chunk} must have the same length and no zero")
        if self.chunk[1:] != self.shape[1:] or self.chunk[0] > self.shape[0]:
            raise Misuse(f"chunk {self.chunk} must be (rows, *shape[1:]) with rows within shape {self.shape}")
        most = max(self.width, math.prod(self.chunk))
        if most > _MAX_CHUNK_BYTES:
            raise Misuse(f"chunk {self.chunk} has {most} bytes; at most {_MAX_CHUNK_BYTES} are possible")
        if self.chunks > _MAX_CHUNKS:
            raise Misuse(f"shape {self.shape} has {self.chunks} chunks; at most {_MAX_CHUNKS} are possible")
        if self.shape[-1] % ELEMENT_BYTES.get(self.element, self.shape[-1] + 1) or (
            self.element != "uint8" and len(self.shape) < 2
        ):
            raise Misuse(
                f"rows of {self.shape[-1]} bytes do not hold {self.element}; known: {', '.join(ELEMENT_BYTES)}"
            )
        encoded = self.codec in ENCODED
        if encoded != (self.width > 0) or (encoded and (self.element != "uint8" or len(self.shape) < 2)):
            raise Misuse(f"codec {self.codec!r} of {self.element} {self.shape} does not go with groups of {self.width}")
        if _RESERVED in self.attributes:
            raise Misuse(f"the attribute {_RESERVED!r} is reserved for the store")

    @property
    def chunks(self) -> int:
        """Number of inner chunks."""
        return -(-self.shape[0] // self.chunk[0])

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes of one inner chunk, padding included."""
        return self.width or math.prod(self.chunk)

    @property
    def raw_bytes(self) -> int:
        """Bytes of the array in memory."""
        return math.prod(self.shape)

    @property
    def zarr_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and inner chunk of the Zarr array, in elements."""
        if self.width:
            axes = (1,) * (len(self.shape) - 2)
            return (self.chunks, *axes, self.width), (1, *axes, self.width)
        width = ELEMENT_BYTES[self.element]
        # Checked: only arrays of more than one axis have wider elements, whose last axis is counted in them.
        shape, chunk = ((*each[:-1], each[-1] // width) for each in (self.shape, self.chunk))
        return shape, chunk

    @property
    def shard_name(self) -> str:
        """File name of the one shard, e.g. ``c.0.0.0.0``."""
        return shard_name(len(self.shape))


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Where each inner chunk lies in the shard, and its checksum.

    The catalog keeps `to_bytes`, so that a read needs neither ``zarr.json`` nor the shard's index, and chunks that
    changed places are noticed although each carries a valid checksum of its own.
    """

    offsets: tuple[int, ...]
    """In bytes from the shard's start."""
    sizes: tuple[int, ...]
    """Stored bytes, the chunk's crc32c trailer included, as in the shard's own index."""
    crcs: tuple[int, ...]
    """crc32c of the stored bytes before the trailer."""

    def to_bytes(self) -> bytes:
        """The table for a column of the catalog: 8 + 20 bytes per chunk, versioned."""
        count = len(self.offsets)
        head = _TABLE_HEAD.pack(_TABLE_MAGIC, _TABLE_VERSION, count)
        return head + struct.pack(f"<{count}Q{count}Q{count}I", *self.offsets, *self.sizes, *self.crcs)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ChunkTable":
        """Read what `to_bytes` wrote.

        Raises:
            ChunkDamaged: these are not the bytes of a table of this version.
        """
        if len(data) >= _TABLE_HEAD.size:
            magic, version, count = _TABLE_HEAD.unpack_from(data)
            if (magic, version, len(data)) == (_TABLE_MAGIC, _TABLE_VERSION, _TABLE_HEAD.size + 20 * count):
                values = struct.unpack_from(f"<{count}Q{count}Q{count}I", data, _TABLE_HEAD.size)
                if max(values, default=0) < _MAX_OFFSET:
                    return cls(values[:count], values[count : 2 * count], values[2 * count :])
        raise ChunkDamaged(f"{len(data)} bytes are not a chunk table of version {_TABLE_VERSION}")

    def index_bytes(self) -> bytes:
        """The shard's index as Zarr lays it out: offset and size per chunk, little-endian, then crc32c."""
        pairs = [number for pair in zip(self.offsets, self.sizes, strict=True) for number in pair]
        body = struct.pack(f"<{len(pairs)}Q", *pairs)
        return body + struct.pack("<I", crc32c(body))

    @staticmethod
    def parse_index(index: bytes, path: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Offsets and sizes out of a shard's index; ``path`` is the shard's, for messages.

        Raises:
            ChunkDamaged: the index fails its checksum.
        """
        body, trailer = index[:-CRC_BYTES], index[-CRC_BYTES:]
        if struct.pack("<I", crc32c(body)) != trailer:
            raise ChunkDamaged(f"{path}: the shard's index of {len(index)} bytes fails its crc32c")
        numbers = struct.unpack(f"<{len(body) // 8}Q", body)
        return numbers[::2], numbers[1::2]

    def digest(self) -> int:
        """One crc32c over all chunks' checksums in order: it names the object's stored content."""
        return crc32c(struct.pack(f"<{len(self.crcs)}I", *self.crcs))


def index_size(chunks: int) -> int:
    """Bytes of a shard's index."""
    return 16 * chunks + CRC_BYTES


def shard_name(dimensions: int) -> str:
    """File name of the one shard; with '.' as separator it lies beside ``zarr.json``, without a folder per axis."""
    return "c" + ".0" * dimensions


def aligned(size: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def check_key(key: str) -> str:
    """Return an object's key unchanged.

    Raises:
        Misuse: it is not 32 lower-case hexadecimal digits, so it must not become a path.
    """
    if _KEY.fullmatch(key) is None:
        raise Misuse(f"object key {key!r} is not 32 lower-case hexadecimal digits")
    return key


def physical_of(key: str) -> str:
    """The path of an object's folder below the store's root."""
    return f"objects/{check_key(key)[:2]}/{key}"


def check_physical(physical: str) -> str:
    """The key of the object that lies at this path below the root.

    Raises:
        Misuse: it is not a path that `physical_of` makes, so it must not be opened.
    """
    found = _PHYSICAL.fullmatch(physical)
    if found is None:
        raise Misuse(f"{physical!r} is not the place of an object; places look like objects/ab/ab…")
    return found[2]


def is_physical(path: str) -> bool:
    """Whether an object may lie at this path below the root."""
    return _PHYSICAL.fullmatch(path) is not None


def remote_entries(table: ChunkTable, write_id: str) -> Json:
    """What a copy in a remote tier says of itself besides: its chunk table, and which write made it.

    With the table a look at the object costs two small requests instead of one for each chunk; by the id a writer knows
    its own object again when the answer to its request was lost. ``write_id`` is 16 hexadecimal digits.
    """
    return {"table": base64.b64encode(table.to_bytes()).decode(), "write": write_id}


def remote_entries_bytes(chunks: int) -> int:
    """By how much `remote_entries` make ``zarr.json`` longer."""
    return len('"table":"","write":"",') + 4 * -(-(_TABLE_HEAD.size + 20 * chunks) // 3) + _WRITE_ID_DIGITS


def remote_table(text: bytes) -> ChunkTable | None:
    """The table in a text that `parse_metadata` took; None where a folder's copy was brought to a bucket as it is.

    Raises:
        ChunkDamaged: it is not a table.
    """
    table = json.loads(text)["attributes"][_RESERVED].get("table")
    try:
        return None if table is None else ChunkTable.from_bytes(base64.b64decode(table, validate=True))
    except (binascii.Error, TypeError, ValueError):
        raise ChunkDamaged("the chunk table in zarr.json cannot be read") from None


def dump_metadata(meta: ArrayMeta, key: str, digest: int, remote: Json | None = None) -> bytes:
    """The text of ``zarr.json``, with the object's key, the digest of its chunks and a checksum of the text itself.

    Args:
        meta: what the array is.
        key: of the object.
        digest: `ChunkTable.digest`.
        remote: `remote_entries`, for a copy in a remote tier.

    Raises:
        Misuse: the attributes are not JSON.
    """
    own: dict[str, object] = {"check": "0" * 8, "digest": f"{digest:08x}", "format": FORMAT, "key": key}
    own |= remote or {}
    if meta.width:
        own["encoded"] = {"chunk": list(meta.chunk), "codec": meta.codec, "shape": list(meta.shape)}
    shape, chunk = meta.zarr_shapes
    document = {
        "attributes": {**meta.attributes, _RESERVED: own},
        "chunk_grid": {"configuration": {"chunk_shape": [meta.chunks * chunk[0], *shape[1:]]}, "name": "regular"},
        "chunk_key_encoding": {"configuration": {"separator": "."}, "name": "default"},
        "codecs": [_sharding(chunk, codec(meta.codec).zarr, meta.element)],
        "data_type": meta.element,
        "fill_value": 0 if meta.element == "uint8" else 0.0,
        "node_type": "array",
        "shape": list(shape),
        "storage_transformers": [],
        "zarr_format": 3,
    }
    own["check"] = f"{crc32c(_canonical(document)):08x}"
    return _canonical(document)


def parse_metadata(text: bytes, key: str) -> tuple[ArrayMeta, int]:
    """Array and digest out of the text of ``zarr.json``.

    The text must be, byte by byte, what `dump_metadata` writes for what it says: any other text is damage.

    Raises:
        ChunkDamaged: any bit of it is not as written, or it belongs to another key.
    """
    if len(text) > MAX_METADATA_BYTES:
        raise ChunkDamaged(f"zarr.json of object {key} has {len(text)} bytes; ours have at most {MAX_METADATA_BYTES}")
    if text.count(b"[") + text.count(b"{") > _MAX_NESTED:
        raise ChunkDamaged(f"zarr.json of object {key} has more than {_MAX_NESTED} arrays and objects")
    try:
        document = json.loads(text)
        attributes = document["attributes"]
        own = attributes.pop(_RESERVED)
        digest = int(own["digest"], 16)
        inner = document["codecs"][0]["configuration"]
        element = document["data_type"]
        width = ELEMENT_BYTES[element]
        shape, rows = ((*each[:-1], each[-1] * width) for each in (document["shape"], inner["chunk_shape"]))
        if "encoded" in own:
            known = own["encoded"]
            meta = ArrayMeta(
                tuple(known["shape"]), tuple(known["chunk"]), known["codec"], attributes, element, shape[-1]
            )
        else:
            meta = ArrayMeta(shape, rows, _codec_name(inner["codecs"]), attributes, element)
        remote = {name: own[name] for name in _REMOTE if name in own}
        same = own["key"] == key and dump_metadata(meta, key, digest, remote) == text
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, Misuse, struct.error) as error:
        raise ChunkDamaged(f"zarr.json of object {key} cannot be read: {type(error).__name__}: {error}") from None
    if not same:
        raise ChunkDamaged(f"zarr.json of object {key} is not the text that was written (it fails its checksum)")
    return meta, digest


def _sharding(chunk: tuple[int, ...], packed: tuple[Json, ...], element: str) -> Json:
    crc, raw = {"name": "crc32c"}, dict[str, object](name="bytes")
    if element != "uint8":
        raw["configuration"] = {"endian": "little"}
    return {
        "configuration": {
            "chunk_shape": list(chunk),
            "codecs": [raw, *packed, crc],
            "index_codecs": [{"configuration": {"endian": "little"}, "name": "bytes"}, crc],
            "index_location": "end",
        },
        "name": "sharding_indexed",
    }


def _codec_name(pipeline: list[Json]) -> str:
    middle = pipeline[1:-1]
    for name, known in CODECS.items():
        if list(known.zarr) == middle:
            return name
    raise ValueError(f"unknown codecs {middle}")


def _canonical(document: Json) -> bytes:
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise Misuse(f"the attributes of an object must be JSON values: {error}") from None
