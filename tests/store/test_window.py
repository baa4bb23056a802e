"""The window of requests under way finds what a service can take."""

import random

import pytest

from viewcache.store.window import RequestWindow


def _rounds(window: RequestWindow, count: int, share_failing: float = 0.0, seconds: float = 0.01) -> list[int]:
    """Answers to a full window, again and again; the sizes that it had."""
    rng, sizes = random.Random(5), []
    for _ in range(count):
        sizes.append(window.size)
        for _ in range(window.size):
            if rng.random() < share_failing:
                window.failed()
            else:
                window.answered(seconds, 1000, window.size)
    return sizes


def test_it_grows_by_one_a_round_up_to_its_most() -> None:
    """While all is well a full window grows by one for each window of answers, and never past its most."""
    assert _rounds(RequestWindow(start=4, most=10), 9) == [4, 5, 6, 7, 8, 9, 10, 10, 10]


def test_an_unused_window_does_not_grow() -> None:
    """Answers to one request at a time say nothing of what more of them would do."""
    window = RequestWindow(start=4)
    for _ in range(100):
        window.answered(0.01, 1000, 1)
    assert window.size == 4


def test_it_falls_fast_when_all_fails_and_comes_back() -> None:
    """A service that refuses everything is soon asked two things at a time, at the least one, and later more again."""
    window = RequestWindow(start=32, most=32)
    _rounds(window, 6, share_failing=1.0)
    assert window.size <= 3
    for _ in range(100):
        window.failed()
    assert window.size == 1
    _rounds(window, 40)
    assert window.size == 32


@pytest.mark.parametrize(("share", "low", "high"), [(0.05, 20, 32), (0.2, 6, 15), (0.6, 1, 7)])
def test_it_settles_by_the_share_that_fails(share: float, low: int, high: int) -> None:
    """A steady share of losses keeps the window where growth and shrinking meet, not at one."""
    sizes = _rounds(RequestWindow(), 500, share_failing=share)
    assert low <= sum(sizes) / len(sizes) <= high


def test_late_answers_count_as_failures() -> None:
    """Where more at once only makes every answer slower, the window stays near what the service does at once."""
    window = RequestWindow(most=32)
    window.answered(0.01, 1000, 1)
    for _ in range(100):
        at_once = window.size
        for _ in range(at_once):
            window.answered(0.01 * max(1.0, at_once / 3), 1000, at_once)  # three at a time, the others wait
    assert 8 <= window.size <= 16


def test_a_longer_answer_is_not_late() -> None:
    """An answer of a hundred times the bytes may take a hundred times as long."""
    window = RequestWindow(start=8, most=8)
    for _ in range(50):
        window.answered(0.01, 1000, 8)
        window.answered(1.0, 100_000, 8)
    assert window.size == 8


def test_a_service_may_become_slower_for_good() -> None:
    """After a while the new pace is the usual one, and the window grows again."""
    window = RequestWindow(start=16, most=16)
    _rounds(window, 5, seconds=0.01)
    _rounds(window, 10, seconds=0.1)
    assert window.size < 16
    _rounds(window, 5000, seconds=0.1)
    assert window.size == 16
