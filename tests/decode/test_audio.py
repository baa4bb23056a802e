"""Audio of any stretch is, to the bit, that of a whole decode; what is missing is silent, and damage is told."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
import pytest
from av.audio.stream import AudioStream

from tests.clips import encode, real_clips
from tests.sounds import Track, encode_with_audio, nearest, whole_track
from viewcache.errors import BadVideo
from viewcache.materializer.media.audio import AudioTrack, NoTrack, Stretch, read_stretches

FAMILIES = {
    "aac.mp4": Track("aac"),
    "aac_44100_mono.mov": Track("aac", rate=44_100, layout="mono"),
    "aac.ts": Track("aac"),
    "aac.mkv": Track("aac"),
    "opus.mkv": Track("libopus"),
    "opus.webm": Track("libopus"),
    "vorbis.webm": Track("vorbis", rate=44_100),
    "mp3.avi": Track("libmp3lame", rate=44_100),
    "mp3.mp4": Track("libmp3lame", rate=32_000, layout="mono"),
    "pcm.mkv": Track("pcm_s16le", rate=22_050),
    "flac.mkv": Track("flac"),
    "later.mp4": Track("aac", start_s=1.3),
    "earlier.mkv": Track("aac", start_s=0.0),
    "short.mp4": Track("aac", seconds=1.7),
}
"""File name → the track: codecs that remember what came before, rates, containers, and tracks that do not fit."""


def read(path: Path, starts: list[Fraction], count: int, wanted: AudioTrack) -> list[Stretch]:
    """Stretches from some times on, in the order of the times."""
    stretches = [Stretch(start, np.zeros((wanted.channels, count), np.float32)) for start in starts]
    found = list(read_stretches(str(path), lambda _: True, wanted, stretches, lambda: False))
    assert sorted(map(id, found)) == sorted(map(id, stretches)), "each of them, once"
    return stretches


def check(path: Path, rate: int, *, mono: bool, spans: int = 12) -> list[Stretch]:
    """Compare stretches at any place with the whole track."""
    whole = whole_track(path, rate, mono=mono)
    chance = np.random.default_rng(5)
    end = float(whole[0]) + whole[1].shape[1] / rate
    starts = [Fraction(int(1e6 * each), 10**6) for each in chance.uniform(-0.5, end + 0.2, spans)]
    found = read(path, starts, rate // 2, AudioTrack(rate, 1 if mono else 2, None))
    for each in found:
        assert np.array_equal(each.samples, nearest(whole, each.start_s, each.count, rate)), float(each.start_s)
        assert not each.damaged
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stretch_is_cut_out_of_the_whole(tmp_path: Path, name: str) -> None:
    """Bit by bit, wherever it begins, before, in and behind the track, resampled or not, in one channel or two."""
    codec = "libvpx" if name.endswith("webm") else "libx264"
    path = encode_with_audio(tmp_path / name, [FAMILIES[name]], codec=codec)
    found = check(path, 16_000, mono=True)
    assert any(each.heard == each.count for each in found)
    assert any(each.heard < each.count for each in found), "some are partly silent"
    check(path, FAMILIES[name].rate, mono=False)


@pytest.mark.parametrize(
    ("source", "rate"), [(44_100, 16_000), (48_000, 16_000), (16_000, 48_000), (22_050, 44_100), (48_000, 16_001)]
)
def test_what_lies_between_is_passed_over(tmp_path: Path, source: int, rate: int) -> None:
    """Stretches far apart, of which the resampler begins anew, are still those of a whole decode."""
    track = Track("pcm_s16le", rate=source, layout="mono", seconds=20)
    path = encode_with_audio(tmp_path / "long.mkv", [track], frames=20)
    whole = whole_track(path, rate)
    starts = [Fraction(k, 1000) for k in (310, 320, 4_017, 9_003, 9_400, 17_301, 19_900)]
    for each in read(path, starts, rate // 3, AudioTrack(rate, 1, None)):
        assert np.array_equal(each.samples, nearest(whole, each.start_s, each.count, rate)), float(each.start_s)


class CountingResampler:
    """PyAV's resampler, which tells how many there were and what they were given."""

    made = 0
    given = 0

    def __init__(self, **wanted: object) -> None:
        CountingResampler.made += 1
        self._real = REAL_RESAMPLER(**wanted)  # type: ignore[arg-type]

    def resample(self, frame: av.AudioFrame | None) -> list[av.AudioFrame]:
        """Count, and resample."""
        CountingResampler.given += 0 if frame is None else frame.samples
        return list(self._real.resample(frame))


REAL_RESAMPLER = av.AudioResampler


def test_only_what_is_wanted_is_resampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one resampler, whose filter is made once: what lies between stretches costs no more than to decode it."""
    track = Track("pcm_s16le", rate=44_100, layout="mono", seconds=20)
    path = encode_with_audio(tmp_path / "long.mkv", [track], frames=20)
    monkeypatch.setattr("av.audio.resampler.AudioResampler", CountingResampler)
    CountingResampler.made = CountingResampler.given = 0
    starts = [Fraction(k) for k in (1, 4, 5, 11, 17)]  # of one second each, and two of them follow each other
    found = read(path, starts, 16_000, AudioTrack(16_000, 1, None))
    assert CountingResampler.made == 1
    assert 5 * 44_100 < CountingResampler.given < 5.3 * 44_100
    whole = whole_track(path, 16_000)
    assert all(np.array_equal(each.samples, nearest(whole, each.start_s, 16_000, 16_000)) for each in found)


def test_samples_that_are_not_finite_damage_what_has_them_alone(tmp_path: Path) -> None:
    """What was resampled in the same call is not called damaged, so it matters not which clips a job has."""
    samples = np.full((1, 48_000), 0.25, np.float32)
    samples[0, 24_000] = np.nan
    path = tmp_path / "nan.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_f32le", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples, "flt", "mono")
        frame.sample_rate, frame.pts = 16_000, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])
    before, there, behind = read(path, [Fraction(k, 4) for k in (3, 5, 7)], 8000, AudioTrack(16_000, 1, None))
    assert (before.damaged, behind.damaged) == ([], [])
    assert there.damaged == ["samples of its audio are not finite"]
    assert all(np.isfinite(each.samples).all() for each in (before, there, behind))
    assert (there.samples != 0.25).sum() == 1, "only what is not a number is silent"


def noise(path: Path, codec: str, seconds: float = 6.0, rate: int = 48_000) -> Path:
    """A track of noise in two channels: encoders of AAC say of noise no more than how loud it is."""
    samples = np.random.default_rng(3).normal(0, 0.1, (2, round(seconds * rate))).astype(np.float32)
    with av.open(str(path), "w") as container:
        stream = cast(AudioStream, container.add_stream(codec, rate=rate, layout="stereo"))
        frame = av.AudioFrame.from_ndarray(samples, "fltp", "stereo")
        frame.sample_rate, frame.pts = rate, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("codec", ["aac", "ac3"])
def test_a_late_stretch_is_decoded_from_the_beginning(tmp_path: Path, codec: str) -> None:
    """AAC and AC-3 draw noise from a generator that goes on from frame to frame: no preroll gives the same samples.

    So a stretch at the end is what a whole decode has there, and it is not what a decoder gives that began a hundred
    packets before.
    """
    path, ahead = noise(tmp_path / f"{codec}.mkv", codec), 100
    whole = whole_track(path, 48_000, mono=False)
    (found,) = read(path, [Fraction(5)], 12_000, AudioTrack(48_000, 2, None))
    assert np.array_equal(found.samples, nearest(whole, Fraction(5), 12_000, 48_000))
    late: list[np.ndarray] = []
    for skipped in (0, 1):
        with av.open(str(path)) as container:
            packets = [packet for packet in container.demux(container.streams.audio[0]) if packet.size]
            begin = skipped * (len(packets) - ahead - 2)
            late.append([frame.to_ndarray() for packet in packets[begin:-1] for frame in packet.decode()][-1])
    assert late[0].shape == late[1].shape
    assert not np.array_equal(late[0], late[1])


def has_audio(path: Path) -> bool:
    """Whether a clip has a track."""
    with av.open(str(path)) as container:
        return bool(container.streams.audio)


@pytest.mark.parametrize("path", [*filter(has_audio, real_clips("train", "edge"))], ids=lambda path: path.name)
def test_real_clips(path: Path) -> None:
    """The same of every real clip that has audio."""
    check(path, 16_000, mono=True)
    check(path, 44_100, mono=False, spans=4)


def test_the_track_that_is_asked_for(tmp_path: Path) -> None:
    """The default one, one by number, one by language; of a language that it does not have the message lists all."""
    tracks = [Track(language="eng"), Track(language="deu", pitch=900.0, default=True), Track(pitch=200.0)]
    path = encode_with_audio(tmp_path / "three.mkv", tracks)
    whole = [whole_track(path, 16_000, number=number) for number in range(3)]
    for asked, number in ((0, 0), (1, 1), (2, 2), ("eng", 0), ("deu", 1), (None, 1)):
        (found,) = read(path, [Fraction(1)], 8000, AudioTrack(16_000, 1, asked))
        assert np.array_equal(found.samples, nearest(whole[number], Fraction(1), 8000, 16_000)), asked
    with pytest.raises(NoTrack, match="no audio track 'fra'; it has 3, from 0: eng, deu, no language"):
        read(path, [Fraction(1)], 8000, AudioTrack(16_000, 1, "fra"))
    with pytest.raises(NoTrack, match="no audio track 3"):
        read(path, [Fraction(1)], 8000, AudioTrack(16_000, 1, 3))
    with pytest.raises(NoTrack, match="it has no audio"):
        read(encode(tmp_path / "silent.mp4", frames=20), [Fraction(1)], 8000, AudioTrack(16_000, 1, None))


def damaged(path: Path, out: Path, change: Callable[[list[bytes]], None]) -> Path:
    """The same file with other bytes in the packets of its audio, in place."""
    data = bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        places = [(each.pos or 0, each.size) for each in container.demux(container.streams.audio[0]) if each.size]
    packets = [bytes(data[pos : pos + size]) for pos, size in places]
    change(packets)
    for (pos, size), packet in zip(places, packets, strict=True):
        data[pos : pos + size] = packet.ljust(size, b"\0")[:size]
    out.write_bytes(data)
    return out


def test_damage_in_the_middle_is_told_and_stays_in_its_place(tmp_path: Path) -> None:
    """What is lost is silent and said so; what comes before and well after it is what it was, at its own time."""
    path = encode_with_audio(tmp_path / "whole.mp4")
    whole = whole_track(path, 48_000)

    def change(packets: list[bytes]) -> None:
        for k in range(90, 100):  # 1.92 to 2.13 s
            packets[k] = b"\xff" * len(packets[k])

    hurt = damaged(path, tmp_path / "hurt.mp4", change)
    starts = [Fraction(k, 4) for k in range(14)]
    found = read(hurt, starts, 12_000, AudioTrack(48_000, 1, None))
    for each in found:
        right = nearest(whole, each.start_s, each.count, 48_000)
        if each.start_s + Fraction(1, 4) < Fraction(187, 100):
            assert np.array_equal(each.samples, right)
            assert not each.damaged
        elif each.start_s >= Fraction(9, 4):
            # The decoder begins anew behind the damage; its first frames are there to learn from.
            assert np.abs(each.samples - right).max() < 0.05, float(each.start_s)
            assert not each.damaged
        else:
            assert each.damaged, float(each.start_s)
            assert "cannot be decoded" in each.damaged[0]


def test_a_file_that_ends_early_is_told(tmp_path: Path) -> None:
    """The header says how long the track is: what lies behind its last sample is not passed off as silence."""
    path = encode_with_audio(tmp_path / "whole.mp4")
    hurt = damaged(
        path, tmp_path / "hurt.mp4", lambda packets: packets.__setitem__(slice(100, None), [b""] * len(packets[100:]))
    )
    early, late = read(hurt, [Fraction(1), Fraction(3)], 8000, AudioTrack(16_000, 1, None))
    assert np.array_equal(early.samples, nearest(whole_track(path, 16_000), Fraction(1), 8000, 16_000))
    assert not early.damaged
    assert late.damaged


def trimmed(path: Path, seconds: float) -> Path:
    """A clip whose audio begins late, which the file's last edit list then ends after so many seconds."""
    data = bytearray(path.read_bytes())
    at = data.rindex(b"elst")
    entries, waits_ms, begin = (int.from_bytes(data[at + k : at + k + 4], "big", signed=True) for k in (8, 12, 16))
    assert (entries, begin) == (2, -1), "an empty edit, and that of the track"
    assert waits_ms > 0
    data[at + 24 : at + 28] = round(1000 * seconds).to_bytes(4, "big")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("whole", [True, False])
def test_audio_that_begins_late_and_is_trimmed(tmp_path: Path, whole: bool) -> None:
    """It ends where the edit list says, which is no damage; a file that is cut off before that is damaged."""
    path = tmp_path / "late.mov"
    encode_with_audio(path, [Track("aac", start_s=3.0, seconds=9.0)], frames=320, muxer={"movflags": "faststart"})
    trimmed(path, 5.0)
    begin, samples = whole_track(path, 48_000)
    assert float(begin) == pytest.approx(3.0, abs=0.1)
    assert samples.shape[1] / 48_000 == pytest.approx(5.0, abs=0.1)
    if not whole:
        data = path.read_bytes()
        path.write_bytes(data[: data.index(b"mdat") + (len(data) - data.index(b"mdat")) // 2])
    starts = [Fraction(1), Fraction(7), Fraction(10)]
    early, late, behind = read(path, starts, 24_000, AudioTrack(48_000, 1, None))
    assert not early.damaged
    assert not early.samples.any()
    if whole:
        assert not late.damaged
        assert late.samples.any()
        assert not behind.damaged
        assert not behind.samples.any()
    else:
        assert late.damaged


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    """As its pictures are."""
    path = encode_with_audio(tmp_path / "a.mp4", frames=20)
    stretch = Stretch(Fraction(0), np.zeros((1, 100), np.float32))
    with pytest.raises(BadVideo, match="has changed"):
        list(read_stretches(str(path), lambda _: False, AudioTrack(16_000, 1, None), [stretch], lambda: False))


def test_it_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    """Between blocks; what was whole by then was given."""
    path = encode_with_audio(tmp_path / "a.mp4", [Track(seconds=20)], frames=20)
    stretches = [Stretch(Fraction(k), np.zeros((1, 16_000), np.float32)) for k in range(18)]
    asked = iter([False, False, True])
    found = list(read_stretches(str(path), lambda _: True, AudioTrack(16_000, 1, None), stretches, lambda: next(asked)))
    assert len(found) < 3
