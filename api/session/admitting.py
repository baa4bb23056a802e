"""Whether a task that another process describes is the one that is open."""

from dataclasses import replace

from viewcache.api.config.load import Config
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.planning.redefined import changed_keys
from viewcache.materializer.spec import TaskSpec

__all__ = ["check_same"]


def check_same(known: TaskSpec, task: TaskSpec, mine: Config, theirs: Config) -> None:
    """Refuse a task whose name another one has."""
    here, there = mine.canonical(known), replace(theirs, cache=mine.cache).canonical(task)
    if here != there:
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with another definition, of {known.place.file}: give this one another "
            f"tag. What differs: {changed_keys(here, there)}",
        )
    if task.dataset.fields != known.dataset.fields:
        given, has = (", ".join(each.dataset.fields) or "none" for each in (task, known))
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with the fields {has}, here it has {given}: end the service by `viewcache "
            f"stop {mine.cache.local.url}` first, or ask for the same",
        )
    if task.epochs > known.epochs:
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with {known.epochs} epochs, here it has {task.epochs}: end the service by "
            f"`viewcache stop {mine.cache.local.url}` first, or ask for as many",
        )
