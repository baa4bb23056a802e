"""Videos with audio for the tests, and the audio of a whole track as PyAV gives it, which defines what is right."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.audio.stream import AudioStream
from av.video.stream import VideoStream

from tests.clips import pictures

__all__ = ["Track", "encode_with_audio", "nearest", "tone", "whole_track"]


@dataclass(frozen=True)
class Track:
    """One audio track to encode: a tone that climbs, so that no two stretches of it are alike."""

    codec: str = "aac"
    rate: int = 48_000
    layout: str = "stereo"
    seconds: float = 4.0
    start_s: float = 0.0
    """When it begins, against the pictures."""
    language: str | None = None
    pitch: float = 440.0
    """In Hz, at the start."""
    default: bool = False
    """Whether the file says that it is the one to play."""


def tone(track: Track) -> np.ndarray:
    """Its samples, float32 (C,n)."""
    channels = 1 if track.layout == "mono" else 2
    t = np.arange(round(track.seconds * track.rate)) / track.rate
    left = 0.4 * np.sin(2 * np.pi * (track.pitch * t + 60 * t * t))
    return np.stack([left, 0.5 * left[::-1]][:channels]).astype(np.float32)


def encode_with_audio(
    path: Path,
    tracks: Sequence[Track] = (Track(),),
    *,
    frames: int = 100,
    rate: int = 25,
    codec: str = "libx264",
    start_s: float = 0.0,
    muxer: dict[str, str] | None = None,
) -> Path:
    """Encode moving texture of 64x48 pixels with audio tracks; skips the test where this FFmpeg lacks an encoder.

    Args:
        path: where to; the extension chooses the container.
        tracks: in the order of the file.
        frames: of the pictures.
        rate: of the pictures, a second.
        codec: of the pictures.
        start_s: when the first picture is shown.
        muxer: options of the container.
    """
    for track in tracks:
        if track.codec not in av.codecs_available:
            pytest.skip(f"this FFmpeg has no encoder {track.codec}")
    with av.open(str(path), "w", options=muxer or {}) as container:
        video = cast(VideoStream, container.add_stream(codec, rate=rate, options={"threads": "1"}))
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        video.codec_context.gop_size = 8
        video.codec_context.time_base = Fraction(1, 1000)
        streams = []
        for track in tracks:
            stream = cast(
                AudioStream,
                container.add_stream(track.codec, rate=track.rate, layout=track.layout, options={"strict": "-2"}),
            )
            if track.language is not None:
                stream.metadata["language"] = track.language
            if track.default:
                stream.disposition = av.stream.Disposition.default
            streams.append(stream)
        packets = []
        for number, picture in enumerate(pictures(frames, 64, 48)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = round(1000 * (start_s + number / rate)), Fraction(1, 1000)
            packets += video.encode(frame)
        packets += video.encode(None)
        for track, stream in zip(tracks, streams, strict=True):
            packets += _encoded(track, stream)
        for packet in sorted(packets, key=lambda each: (each.dts or 0) * each.time_base):
            container.mux(packet)
    return path


def _encoded(track: Track, stream: AudioStream) -> list["av.Packet[AudioStream]"]:
    samples = tone(track)
    wanted = stream.codec_context.format
    resampler = av.AudioResampler(format=wanted, layout=track.layout, rate=track.rate)
    packets: list[av.Packet[AudioStream]] = []
    size = stream.codec_context.frame_size or 1024
    for at in range(0, samples.shape[1], size):
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[:, at : at + size]), "fltp", track.layout)
        frame.sample_rate, frame.time_base = track.rate, Fraction(1, track.rate)
        frame.pts = round(track.start_s * track.rate) + at
        for each in resampler.resample(frame):
            packets += stream.encode(each)
    packets += stream.encode(None)
    return packets


def whole_track(path: Path, rate: int, *, mono: bool = True, number: int = 0) -> tuple[Fraction, np.ndarray]:
    """When a track begins, and all of it, decoded and resampled in the plainest way: float32 (C,n)."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="fltp", layout="mono" if mono else "stereo", rate=rate)
        begin, parts = None, []
        for frame in container.decode(audio=number):
            if begin is None:
                assert frame.pts is not None
                begin = frame.pts * (frame.time_base or Fraction(0))
            parts += [each.to_ndarray() for each in resampler.resample(frame)]
        last: list[av.AudioFrame | None] = list(resampler.resample(None))
        parts += [each.to_ndarray() for each in last if each is not None]
    assert begin is not None
    return Fraction(begin), np.concatenate(parts, axis=1).astype(np.float32)


def nearest(track: tuple[Fraction, np.ndarray], start_s: Fraction, count: int, rate: int) -> np.ndarray:
    """So many samples of a whole track from a time on; zeros where it has none."""
    begin_s, samples = track
    at = int((2 * (start_s - begin_s) * rate + 1) // 2)
    out = np.zeros((len(samples), count), np.float32)
    first, last = max(at, 0), min(at + count, samples.shape[1])
    if first < last:
        out[:, first - at : last - at] = samples[:, first:last]
    return out
