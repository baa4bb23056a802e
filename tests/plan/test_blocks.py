"""Pictures of a batch are parted into blocks, and there is room for as many of them as workers make at a time."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.planning.blocks import MOST_BYTES, MOST_PICTURES, Blocks, blocks_of, pictures_in_block
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.retention.chosen import KeepSettings, free_bytes_for


@given(st.integers(1, 2000), st.integers(1, 64 << 20))
def test_a_batch_has_whole_blocks(pictures: int, picture_bytes: int) -> None:
    """As many as fit, of those numbers that a batch can be parted into."""
    block = pictures_in_block(pictures, picture_bytes)
    assert pictures % block == 0
    assert block == 1 or (block <= MOST_PICTURES and block * picture_bytes <= MOST_BYTES)
    more = [each for each in range(block + 1, MOST_PICTURES + 1) if pictures % each == 0]
    assert not [each for each in more if each * picture_bytes <= MOST_BYTES]


@pytest.mark.parametrize(("side", "block"), [(224, 64), (256, 64), (288, 64), (384, 32), (512, 16), (2048, 1)])
@pytest.mark.parametrize("batch", [64, 256])
def test_usual_sizes(side: int, block: int, batch: int) -> None:
    """What most people train with makes one job of 64 images."""
    assert pictures_in_block(batch, 3 * side * side) == block


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 16))
def test_rows_of_a_batch_follow_one_another(batches: list[int], pictures: int) -> None:
    """No block has rows of two batches, and each row has its place in one."""
    batch = np.repeat(np.arange(len(batches)), batches)
    blocks = blocks_of(batch, pictures)
    for row in range(len(batch)):
        mine = blocks.rows(row)
        assert len(set(batch[mine.start : mine.stop].tolist())) == 1
        assert mine.start + int(blocks.part[row]) == row
        assert len(mine) <= pictures


def planned(clips: int, room: int, samples: int, blocks: Blocks | None = None) -> GenerationPlan:
    """As much of a plan as room is reckoned from: batches of so many clips, each of ``room`` bytes."""
    task = SimpleNamespace(sampling=SimpleNamespace(samples_per_video=samples))
    plan = SimpleNamespace(
        first_epoch=0, rows=lambda epoch, iteration: range(clips), room=room, blocks=blocks, task=task
    )
    return cast("GenerationPlan", plan)


def test_room_for_what_workers_make_ahead() -> None:
    """Two batches of each task and two jobs of each worker, an eighth of the budget at most and a batch at least."""
    settings = KeepSettings(10**9, "cheapest", "raw", 1 << 30)
    videos, images = planned(8, 1000, 2), planned(256, 10, 1, blocks_of(np.repeat([0, 1], 256), 64))
    of_workers = {cores: free_bytes_for([videos], replace(settings, cores=cores)) for cores in (1, 4, 16)}
    assert of_workers == {1: 16_000, 4: 16_000, 16: 2 * 16 * 2 * 1000}
    of_workers = {cores: free_bytes_for([images], replace(settings, cores=cores)) for cores in (1, 4, 16)}
    assert of_workers == {1: 5120, 4: 5120, 16: 2 * 16 * 64 * 10}
    together = free_bytes_for([videos, images], replace(settings, cores=16))
    assert together == 64_000 + 20_480
    assert free_bytes_for([videos, images], replace(settings, cores=16, budget_bytes=400_000)) == 50_000
    assert free_bytes_for([videos, images], replace(settings, cores=16, budget_bytes=40_000)) == 8000
    assert free_bytes_for([videos, images], replace(settings, cores=16, budget_bytes=20_000)) == 5000
