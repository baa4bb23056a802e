"""The place in the configuration, for errors of a task that only its videos, labels and plan bring to light."""

from collections.abc import Iterator
from contextlib import contextmanager

from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.spec import TaskSpec

__all__ = ["placed"]

_PLAIN = (BadInput, DatasetNotFound, MissingExtra)
"""Kinds whose message is all that they have: the others carry more than a text, or a place already."""


@contextmanager
def placed(task: TaskSpec) -> Iterator[None]:
    """Begin the message of such an error with ``file:line:column`` of the task, as those of the configuration do."""
    try:
        yield
    except _PLAIN as error:
        place = task.place
        if type(error) not in _PLAIN or not place.line:
            raise
        raise type(error)(f"{place.file}:{place.line}:{place.column}: {error}") from error
