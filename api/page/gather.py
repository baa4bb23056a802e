"""Gathers an overview: thirteen questions to the catalog, in one confined process, and one to the service if one runs.

This is the only module that knows where the numbers of the page come from. It takes no lock, is no client of a service,
and asks for nothing to be made; an owner is asked for a snapshot, as by ``viewcache sql``.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from viewcache.api.config.find import Located
from viewcache.api.page.lateness import due_in_s, judged, pace_of
from viewcache.api.page.overview import (
    BadVideo,
    DueBatch,
    Evicted,
    Failure,
    ObjectCount,
    Overview,
    Passed,
    Place,
    Sample,
    Span,
    TaskState,
    TierState,
    Verdict,
    Wait,
)
from viewcache.api.queries.ask import Answer, ask_all, in_memory, question
from viewcache.api.queries.status import counts_memory
from viewcache.api.service.watching import stats_of
from viewcache.errors import QueryRefused
from viewcache.materializer.media.source import shown

__all__ = ["gather"]

QUESTIONS = {
    "tasks": "page_tasks",
    "readers": "page_readers",
    "waits": "page_waits",
    "reading": "status_waiting",
    "tiers": "status_tiers",
    "passed": "status_passing",
    "objects": "status_objects",
    "due": "page_due",
    "evictions": "page_evictions",
    "videos": "page_videos",
    "failures": "page_errors",
    "work": "page_work",
    "history": "page_history",
}
"""Part of the overview → the question that it is drawn from."""

Row = dict[str, Any]


def gather(located: Located, before: Sequence[Sample] = ()) -> Overview:
    """Look at a cache, from any process.

    Args:
        located: the cache.
        before: samples of the looks before this one, the oldest first: how fast clips are made is seen from them.

    Raises:
        NotFound: there is no catalog.
        CatalogVersion: it is of another release, and has not what is asked for.
        Timeout: another process owns it and did not publish a snapshot.
        QueryRefused: no question could be answered.
    """
    service = stats_of(Path(located.root))
    lying = None if service is None else service.in_memory
    answers, missing = _ask(located.catalog, in_memory(lying))
    one = next(iter(answers.values()))
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for part, answer in answers.items():
        rows[part] = answer.dicts()
    work = {row["op"]: (row["n"], row["seconds"]) for row in rows["work"]}
    tiers = tuple(_tier(row) for row in rows["tiers"])
    made = work.get("store", (0, 0.0))[0]
    sample = Sample(one.as_of_s, sum(tier.used_bytes for tier in tiers), made)
    pace = pace_of([*before, sample], work, _workers(located))
    places = _places(rows["readers"])
    due = (_due(row, places.get(row["task"], ()), one.as_of_s) for row in rows["due"])
    passed = next((Passed(row["made"], row["read"], row["bytes"]) for row in rows["passed"]), Passed(0, 0, 0))
    counted = counts_memory(lying, one.source, passes=bool(passed.made) or "passed" in missing)
    return Overview(
        store=located.root,
        as_of_s=one.as_of_s,
        source=one.source,
        owner=one.owner,
        service=service,
        tasks=_tasks(rows, places),
        tiers=tiers,
        passed=passed,
        counts_memory=counted,
        objects=tuple(ObjectCount(**(row | {"bytes": row["bytes"] or 0})) for row in rows["objects"]),
        pace=pace,
        due=judged(due, pace, owned=one.source != "file", counts_memory=counted),
        evictions=tuple(Evicted(**_texts(row, "policy", "detail")) for row in rows["evictions"]),
        videos=tuple(_video(row) for row in rows["videos"]),
        failures=tuple(Failure(**_texts(row, "name", "message")) for row in rows["failures"]),
        spans=_spans(rows["history"]),
        sample=sample,
        missing=missing,
    )


def _ask(where: str, parameters: Mapping[str, str]) -> tuple[dict[str, Answer], dict[str, str]]:
    """All questions over one state of the catalog; where one of them goes over a limit, each by itself."""
    try:
        answers = ask_all(where, [question(name) for name in QUESTIONS.values()], parameters=parameters)
        return dict(zip(QUESTIONS, answers, strict=True)), {}
    except QueryRefused as error:
        refused = error
    found: dict[str, Answer] = {}
    missing: dict[str, str] = {}
    for part, name in QUESTIONS.items():
        try:
            (found[part],) = ask_all(where, [question(name)], parameters=parameters)
        except QueryRefused as error:
            missing[part] = str(error)
    if not found:
        raise refused
    return found, missing


def _workers(located: Located) -> int:
    """How many workers make clips: as configured, or as many as would be without a word."""
    config = located.config
    return config.cache.worker_count if config is not None else os.cpu_count() or 1


def _places(rows: Iterable[Row]) -> dict[str, tuple[Place, ...]]:
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for row in rows:
        values = {name: value for name, value in row.items() if name != "task"}
        found[row["task"]].append(Place(**(values | {"pace_s": row["pace_s"] or None})))
    return {task: tuple(each) for task, each in found.items()}


def _tasks(rows: Mapping[str, list[Row]], places: Mapping[str, tuple[Place, ...]]) -> tuple[TaskState, ...]:
    clips: Counter[tuple[str, str]] = Counter()
    waits: defaultdict[str, list[Wait]] = defaultdict(list)
    for row in rows["reading"]:
        clips[row["task"], row["kind"]] += row["count"]
        if row["kind"] == "stall":
            waits[row["task"]].append(Wait(row["detail"], row["seconds"]))
    spent: Counter[str] = Counter()
    of_s: dict[str, float] = {}
    for row in rows["waits"]:
        spent[row["task"]] += row["seconds"]
        of_s[row["task"]] = row["of_s"]
    found = []
    for row in rows["tasks"]:
        task, mine = row["task"], places.get(row["task"], ())
        share = spent[task] / (of_s[task] * max(len(mine), 1)) if task in of_s else None
        slowest = min(((each.epoch, each.iteration) for each in mine), default=(0, 0))
        found.append(
            TaskState(
                task=task,
                epochs=row["epochs"],
                generations=row["generations"],
                epoch=slowest[0],
                iteration=slowest[1],
                iterations=row["iterations"],
                clips_to_come=row["clips_to_come"],
                ready_to_come=row["ready_to_come"],
                hits=clips[task, "hit"],
                misses=clips[task, "miss"],
                reading_share=None if share is None else min(share, 1.0),
                waits=tuple(waits[task]),
                places=mine,
            )
        )
    return tuple(found)


def _tier(row: Row) -> TierState:
    return TierState(row["tier"], shown(row["url"]), row["used_bytes"] or 0, row["budget_bytes"], row["copies"])


def _due(row: Row, places: tuple[Place, ...], now_s: float) -> DueBatch:
    due_s = due_in_s(row["ahead"], places, now_s)
    return DueBatch(**row, due_s=due_s, ready_s=None, verdict=Verdict.UNKNOWN)


def _video(row: Row) -> BadVideo:
    row = _texts(row, "message", "policies", "tasks")
    return BadVideo(row["video_id"], row["video"], row["message"], row["uses"], row["policies"], row["tasks"])


def _texts(row: Row, *names: str) -> Row:
    """The row with empty texts where there are none."""
    return row | {name: row[name] or "" for name in names}


def _spans(rows: Iterable[Row]) -> tuple[Span, ...]:
    found: dict[int, tuple[int, float, dict[tuple[str, int], Row]]] = {}
    for row in rows:
        _, _, steps = found.setdefault(row["span_s"], (row["step_s"], row["end_s"], {}))
        steps[row["kind"], row["steps_before"]] = row
    return tuple(_span(span_s, *found[span_s]) for span_s in sorted(found))


def _span(span_s: int, step_s: int, end_s: float, steps: Mapping[tuple[str, int], Row]) -> Span:
    count = span_s // step_s

    def series(kind: str, of: Callable[[Row], Any]) -> tuple[Any, ...]:
        cells = (steps.get((kind, count - 1 - at)) for at in range(count))
        return tuple(0 if cell is None else of(cell) for cell in cells)

    return Span(
        span_s=span_s,
        step_s=step_s,
        end_s=end_s,
        hits=series("hit", lambda row: row["count"]),
        misses=series("miss", lambda row: row["count"]),
        waited_s=series("stall", lambda row: round(row["seconds"], 4)),
        loaded_s=series("load", lambda row: round(row["seconds"], 4)),
        evicted_bytes=series("evict", lambda row: row["bytes"]),
    )
