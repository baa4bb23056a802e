"""Read the tables of an MP4 or QuickTime file that holds one H.264 track as cameras and encoders write it.

Most video datasets are of such files. FFmpeg takes ten times as long over a header, because it looks at packets too,
and it reads the first key frame for that. Whatever is unusual is left to it: then the answer is None.
"""

import struct
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo
from viewcache.materializer.media.boxes import Boxes, children, movie_box
from viewcache.materializer.media.facts import FrameTimes, VideoFacts
from viewcache.materializer.media.index import color_range_name, color_space_name, duration_of, too_large
from viewcache.materializer.media.source import Source, shown
from viewcache.materializer.media.sps import PictureFormat, only_sps, picture_format

__all__ = ["read_moov", "rotation"]

IDENTITY = (1, 0, 0, 1)
TURNED: dict[tuple[int, ...], int] = {(1, 0, 0, 1): 0, (0, -1, 1, 0): 90, (-1, 0, 0, -1): 180, (0, 1, -1, 0): 270}
MIRRORED: dict[tuple[int, ...], int] = {(-1, 0, 0, 1): 0, (0, -1, -1, 0): 90, (1, 0, 0, -1): 180, (0, 1, 1, 0): 270}
"""The signs of a display matrix → degrees counter-clockwise, before the frames are mirrored left to right."""
ENTRY_BYTES = 78
"""Of a sample entry before its boxes (ISO/IEC 14496-12 §12.1.3.2)."""
UNUSUAL = frozenset({b"sgpd", b"stps", b"stz2"})
"""Tables of a track that tell of other key frames, or of sizes in few bits."""

MOST_SAMPLES = 1 << 26
"""More than ten days of video."""

MOST_OF_RATE = (1 << 31) - 1
"""Largest number in FFmpeg's fraction of frames a second: what needs larger ones it rounds."""

Numbers = NDArray[np.int64]


def read_moov(source: Source, max_pixels: int) -> VideoFacts | None:
    """What the tables of a file claim.

    Args:
        source: the opened file.
        max_pixels: a frame with more is refused.

    Returns:
        The facts; None if the file is not one of those that this module knows.

    Raises:
        BadVideo: its frames are too large.
        Exception: the tables contradict themselves.
    """
    content = movie_box(source)
    movie = {} if content is None else children(content)
    tracks = [children(each) for each in movie.get(b"trak", ())]
    of_video = [(track, media) for track in tracks if _handler(media := _into(track, b"mdia")) == b"vide"]
    if len(of_video) != 1 or b"mvex" in movie:  # several, or fragments that the tables do not tell of
        return None
    ((track, media),) = of_video
    information = _into(media, b"minf")
    table = _into(information, b"stbl")
    pictures = _format(table)
    turned = rotation(movie, track)
    if pictures is None or turned is None or UNUSUAL & table.keys() or not _is_self_contained(information):
        return None
    if pictures.width * pictures.height > max_pixels:
        raise BadVideo(f"{shown(source.uri)}: {too_large(pictures.width, pictures.height, max_pixels)}")
    sizes, steps, keys = _sizes(table), _runs(_one(table, b"stts")), _keys(table)
    frames, unit = len(sizes), _time_unit(_one(media, b"mdhd"))
    if not frames or len(steps) != frames or min(sizes.min(), steps.min()) < 1 or not len(keys) or keys[-1] >= frames:
        return None
    if _end(table, sizes) > source.stamp.size:
        return None
    shown_at = _shown_at(movie, track, table, steps, unit)
    if shown_at is None:
        return None
    rate = Fraction(frames * unit, int(steps.sum()))
    if max(rate.numerator, rate.denominator) > MOST_OF_RATE:
        return None
    fps, span = float(rate), int(shown_at.max() - shown_at.min())
    return VideoFacts(
        stamp=source.stamp,
        frames=frames,
        width=pictures.width,
        height=pictures.height,
        rotation=turned,
        fps=fps,
        duration_s=duration_of(frames, span, (1, unit), fps),
        codec="h264",
        pix_fmt=pictures.pix_fmt,
        color_space=color_space_name(pictures.color_space),
        color_range=color_range_name(pictures.color_range),
        keyframes=len(keys),
        gop_max=int(np.diff(keys, append=frames).max()),
        times=FrameTimes.even(np.sort(shown_at), (1, unit)),
    )


def rotation(movie: Boxes, track: Boxes) -> int | None:
    """Degrees counter-clockwise, as the headers of a movie and of one of its tracks say; None if they say more."""
    if _signs(_one(movie, b"mvhd"), 36) != IDENTITY:
        return None
    return (TURNED | MIRRORED).get(_signs(_one(track, b"tkhd"), 40))


def _signs(header: memoryview, offset: int) -> tuple[int, ...]:
    """The signs of a, b, c and d of the matrix in a header box; later versions have wider times before it."""
    a, b, _, c, d = struct.unpack_from(">5i", header, offset + (12 if header[0] == 1 else 0))
    return tuple((value > 0) - (value < 0) for value in (a, b, c, d))


def _one(boxes: Boxes, kind: bytes) -> memoryview:
    """The content of the only box of a kind.

    Raises:
        ValueError: there are several, or none.
    """
    (found,) = boxes.get(kind, [])
    return found


def _into(boxes: Boxes, kind: bytes) -> Boxes:
    return children(_one(boxes, kind))


def _handler(media: Boxes) -> bytes:
    return bytes(_one(media, b"hdlr")[8:12])


def _is_self_contained(information: Boxes) -> bool:
    """Whether the samples lie in this file (§8.7.2)."""
    entries = _one(_into(information, b"dinf"), b"dref")
    return _count(entries) == 1 and entries[19] & 1 == 1


def _format(table: Boxes) -> PictureFormat | None:
    """The pictures of a track's only sample entry; None if they are not those of an H.264 stream that is known here."""
    entries = _one(table, b"stsd")
    kinds = children(entries[8:])
    if _count(entries) != 1 or set(kinds) != {b"avc1"}:
        return None
    entry = _one(kinds, b"avc1")
    boxes = children(entry[ENTRY_BYTES:])
    sps = only_sps(bytes(_one(boxes, b"avcC")))
    pictures = None if sps is None else picture_format(sps)
    if pictures is None or struct.unpack_from(">2H", entry, 24) != (pictures.width, pictures.height):
        return None  # the container crops
    colour = boxes.get(b"colr", [])
    told = all(
        bytes(each[:4]) == b"nclx" and (each[9], 1 + (each[10] >> 7)) == (pictures.color_space, pictures.color_range)
        for each in colour
    )
    return pictures if told else None  # who is right is FFmpeg's business


def _count(data: memoryview) -> int:
    """Entries of a table, which stand behind its version and flags."""
    return int.from_bytes(data[4:8], "big")


def _numbers(data: memoryview, columns: int, kind: str = ">u4") -> Numbers:
    """The rows of a table that begins with its version, flags and their number: int64 (rows, columns).

    Raises:
        ValueError: it is shorter than its number of rows.
    """
    count = _count(data)
    size = np.dtype(kind).itemsize * columns
    if count * size > len(data) - 8:  # before any room is made for them
        raise ValueError("a table is shorter than it says")
    return np.frombuffer(data, kind, count * columns, 8).astype(np.int64).reshape(count, columns)


def _runs(data: memoryview) -> Numbers:
    """One number for each sample out of (count, number) pairs, as long as these are not more than a file may have."""
    count, number = _numbers(data, 2).T
    if count.sum() > MOST_SAMPLES:
        raise ValueError("more samples than a file may have")
    return np.repeat(number, count)


def _sizes(table: Boxes) -> Numbers:
    """Bytes of each sample.

    Raises:
        ValueError: several have one size that is said once, as no H.264 track has them.
    """
    data = _one(table, b"stsz")
    size, count = struct.unpack_from(">2I", data, 4)
    if size and count != 1:
        raise ValueError("all samples have one size")
    return np.array([size]) if size else _numbers(data[4:], 1)[:, 0]


def _keys(table: Boxes) -> Numbers:
    """Numbers of the key frames, rising."""
    if b"stss" not in table:
        return np.arange(len(_sizes(table)))
    keys = _numbers(_one(table, b"stss"), 1)[:, 0] - 1
    if len(keys) and (keys[0] < 0 or (np.diff(keys) < 1).any()):
        raise ValueError("key frames are not in order")
    return keys


def _end(table: Boxes, sizes: Numbers) -> int:
    """Where the last byte of a sample lies in the file, and one more (§8.7.4).

    Raises:
        ValueError: the samples are not those of the chunks.
    """
    wide = b"co64" in table
    chunks = _numbers(_one(table, b"co64" if wide else b"stco"), 1, ">u8" if wide else ">u4")[:, 0]
    first, samples, entry = _numbers(_one(table, b"stsc"), 3).T
    lengths = np.diff(first - 1, append=len(chunks))
    if first[0] != 1 or (lengths < 1).any() or (entry != 1).any() or (samples * lengths).sum() != len(sizes):
        raise ValueError("chunks and samples do not fit")
    bounds = np.concatenate([[0], np.cumsum(np.repeat(samples, lengths))])
    behind = np.concatenate([[0], np.cumsum(sizes)])
    return int((chunks + behind[bounds[1:]] - behind[bounds[:-1]]).max())


def _time_unit(header: memoryview) -> int:
    """Units of a second, of a movie's or a track's header."""
    return int.from_bytes(header[20:24] if header[0] == 1 else header[12:16], "big")


def _shown_at(movie: Boxes, track: Boxes, table: Boxes, steps: Numbers, unit: int) -> Numbers | None:
    """When each sample is shown, in units; None if an edit list leaves one out (§8.6.6).

    It may only say where the first one begins.
    """
    shown_at = np.cumsum(steps) - steps
    if b"ctts" in table:
        shown_at += _runs(_one(table, b"ctts")).astype(np.int32)  # signed, whatever the version says
    if b"edts" not in track:
        return shown_at
    edits = _one(_into(track, b"edts"), b"elst")
    if _count(edits) != 1:
        return None
    duration, first, rate, fraction = struct.unpack_from(">qqhh" if edits[0] == 1 else ">Iihh", edits, 8)
    last = first + duration * unit // _time_unit(_one(movie, b"mvhd"))
    whole = (rate, fraction) == (1, 0) and 0 <= first <= int(shown_at.min()) and int(shown_at.max()) < last
    return shown_at - first if whole else None
