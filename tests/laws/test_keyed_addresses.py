"""Law 11: random numbers have addresses, so what is planned does not depend on what was planned before it, or where."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import open_cache, pixels, places, same, sql

PROGRAM = """
from tests.plan.plans import plan_of, task_of, videos_of
print(" ".join(plan_of(task_of(), videos_of(5), number=3).hex_keys))
"""


@given(order=st.permutations(range(4)))
def test_generations_planned_in_any_order_are_the_same(order: list[int]) -> None:
    """Planning generation 3 before generation 0 gives the plans that the usual order gives."""
    task, videos = task_of(), videos_of(5)
    plans = {number: plan_of(task, videos, number=number) for number in order}
    for number in range(4):
        expected = plan_of(task_of(), videos_of(5), number=number)
        assert plans[number].hex_keys == expected.hex_keys
        assert np.array_equal(plans[number].start, expected.start)


def test_generators_have_no_say() -> None:
    """Neither Python's nor NumPy's generators, seeded or used, change a plan."""
    expected = plan_of(task_of(), videos_of(5)).hex_keys
    random.seed(1)
    random.random()
    np.random.default_rng(1).random()
    assert plan_of(task_of(), videos_of(5)).hex_keys == expected


def test_another_process_draws_the_same() -> None:
    """A fresh interpreter with another hash seed plans the same clips."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": ".:src", "PATH": ""},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert run.stdout.split() == plan_of(task_of(), videos_of(5), number=3).hex_keys


def test_a_video_added_or_removed_moves_no_start_of_another() -> None:
    """A clip's frames and crops hang on its own video, epoch and sample, not on how many videos there are."""
    task, few, many = task_of(), videos_of(5), videos_of(9)
    one, two = plan_of(task, few), plan_of(task, many)

    def by_place(plan: object) -> dict[tuple[int, int, int], str]:
        assert isinstance(plan, type(one))
        places = zip(plan.epoch.tolist(), plan.video.tolist(), plan.sample.tolist(), strict=True)
        return dict(zip(places, plan.hex_keys, strict=True))

    assert by_place(one).items() <= by_place(two).items()


@pytest.mark.parametrize("first", [(4, 1), (2, 0)])
def test_a_cache_may_be_read_from_the_end(tmp_path: Path, videos: Path, first: tuple[int, int]) -> None:
    """Reading a late epoch first draws and plans what reading in order would have."""
    options = {"epochs": 5}
    with open_cache(tmp_path / "a", videos, **options) as cache:  # type: ignore[arg-type]  # a key of the dataset
        late = cache.read("train", *first)
        backwards = {place: cache.read("train", *place) for place in reversed(list(places(cache)))}
        rows = sql(cache, "select epoch, position, video from draws order by all")
    with open_cache(tmp_path / "b", videos, **options) as cache:  # type: ignore[arg-type]  # a key of the dataset
        forwards = pixels(cache)
        assert sql(cache, "select epoch, position, video from draws order by all") == rows
    assert same(backwards, forwards)
    assert np.array_equal(late.video, forwards[first].video)
