"""Tasks merge exactly where content keys agree: whatever they are called, in whatever order they are planned."""

from collections.abc import Iterable
from pathlib import Path

import pytest

import viewcache
from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import config, encode_folder, single, sql

RESIZE, CROP, FLIP = {"resize": {"short_side": 36}}, {"random_crop": {"shape": [32, 32]}}, {"flip": {"flip_prob": 0.5}}


def keys(*steps: object, **options: object) -> list[str]:
    """Keys of the clips of five videos, sorted."""
    return sorted(plan_of(task_of(steps, **options), videos_of(5)).hex_keys)  # type: ignore[arg-type]  # dataset keys


BASE = keys(single(RESIZE, CROP, FLIP))


@pytest.mark.parametrize(
    "steps",
    [
        [single(RESIZE, CROP, FLIP, into="other-name")],
        [single(RESIZE, into="b"), single(CROP, FLIP, of="b")],
        [single(CROP, FLIP, of="b"), single(RESIZE, into="b")],
        [single(RESIZE, {"random_crop": [32, 32]}, {"flip": None})],
        [single({"resize": {"interpolation": "bilinear", "short_side": 36}}, CROP, {"flip": 0.5})],
        [single({"resize": {"shape": [36, 48]}}, CROP, FLIP)],
        [
            {
                "branch_type": "random",
                "inputs": ["frame"],
                "outputs": ["a"],
                "branches": [{"prob": 1.0, "config": [RESIZE, CROP, FLIP]}],
            }
        ],
        [single(RESIZE, CROP, FLIP, {"normalize": {"mean": 0.5, "std": 0.5}})],
    ],
    ids=["renamed", "two steps", "written backwards", "shorthand", "defaults", "exact shape", "only branch", "read op"],
)
def test_equal_pipelines_have_equal_keys(steps: list[object]) -> None:
    """However the same work is written or called, it is the same objects."""
    assert keys(*steps) == BASE


@pytest.mark.parametrize(
    "steps",
    [
        [single(RESIZE, CROP, {"flip": {"direction": "vertical"}})],
        [single({"resize": {"short_side": 36, "interpolation": "area"}}, CROP, FLIP)],
        [single(RESIZE, {"random_crop": {"shape": [32, 31]}}, FLIP)],
        [single(RESIZE, CROP, FLIP, {"inv_sample": True})],
        [single(RESIZE, CROP, FLIP, {"grayscale": {"prob": 1}})],
    ],
    ids=["direction", "interpolation", "shape", "backwards in time", "one op more"],
)
def test_different_pipelines_share_no_key(steps: list[object]) -> None:
    """Work that gives other pixels has other keys."""
    assert not set(keys(*steps)) & set(BASE)


def test_a_constant_flip_shares_with_the_clips_that_were_flipped() -> None:
    """Keys are of what was drawn, not of how it was drawn: clips that came out mirrored are those of a sure flip."""
    always = keys(single(RESIZE, CROP, {"flip": {"flip_prob": 1}}))
    never = keys(single(RESIZE, CROP, {"flip": {"flip_prob": 0}}))
    assert set(BASE) <= set(always) | set(never)
    assert set(BASE) & set(always)
    assert set(BASE) & set(never)


def test_tags_labels_and_batch_sizes_are_not_in_keys() -> None:
    """What decides who needs a clip, and when, does not decide what it is."""
    steps = single(RESIZE, CROP, FLIP)
    assert keys(steps, tag="other", batch=5, layout="THWC", drop_last=True) == BASE


def test_equal_keys_mean_equal_recipes() -> None:
    """Among the clips of many plans, rows of one key agree in video, frames, program and drawn numbers."""
    meaning: dict[str, tuple[object, ...]] = {}
    pipelines: Iterable[list[object]] = (
        [single(RESIZE, CROP, FLIP)],
        [single(RESIZE, CROP, {"flip": {"flip_prob": 1}})],
        [single(RESIZE, {"center_crop": [32, 32]})],
    )
    for steps in pipelines:
        plan = plan_of(task_of(steps), videos_of(4, frames=8), epochs=4)
        for row, key in enumerate(plan.hex_keys):
            recipe = plan.recipe(row)
            effect = (plan.videos.keys[plan.video[row]], recipe.program.signature, *recipe.row.tolist(), *recipe.frames)
            assert meaning.setdefault(key, effect) == effect


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return encode_folder(tmp_path_factory.mktemp("merging"), {f"v{k}.mp4": 40 for k in range(4)})


def recorded(store: Path, videos: Path, *tags: str) -> set[tuple[object, ...]]:
    """The objects that a catalog has once all tasks are planned: key, kind and video."""
    steps = {"a": [single(RESIZE, CROP, FLIP)], "b": [single(RESIZE, {"random_crop": {"shape": [16, 16]}})]}
    for tag in tags:
        steps.setdefault(tag, steps["a"])
    tasks = [config(store, videos, tag=tag, augmentation=steps[tag])["dataset"] for tag in tags]
    with viewcache.open({"cache": config(store, videos)["cache"], "dataset": tasks}) as cache:
        for tag in tags:
            cache.task(tag).task.generation(0)
        return set(sql(cache, "select key, kind, video, count(*) from objects group by all"))


def test_merging_is_idempotent_and_order_free(tmp_path: Path, videos: Path) -> None:
    """The catalog's objects are the union of the tasks' clips, one row each, in whatever order and however often."""
    one = recorded(tmp_path / "1", videos, "a", "b")
    assert one == recorded(tmp_path / "1", videos, "b", "a"), "planned again, nothing is added"
    assert one == recorded(tmp_path / "2", videos, "b", "twin", "a"), "a task of equal clips adds none"
    assert all(count == 1 for *_, count in one)
    assert recorded(tmp_path / "3", videos, "a") < one
