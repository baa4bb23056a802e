"""One generation's clips are a small sample: by the mean over several, what is kept of a video does not come and go."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_horizon import COST, INDEX, PICTURES, VIDEOS, plan
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.retention.average import GENERATIONS, Average
from viewcache.materializer.retention.chosen import KeepSettings, choose
from viewcache.materializer.retention.settled import Settled
from viewcache.materializer.retention.ways import ToCome, Way

LIKE = ((1, 5, True),)
WAYS = Way(0, None), Way(0, ObjectKind.AUG, "h264")
SECONDS = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100) | st.just(np.inf)), min_size=1, max_size=8)


@given(SECONDS)
def test_the_mean_of_the_newest(seen: list[tuple[float, float]]) -> None:
    """Of the generation at hand and those before it where a way could be had; none that it cannot have is offered."""
    average = Average()
    for number, each in enumerate(seen):
        found = average.of(COST, LIKE, number, ("v",), WAYS, np.array([each]))
    newest = np.array(seen[-GENERATIONS:])
    for column, mean in enumerate(found[0]):
        last, known = seen[-1][column], newest[np.isfinite(newest[:, column]), column]
        assert np.isclose(mean, known.mean(), atol=1e-4) if np.isfinite(last) else np.isinf(mean)


def test_what_counts() -> None:
    """A generation counts as it was weighed last; other videos, ways, tasks and prices say nothing."""
    average = Average()
    average.of(COST, LIKE, 0, ("a", "b"), WAYS, np.array([[2.0, 2.0], [30.0, 30.0]]))
    assert average.of(COST, LIKE, 0, ("a",), WAYS, np.array([[4.0, 8.0]])).tolist() == [[4.0, 8.0]]
    assert average.of(COST, LIKE, 1, ("c", "a"), WAYS, np.array([[1.0, 1.0], [6.0, 6.0]])).tolist() == [
        [1.0, 1.0],
        [5.0, 7.0],
    ]
    assert average.of(COST, LIKE, 2, ("a",), WAYS[:1], np.array([[1.0]])).tolist() == [[1.0]]
    assert average.of(COST, (*LIKE, (2, 5, True)), 3, ("a",), WAYS, np.array([[9.0, 9.0]])).tolist() == [[9.0, 9.0]]
    dearer = replace(COST, decode_s_per_pixel=COST.decode_s_per_pixel * 10)
    assert average.of(dearer, LIKE, 3, ("a",), WAYS, np.array([[9.0, 9.0]])).tolist() == [[9.0, 9.0]]


@pytest.mark.parametrize(("decode_s", "share"), [(2e-9, 6), (1e-8, 12)])
def test_choices_come_and_go_less(decode_s: float, share: int) -> None:
    """Ten generations of one training, each with draws of its own, where ways cost alike: half as many change."""
    cost = replace(COST, decode_s_per_pixel=decode_s)

    def changes(average_of: Callable[[int], dict[str, Any]]) -> int:
        settled, count = Settled(), 0
        for number in range(10):
            whole = plan(5, 95 - 5 * number, number=number, videos=VIDEOS)
            rows = np.ones(len(whole), np.bool_)
            each = ToCome(whole, lambda _: INDEX, rows, ~rows)
            settings = KeepSettings(PICTURES // share, "cheapest", "auto", 1 << 30)
            found = choose([each], cost, settings, 0, settled=settled, **average_of(number))
            assert found is not None
            ways = found.way_of()
            count += sum(settled.ways.get(key, way) != way for key, way in ways.items())
            settled = Settled(ways)
        return count

    average, without = Average(), changes(lambda _: {})
    assert without > 0
    assert changes(lambda number: {"average": partial(average.of, cost, LIKE, number)}) <= without / 2
