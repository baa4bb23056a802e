"""A generation has a bound: a plan is arrays in memory, and a configuration must not be able to ask for all of it."""

import pytest

from tests.plan.plans import task_of
from viewcache.errors import ConfigCode, ConfigError
from viewcache.materializer.planning.size import MOST_CLIPS, check_size


def test_a_generation_beyond_the_bound_is_refused_with_its_numbers() -> None:
    """Ten thousand epochs of 1,024 samples are refused; the message has the numbers and the k that would do."""
    task, _ = task_of(samples=1024, epochs=10_000)
    with pytest.raises(ConfigError) as caught:
        check_size(task, 10_000, 48)
    assert caught.value.code is ConfigCode.PLAN_TOO_LARGE
    for number in (10_000, 48, 1024, 10_000 * 48 * 1024, MOST_CLIPS):
        assert str(number) in caught.value.reason
    best = MOST_CLIPS // (48 * 1024)
    assert f"to at most {best}," in caught.value.reason
    check_size(task, best, 48)
    with pytest.raises(ConfigError):
        check_size(task, best + 1, 48)


def test_only_epochs_that_a_task_has_count() -> None:
    """A large k is no problem for a task of few epochs, nor is the largest dataset that is common today."""
    check_size(task_of(samples=1024, epochs=3)[0], 10_000, 48)
    check_size(task_of(samples=4, epochs=200)[0], 5, 650_000)
