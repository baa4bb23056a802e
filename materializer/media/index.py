"""The packet index of one video: which bytes hold which frame, and where a decoder must start to get it.

With it a clip needs neither the container nor a scan: key frame to last wanted packet are read as byte ranges and
decoded. It costs some 12 bytes a packet in the catalog.
"""

import json
import zlib
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from viewcache.errors import CatalogDamaged
from viewcache.materializer.media.media_index import DecodeCost
from viewcache.materializer.media.planes import frame_bytes
from viewcache.materializer.media.source import Stamp

__all__ = [
    "HIDDEN",
    "KEY",
    "NO_TIME",
    "PICTURE_CODECS",
    "REFERENCE",
    "TOO_LARGE",
    "Gop",
    "VideoIndex",
    "color_range_name",
    "color_space_name",
    "duration_of",
    "too_large",
]

KEY, HIDDEN, REFERENCE = 1, 2, 4
"""Packet flags: decoding may start here; fed but never shown; others may be predicted from it."""
NO_TIME = -(1 << 63)
"""A timestamp that the container does not give."""
MODES = ("packets", "container", "counted")
COLOR_SPACES = {0: "rgb", 1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "ycgco", 9: "bt2020nc"}
LEFT_SITED = frozenset({"h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4", "h263", "vc1", "wmv3", "flv1"})
"""Codecs of the MPEG family; the others (JPEG, VP8, VP9, AV1, …) are taken for centred, as FFmpeg does."""
PICTURE_CODECS = frozenset({"jpeg", "png", "webp", "bmp"})
"""Codecs of picture files. Frames of videos may be PNG pictures too, seldom: a picture has no frame rate."""
COLOR_RANGES = {1: "limited", 2: "full"}
_MAGIC = b"VCIX\x02"
"""Its last byte is raised when a scan says other things of the same file: indexes of before are made anew then."""
_ARRAYS = (("pos", "<i8"), ("size", "<i4"), ("crc", "<u4"), ("pts", "<i8"), ("dts", "<i8"), ("flags", "u1"))
_TEXT = ("codec", "decoder", "pix_fmt", "mode", "damage", "etag")
_WHOLE = ("width", "height", "color_space", "color_range", "rotation", "stream", "file_size", "mtime_ns")
TOO_LARGE = "have more pixels than max_pixels allows"
"""In every message of `too_large`, so that a scan with another limit knows that it must look again."""
MAX_PACKETS = 1 << 26
"""More than ten days of video; a damaged blob must not make us allocate what it says."""


@dataclass(frozen=True, slots=True)
class Gop:
    """Packets to decode in one go, and the frames wanted out of them."""

    start: int
    """First packet, in decode order."""
    stop: int
    """One past the last packet needed."""
    frames: np.ndarray
    """int64, sorted: the wanted frame numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class VideoIndex:
    """What one video is and where its frames are. Arrays are per packet in decode order, or per frame where said."""

    codec: str
    """Canonical name, e.g. ``h264``."""
    decoder: str
    """Name of the FFmpeg decoder that the index was checked with, e.g. ``libdav1d``."""
    extradata: bytes
    """The codec's configuration record."""
    width: int
    """Pixels, as decoded: before rotation."""
    height: int
    """Pixels, as decoded: before rotation."""
    pix_fmt: str
    """FFmpeg's name of the pixel format that the decoder gives."""
    color_space: int
    """AVColorSpace (2 = unspecified, which swscale takes for BT.601, as all readers here do)."""
    color_range: int
    """AVColorRange: 0 unspecified (taken for limited), 1 limited, 2 full."""
    rotation: int
    """Degrees counter-clockwise to turn a decoded frame for display: 0, 90, 180 or 270."""
    time_base: tuple[int, int]
    """Seconds per timestamp unit, as a fraction."""
    fps: float
    """Average frames per second."""
    mode: str
    """``packets``: byte ranges without the container; ``container``: seek by timestamp; ``counted``: from the start."""
    stream: int
    """Number of the stream in the container."""
    file_size: int
    """Bytes, when the index was made."""
    mtime_ns: int
    """Nanoseconds since the epoch, 0 if the file system has none."""
    etag: str
    """The object store's version mark, or empty."""
    damage: str
    """Why the file is not whole (truncated, undecodable packets near the start); empty = nothing found."""
    pos: np.ndarray
    """int64: byte offset of the payload in the file; -1 = not contiguous."""
    size: np.ndarray
    """int32: payload bytes."""
    crc: np.ndarray
    """uint32: CRC-32C of the payload. Most damage decodes without a complaint; this tells."""
    pts: np.ndarray
    """int64: presentation time in ``time_base`` units, or ``NO_TIME``."""
    dts: np.ndarray
    """int64: decode time in ``time_base`` units, or ``NO_TIME``."""
    flags: np.ndarray
    """uint8: ``KEY | HIDDEN | REFERENCE``."""
    order: np.ndarray
    """int32 per frame: the packet that holds frame i; -1 throughout in ``counted`` mode."""
    frame_pts: np.ndarray
    """int64 per frame: presentation time, never falling."""
    mirrored: bool = False
    """Whether a decoded frame is mirrored left to right for display, after it was turned by ``rotation``."""
    starts: np.ndarray = field(init=False, repr=False)
    """int32 per frame: the packet from which decoding must start."""

    def __post_init__(self) -> None:
        """Work out where to start for each frame."""
        object.__setattr__(self, "starts", _starts(self.mode, self.flags, self.order))

    @property
    def frames(self) -> int:
        """How many frames a full decode gives."""
        return len(self.order)

    @property
    def is_picture(self) -> bool:
        """Whether this is of a picture file: one packet, which is the file."""
        return self.mode == "packets" and self.codec in PICTURE_CODECS

    @property
    def stamp(self) -> Stamp:
        """The version of the file that this index describes."""
        return Stamp(self.file_size, self.mtime_ns, self.etag)

    @property
    def shown_size(self) -> tuple[int, int]:
        """(height, width) in pixels after rotation."""
        return (self.width, self.height) if self.rotation in (90, 270) else (self.height, self.width)

    @property
    def frame_pixels(self) -> int:
        """Pixels of one decoded picture."""
        return self.width * self.height

    @property
    def native_bytes(self) -> int | None:
        """Bytes of a frame's planes, as `planes_of` gives them; None for a video whose planes are not kept."""
        return frame_bytes(self.pix_fmt, self.width, self.height)

    @property
    def packet_bytes(self) -> np.ndarray:
        """int32 (packets,): the size of each packet."""
        return self.size

    @property
    def ends(self) -> np.ndarray:
        """int32 (frames,): the last packet that is needed for a frame; without an order all up to its own number."""
        return np.arange(self.frames, dtype=np.int32) if self.mode == "counted" else self.order

    @property
    def keyframes(self) -> int:
        """How many packets decoding can start at."""
        return int(np.count_nonzero(self.flags & KEY))

    @property
    def gop_max(self) -> int:
        """Most packets from one start to the next."""
        keys = np.flatnonzero(self.flags & KEY)
        return int(np.diff(np.concatenate(([0], keys, [len(self.flags)]))).max(initial=0))

    @property
    def color_space_name(self) -> str:
        """FFmpeg's name of the colour space, ``unspecified`` if the file says none."""
        return color_space_name(self.color_space)

    @property
    def color_range_name(self) -> str:
        """``limited``, ``full`` or ``unspecified``."""
        return color_range_name(self.color_range)

    @property
    def chroma_location(self) -> str:
        """Where shared chroma samples lie, ``left`` or ``center``: the default of the codec, for all of its frames.

        Stated per stream in rare cases; it moves colour by a fraction of a pixel. Frames that were kept as planes
        cannot say it: one rule for all is what makes them convert to the same bytes (law 3).
        """
        return "left" if self.codec in LEFT_SITED else "center"

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame to the end of the last."""
        if not self.frames:
            return 0.0
        first, last = self.frame_pts[[0, -1]].tolist()
        return duration_of(self.frames, last - first, self.time_base, self.fps)

    def times_s(self, frames: np.ndarray) -> np.ndarray:
        """Presentation times of frames.

        Args:
            frames: frame numbers, any shape.

        Returns:
            float64 seconds on the container's own clock (MPEG-TS does not start at 0), same shape.
        """
        numerator, denominator = self.time_base
        return np.asarray(self.frame_pts[frames] * (numerator / denominator), np.float64)

    def gops_for(self, wanted: np.ndarray) -> list[Gop]:
        """Group wanted frames by the packets that must be decoded for them.

        Args:
            wanted: sorted unique frame numbers.

        Returns:
            Disjoint runs of packets in decode order; together they are the fewest packets that give the frames.
        """
        wanted = np.asarray(wanted, np.int64)
        if not len(wanted):
            return []
        if self.mode == "counted":
            return [Gop(0, len(self.flags), wanted)]
        packets, starts = self.order[wanted], self.starts[wanted]
        if len(wanted) == 1:  # all that there is of a picture: it comes by the million
            return [Gop(int(starts[0]), int(packets[0]) + 1, wanted)]
        by_start = np.argsort(starts, kind="stable")
        edges = np.flatnonzero(np.diff(starts[by_start])) + 1
        gops: list[Gop] = []
        for members in np.split(by_start, edges):
            start, stop = int(starts[members[0]]), int(packets[members].max()) + 1
            if gops and gops[-1].stop > start:
                # Open GOP: leading pictures reach past the next key frame, so both groups are one run.
                last = gops.pop()
                start, stop = last.start, max(stop, last.stop)
                frames = np.sort(np.concatenate((last.frames, wanted[members])))
            else:
                frames = wanted[members]
            gops.append(Gop(start, stop, frames))
        return gops

    def floor_packets(self, wanted: np.ndarray) -> int:
        """The fewest packets that a decoder must be fed to give these frames (sorted, unique)."""
        if self.mode == "counted":
            return int(np.max(wanted, initial=-1)) + 1
        return sum(gop.stop - gop.start for gop in self.gops_for(wanted))

    def cost(self, frames: np.ndarray) -> DecodeCost:
        """What some frames (sorted, unique) take when they are decoded together."""
        packets = self.floor_packets(frames)
        return DecodeCost(packets, packets * self.frame_pixels)

    def span_packets(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Packets from the key frame before each ``first`` frame to the ``last``: an estimate without the gaps."""
        if self.mode == "counted":
            return np.asarray(last) + 1
        return np.asarray(np.maximum(1, self.order[last] - self.starts[first] + 1))

    def same_content(self, other: "VideoIndex") -> bool:
        """Whether two files have the same packets, whenever they were written: all but time and etag is compared."""
        return self._undated().to_bytes() == other._undated().to_bytes()

    def _undated(self) -> "VideoIndex":
        return replace(self, mtime_ns=0, etag="")

    def to_bytes(self) -> bytes:
        """The index as a compact, versioned blob."""
        head: dict[str, object] = {name: getattr(self, name) for name in (*_TEXT, *_WHOLE)}
        head |= {"fps": self.fps, "time_base": self.time_base, "extradata": len(self.extradata)}
        head |= {"packets": len(self.flags), "frames": self.frames}
        if self.mirrored:
            head["mirrored"] = True
        text = json.dumps(head, separators=(",", ":")).encode()
        parts = [self.extradata]
        for name, dtype in (*_ARRAYS, ("order", "<i4"), ("frame_pts", "<i8")):
            # Differences of neighbours are small and alike, so they compress; they wrap, which undoes itself.
            array = getattr(self, name).astype(dtype)
            parts.append(np.diff(array, prepend=array.dtype.type(0)).astype(dtype).tobytes())
        return _MAGIC + len(text).to_bytes(4, "little") + text + zlib.compress(b"".join(parts), 6)

    @classmethod
    def from_bytes(cls, blob: bytes) -> "VideoIndex":
        """Read a blob of `to_bytes`.

        Raises:
            CatalogDamaged: it is not one, or is of another version, or contradicts itself.
        """
        try:
            return cls._parse(bytes(blob))
        except CatalogDamaged:
            raise
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, zlib.error) as bad:
            raise CatalogDamaged(f"a video's packet index cannot be read ({bad}); scan the dataset again") from bad

    @staticmethod
    def is_readable(blob: bytes) -> bool:
        """Whether a blob begins as those of this release do."""
        return blob.startswith(_MAGIC)

    @classmethod
    def _parse(cls, blob: bytes) -> "VideoIndex":
        if blob[: len(_MAGIC)] != _MAGIC:
            raise CatalogDamaged(f"a packet index starts with {blob[:5]!r}, not {_MAGIC!r}; scan the dataset again")
        at = len(_MAGIC) + 4
        end = at + int.from_bytes(blob[at - 4 : at], "little")
        head = json.loads(blob[at:end])
        packets, frames, extra = (_whole(head[name], MAX_PACKETS) for name in ("packets", "frames", "extradata"))
        columns = [(name, np.dtype(dtype), packets) for name, dtype in _ARRAYS]
        columns += [("order", np.dtype("<i4"), frames), ("frame_pts", np.dtype("<i8"), frames)]
        length = extra + sum(dtype.itemsize * count for _, dtype, count in columns)
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(blob[end:], length + 1)
        if len(data) != length:
            raise ValueError(f"{len(data)} bytes of arrays, not {length}")
        arrays: dict[str, np.ndarray] = {}
        at = extra
        for name, dtype, count in columns:
            differences = np.frombuffer(data, dtype, count, at)
            arrays[name] = np.cumsum(differences, dtype=dtype)
            arrays[name].flags.writeable = False
            at += dtype.itemsize * count
        scalars: dict[str, Any] = {name: str(head[name]) for name in _TEXT}
        scalars |= {name: int(head[name]) for name in _WHOLE}
        numerator, denominator = (_whole(part, 1 << 40, least=1) for part in head["time_base"])
        return cls(
            extradata=data[:extra],
            fps=float(head["fps"]),
            time_base=(numerator, denominator),
            mirrored=bool(head.get("mirrored")),
            **scalars,
            **_checked(head["mode"], arrays),
        )


def duration_of(frames: int, span: int, unit: tuple[int, int], fps: float) -> float:
    """Seconds from the first frame of a video to the end of the last, which lasts as long as the others on average.

    One rule for headers and packets, and exact until it is rounded once: a predicate tells even the last bit.

    Args:
        frames: how many, at least one.
        span: from the time of the first to that of the last, in units.
        unit: seconds, as a fraction.
        fps: says how long a single frame lasts.
    """
    if frames > 1:
        return float(Fraction(span * unit[0] * frames, unit[1] * (frames - 1)))
    return 1 / fps if fps > 0 else 0.0


def color_space_name(number: int) -> str:
    """FFmpeg's name of an AVColorSpace, ``unspecified`` if there is none."""
    return COLOR_SPACES.get(number, "unspecified" if number in (2, 3) else str(number))


def color_range_name(number: int) -> str:
    """``limited``, ``full`` or ``unspecified``, of an AVColorRange."""
    return COLOR_RANGES.get(number, "unspecified")


def too_large(width: int, height: int, max_pixels: int) -> str:
    """Say that frames of so many pixels are not allowed."""
    return f"frames of {width}x{height} {TOO_LARGE} ({max_pixels})"


def _whole(value: object, most: int, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a whole number from {least} to {most}")
    return value


def _checked(mode: object, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if mode not in MODES:
        raise ValueError(f"mode {mode!r}, not one of {MODES}")
    order, packets = arrays["order"], len(arrays["flags"])
    if mode != "counted" and len(order):
        if order.min() < 0 or order.max() >= packets:
            raise ValueError("a frame names a packet that is not there")
        if np.bincount(order, minlength=packets).max() > 1:
            raise ValueError("two frames name the same packet")
    if len(arrays["size"]) and arrays["size"].min() < 0:
        raise ValueError("a packet has a negative size")
    return arrays


def _starts(mode: str, flags: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Per frame, the last key packet that comes no later in decode order and no later in presentation order.

    Leading pictures of an open GOP are shown before the key frame that they follow in the file, and may be predicted
    from the group before it: they start one key earlier.
    """
    if mode == "counted" or len(flags) == 1:  # the packet of an image
        return np.zeros(len(order), np.int32)
    keys = np.flatnonzero(flags & KEY)
    rank = np.full(len(flags), -1, np.int64)
    rank[order] = np.arange(len(order))
    shown_before = np.concatenate(([0], np.cumsum(flags & HIDDEN == 0)))[:-1]
    # A hidden key (an edit list cut it off) opens the video or is not used: its place among the shown is not known.
    usable = (rank[keys] >= 0) | (shown_before[keys] == 0)
    keys = keys[usable]
    at = np.searchsorted(keys, order, side="right") - 1
    while True:
        late = (at >= 0) & (rank[keys[np.maximum(at, 0)]] > np.arange(len(order))) if len(keys) else np.zeros(0, bool)
        if not late.any():
            break
        at[late] -= 1
    starts = np.where(at >= 0, keys[np.maximum(at, 0)], 0) if len(keys) else np.zeros(len(order))
    return starts.astype(np.int32)
