"""Frames nearest to times: against a search through all of them, for even and uneven videos (docs/design/0036)."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.plans import all_even, videos_of
from viewcache.errors import BadInput
from viewcache.materializer.choices import OnShortVideo
from viewcache.materializer.dataset.clock import even_pace, last_tick, nearest, nearest_even
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.media.facts import FrameTimes
from viewcache.materializer.planning.clip_times import timed_frames
from viewcache.materializer.sampling import TICKS_PER_S, SamplingSpec

PACES = [(1000, 1), (1001, 1), (5000, 3), (2502, 2), (7, 5), (1, 1)]


def searched(tick: int, shown: list[Fraction]) -> int:
    """The first of the frames that are nearest."""
    return min(range(len(shown)), key=lambda k: (abs(shown[k] - tick), k))


@given(st.sampled_from(PACES), st.integers(1, 40), st.lists(st.integers(0, 70_000), min_size=1, max_size=8))
def test_even_frames(pace: tuple[int, int], frames: int, ticks: list[int]) -> None:
    """Exactly, in whole numbers; of two equally near ones the earlier, behind the end the last."""
    shown = [Fraction(pace[0], pace[1]) * k for k in range(frames)]
    found = nearest_even(np.array([ticks]), np.array([frames]), np.array([pace]))
    assert found[0].tolist() == [searched(each, shown) for each in ticks]


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=40).map(lambda steps: np.cumsum([0, *steps])),
    st.lists(st.integers(0, 70_000), min_size=1, max_size=8),
)
def test_uneven_frames(shown: np.ndarray, ticks: list[int]) -> None:
    """The same where each frame has its own time; frames may share one."""
    found = nearest(np.array(ticks), shown)
    chosen = [int(shown[searched(each, [Fraction(int(one)) for one in shown])]) for each in ticks]
    assert shown[found].tolist() == chosen


@pytest.mark.parametrize(
    ("unit", "step", "rate"),
    [
        ((1, 30_000), 1001, "30000/1001"),
        ((1, 24), 1, "24"),
        ((1, 12_800), 512, "25"),
        ((1001, 24_000), 1, "24000/1001"),
    ],
)
def test_the_pace_of_a_rate(unit: tuple[int, int], step: int, rate: str) -> None:
    """Ticks from a frame to the next, exactly; the last of them is when the last frame is shown."""
    over, under = even_pace(FrameTimes(0, step, *unit))
    assert Fraction(over, under) == TICKS_PER_S / Fraction(rate)
    assert last_tick(np.array([101]), np.array([[over, under]])).tolist() == [100 * over // under]


def test_what_has_no_pace() -> None:
    """Frames without time, a container without a clock, and units that would overflow are not evenly spaced."""
    for times in (FrameTimes(0, 0, 1, 25), FrameTimes(0, 1, 1, 0), FrameTimes(0, 1, 1, (1 << 40) + 1)):
        assert even_pace(times) == (0, 0)


@given(
    st.sampled_from([1, 5, 6, 12, 23.976, 24, 29.97, 30, 50, 60]),
    st.integers(1, 20),
    st.integers(1, 300),
    st.integers(0, 100_000),
    st.sampled_from([OnShortVideo.CLAMP, OnShortVideo.LOOP]),
)
def test_clips_keep_within_their_video(fps: float, count: int, frames: int, start: int, on_short: str) -> None:
    """Frames are of the video, and rise unless a short one starts again."""
    given = Items.whole(videos_of(1, frames=frames), by_time=True)
    sampling = SamplingSpec(1, count, fps=fps)
    start = start % max(1, int(given.videos.last[0]) + 2 - sampling.span)
    found = timed_frames(np.array([start]), sampling.offsets, np.zeros(1, int), given, all_even, on_short)
    assert found.shape == (1, count)
    assert found.min() >= 0
    assert found.max() < frames
    if on_short == OnShortVideo.CLAMP or start + sampling.span <= given.videos.last[0] + 1:
        assert (np.diff(found[0]) >= 0).all()


def test_a_short_video_starts_again() -> None:
    """At its rate: three frames, one every 1,000 ticks, looped."""
    given, sampling = Items.whole(videos_of(1, frames=3), by_time=True), SamplingSpec(1, 8, fps=30)
    found = timed_frames(np.zeros(1, int), sampling.offsets, np.zeros(1, int), given, all_even, OnShortVideo.LOOP)
    assert found[0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_a_short_video_that_was_not_left_out() -> None:
    """The caller's mistake is an error, not a clip that ends early."""
    given, sampling = Items.whole(videos_of(1, frames=3), by_time=True), SamplingSpec(1, 8, fps=30)
    with pytest.raises(BadInput, match="a video is shorter"):
        timed_frames(np.zeros(1, int), sampling.offsets, np.zeros(1, int), given, all_even, "skip")


def test_a_grid_of_times_is_one_of_frames() -> None:
    """A task of half the rate that starts on the same grid needs no frame that the other does not."""
    given = Items.whole(videos_of(1, frames=300), by_time=True)
    fast, slow = SamplingSpec(1, 40, fps=12), SamplingSpec(1, 10, fps=6)
    for shift in range(10):
        start = 1234 + shift * fast.pitch
        every, some = (
            timed_frames(np.array([at]), each.offsets, np.zeros(1, int), given, all_even, "clamp")[0]
            for at, each in ((1234, fast), (start, slow))
        )
        assert set(some.tolist()) <= set(every.tolist())
