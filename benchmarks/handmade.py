"""What a practitioner builds by hand for a long training, beside PyAV at its best: the rivals of `benchmarks.horizon`.

Each is spared what it can be: an index of the packets made once, no frame decoded that nobody needs, one swscale step
to planar RGB with a context that is kept, crops copied into place, and flips by OpenCV.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from benchmarks.harness import clips_in
from benchmarks.rivals import Batches, Bytes, Setting, _data_loader, _OnDemand, _Order, _Video

__all__ = ["Arrays", "Best", "by_hand", "in_process", "with_workers"]

RGB = (2, 0, 1)
"""Where red, green and blue lie among the planes of gbrp."""
SKIPPABLE = ("h264", "hevc")
"""Codecs whose decoders leave out frames that nothing refers to."""
KEY_EVERY = 32
"""Frames, in the re-encoded files."""
CRF = 18


@dataclass(frozen=True, slots=True)
class _Packets:
    """When the frames of a video are shown, in its time base."""

    shown: list[int]
    """Of all frames, sorted."""
    keys: list[int]
    """Of key frames, sorted."""
    codec: str


class Best(_OnDemand):
    """On demand with PyAV at its best: seek to the key frame by an index, skip what can be, planar resize and crop."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        looked = [_index(path, setting.short_side) for path in clips_in(setting.videos)]
        self.videos = [video for video, _ in looked]
        self.packets = {video.path: packets for video, packets in looked}
        self._reformatters: dict[str, VideoReformatter] = {}

    def window(self, video: _Video, start: int, rows: slice, columns: slice) -> Bytes:
        """(T,3,h,w): the crop of every ``stride``-th frame from ``start``."""
        setting, packets = self.setting, self.packets[video.path]
        numbers = np.minimum(start + np.arange(setting.frames) * setting.stride, video.frames - 1)
        wanted = [packets.shown[number] for number in numbers.tolist()]
        out = np.empty((setting.frames, 3, setting.crop, setting.crop), np.uint8)
        count = 0
        for frame in _frames_at(video.path, packets, wanted):
            self.planar(frame, video, out[count], rows, columns)
            count += 1
        assert count == len(set(wanted)), f"{video.path}: {count} frames of {len(set(wanted))} from {start}"
        out[count:] = out[count - 1]  # a video that is shorter than a clip ends with copies of its last frame
        return out

    def flipped(self, clip: Bytes) -> Bytes:
        """Left is right, as one picture of many rows: four times faster than numpy's copy."""
        return np.asarray(cv2.flip(clip.reshape(-1, clip.shape[-1]), 1), np.uint8).reshape(clip.shape)

    def planar(self, frame: av.VideoFrame, video: _Video, out: Bytes, rows: slice, columns: slice) -> None:
        """Convert and resize a frame in one step, and copy its crop (3,h,w) out."""
        reformatter = self._reformatters.setdefault(video.path, VideoReformatter())
        how = int(Interpolation.BILINEAR)
        made = reformatter.reformat(frame, video.width, video.height, "gbrp", interpolation=how, threads=1)
        for channel, number in enumerate(RGB):
            plane = made.planes[number]
            memory = np.frombuffer(plane, np.uint8)  # type: ignore[call-overload]  # a plane is a buffer
            out[channel] = memory[: video.height * plane.line_size].reshape(-1, plane.line_size)[rows, columns]


def by_hand(setting: Setting, preset: str) -> Setting:
    """Re-encode each video once (H.264, crf 18, small, a key frame in 32, fast to decode); the same over those files.

    Their short side is the resize's already, rounded up to an even number.
    """
    made = Path(setting.folder, "re-encoded")
    made.mkdir()
    for number, path in enumerate(clips_in(setting.videos)):
        _reencode(path, made / f"{number:03}-{path.stem}.mp4", setting.short_side, preset)
    return replace(setting, videos=str(made))


class Arrays(Best):
    """Whole resized videos in memory, (T,3,H,W) each, made once; an epoch copies crops."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.pictures = {video.path: self._whole(video) for video in self.videos}

    def _whole(self, video: _Video) -> Bytes:
        out = np.empty((video.frames, 3, video.height, video.width), np.uint8)
        count = 0
        for frame in _decoded(video.path):
            self.planar(frame, video, out[count], slice(0, video.height), slice(0, video.width))
            count += 1
        assert count == video.frames, f"{video.path}: {count} frames, {video.frames} by its index"
        return out

    def window(self, video: _Video, start: int, rows: slice, columns: slice) -> Bytes:
        """(T,3,h,w): slices where the clip lies within the video, so that only the crop is copied."""
        setting, pictures = self.setting, self.pictures[video.path]
        stop = start + (setting.frames - 1) * setting.stride + 1
        if stop <= len(pictures):
            cut: Bytes = pictures[start : stop : setting.stride, :, rows, columns]
        else:
            numbers = np.minimum(start + np.arange(setting.frames) * setting.stride, len(pictures) - 1)
            cut = pictures[numbers][:, :, rows, columns]
        return np.ascontiguousarray(cut)


def in_process(dataset: Best) -> Batches:
    """Batches without worker processes, into one buffer that is used again: nothing is copied between processes."""
    setting, order = dataset.setting, _Order(dataset.setting, len(dataset.videos))
    shape = (setting.videos_per_batch * setting.samples, setting.frames, 3, setting.crop, setting.crop)
    buffer = np.zeros(shape, np.uint8)
    for order.epoch in range(setting.epochs):
        for draws in order:
            for place, draw in enumerate(draws):
                buffer[place] = dataset[draw]
            yield buffer[: len(draws)]


def with_workers(dataset: Best) -> Batches:
    """Batches by a torch DataLoader with two workers that live on."""
    return _data_loader(dataset)


# Files ---------------------------------------------------------------------------------------------------------------


def _index(path: Path, short_side: int) -> tuple[_Video, _Packets]:
    """One pass over the packets of a file, none decoded."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        codec, rate = stream.codec_context.name, float(stream.average_rate or 25)
        height, width = _small(stream.height, stream.width, short_side)
        packets = [
            (packet.pts, packet.is_keyframe)
            for packet in container.demux(stream)
            if packet.size and packet.pts is not None and not _hidden(packet, codec)
        ]
    shown = sorted(pts for pts, _ in packets)
    video = _Video(str(path), len(shown), rate, height, width)
    return video, _Packets(shown, sorted(pts for pts, key in packets if key), codec)


def _hidden(packet: "av.Packet[Any]", codec: str) -> bool:
    """VP8 has pictures that are only referred to; the bit that says so lies in the first byte."""
    return codec == "vp8" and not bytes(packet)[0] & 0x10


def _small(height: int, width: int, short_side: int) -> tuple[int, int]:
    scale = short_side / min(height, width)
    return max(short_side, round(height * scale)), max(short_side, round(width * scale))


def _frames_at(path: str, packets: _Packets, wanted: list[int]) -> Iterator[av.VideoFrame]:
    """The frames that are shown at sorted times, from the key frame before the first on."""
    left, key = set(wanted), packets.keys[max(bisect_right(packets.keys, wanted[0]) - 1, 0)]
    with av.open(path) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        context.thread_count = 1
        if key != packets.keys[0]:
            container.seek(key, stream=stream)
        for packet in container.demux(stream):
            if packets.codec in SKIPPABLE:
                context.skip_frame = "DEFAULT" if packet.pts in left else "NONREF"
            for frame in packet.decode():
                if frame.pts in left:
                    left.discard(frame.pts)
                    yield frame
            if not left:
                return


def _decoded(path: str) -> Iterator[av.VideoFrame]:
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        yield from container.decode(stream)


def _reencode(source: Path, target: Path, short_side: int, preset: str) -> None:
    """As ``ffmpeg -vf scale -c:v libx264 -crf 18 -g 32 -tune fastdecode`` does, without the sound, on one thread."""
    reformatter = VideoReformatter()
    with av.open(str(source)) as given, av.open(str(target), "w") as made:
        stream = given.streams.video[0]
        height, width = (size + size % 2 for size in _small(stream.height, stream.width, short_side))
        rate = stream.average_rate or Fraction(25)
        options = {"crf": str(CRF), "preset": preset, "tune": "fastdecode", "g": str(KEY_EVERY)}
        out = made.add_stream("libx264", rate=rate, options=options)
        out.width, out.height, out.pix_fmt = width, height, "yuv420p"
        out.codec_context.thread_count = 1
        for number, frame in enumerate(_decoded(str(source))):
            how = int(Interpolation.BILINEAR)
            small = reformatter.reformat(frame, width, height, "yuv420p", interpolation=how, threads=1)
            small.pts, small.time_base = number, 1 / rate
            small.pict_type = 0  # else x264 makes a key frame where the original has one
            made.mux(out.encode(small))
        made.mux(out.encode(None))
