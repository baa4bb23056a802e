"""Whether a task that another process describes is the one that is open."""

from dataclasses import replace

from viewcache.api.config.load import Config
from viewcache.api.config.yaml_subset import error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.planning.definition import NOT_DEFINING
from viewcache.materializer.planning.redefined import changed_keys, keeps_views
from viewcache.materializer.spec import DatasetSpec, TaskSpec

__all__ = ["check_same"]


def check_same(known: TaskSpec, task: TaskSpec, mine: Config, theirs: Config) -> None:
    """Refuse a task whose name another one has, or that would not get what its dataset says besides its definition.

    Its ``layout`` may be another one: axes are put in order by who reads.
    """
    here, there = mine.canonical(known), replace(theirs, cache=mine.cache).canonical(task)
    if here != there:
        # Of what changes no view another tag would make another order, and other clips.
        after = f"close it there first (`viewcache stop {mine.cache.local.url}` ends a service), or ask for the same"
        cure = after if keeps_views(here, there) else "give this one another tag"
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with another definition, of {known.place.file}: {cure}. What differs: "
            f"{changed_keys(here, there)}",
        )
    other = [key for key in NOT_DEFINING[DatasetSpec] if getattr(known.dataset, key) != getattr(task.dataset, key)]
    if other:
        has, given = (", ".join(_shown(key, each.dataset) for key in other) for each in (known, task))
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with {has}; here it has {given}. End the service by `viewcache stop "
            f"{mine.cache.local.url}` first, or ask for the same",
        )
    if task.epochs > known.epochs:
        raise error_at(
            task.place,
            ConfigCode.GIVEN_TWICE,
            f"the task {task.name!r} is open with {known.epochs} epochs, here it has {task.epochs}: end the service by "
            f"`viewcache stop {mine.cache.local.url}` first, or ask for as many",
        )


def _shown(key: str, dataset: DatasetSpec) -> str:
    """A key as it is written."""
    match getattr(dataset, key):
        case None:
            value = "auto"
        case bool() as flag:
            value = str(flag).lower()
        case float() as number:
            value = f"{number:g}"
        case tuple() as several:
            value = f"[{', '.join(several)}]"
        case choice:
            value = str(choice)
    return f"{key}: {value}"
