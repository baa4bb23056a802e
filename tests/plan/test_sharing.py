"""SAND's Fig. 16 and 19, counted on real plans by `benchmarks.sharing`: what two tasks over the same videos save."""

import pytest

from benchmarks.invented import index_of, videos_of
from benchmarks.sharing import FRAMES, change, in_order, often, plans, savings
from viewcache.materializer.planning.plan import GenerationPlan

VIDEOS = 200

DECODED = {
    1: (24_800, 12_600),
    10: (26_560, 13_462),
    30: (30_810, 15_612),
    150: (49_620, 25_062),
    300: (72_420, 36_312),
}
"""GOP → frames from key frame to last needed: each task for itself, both at once."""

FED = {1: (9_600, 6_400), 10: (24_119, 12_833), 30: (29_995, 15_401), 150: (49_522, 25_036), 300: (72_420, 36_312)}
"""GOP → packets that our decoder is fed."""


@pytest.fixture(scope="module")
def pair() -> list[GenerationPlan]:
    """One epoch of SlowFast and MAE."""
    return plans(videos_of(VIDEOS, frames=FRAMES), epochs=1)


@pytest.mark.parametrize("gop", DECODED)
def test_two_tasks_decode_half(pair: list[GenerationPlan], gop: int) -> None:
    """Fig. 16: -49.5 % within 1, whatever the group of pictures. The paper has -50.3 %."""
    alone, together = in_order(pair, index_of(FRAMES, gop))
    assert (alone, together) == DECODED[gop]
    assert change(alone, together) == pytest.approx(-49.5, abs=1)


@pytest.mark.parametrize("gop", FED)
def test_packets_are_what_viewcache_plan_counts(pair: list[GenerationPlan], gop: int) -> None:
    """We skip what nobody needs, so with short groups there is less to save: only frames that both tasks want."""
    packets = savings(pair, index_of(FRAMES, gop))["packets decoded"]
    assert (packets.by_task, packets.together) == FED[gop]
    assert packets.alone == packets.by_task, "one clip a video has nothing to share with itself"


def test_crops_of_one_size_are_made_once(pair: list[GenerationPlan]) -> None:
    """Fig. 16: of 48 crops a video 32 are left, exactly, as each frame of MAE is one of SlowFast's."""
    crops = savings(pair, index_of(FRAMES, 30))["random_crop"]
    assert (crops.by_task, crops.together) == (48 * VIDEOS, 32 * VIDEOS)


@pytest.mark.parametrize(("spread", "expected"), [(None, 0.1225), (0.4, 0.596), (0.27, 0.674), (0.5, 0.540)])
def test_frames_are_used_again(spread: float | None, expected: float) -> None:
    """Fig. 19: the share of frames selected four times or more in ten epochs. The paper has 10.6 % and 60.1 %."""
    assert often(videos_of(VIDEOS, frames=FRAMES), spread=spread) == pytest.approx(expected, abs=0.02)
