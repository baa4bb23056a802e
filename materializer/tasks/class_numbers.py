"""Which number each class of a task had when its dataset was opened last, and which have another one now.

Names that are not listed are sorted, so a class that comes shifts those behind it, and so may a list that is given
later (docs/labels.md). The names of before are a setting of the catalog for each task; where a catalog has none,
nothing is told but of whole numbers that stood for themselves.
"""

import json
from collections.abc import Sequence

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow
from viewcache.materializer.dataset.changes import DatasetChange, FileChange, in_short
from viewcache.materializer.dataset.classes import are_whole_numbers
from viewcache.materializer.spec import DatasetSpec

__all__ = ["renumbered"]

MOST = 100_000
"""Classes that are recorded: of more, the labels are rather texts of each video than classes."""
NAMED = 10
"""Classes that a change names."""
_SETTING = "classes"


def renumbered(
    spec: DatasetSpec, task_id: int, names: Sequence[str], catalog: Catalog, *, first_named: bool = False
) -> tuple[DatasetChange, ...]:
    """What of a task's classes has another number than when its dataset was opened last; the names are recorded.

    Args:
        spec: of the task's dataset.
        task_id: of the task.
        names: of the classes, by number.
        catalog: what we know.
        first_named: whether the task was opened with labels before, and without names of its classes, which it has now.

    Returns:
        One change, or none: so it is where classes of a dataset that grows come, which are given numbers behind the
        others.
    """
    if spec.labels is None or spec.grows or len(names) > MOST:
        return ()
    setting = f"{_SETTING} {task_id}"
    before = json.loads(catalog.setting(setting) or "[]")
    if before == list(names):
        return ()
    was = {name: number for number, name in enumerate(before)}
    if first_named and not before and are_whole_numbers(names):  # labels that now are looked up among them
        was = {name: int(name) for name in names}
    now = {name: number for number, name in enumerate(names)}
    told = [
        f"class {name!r} was {number} and is {now[name]}"
        for name, number in was.items()
        if now.get(name, number) != number
    ]
    if told:
        detail = in_short(told[:NAMED], len(told))
        catalog.add_events([EventRow(f"videos_{FileChange.RENUMBERED}", task_id, count=len(told), detail=detail)])
    catalog.set_setting(setting, json.dumps(list(names), separators=(",", ":")))
    return (DatasetChange(FileChange.RENUMBERED, len(told), tuple(told[:NAMED])),) if told else ()
