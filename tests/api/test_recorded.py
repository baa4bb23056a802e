"""What `viewcache verify` takes from the record: draws that are independent if they are uniform, and nothing else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.api.recorded_clips import clips_of, footage_of, made_clips, pool_starts, row_of
from tests.catalog.samples import draws, plan, registered
from tests.ops.references import p_uniform
from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import single
from viewcache.api.audit.recorded import (
    CropWindow,
    Footage,
    RecordedClips,
    clip_places,
    crop_places,
    load_clips,
    whole_orders,
    windows_of,
)
from viewcache.api.audit.uniformity import SURE, density_check
from viewcache.catalog import Catalog, schemas
from viewcache.materializer import randomness
from viewcache.materializer.ops import Draw, get
from viewcache.materializer.planning.plan import GenerationPlan

CROPS = [single({"resize": {"short_side": 72}}, {"random_crop": {"shape": [56, 56]}})]


def plans(seed: int, *, frames: int = 60, generations: int = 8) -> tuple[list[GenerationPlan], Footage]:
    """Generations of five epochs of twelve videos, two clips each; other videos for each seed."""
    videos = videos_of(12, frames=frames, height=90, width=120, prefix=f"s{seed}v")
    task = task_of(CROPS, batch=4, frames=4, stride=3)
    made = [plan_of(task, videos, epochs=5, number=k, seed=seed, grid=3) for k in range(generations)]
    return made, footage_of(videos)


def windows(plan: GenerationPlan) -> dict[int, list[CropWindow]]:
    """What the recipes of a plan's objects would tell."""
    return {
        row: windows_of({"recipe": plan.program(row).describe(plan.recipe(row).row)}, (90, 120))
        for row in range(len(plan))
    }


def test_starts_of_uniform_plans_have_uniform_p() -> None:
    """One epoch of a generation by lot, on the place within the grid's phase: nothing shared is counted twice."""
    found, naive = [], []
    for seed in range(300):
        made, footage = plans(seed)
        values = [clip_places(clips_of(plan), footage, plan.number, 3) for plan in made]
        found.append(density_check("start", "", np.concatenate(values)).p or 0.0)
        every = np.concatenate([(plan.start + 0.5) / (60 - 10 + 1) for plan in made])
        naive.append(density_check("start", "", every).p or 0.0)
    assert p_uniform(found) > 1e-3
    assert (np.array(found) < 0.05).mean() < 0.09
    # Why it must be so: all epochs of a generation taken for independent would accuse uniform draws.
    assert (np.array(naive) < 0.05).mean() > 0.25


@pytest.mark.parametrize("frames", [12, 13, 15])
def test_short_choices_are_uniform_too(frames: int) -> None:
    """Few places on a phase, of different numbers, are spread evenly; what has no choice is left out."""
    videos = videos_of(3000, frames=frames)
    plan = plan_of(task_of(frames=4, stride=3, samples=1, batch=64), videos, epochs=2, grid=3)
    values = clip_places(clips_of(plan), footage_of(videos), 0, 3)
    if frames == 12:
        assert not len(values)
    else:
        assert p_uniform(values) > 1e-3


def test_crops_of_uniform_plans_have_uniform_p() -> None:
    """Rows and columns, every clip of every epoch."""
    found: list[tuple[float, float]] = []
    for seed in range(100):
        made, _ = plans(seed, generations=2)
        y, x = (
            np.concatenate(each) for each in zip(*(crop_places(clips_of(p), windows(p)) for p in made), strict=True)
        )
        found.append((density_check("crop rows", "", y).p or 0.0, density_check("crop columns", "", x).p or 0.0))
    for p in np.array(found).T:
        assert p_uniform(p) > 1e-3


def test_the_literal_pool_of_sand_is_found() -> None:
    """Starts of a pool longer by 32 cells have densities of 0.24 to 1.41 by tenth; 200 videos are enough to see it."""
    random, task = np.random.default_rng(4), row_of("mae", 16, 4)
    footage = footage_of(videos_of(4000, frames=300))

    def values(videos: int) -> NDArray[np.float64]:
        starts = pool_starts(random, videos, 5, frames=300, span=61, pool=63 + 64)
        return clip_places(made_clips(task, starts), footage, 0, 1)

    few = density_check("start", "", values(400))
    assert few.p is not None
    assert few.p < SURE
    density = density_check("start", "", values(4000)).density
    assert min(density) == pytest.approx(0.24, abs=0.12)
    assert max(density) == pytest.approx(1.41, abs=0.12)


def test_starts_that_are_the_same_again_are_found() -> None:
    """A pool of exactly one clip gives a video the same start for ever: uniform over videos, and yet found."""
    random, task = np.random.default_rng(4), row_of("mae", 16, 4)
    footage = footage_of(videos_of(40, frames=300))
    starts = np.repeat(random.integers(0, 240, (40, 1)), 5, axis=1)
    values = [clip_places(made_clips(task, starts, 5 * k), footage, k, 1) for k in range(8)]
    check = density_check("start", "", np.concatenate(values))
    assert check.p is not None
    assert check.p < SURE


def test_centred_crops_are_found() -> None:
    """A crop of 160 inside a random window of 224 of 256 (SAND, read literally) has densities of 0.21 to 1.54."""
    random = np.random.default_rng(7)
    offsets = random.integers(0, 256 - 224 + 1, (2, 4000)) + random.integers(0, 224 - 160 + 1, (2, 4000))
    cut = {k: [CropWindow(y, 97, x, 97)] for k, (y, x) in enumerate(offsets.T.tolist())}
    clips = made_clips(row_of("mae", 16, 4), np.zeros((4000, 1), np.int64))
    for side in crop_places(clips, cut):
        check = density_check("crop rows", "", side)
        assert check.p is not None
        assert check.p < SURE
        few = density_check("crop rows", "", side[:300]).p
        assert few is not None
        assert few < SURE
        assert min(check.density) == pytest.approx(0.21, abs=0.08)
        assert max(check.density) == pytest.approx(1.54, abs=0.12)


def test_windows_are_read_from_recipes() -> None:
    """Sizes are followed through the recipe; only what was drawn counts, in every branch that was taken."""

    def cut(y: int, x: int, h: int, w: int) -> dict[str, int]:
        return {"y": y, "x": x, "h": h, "w": w}

    chain: list[object] = [
        {"from": [0], "to": 1, "op": "random_short_side", "params": {"range": [50, 80]}, "drawn": {"h": 60, "w": 80}},
        {
            "from": [1],
            "to": 2,
            "op": "random_crop",
            "params": {"shape": [50, 40]},
            "drawn": cut(3, 40, 50, 40),
        },
        {"from": [2], "to": 3, "op": "center_crop", "params": {"shape": [30, 30]}, "drawn": cut(9, 5, 30, 30)},
        {"from": [1], "to": 4, "op": "random_crop", "params": {"shape": [60, 30]}, "drawn": cut(0, 7, 60, 30)},
        {"from": [3, 4], "to": 5, "join": "concat"},
        {"from": [2], "to": 6, "op": "not_installed", "params": {}, "drawn": {}},
        {"from": [6], "to": 7, "op": "random_crop", "params": {"shape": [9, 9]}, "drawn": cut(0, 7, 9, 9)},
    ]
    assert windows_of({"recipe": chain}, (48, 64)) == [CropWindow(3, 11, 40, 41), CropWindow(0, 1, 7, 51)]
    assert windows_of({"recipe": chain}, None) == []
    assert windows_of({}, (48, 64)) == []


def test_resized_crops_lie_anywhere_but_where_none_fits() -> None:
    """Given its size, a random window is uniform; the one that stands in when no try fits is left out."""
    n = 6000
    words = randomness.hash_address(1, "videos", np.arange(n))
    draw = Draw(0, "random_resized_crop", 0, words, np.zeros(n, np.int64), np.zeros(n, np.int64))
    op = get("random_resized_crop")
    params = op.parse({"shape": [32, 32], "scale": [0.3, 0.9]})
    drawn, _, _ = op.resolve(params, draw, np.full(n, 48), np.full(n, 90))
    told = [dict(zip(("y", "x", "h", "w"), each, strict=True)) for each in drawn.tolist()]
    cut = {
        k: windows_of(
            {"recipe": [{"from": [0], "to": 1, "op": op.name, "params": dict(params), "drawn": each}]}, (48, 90)
        )
        for k, each in enumerate(told)
    }
    assert sum(not each for each in cut.values()) > 20
    clips = made_clips(row_of("mae", 16, 4), np.zeros((n, 1), np.int64))
    for side in crop_places(clips, cut):
        assert p_uniform(side) > 1e-3


def test_only_whole_orders_are_taken(tmp_path: Path) -> None:
    """An epoch that is not drawn to its end is planned, not drawn; one that breaks law 1 is no order."""
    with Catalog.open(tmp_path) as catalog:
        row, ids = registered(catalog)
        far = pa.table({"task_id": [row.task_id], "epoch": pa.array([1], pa.int32()), "positions": [3]})
        catalog.record_draws(draws(row, 0, ids))
        catalog.record_draws(draws(row, 1, ids[::-1]), far)
        catalog.record_draws(draws(row, 2, [*ids[:3], ids[0]]))
        catalog.record_draws(draws(row, 3, ids[::-1]))
        assert [order.tolist() for order in whole_orders(catalog, row)] == [ids, ids[::-1]]


def test_a_stand_in_counts_once(tmp_path: Path) -> None:
    """A video that also stands in for another gives the same clip twice; it was drawn once."""
    with Catalog.open(tmp_path) as catalog:
        row, ids = registered(catalog)
        given = plan(catalog, row, ids)
        uses = given.uses.to_pylist()
        for sample in range(2):
            assert (uses[sample]["position"], uses[2 + sample]["position"]) == (0, 1)
            uses[2 + sample]["object_id"] = uses[sample]["object_id"]
        catalog.record_plan(replace(given, uses=pa.Table.from_pylist(uses, schemas.USE)))
        clips = load_clips(catalog, row, Footage.load(catalog, row.dataset_id), 0, 1)
        assert len(clips) == len(uses) - 2
        assert sorted(set(clips.video[clips.epoch == 0].tolist())) == [0, 2, 3]


def test_the_same_record_gives_the_same_p() -> None:
    """Lots are keyed: verify says the same of the same cache."""
    made, footage = plans(1, generations=1)
    one, two = (clip_places(clips_of(made[0]), footage, 0, 3) for _ in range(2))
    assert np.array_equal(one, two)


def test_clips_of_short_videos_prove_nothing() -> None:
    """A clip whose frames are a list started at the only place there is; a clip that does not fit is no evidence."""
    task = row_of("mae", 3, 1)
    starts = np.array([-1, 2, 90, -1])
    axis = np.arange(4)
    clips = RecordedClips(task, axis, axis * 0, axis, axis, starts, ((0, 1, 1), (0, 0, 0)))
    assert clips.frames.tolist() == [[0, 1, 1], [2, 3, 4], [90, 91, 92], [0, 0, 0]]
    assert clips.subset(np.array([False, True, False, True])).frames.tolist() == [[2, 3, 4], [0, 0, 0]]
    footage = footage_of(videos_of(4, frames=[2, 50, 50, 1]))
    assert len(clip_places(clips, footage, 0, 1)) == 1
