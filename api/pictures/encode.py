"""Pictures as the bytes of a file: PNG by OpenCV; GIF, animated WebP and MP4 by FFmpeg, through PyAV.

A file appears whole or not at all: it is written beside its place and renamed.
"""

import io
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from viewcache.api.pictures.canvas import Pixels
from viewcache.api.sheet import png
from viewcache.errors import BadInput, Broken

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

__all__ = ["ENDINGS", "MOVING", "check_file", "moving", "png", "write"]

MOVING = {".gif": "gif", ".webp": "webp", ".mp4": "mp4"}
"""Ending of a file → FFmpeg's name of its format."""
ENDINGS = (".png", *MOVING)

_ENCODERS = {"gif": ("gif",), "webp": ("libwebp_anim",), "mp4": ("libx264", "mpeg4")}
"""The first that this FFmpeg has is taken."""
_OPTIONS = {"libx264": {"crf": "18", "preset": "veryfast"}, "mpeg4": {"qscale": "3"}, "libwebp_anim": {"quality": "85"}}
_PIXELS = {"gif": "pal8", "webp": "bgra", "mp4": "yuv420p"}
_TICKS = 1000
"""Units of time in a second; a GIF counts in hundredths, whatever it is given."""
_LEAST_FPS = 0.1
_MOST_FPS = {"gif": 50.0, "webp": 250.0, "mp4": 250.0}
"""Faster ones play slower: browsers show a picture of a GIF for two hundredths at least, or else for ten."""


def check_file(file: str | os.PathLike[str]) -> Path:
    """Refuse a file that no picture can be written to, before anything is made for it.

    Raises:
        BadInput: its ending is unknown, there is no such folder, or it is a folder.
    """
    path = Path(file)
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"{path}: the ending says what a picture becomes; allowed: {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file")
    return path


def write(path: Path, data: bytes) -> None:
    """Write a file, in the place of one that is there.

    Raises:
        Broken: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Broken(f"cannot write {path}: {error.strerror}; check the folder and its free space") from error


def moving(pictures: Iterable[Pixels], fps: float, ending: str) -> bytes:
    """A moving picture; every picture is a frame of it.

    Args:
        pictures: at least one, all of one size.
        fps: pictures a second; as near as the format has it.
        ending: of its file, such as ``.gif``.

    Raises:
        Broken: this FFmpeg has no encoder for it.
    """
    import av

    kind = MOVING[ending.lower()]
    codec = next((name for name in _ENCODERS[kind] if name in av.codecs_available), None)
    if codec is None:
        raise Broken(f"this FFmpeg has no encoder for {ending} ({', '.join(_ENCODERS[kind])}); use another ending")
    fps = min(max(fps, _LEAST_FPS), _MOST_FPS[kind])
    each = iter(pictures)
    first = next(each)
    # MP4's colours are halved in both directions, so its sides are even.
    height, width = (side + side % 2 for side in first.shape[:2]) if kind == "mp4" else first.shape[:2]
    out = io.BytesIO()
    options = {} if kind == "mp4" else {"loop": "0"}
    with av.open(out, "w", format=kind, options=options) as container:
        made = container.add_stream(codec, rate=_rate(fps), options=_OPTIONS.get(codec, {}))
        stream = cast("VideoStream", made)
        stream.width, stream.height, stream.pix_fmt = width, height, _PIXELS[kind]
        stream.codec_context.time_base = Fraction(1, _TICKS)
        for number, frame in enumerate(_frames(chain([first], each), kind, (height, width))):
            frame.pts, frame.time_base = round(number * _TICKS / fps), Fraction(1, _TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def _rate(fps: float) -> Fraction:
    return Fraction(fps).limit_denominator(1001)


def _frames(pictures: Iterable[Pixels], kind: str, size: tuple[int, int]) -> "Iterator[VideoFrame]":
    from av.video.frame import VideoFrame

    palette = _Palette(*size) if kind == "gif" else None
    for picture in pictures:
        missing = [(0, want - have) for want, have in zip(size, picture.shape[:2], strict=True)]
        whole = np.pad(picture, [*missing, (0, 0)], mode="edge") if any(after for _, after in missing) else picture
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(whole), format="rgb24")
        yield frame if palette is None else palette.of(frame)


class _Palette:
    """Gives each picture the 256 colours that suit it best."""

    def __init__(self, height: int, width: int) -> None:
        from av.filter import Graph
        from av.video.format import VideoFormat

        self._graph = graph = Graph()
        given = graph.add_buffer(width=width, height=height, format=VideoFormat("rgb24"), time_base=Fraction(1, _TICKS))
        split = graph.add("split")
        chosen, used = graph.add("palettegen", "stats_mode=single"), graph.add("paletteuse", "new=1")
        end = graph.add("buffersink")
        given.link_to(split)
        split.link_to(chosen, 0, 0)
        split.link_to(used, 1, 0)
        chosen.link_to(used, 0, 1)
        used.link_to(end)
        graph.configure()
        self._number = 0

    def of(self, frame: "VideoFrame") -> "VideoFrame":
        """The same picture in those colours."""
        frame.pts, frame.time_base = self._number, Fraction(1, _TICKS)
        self._number += 1
        self._graph.push(frame)
        return cast("VideoFrame", self._graph.pull())
