"""How long a video is, by its header and by its packets: the same number to the last bit, at any rate and clock."""

from fractions import Fraction
from pathlib import Path

import pytest

from tests.clips import encode
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.header import read_header
from viewcache.materializer.media.index import duration_of
from viewcache.materializer.media.probe import probe
from viewcache.materializer.media.source import open_source

MOST = 1 << 30
RATES = [Fraction(24), Fraction(25), Fraction(30), Fraction(30000, 1001), Fraction(50), Fraction(60)]
CLOCKS = [0, 600, 15360, 90000]
"""Units of a track's second; 0 = as the encoder's."""


def both(path: Path) -> tuple[VideoFacts, VideoFacts]:
    """What the header of a file claims, and what its packets tell."""
    with open_source(str(path)) as source:
        header = read_header(source, MOST)
    assert header is not None
    return header, VideoFacts.of(probe(str(path)))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_even_frames(tmp_path: Path, rate: Fraction, clock: int) -> None:
    """Frames divided by their rate, rounded once, wherever the clock can tell the rate; else the two still agree."""
    for frames in (1, 2, 3, 49, 240):
        for bframes in "02":
            path = encode(
                tmp_path / "clip.mp4",
                frames=frames,
                size=(32, 32),
                options={"bf": bframes, "preset": "ultrafast"},
                muxer={"video_track_timescale": str(clock)} if clock else None,
                ticks=rate.numerator,
                step=rate.denominator,
            )
            header, packets = both(path)
            assert (header.fps, header.duration_s) == (packets.fps, packets.duration_s), (frames, bframes)
            if frames > 1 and (not clock or clock % rate == 0):
                assert packets.duration_s == float(frames / rate)


@pytest.mark.parametrize("frames", [2, 5, 61])
def test_uneven_frames(tmp_path: Path, frames: int) -> None:
    """From the first to the end of the last, which is taken to last as long as the others do on average."""
    header, packets = both(encode(tmp_path / "clip.mp4", frames=frames, size=(32, 32), irregular=True))
    assert (header.fps, header.duration_s) == (packets.fps, packets.duration_s)
    times = [sum(20 + 13 * (k % 5) for k in range(n)) for n in range(frames)]
    assert packets.duration_s == float(Fraction(times[-1] * frames, 1000 * (frames - 1)))


def test_exact_at_any_size() -> None:
    """It is rounded once, also after weeks at a clock of a nanosecond."""
    assert duration_of(240, 239 * 512, (1, 12288), 24.0) == 10.0
    month_ns = 30 * 86400 * 10**9
    assert duration_of(month_ns // 10**7, month_ns - 10**7, (1, 10**9), 100.0) == 30 * 86400.0
    assert duration_of(1, 0, (1, 1000), 25.0) == 0.04
    assert duration_of(1, 0, (1, 1000), 0.0) == 0.0
