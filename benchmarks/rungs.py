"""Ways to keep the pictures of videos without loss: bytes a picture, and CPU seconds to make them and to read them.

Each clip's first pictures are packed as they would be for a kept object, by the very code, in groups of several lengths
and for clips of stride 1 and 2; what comes out is compared. Beside them are lossless codecs of FFmpeg that were not
taken. One thread; every rung's work on all clips is one sum, the best of some repeats.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Literal

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from benchmarks.harness import ROOT, Result, Table, clips_in, main
from viewcache.materializer.media.lossless import DELTAS, H264, RGB, Pictures, decoder, encoder, takes
from viewcache.materializer.media.pixels import planes_of, to_rgb
from viewcache.store import CODECS, aligned_empty

Bytes = NDArray[np.uint8]
GROUPS = {**dict.fromkeys(DELTAS, (1, 4, 8, 16, 32)), H264: (1, 4, 8, 16)}
"""Pictures in a group, for each way to pack one."""


@dataclass(slots=True)
class _Sum:
    packed: int = 0
    raw: int = 0
    pictures: int = 0
    make_s: float = 0.0
    read_s: float = 0.0

    def row(self) -> tuple[float, ...]:
        """Kilobytes a picture, part of its pixels, milliseconds to make and to read one."""
        each = self.pictures or 1
        per = (round(self.packed / each / 1e3, 1), round(self.packed / (self.raw or 1), 3))
        return *per, round(self.make_s / each * 1e3, 2), round(self.read_s / each * 1e3, 2)


Pack = Callable[[Pictures, Bytes], tuple[int, float, float]]
"""Packs a run of pictures (n, bytes) and unpacks them: bytes, seconds to make, seconds to read."""


def bench(args: Namespace) -> Iterator[Result]:
    """Resized pictures and native planes, at each stride."""
    runs = {kind: [_run(path, kind, args) for path in clips_in(args.videos)] for kind in ("resized", "native")}
    for kind, clips in runs.items():
        for stride in args.strides:
            rows = {}
            for name, pack in _rungs(kind):
                total = _Sum()
                for pictures, run in clips:
                    part = np.ascontiguousarray(run[::stride])
                    done = [pack(pictures, part) for _ in range(args.repeats)]
                    total.packed += done[0][0]
                    total.raw += part.size
                    total.pictures += len(part)
                    total.make_s += min(make_s for _, make_s, _ in done)
                    total.read_s += min(read_s for *_, read_s in done)
                rows[name] = total.row()
            what = f"short side {args.short_side}, RGB" if kind == "resized" else "native planes"
            title = f"{what}, stride {stride}: {len(clips)} clips, {args.pictures} pictures of each"
            yield Table(title, ("kB a picture", "of its pixels", "make, ms", "read, ms"), rows)


def _rungs(kind: str) -> Iterator[tuple[str, Pack]]:
    for name in CODECS:
        yield name, _each(name)
    for codec, groups in GROUPS.items():
        for group in groups:
            yield f"{codec}, groups of {group}", _grouped(codec, group)
    if kind == "resized":
        for name in ("magicyuv", "ffvhuff", "ffv1"):
            yield name, _ffmpeg(name)


def _each(name: str) -> Pack:
    codec = CODECS[name]

    def pack(_: Pictures, run: Bytes) -> tuple[int, float, float]:
        out = aligned_empty((run.shape[1],))
        codec.encode(run[0])  # the first call loads the library
        begun = time.process_time()
        packed = [codec.encode(picture).copy() for picture in run]
        halfway = time.process_time()
        for each in packed:
            codec.decode_into(each, out)
        return sum(each.size for each in packed), halfway - begun, time.process_time() - halfway

    return pack


def _grouped(codec: str, group: int) -> Pack:
    def pack(pictures: Pictures, run: Bytes) -> tuple[int, float, float]:
        if not takes(codec, pictures):
            return 0, 0.0, 0.0
        packer, unpacker = encoder(codec, pictures), decoder(codec, pictures)
        begun = time.process_time()
        groups = [packer.group(run[start : start + group]) for start in range(0, len(run), group)]
        halfway = time.process_time()
        for packets in groups:
            for _ in unpacker.group(packets):
                pass
        ended = time.process_time()
        unpacked = (picture for packets in groups for picture in unpacker.group(packets))
        _compare(unpacked, run, f"{codec}, groups of {group}")
        return sum(len(packet) for packets in groups for packet in packets), halfway - begun, ended - halfway

    return pack


def _ffmpeg(name: str) -> Pack:
    """Planes of R, G and B as FFmpeg's encoder takes them: gbrp, or 4:4:4 for one that has no RGB."""
    pix_fmt = "yuv444p" if name == "ffv1" else "gbrp"

    def context(mode: Literal["r", "w"], pictures: Pictures) -> VideoCodecContext:
        made = av.CodecContext.create(name, mode)
        assert isinstance(made, VideoCodecContext)
        made.width, made.height, made.pix_fmt, made.thread_count = pictures.width, pictures.height, pix_fmt, 1
        return made

    def pack(pictures: Pictures, run: Bytes) -> tuple[int, float, float]:
        shape = (3, pictures.height, pictures.width)
        packer = context("w", pictures)
        packer.time_base, packer.gop_size = Fraction(1, 25), 1
        begun = time.process_time()
        packets: list[bytes] = []
        for number, picture in enumerate(run):
            frame = av.VideoFrame(pictures.width, pictures.height, pix_fmt)
            for plane, channel in zip(frame.planes, picture.reshape(shape), strict=True):
                _memory(plane)[:, : pictures.width] = channel
            frame.pts = number
            packets += map(bytes, packer.encode(frame))
        packets += map(bytes, packer.encode(None))
        halfway = time.process_time()
        unpacker = context("r", pictures)
        unpacker.extradata = packer.extradata
        out = np.empty((len(run), *shape), np.uint8)
        place = 0
        for packet in [*map(av.Packet, packets), None]:
            for frame in unpacker.decode(packet):
                for channel, plane in enumerate(frame.planes):
                    out[place, channel] = _memory(plane)[:, : pictures.width]
                place += 1
        ended = time.process_time()
        _compare(out.reshape(len(run), -1), run, name)
        return sum(map(len, packets)), halfway - begun, ended - halfway

    return pack


def _memory(plane: "av.video.plane.VideoPlane") -> Bytes:
    memory: Bytes = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]  # a plane is a buffer
    return memory[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)


def _compare(unpacked: "Iterator[Bytes] | Bytes", run: Bytes, name: str) -> None:
    if not all(np.array_equal(mine, given) for mine, given in zip(unpacked, run, strict=True)):
        raise SystemExit(f"{name} gave other pixels than it was given")


def _run(path: Path, kind: str, args: Namespace) -> tuple[Pictures, Bytes]:
    """The first pictures of a clip, (n, bytes)."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        scale = args.short_side / min(stream.width, stream.height)
        height, width = round(stream.height * scale), round(stream.width * scale)
        pictures = Pictures(RGB, width, height)
        if kind == "native":
            pictures = Pictures(str(stream.pix_fmt), stream.width, stream.height)
        frames = islice(container.decode(stream), args.pictures)
        native = kind == "native"
        found = [planes_of(each) if native else to_rgb(each, height, width).reshape(-1) for each in frames]
    return pictures, np.stack(found)


def _numbers(text: str) -> Sequence[int]:
    return [int(each) for each in text.split(",")]


def _arguments(parser: ArgumentParser) -> None:
    default = Path(os.environ.get("VIEWCACHE_TEST_VIDEOS", ROOT.parent / "shared" / "videos")) / "train"
    parser.add_argument("--videos", type=Path, default=default, help=f"folder of clips (default {default})")
    parser.add_argument("--pictures", type=int, default=48, help="of each clip (default 48)")
    parser.add_argument("--short-side", type=int, default=256, help="of resized pictures, pixels (default 256)")
    parser.add_argument("--strides", type=_numbers, default=(1, 2), help="of the pictures kept (default 1,2)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
