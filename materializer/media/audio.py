"""The audio of some stretches of a video: its track is decoded from the beginning, resampled as a whole, and cut.

Decoders and the resampler remember what came before, so what they give at a place is only sure to be that of a full
decode if all before it was decoded (docs/design/0040). It costs little, and no more than the stretches is held.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadVideo
from viewcache.materializer.media.reaching import CHANGED
from viewcache.materializer.media.source import open_container, open_source, shown

if TYPE_CHECKING:
    from av import AudioFrame, AudioResampler
    from av.audio.fifo import AudioFifo
    from av.audio.layout import AudioLayout
    from av.audio.stream import AudioStream
    from av.container import InputContainer

    from viewcache.materializer.media.source import Source

__all__ = ["AudioTrack", "NoSuchTrack", "NoTrack", "Stretch", "read_stretches", "read_stretches_from"]

GAP_S = 0.1
"""A jump of a track's times that is longer is a hole, or goes back; shorter ones are rounding of the container's."""

SHORT_S = Fraction(1, 2)
"""By how much a track may end before its header says so; where it ends sooner, the end of the file is missing."""

TOLD_LENGTHS = "mov"
"""Demuxer whose files say how long a track is; others guess it from bit rates."""

BLOCK = 32_768
"""Samples that are resampled at once, at least: one call costs as much as resampling some hundred."""

REACH = 256
"""Samples, of the lower rate, that what is passed over keeps away from what is wanted: far more than the filter of the
resampler reaches over, which are 32."""

SHORT_GAP = 4_096
"""Samples that are resampled though nobody wants them, because one more call costs as much."""

_FAR = 1 << 62
"""Behind the end of any track, in samples."""

MOST_PHASES = 1024
"""Of the resampler's filter: rates that need more are rounded, which gives other samples from another begin."""


class NoTrack(BadVideo):
    """A video without the audio track that is asked for; the message says what it has."""


class NoSuchTrack(NoTrack):
    """The same of a video that has others."""


@dataclass(frozen=True, slots=True)
class AudioTrack:
    """Which track, and as what it is wanted."""

    rate: int
    channels: int
    """1 or 2."""
    track: int | str | None
    """Number among the audio tracks, or a language; None = the default one."""


@dataclass(slots=True)
class Stretch:
    """Consecutive samples of a track, from a presentation time on."""

    start_s: Fraction
    """When the first sample is heard; the track's sample that is nearest to it."""
    samples: NDArray[np.float32]
    """(C,n), zeros until they are read."""
    heard: int = 0
    """How many of the n are the track's own; the others are silent."""
    damaged: list[str] = field(default_factory=list)
    """What is wrong with the track there."""

    @property
    def count(self) -> int:
        """How many, n."""
        return len(self.samples[0])

    def end_s(self, rate: int) -> Fraction:
        """When it ends."""
        return self.start_s + Fraction(self.count, rate)


class _Run(NamedTuple):
    """Samples of the source that are resampled without passing over any: those of one stretch, or of several."""

    begin: int
    end: int


@dataclass(slots=True)
class _Piece:
    """What of a track follows without a hole, and is resampled as a whole."""

    begin_s: Fraction
    """When its first sample is heard."""
    about_s: float
    """The same, for what is done with each frame."""
    source_rate: int
    layout: "AudioLayout"
    format: str
    """Of the samples as decoded."""
    runs: "deque[_Run]"
    """What of it is resampled; the first one is worked on."""
    taken: int = 0
    """Samples of the source."""
    passed: int = 0
    """Of these, how many were resampled or passed over."""
    made: int = 0
    """The sample that the resampler gives next."""

    @property
    def end_s(self) -> Fraction:
        """When the sample is heard that comes next."""
        return self.begin_s + Fraction(self.taken, self.source_rate)


def read_stretches(
    uri: str,
    same: Callable[["Source"], bool],
    wanted: AudioTrack,
    stretches: Sequence[Stretch],
    stop: Callable[[], bool],
) -> Iterator[Stretch]:
    """Fill stretches of one track, and give each as soon as it is whole, those that begin first first.

    Args:
        uri: of the video.
        same: whether a file that was opened is the one that was scanned.
        wanted: the track.
        stretches: to be filled; of equal start in any order.
        stop: called now and then; True ends it.

    Raises:
        BadVideo: the file cannot be opened, or has changed.
        NoTrack: it has no such track.
    """
    with open_source(uri) as source:
        yield from read_stretches_from(source, same, wanted, stretches, stop)


def read_stretches_from(
    source: "Source",
    same: Callable[["Source"], bool],
    wanted: AudioTrack,
    stretches: Sequence[Stretch],
    stop: Callable[[], bool],
) -> Iterator[Stretch]:
    """`read_stretches` of an open source, which stays open."""
    from av.stream import Discard

    left = deque(sorted(stretches, key=lambda each: each.start_s))
    if not same(source):
        raise BadVideo(f"{shown(source.uri)}: {CHANGED}")
    with open_container(source) as container:
        stream = _track(container, wanted.track)
        for each in container.streams:
            if each.index != stream.index:
                each.discard = Discard.all  # their bytes are not even read
        yield from _Reading(container, stream, wanted, left).run(stop)


def _track(container: "InputContainer", track: int | str | None) -> "AudioStream":
    tracks = container.streams.audio
    if not tracks:
        raise NoTrack("it has no audio")
    if track is None:
        return next((each for each in tracks if each.disposition & 1), tracks[0])  # 1: AV_DISPOSITION_DEFAULT
    if isinstance(track, int) and track < len(tracks):
        return tracks[track]
    found = next((each for each in tracks if each.language == track), None)
    if found is not None:
        return found
    languages = ", ".join(str(each.language or "no language") for each in tracks)
    raise NoSuchTrack(f"it has no audio track {track!r}; it has {len(tracks)}, from 0: {languages}")


class _Reading:
    """One pass over a track."""

    def __init__(
        self, container: "InputContainer", stream: "AudioStream", wanted: AudioTrack, left: deque[Stretch]
    ) -> None:
        self._container = container
        self._stream = stream
        self._wanted = wanted
        self._left = left
        self._piece: _Piece | None = None
        self._resampler: AudioResampler | None = None
        self._until_s: Fraction | None = None
        """What is before this was placed: of what a track has twice the first counts."""
        self._lost = ""
        """Why what comes next does not follow what was there; empty = it does."""
        self._tick_s = 0.0
        """Of the piece's times."""
        self._at: deque[int] = deque()
        """The sample of the piece that each stretch which is left begins with."""

    def run(self, stop: Callable[[], bool]) -> Iterator[Stretch]:
        """Decode until every stretch is whole."""
        from av.audio.fifo import AudioFifo

        fifo = AudioFifo()
        for frame in self._frames():
            piece = self._piece
            if piece is None or self._begins(piece, frame):
                yield from self._end_piece(fifo)
                fifo = AudioFifo()
                piece = self._begin(frame)
            frame.pts = None  # the fifo wants times that follow each other to the tick; containers round
            fifo.write(frame)
            piece.taken += frame.samples
            if fifo.samples >= BLOCK:
                yield from self._resample(piece, fifo)
                if not self._left or stop():
                    return
        yield from self._end_piece(fifo)
        end_s, told_s = self._until_s, self._told_end_s()
        if end_s is None:
            end_s = self._left[0].start_s if self._left else Fraction(0)
            self._lost = self._lost or "no sample of its audio could be decoded"
        if self._lost:
            self._damage(end_s, None, self._lost)
        elif told_s is not None and end_s < told_s - SHORT_S:
            self._damage(end_s, told_s, f"its audio ends at {float(end_s):.3f} s, not at {float(told_s):.3f} s as told")
        yield from self._left  # what comes after the track is silent

    def _told_end_s(self) -> Fraction | None:
        """When the track ends, as the file has it."""
        stream = self._stream
        if not self._container.format.name.startswith(TOLD_LENGTHS) or not stream.duration or not stream.time_base:
            return None
        end = (stream.start_time or 0) + stream.duration
        entries = stream.index_entries
        # FFmpeg's duration has the time before a late begin in it if an edit list trims the track: then the table of
        # packets says when the last one ends. The table of a file in fragments is only of those that were read.
        if stream.frames and len(entries) > 1:
            last, before = entries[-1].timestamp, entries[-2].timestamp
            end = min(end, last + (last - before))
        return end * stream.time_base

    def _frames(self) -> "Iterator[AudioFrame]":
        """What can be decoded of the track; `_lost` says before a frame that something is missing there."""
        import av

        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except MemoryError:  # says nothing about the video
                raise
            except av.FFmpegError as error:
                self._lost = f"its audio cannot be read on ({error})"
                return
            try:
                if packet.is_corrupt:
                    self._lost = "a packet of its audio is marked as damaged"
                    continue
                frames = packet.decode()
            except MemoryError:
                raise
            except av.FFmpegError as error:
                self._lost = f"a packet of its audio cannot be decoded ({error})"
                continue
            for frame in frames:
                if frame.samples:
                    yield frame

    # Pieces --------------------------------------------------------------------------------------------------------

    def _begins(self, piece: _Piece, frame: "AudioFrame") -> bool:
        """Whether a frame does not follow what is there."""
        # In floats, because it is asked for each frame: a jump is a thousand times what they round.
        if self._lost or frame.sample_rate != piece.source_rate or frame.layout != piece.layout:
            return True
        pts = frame.pts
        return frame.format.name != piece.format or (
            pts is not None and abs(pts * self._tick_s - piece.about_s - piece.taken / piece.source_rate) > GAP_S
        )

    def _begin(self, frame: "AudioFrame") -> _Piece:
        at_s, before_s = self._time(frame), self._until_s
        if at_s is None and before_s is None:
            at_s = (self._stream.start_time or 0) * (self._stream.time_base or Fraction(0))
        if self._lost:
            if before_s is not None or at_s is None:
                self._damage(before_s or Fraction(0), at_s, self._lost)
            self._lost = ""
        begin_s = at_s if at_s is not None else before_s
        assert begin_s is not None  # one of them is
        self._resampler = None
        self._tick_s = float(frame.time_base or self._stream.time_base or 0)
        self._at = deque(_nearest((each.start_s - begin_s) * self._wanted.rate) for each in self._left)
        runs = self._runs(frame.sample_rate)
        self._piece = _Piece(begin_s, float(begin_s), frame.sample_rate, frame.layout, frame.format.name, runs)
        return self._piece

    def _time(self, frame: "AudioFrame") -> Fraction | None:
        base = frame.time_base or self._stream.time_base
        return None if frame.pts is None or base is None else frame.pts * base

    def _runs(self, source_rate: int) -> deque[_Run]:
        """What of a piece is resampled for the stretches that are left.

        What lies between runs is passed over: the resampler is given the next run as if it followed the one before.
        It goes on in phase, because all begins and ends are where a whole number of samples was made of a whole number,
        and what its filter mixes of two runs is so near to their ends that no stretch wants it.
        """
        rate = self._wanted.rate
        divisor = math.gcd(source_rate, rate)
        if rate // divisor > MOST_PHASES or not self._at:
            return deque([_Run(0, _FAR)])
        step, reach = source_rate // divisor, REACH * max(1, -(-source_rate // rate))
        runs: deque[_Run] = deque()
        for at, stretch in zip(self._at, self._left, strict=True):
            begin = max(0, (at * source_rate // rate - reach) // step * step)
            end = -(-((at + stretch.count) * source_rate // rate + reach) // step) * step
            if end <= 0:
                continue
            if runs and begin <= runs[-1].end + SHORT_GAP:
                runs[-1] = _Run(runs[-1].begin, max(runs[-1].end, end))
            else:
                runs.append(_Run(begin, end))
        return runs

    def _resample(self, piece: _Piece, fifo: "AudioFifo", *, last: bool = False) -> Iterator[Stretch]:
        """Place what is wanted of all that the fifo has, and give what is whole."""
        from av.audio.resampler import AudioResampler

        runs, rate = piece.runs, self._wanted.rate
        while runs and fifo.samples:
            run = runs[0]
            if piece.passed < run.begin:
                dropped = min(run.begin - piece.passed, fifo.samples)
                fifo.read(dropped)
                piece.passed += dropped
                continue
            if self._resampler is None:
                layout = "mono" if self._wanted.channels == 1 else "stereo"
                self._resampler = AudioResampler(format="fltp", layout=layout, rate=rate)
                piece.made = run.begin * rate // piece.source_rate
            size = min(run.end - piece.passed, fifo.samples)
            frames = self._resampler.resample(fifo.read(size))
            piece.passed += size
            yield from self._place(piece, frames)
            if piece.passed == run.end:
                runs.popleft()
                if runs:
                    piece.made += (runs[0].begin - run.end) * rate // piece.source_rate
        if fifo.samples:
            fifo.read()
        if last and runs and piece.passed > runs[0].begin and self._resampler is not None:
            yield from self._place(piece, self._resampler.resample(None))

    def _end_piece(self, fifo: "AudioFifo") -> Iterator[Stretch]:
        piece = self._piece
        if piece is None:
            return
        yield from self._resample(piece, fifo, last=True)
        self._until_s = max(piece.end_s, self._until_s or piece.end_s)
        self._piece = self._resampler = None

    def _place(self, piece: _Piece, frames: "Sequence[AudioFrame | None]") -> Iterator[Stretch]:
        """Put samples of the piece where they belong; give what is whole."""
        skipped = 0 if self._until_s is None else _nearest((self._until_s - piece.begin_s) * self._wanted.rate)
        for frame in frames:
            if frame is None:  # a resampler that has nothing to change gives what it was given, None at the end too
                continue
            part = np.asarray(frame.to_ndarray(), np.float32)
            first, last = piece.made, piece.made + part.shape[1]
            piece.made = last
            finite = bool(np.isfinite(part).all())
            for at, each in zip(self._at, self._left, strict=True):
                if at >= last:
                    break
                start, end = max(first, at, skipped), min(last, at + each.count)
                if start < end:
                    cut, own = part[:, start - first : end - first], each.samples[:, start - at : end - at]
                    own[:] = cut
                    each.heard += end - start
                    if not (finite or np.isfinite(cut).all()):
                        each.damaged.append("samples of its audio are not finite")
                        np.nan_to_num(own, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            while self._left and self._at[0] + self._left[0].count <= last:
                self._at.popleft()
                yield self._left.popleft()

    def _damage(self, begin_s: Fraction, end_s: Fraction | None, why: str) -> None:
        """Something of the track is missing from one time to another; to None = to its end."""
        for each in self._left:
            if each.end_s(self._wanted.rate) > begin_s and (end_s is None or each.start_s < end_s):
                each.damaged.append(why)


def _nearest(samples: Fraction) -> int:
    """The whole number that is nearest; of two the larger."""
    return math.floor(samples + Fraction(1, 2))
