"""What becomes of rows whose video cannot give them while their task cannot say yet."""

import math
from functools import partial
from typing import Any, cast

import pytest

from viewcache.errors import BadVideo, CatalogBusy, OpWorkerFailed, ViewcacheError
from viewcache.materializer.scheduling.bad_rows import BadRows, Undecided
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.work import RowState


class Rows:
    """Work of three rows, of which the keys can be changed as a substitution does; and a ledger that has nothing."""

    def __init__(self) -> None:
        self.keys = ["a", "b", "c"]
        self.states = [RowState.MAKING] * 3

    def key(self, row: int) -> str:
        """Of one row."""
        return self.keys[row]

    def beside(self, row: int) -> list[int]:
        """Each row is an object of its own."""
        return [row]

    def has(self, key: str) -> bool:
        """As a ledger."""
        return False

    is_leaving = has

    def set_state(self, row: int, state: RowState) -> None:
        """Of one row."""
        self.states[row] = state


class Task:
    """Decides when it is told to."""

    def __init__(self, answer: ViewcacheError | None) -> None:
        self.answer, self.decides = answer, False
        self.asked: list[list[int]] = []

    def on_bad(self, work: object, rows: list[int], why: str) -> ViewcacheError | None:
        """As for the dispatcher."""
        if not self.decides:
            raise Undecided
        self.asked.append(rows)
        return self.answer


def bad_rows(task: Task, rows: Rows) -> BadRows:
    """With all three rows reported."""
    found = BadRows(Board(cast(Any, rows)), task.on_bad)
    found.add(0.0, {key: [(cast(Any, rows), row)] for row, key in enumerate(rows.keys)}, "torn")
    return found


def test_rows_wait_until_it_is_decided() -> None:
    """They count as being made until then, so that nobody begins them; then all are decided together."""
    for answer, state in ((None, RowState.PLANNED), (BadVideo("torn"), RowState.FAILED)):
        task, rows = Task(answer), Rows()
        bad = bad_rows(task, rows)
        bad.ask_again()
        assert (len(bad), rows.states) == (1, [RowState.MAKING] * 3)
        task.decides = True
        bad.ask_again()
        assert (len(bad), rows.states, task.asked) == (0, [state] * 3, [[0, 1, 2]])


def test_a_row_that_another_video_gives_by_now() -> None:
    """Its stand-in is not taken for the video that was bad: nobody decides about it a second time."""
    task, rows = Task(BadVideo("torn")), Rows()
    bad = bad_rows(task, rows)
    rows.keys[1] = "of another video"
    task.decides = True
    bad.ask_again()
    assert rows.states == [RowState.FAILED, RowState.PLANNED, RowState.FAILED]
    assert task.asked == [[0, 2]]


def test_who_is_asked_again() -> None:
    """Who cannot say it yet names another to be asked, who may be asked more than once and has the last word."""
    rows, asked = Rows(), list[str]()

    def later(work: object, which: list[int], why: str) -> ViewcacheError | None:
        asked.append("later")
        if len(asked) < 3:
            raise Undecided
        return BadVideo(why)

    def first(work: object, which: list[int], why: str) -> ViewcacheError | None:
        asked.append("first")
        raise Undecided(later)

    bad = BadRows(Board(cast(Any, rows)), first)
    bad.add(0.0, {"a": [(cast(Any, rows), 0)]}, "torn")
    bad.ask_again()
    bad.ask_again()
    assert (asked, rows.states[0], len(bad)) == (["first", "later", "later"], RowState.FAILED, 0)


def test_a_task_that_cannot_decide() -> None:
    """An error on the way, of the catalog say, is what the rows' readers get; no other case is lost with it."""
    rows = Rows()

    def lost(work: object, which: list[int], why: str) -> ViewcacheError | None:
        if which == [0]:
            raise CatalogBusy("it does not answer")
        return None

    bad = BadRows(Board(cast(Any, rows)), lost)
    for row in (0, 1):
        bad.add(0.0, {rows.keys[row]: [(cast(Any, rows), row)]}, "torn")
    assert rows.states == [RowState.FAILED, RowState.PLANNED, RowState.MAKING]


class Told(Board):
    """Keeps what readers would get."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(cast(Any, rows))
        self.errors: list[ViewcacheError] = []

    def fail(self, work: object, rows: list[int], error: ViewcacheError, *, tried: float = math.inf) -> None:
        """Instead of giving it to the readers that wait."""
        self.errors.append(error)


@pytest.mark.parametrize(
    ("gives_up", "told"),
    [
        (BadVideo("own: it crashed; no other video could stand in for it"), ""),
        (CatalogBusy("the database does not answer"), "own: it crashed; the database does not answer"),
    ],
)
def test_a_failure_and_why_the_policy_gave_up_are_told_together(gives_up: ViewcacheError, told: str) -> None:
    """The error is of the failure's kind, and its message has each of the two once."""
    rows = Rows()
    board = Told(rows)
    task = Task(gives_up)
    task.decides = True
    bad = BadRows(board, task.on_bad)
    bad.add(0.0, {"a": [(cast(Any, rows), 0)]}, "own: it crashed", partial(OpWorkerFailed, of_clip=True))
    (error,) = board.errors
    assert isinstance(error, OpWorkerFailed)
    assert error.of_clip
    assert str(error) == (told or str(gives_up))
    bad.add(0.0, {"b": [(cast(Any, rows), 1)]}, "own: it crashed")
    assert board.errors[1] is gives_up, "without a kind of its own it is the task's"
