"""What a job makes is found out for all of its clips together, and what it may hold is kept count of."""

import random
from pathlib import Path

import numpy as np
import pytest

from tests.scheduling.harness import Harness, ScriptedPool
from viewcache.materializer.scheduling.rules import Wanted
from viewcache.materializer.scheduling.running import Running, describe
from viewcache.materializer.workers.job import FolderTarget


def test_clips_of_a_job_are_those_of_their_rows(store: Path, videos: Path) -> None:
    """Recipes of many rows, in any order, are the ones that each row has alone."""
    with Harness(store, videos, ScriptedPool()) as harness:
        plan = harness.active.plan
        rows = list(range(len(plan)))
        random.Random(1).shuffle(rows)
        together = harness.active.recipes(rows)
        assert list(together) == rows
        for row, recipe in together.items():
            assert (recipe.key, recipe.program, recipe.shape) == (plan.key(row), plan.program(row), plan.shape)
            assert (recipe.due, recipe.bound, recipe.codec) == (plan.seq[row], plan.bound, "raw")
            assert np.array_equal(recipe.row, plan.drawn(row))
            assert np.array_equal(recipe.frames, plan.frames(np.array([row]))[0])
            assert recipe.frames.dtype == np.int32


@pytest.mark.parametrize("seed", range(5))
def test_what_a_job_declares_is_what_is_left_of_it(store: Path, videos: Path, seed: int) -> None:
    """With each object that is made or given back its bytes are taken off, once, whoever wants it; at last all are."""
    chance = random.Random(seed)
    with Harness(store, videos, ScriptedPool()) as harness:
        active = harness.active
        rows = harness.rows_of(harness.videos[0])
        wanted: dict[str, list[Wanted[str]]]
        wanted = {active.key(row): [(active, row)] * chance.randint(1, 3) for row in rows}
        job = describe(1, dict(wanted), FolderTarget(harness.tier.root, False), lambda recipe, _: recipe)
        running = Running(job, wanted, {}, [])
        keys = chance.sample(list(wanted), len(wanted))
        for left, key in zip(range(len(keys), 0, -1), keys, strict=True):
            assert running.declared == left * active.held(rows[0]) > 0
            assert running.take(key)
            assert not running.take(key)
        assert running.declared == 0
