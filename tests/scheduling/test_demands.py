"""Which rows are made for readers: beside a rule that looks at each row, as batches of images have thousands."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from viewcache.materializer.scheduling.generation import ActiveGeneration, PlannedClips
from viewcache.materializer.scheduling.intermediate_work import IntermediateSchedule
from viewcache.materializer.scheduling.rules import (
    State,
    missing_among,
    missing_keys,
    missing_rows,
    next_demand,
    preemptible,
)
from viewcache.materializer.scheduling.work import Demand, ObjectStates, RowState, Work
from viewcache.materializer.tasks.batch_work import BatchWork


class Rows(IntermediateSchedule[str]):
    """Rows of which several may have one key."""

    def __init__(self, keys: list[str], videos: dict[str, str], making: set[int]) -> None:
        """Of keys, each of a video."""
        super().__init__(0, [(key, videos[key], 1) for key in keys], [], 0)
        self._names, self._videos, self.asked, self.asked_for_videos = keys, videos, 0, 0
        for row in making:
            self.set_state(row, RowState.MAKING)

    def key(self, row: int) -> str:
        """What names a row; counted."""
        self.asked += 1
        return self._names[row]

    def video(self, row: int) -> str:
        """What it is of; counted."""
        self.asked_for_videos += 1
        return self._videos[self._names[row]]

    def stand_in(self, row: int, key: str) -> None:
        """Another video comes to stand in."""
        self._names[row] = key
        self.revision += 1


def row_by_row(state: State[str]) -> tuple[Work[str], list[int]] | None:
    """The rows of the oldest demand that nobody works on, of the video of the first of them."""
    for demand in state.demands:
        work = demand.work
        rows = [
            row
            for row in demand.rows
            if not state.objects.has(work.key(row)) and work.state(row) != RowState.MAKING and demand.error is None
        ]
        if rows:
            return work, [row for row in rows if work.video(row) == work.video(rows[0])]
    return None


KEYS = st.sampled_from("abcdef")


@given(
    keys=st.lists(KEYS, min_size=1, max_size=24),
    videos=st.fixed_dictionaries(dict.fromkeys("abcdef", st.sampled_from("axy"))),
    there=st.sets(KEYS),
    data=st.data(),
)
def test_what_is_made_for_readers(
    keys: list[str], videos: dict[str, str], there: set[str], data: st.DataObject
) -> None:
    """The same rows in the same order as when each is looked at, whatever is there, made, or another video by now."""
    numbers = st.integers(0, len(keys) - 1)
    work = Rows(keys, videos, data.draw(st.sets(numbers)))
    state = State[str](ObjectStates(there.__contains__))
    state.demands = [Demand(work, rows) for rows in data.draw(st.lists(st.lists(numbers, unique=True), max_size=3))]
    for _ in range(2):
        assert next_demand(state) == row_by_row(state)
        for demand in state.demands:
            assert missing_rows(state, demand) == [row for row in demand.rows if work.key(row) not in there]
        asked = {work.key(row) for demand in state.demands for row in demand.rows}
        assert missing_keys(state) == asked - there
        some = data.draw(st.sets(KEYS))
        assert missing_among(state, some) == some & asked - there
        state.jobs = {number: {key: []} for number, key in enumerate(sorted(some))}
        assert preemptible(state) == {number for number, (key,) in state.jobs.items() if key not in asked - there}
        work.stand_in(data.draw(numbers), data.draw(KEYS))


def test_keys_are_asked_once() -> None:
    """For each job that is given out the rules look at a batch's objects, not at its thousands of rows."""
    rows = 4096
    work = Rows([f"block {row // 64}" for row in range(rows)], {f"block {k}": f"block {k}" for k in range(64)}, set())
    state = State[str](ObjectStates(lambda _: False))
    state.demands = [Demand(work, [*range(rows)])]
    for _ in range(5):
        assert next_demand(state) == (work, [*range(64)])
    assert work.asked == rows


def test_videos_are_asked_once() -> None:
    """To find what is made together the rules look at the objects of one video each time, and not at a whole batch."""
    rows = 1024
    work = Rows([f"clip {row}" for row in range(rows)], {f"clip {k}": f"video {k // 2}" for k in range(rows)}, set())
    there = set[str]()
    state = State[str](ObjectStates(there.__contains__))
    state.demands = [Demand(work, [*range(rows)])]
    for row in range(0, rows, 2):
        assert next_demand(state) == (work, [row, row + 1])
        there |= {f"clip {row}", f"clip {row + 1}"}
    assert next_demand(state) is None
    assert work.asked_for_videos == rows


def subclasses(kind: Any) -> set[Any]:
    """All that is below a class."""
    return set(kind.__subclasses__()).union(*map(subclasses, kind.__subclasses__()))


def test_whoever_replaces_videos_has_another_revision() -> None:
    """Planned clips go on with other videos by `PlannedClips.replace` alone, which says that keys have changed."""
    kinds = subclasses(PlannedClips)
    assert {ActiveGeneration, BatchWork} <= kinds
    assert all(kind.replace is PlannedClips.replace for kind in kinds)
