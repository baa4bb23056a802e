"""Clip starts: uniform for each task alone (law 2), close together within a generation, nested between tasks."""

import math
from collections import defaultdict
from fractions import Fraction
from typing import TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.references import p_even
from viewcache.errors import BadInput
from viewcache.materializer import randomness
from viewcache.materializer.planning import clip_starts
from viewcache.materializer.sampling import clip_span

SLOWFAST = {"frames_per_clip": 32, "stride": 2}
MAE = {"frames_per_clip": 16, "stride": 4}
SPANS = {name: clip_span(**task) for name, task in (("slowfast", SLOWFAST), ("mae", MAE))}
VIDEOS = np.array([randomness.address_word(f"video {i}") for i in range(4000)], dtype=np.uint64)


class Knobs(TypedDict, total=False):
    """The settings of sharing that a user may get wrong."""

    grid: int
    spread: float


def starts(
    video: NDArray[np.uint64] = VIDEOS,
    generation: int | NDArray[np.int64] = 0,
    epoch: int | NDArray[np.int64] = 0,
    sample: int | NDArray[np.int64] = 0,
    frames: int = 300,
    span: int = 63,
    grid: int = 2,
    spread: float = 0.4,
    independent: int | None = None,
) -> NDArray[np.int64]:
    """Draw with defaults of a SlowFast task on videos of 300 frames."""
    return clip_starts.clip_starts(
        1,
        video,
        generation,
        epoch,
        sample,
        np.asarray(frames),
        span=span,
        grid=grid,
        spread=spread,
        independent=independent,
    )


# Law 2 by exact enumeration: the same functions on small fixed-point numbers.


@pytest.mark.parametrize("one", [8, 15, 64])
@pytest.mark.parametrize("half", [1, 3, 7])
def test_folded_fractions_are_exactly_uniform(one: int, half: int) -> None:
    """Over all anchors and all symmetric jitters, each folded fraction comes equally often: no border is favoured."""
    anchors, jitters = np.arange(one), np.concatenate([np.arange(half), -np.arange(half)])
    folded = clip_starts.reflect(anchors[:, None] + jitters[None, :], one)
    assert np.bincount(folded.ravel(), minlength=one).tolist() == [2 * half] * one


@pytest.mark.parametrize("half", [1, 5, 1 << 31])
def test_jitter_is_exactly_symmetric(half: int) -> None:
    """A word and the same word with its lowest bit flipped give opposite jitters, all smaller than half the spread."""
    words = randomness.hash_address(0, "x", np.arange(1000))
    jitter = clip_starts.jitter(words, half)
    assert np.array_equal(jitter, -clip_starts.jitter(words ^ np.uint64(1), half))
    assert np.abs(jitter).max() < half


@pytest.mark.parametrize("grid", [1, 2, 3, 4, 7])
def test_phase_then_place_is_exactly_uniform(grid: int) -> None:
    """For any number of starts S, choosing the phase and then a place on it gives each start the exact chance 1/S."""
    for count in range(1, 40):
        rank = np.arange(count)
        phase, on_phase = clip_starts.choose_phase(rank, np.full(count, count), grid)
        chance: defaultdict[int, Fraction] = defaultdict(Fraction)
        for p, n in zip(phase.tolist(), on_phase.tolist(), strict=True):
            assert 0 <= p < grid
            for k in range(n):
                chance[p + grid * k] += Fraction(1, count * n)
        assert chance == {start: Fraction(1, count) for start in range(count)}


# Law 2 by density over many draws, through the public function.


@pytest.mark.parametrize(
    ("span", "grid", "frames"), [(63, 2, 300), (61, 2, 300), (63, 4, 301), (1, 1, 97), (90, 7, 100)]
)
@pytest.mark.parametrize("independent", [None, 5])
def test_each_task_alone_draws_uniform_starts(span: int, grid: int, frames: int, independent: int | None) -> None:
    """For fixed epoch and sample, starts over many videos fill all positions evenly, at both ends too."""
    drawn = np.concatenate(
        [
            starts(generation=k, epoch=5 * k + 1, span=span, grid=grid, frames=frames, independent=independent)
            for k in range(20)
        ]
    )
    possible = frames - span + 1
    counts = np.bincount(drawn, minlength=possible)
    assert len(counts) == possible
    assert p_even(counts) > 1e-4
    tenths, evenly = (np.bincount(places * 10 // possible) for places in (drawn, np.arange(possible)))
    if possible >= 100:
        assert np.all(np.abs(tenths / len(drawn) / (evenly / possible) - 1) < 0.06)


def test_a_generation_stays_within_its_window() -> None:
    """All starts of one sample within a generation lie within spread * S of each other and on one phase of the grid."""
    drawn = starts(video=VIDEOS[:, None], epoch=np.arange(5)[None, :])
    assert (np.ptp(drawn, axis=1) <= 0.4 * (300 - 63 + 1) + 2).all()
    assert (np.ptp(drawn % 2, axis=1) == 0).all()


def test_epochs_differ_within_a_generation() -> None:
    """The window is not a single place: five epochs draw nearly five different clips."""
    drawn = starts(video=VIDEOS[:500, None], epoch=np.arange(5)[None, :])
    assert np.mean([len(set(row)) for row in drawn.tolist()]) > 4.5


def test_generations_and_samples_draw_afresh() -> None:
    """Successive generations, and the samples of one epoch, are uncorrelated."""
    first = starts()
    for other in (starts(generation=1, epoch=5), starts(sample=1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.06


@given(
    frames=st.integers(2, 400),
    long=st.integers(1, 400),
    short=st.integers(1, 400),
    grid=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_short_clips_lie_inside_long_ones(frames: int, long: int, short: int, grid: int, seed: int) -> None:
    """On a common phase, the shorter clip lies inside the longer one, up to one cell of the grid."""
    short, long = sorted((min(short, frames), min(long, frames)))
    video = np.array([seed], np.uint64)
    (inner,), (outer,) = (starts(video, frames=frames, span=span, grid=grid) for span in (short, long))
    if (inner - outer) % grid == 0:
        assert outer - grid < inner
        assert inner + short <= outer + long + grid


def test_phases_of_tasks_nearly_always_agree() -> None:
    """Making each task exactly uniform costs the common phase in at most grid / S of the videos."""
    slowfast, mae = (starts(span=SPANS[name], grid=2) for name in ("slowfast", "mae"))
    assert np.mean((slowfast - mae) % 2 != 0) < 2 / 200


def test_independent_tasks_share_nothing() -> None:
    """Without coordination, two tasks and the shared draw are uncorrelated, and generations do not matter."""
    one, two, shared = starts(independent=1), starts(independent=2), starts()
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.06
    assert abs(np.corrcoef(one, shared)[0, 1]) < 0.06
    assert np.array_equal(one, starts(generation=3, independent=1))


def test_reuse_equals_the_paper_figure_19() -> None:
    """SAND Fig. 19: with two tasks, 10 epochs and k = 5, 60.1 % of the selected frames are selected 4 times or more.

    A simulation counted 59.6 % for spread 0.4 and 12.2 to 12.3 % for independent draws.
    """

    def share(*, independent: bool = False) -> float:
        videos, epochs = VIDEOS[:400, None], np.arange(10)[None, :]
        count = np.zeros((400, 300), int)
        for task, name in ((SLOWFAST, "slowfast"), (MAE, "mae")):
            address = randomness.address_word(name) if independent else None
            first = starts(videos, epochs // 5, epochs, span=SPANS[name], independent=address)
            frames = clip_starts.clip_frames(first, task["frames_per_clip"], task["stride"], 300, "skip")
            np.add.at(count, (np.arange(400)[:, None, None], frames), 1)
        return float((count >= 4).sum() / (count > 0).sum())

    assert share() == pytest.approx(0.596, abs=0.02)
    assert share(independent=True) == pytest.approx(0.1225, abs=0.015)


def test_starts_are_fixed_for_ever() -> None:
    """The starts of given videos never change."""
    drawn = starts(VIDEOS[:3, None], np.arange(4) // 2, np.arange(4))
    assert drawn.tolist() == GOLDEN_STARTS
    assert starts(VIDEOS[:3], independent=9).tolist() == GOLDEN_INDEPENDENT


GOLDEN_STARTS = [[182, 106, 61, 133], [101, 95, 118, 136], [51, 5, 140, 184]]
GOLDEN_INDEPENDENT = [84, 187, 54]


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 16), st.floats(0.01, 1.0), st.integers(0, 99))
def test_starts_are_always_inside_the_video(frames: int, span: int, grid: int, spread: float, seed: int) -> None:
    """A start is at least 0 and its clip ends inside the video; a video shorter than the clip starts at 0."""
    first = starts(np.array([seed], np.uint64), frames=frames, span=span, grid=grid, spread=spread)
    assert 0 <= first[0] <= max(frames - span, 0)


@pytest.mark.parametrize(
    ("wrong", "match"), [({"spread": 0.0}, "spread"), ({"spread": 1.5}, "spread"), ({"grid": 0}, "grid")]
)
def test_wrong_knobs_are_named(wrong: Knobs, match: str) -> None:
    """A spread or grid out of range is refused by name, with the value."""
    with pytest.raises(BadInput, match=match):
        starts(**wrong)


def test_frames_of_a_clip() -> None:
    """A clip's frames are start, start + s, ...; F of them, as int32."""
    frames = clip_starts.clip_frames(np.array([[0], [10]]), 4, 3, 300, "clamp")
    assert frames.dtype == np.int32
    assert frames.tolist() == [[[0, 3, 6, 9]], [[10, 13, 16, 19]]]


def test_frames_of_a_short_video() -> None:
    """Past the end, clamp repeats the last frame, loop starts again, and skip insists that the caller left it out."""
    zero, short = np.array([0]), np.array([5])
    assert clip_starts.clip_frames(zero, 4, 2, short, "clamp").tolist() == [[0, 2, 4, 4]]
    assert clip_starts.clip_frames(zero, 4, 2, short, "loop").tolist() == [[0, 2, 4, 1]]
    assert clip_starts.is_short(short, clip_span(4, 2)).tolist() == [True]
    with pytest.raises(BadInput, match="leave such videos out"):
        clip_starts.clip_frames(zero, 4, 2, short, "skip")
    with pytest.raises(BadInput, match="clamp, loop, skip"):
        clip_starts.clip_frames(zero, 4, 2, short, "wrap")


def test_shared_grid_is_the_greatest_common_divisor() -> None:
    """Tasks of strides 2 and 4 meet on every second frame; 2 and 3 on every frame."""
    assert clip_starts.shared_grid([2, 4]) == 2
    assert clip_starts.shared_grid([2, 3]) == 1
    assert clip_starts.shared_grid([4]) == 4
    assert math.gcd(6, 4) == clip_starts.shared_grid([6, 4])


# Crops: one fraction, windows of any size.


def test_crop_offsets_are_exactly_uniform() -> None:
    """Law 2: enumerating evenly spaced fractions, every offset of every window comes equally often."""
    for size in (1, 7, 40, 256):
        for window in {1, size // 2 + 1, size}:
            places = size - window + 1
            fractions = np.array([-(-(k << 32) // (places * 64)) for k in range(places * 64)], np.uint64)
            counts = np.bincount(randomness.nested_offset(fractions, np.array(size), window), minlength=places)
            assert counts.tolist() == [64] * places


@given(st.integers(0, randomness.ONE - 1), st.integers(1, 16384), st.data())
def test_smaller_crops_lie_inside_larger_ones(numerator: int, size: int, data: st.DataObject) -> None:
    """For one fraction, a smaller window lies inside a larger one, exactly, whatever the sizes."""
    outer = data.draw(st.integers(1, size))
    inner = data.draw(st.integers(1, outer))
    a, b = (
        int(randomness.nested_offset(np.array([numerator], np.uint64), np.array(size), w)[0]) for w in (inner, outer)
    )
    assert b <= a
    assert a + inner <= b + outer
