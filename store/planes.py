"""Native decoded frames as rows of bytes: the decoder's own planes, without the padding of its lines.

A 4:2:0 frame is half the bytes of its RGB and gives bit-identical RGB later. Buffers go in and out; the decoder's
library is not imported here. The trade-off: an odd line length costs one copy per plane, both ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, ChunkDamaged, Misuse

__all__ = ["PIXEL_FORMATS", "PlaneLayout", "pack", "plane_layout", "unpack"]

Bytes = NDArray[np.uint8]
Plane = bytes | bytearray | memoryview | Bytes

_ONE = ((1, 0, 0),)


def _three(across: int, down: int, size: int = 1) -> tuple[tuple[int, int, int], ...]:
    return ((size, 0, 0), (size, across, down), (size, across, down))


PIXEL_FORMATS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "gray": _ONE,
    "yuv420p": _three(1, 1),
    "yuvj420p": _three(1, 1),
    "yuv422p": _three(1, 0),
    "yuvj422p": _three(1, 0),
    "yuv444p": _three(0, 0),
    "yuvj444p": _three(0, 0),
    "yuv420p10le": _three(1, 1, 2),
    "yuv422p10le": _three(1, 0, 2),
    "yuv444p10le": _three(0, 0, 2),
    "nv12": ((1, 0, 0), (2, 1, 1)),
    "gbrp": _three(0, 0),
    "rgb24": ((3, 0, 0),),
}
"""Per plane: bytes per sample, and how often width and height are halved (rounded up)."""


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """How the planes of one frame lie in a row of bytes, one after the other."""

    pix_fmt: str
    """FFmpeg's name."""
    width: int
    height: int
    planes: tuple[tuple[int, int], ...]
    """Per plane: lines, and bytes per line without padding."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame's row."""
        return sum(lines * row_bytes for lines, row_bytes in self.planes)

    def to_attributes(self) -> dict[str, object]:
        """JSON values for an object's attributes."""
        planes = [list(plane) for plane in self.planes]
        return {"pix_fmt": self.pix_fmt, "width": self.width, "height": self.height, "planes": planes}

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, object]) -> "PlaneLayout":
        """Read what `to_attributes` wrote.

        Raises:
            ChunkDamaged: keys are missing or have other types.
        """
        match attributes:
            case {"pix_fmt": str(pix_fmt), "width": int(width), "height": int(height), "planes": [_, *_] as planes}:
                pairs = tuple(
                    (lines, row_bytes)
                    for plane in planes
                    for lines, row_bytes in [plane if isinstance(plane, list) and len(plane) == 2 else (0, 0)]
                    if isinstance(lines, int) and isinstance(row_bytes, int) and lines > 0 and row_bytes > 0
                )
                if len(pairs) == len(planes):
                    return cls(pix_fmt, width, height, pairs)
        raise ChunkDamaged(f"the attributes {sorted(attributes)} do not describe planes")


def plane_layout(pix_fmt: str, width: int, height: int) -> PlaneLayout:
    """The layout of a pixel format that we know.

    Raises:
        BadInput: the format is unknown; keep such frames as RGB.
    """
    if pix_fmt not in PIXEL_FORMATS:
        raise BadInput(f"no plane layout for pixel format {pix_fmt!r}; known are {', '.join(PIXEL_FORMATS)}")
    if width < 1 or height < 1:
        raise BadInput(f"a frame of {width} x {height} has no planes")
    planes = tuple((-(-height >> down), -(-width >> across) * size) for size, across, down in PIXEL_FORMATS[pix_fmt])
    return PlaneLayout(pix_fmt, width, height, planes)


def pack(layout: PlaneLayout, planes: Sequence[Plane], line_sizes: Sequence[int], out: Bytes | None = None) -> Bytes:
    """Copy a decoder's planes into one row.

    Args:
        layout: of the frame.
        planes: one buffer per plane (a decoder's plane: its memoryview), its lines ``line_sizes[i]`` bytes apart (the
            last may end early).
        line_sizes: bytes from one line to the next, padding included.
        out: contiguous uint8 of ``layout.frame_bytes``; None for a new one.

    Raises:
        Misuse: planes, line sizes or ``out`` do not fit the layout.
    """
    if not len(planes) == len(line_sizes) == len(layout.planes):
        raise Misuse(f"{layout.pix_fmt} has {len(layout.planes)} planes; {len(planes)} were given")
    row = np.empty(layout.frame_bytes, np.uint8) if out is None else out
    if row.shape != (layout.frame_bytes,) or row.dtype != np.uint8:
        raise Misuse(f"out must be uint8 of {(layout.frame_bytes,)}, not {row.dtype} of {row.shape}")
    start = 0
    for plane, line_size, (lines, row_bytes) in zip(planes, line_sizes, layout.planes, strict=True):
        source = np.frombuffer(plane, np.uint8)
        if line_size < row_bytes or source.size < (lines - 1) * line_size + row_bytes:
            raise Misuse(f"a plane of {source.size} bytes has no {lines} lines of {row_bytes} at every {line_size}")
        target = row[start : start + lines * row_bytes].reshape(lines, row_bytes)
        target[:] = np.lib.stride_tricks.as_strided(source, (lines, row_bytes), (line_size, 1), writeable=False)
        start += lines * row_bytes
    return row


def unpack(layout: PlaneLayout, row: Bytes) -> list[Bytes]:
    """Views of one row's planes, each ``(lines, bytes per line)``; nothing is copied.

    Raises:
        Misuse: the row is not ``layout.frame_bytes`` long.
    """
    if row.shape != (layout.frame_bytes,):
        raise Misuse(f"a row of {layout.pix_fmt} has {layout.frame_bytes} bytes, not {row.shape}")
    views, start = [], 0
    for lines, row_bytes in layout.planes:
        views.append(row[start : start + lines * row_bytes].reshape(lines, row_bytes))
        start += lines * row_bytes
    return views
