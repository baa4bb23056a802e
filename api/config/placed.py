"""The place in the configuration, for errors of a task that only its videos, labels and plan bring to light."""

from collections.abc import Iterator
from contextlib import contextmanager

from viewcache.errors import BadInput, DatasetNotFound, MissingExtra, ViewcacheError
from viewcache.materializer.spec import TaskSpec

__all__ = ["placed", "unplaced"]

_PLAIN = (BadInput, DatasetNotFound, MissingExtra)
"""Kinds whose message is all that they have: the others carry more than a text, or a place already."""


@contextmanager
def placed(task: TaskSpec) -> Iterator[None]:
    """Begin the message of such an error with ``file:line:column`` of the task, as those of the configuration do."""
    try:
        yield
    except _PLAIN as error:
        if type(error) not in _PLAIN or not task.place.line:
            raise
        raise type(error)(_place_of(task) + str(error)) from error


def unplaced(task: TaskSpec, error: ViewcacheError) -> ViewcacheError:
    """The error of a task as it was before `placed`, for who tells its place otherwise."""
    before = error.__cause__
    is_placed = isinstance(before, _PLAIN) and str(error) == _place_of(task) + str(before)
    return before if isinstance(before, ViewcacheError) and is_placed else error


def _place_of(task: TaskSpec) -> str:
    return f"{task.place.file}:{task.place.line}:{task.place.column}: "
