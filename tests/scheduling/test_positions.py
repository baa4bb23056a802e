"""Where a reader is, one value for all generations of its task: what has been read, and what is due when."""

import numpy as np
import pytest

from benchmarks.invented import plan_of, task_of, videos_of
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.work import Position

VIDEOS, SAMPLES, BATCH, EPOCHS = 7, 2, 3, 2
ITERATIONS = 3
"""The last batch of an epoch has one video."""


@pytest.fixture
def generations() -> tuple[ActiveGeneration, ActiveGeneration]:
    """The first two of a task."""

    def generation(number: int) -> ActiveGeneration:
        plan = plan_of(
            task_of("t", 4, 2, samples=SAMPLES, batch=BATCH), videos_of(VIDEOS), epochs=EPOCHS, number=number
        )
        order = Order(np.tile(np.arange(VIDEOS), (EPOCHS, 1)), np.full(EPOCHS, VIDEOS))
        return ActiveGeneration(plan, order, 1, np.arange(len(plan)), lambda *_: [VideoSource("", "", "", b"", 1)])

    return generation(0), generation(1)


def test_a_position_says_what_has_been_read(generations: tuple[ActiveGeneration, ActiveGeneration]) -> None:
    """As many clips as its batches have, short ones too; the end of a generation is the beginning of the next."""
    first, second = generations
    epoch = VIDEOS * SAMPLES
    places = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0)]
    read = []
    for place in places:
        for each in generations:
            each.at(Position(*place, 1.0))
        read.append(first.from_rank)
        assert second.from_rank == 0
    assert read == [BATCH * SAMPLES, 2 * BATCH * SAMPLES, epoch, epoch + 2 * BATCH * SAMPLES, 2 * epoch]
    assert first.epochs_read() == EPOCHS


def test_a_reader_in_one_generation_needs_all_of_the_later_ones(
    generations: tuple[ActiveGeneration, ActiveGeneration],
) -> None:
    """Who goes back to an earlier generation reads the later one again; who goes on needs the earlier one no more."""
    first, second = generations
    read = []
    for place in ((3, 1), (0, 1)):
        for each in generations:
            each.at(Position(*place, 0.5))
        read.append((first.from_rank, second.from_rank))
    assert read == [(len(first), (VIDEOS + BATCH) * SAMPLES), (BATCH * SAMPLES, 0)]
    row = second.rows(3, 1)[0]
    assert second.due_in_s(row) == 0.5 * (3 * ITERATIONS)


def test_a_pace_that_is_not_known_leaves_the_last_one(generations: tuple[ActiveGeneration, ActiveGeneration]) -> None:
    """The first batch of a run has no pace yet; what is due keeps the order and the scale that it had."""
    first, _ = generations
    first.at(Position(0, 0, 0.25))
    first.at(Position(0, 1))
    assert first.due_in_s(first.rows(1, 1)[0]) == 0.25 * ITERATIONS
