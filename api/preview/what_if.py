"""What reading would be like under other budgets, simulated on a plan that is thrown away (docs/design/0015).

Nothing is made: a simulation uses the same planner and the same rule of what is kept as a run, and the dispatcher's
order of work and of eviction, with the seconds that work was measured to take, or is guessed to.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import TypeVar

import numpy as np

from viewcache.api.config.load import Config
from viewcache.api.config.values import parse_size
from viewcache.api.preview.keeps import chosen_for, horizon_of
from viewcache.api.preview.plan import planned_tasks
from viewcache.catalog import Catalog
from viewcache.errors import BadInput, BudgetTooSmall, Full
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.scheduling.passing_rules import passing_bytes
from viewcache.materializer.simulation.simulate import Figures, Setting, decodes_more, simulate
from viewcache.materializer.simulation.simulated_uses import (
    OBJECT_BYTES,
    GenerationUses,
    UseTrace,
    section_of,
    trace_of,
)
from viewcache.materializer.tasks.opening import share_among
from viewcache.materializer.tasks.task import Task
from viewcache.store.blocks import BLOCK

__all__ = ["BudgetOutlook", "Question", "WhatIf", "what_if"]

T = TypeVar("T")

MOST_USES = 40_000
"""Of longer plans the first generations are simulated, at least two, unless epochs are named: so many uses take a few
seconds a budget."""

SEARCHED_USES = 20_000
"""Of longer plans the least budget is sought among those that are asked about only."""

STEADY = 0.01
"""An epoch that waits for less than this part of its time is steady."""

PREFETCH = 2
"""Batches that the loader reads ahead if it is not told otherwise."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    budgets: tuple[int, ...]
    """Bytes."""
    pace_s: float | None = None
    """Seconds that every consumer takes a batch; None = as measured, else as fast as possible."""
    epochs: int | None = None
    """The first epochs of every task, and the rest of their generation; None = all, up to `MOST_USES`."""
    prefetch: int = PREFETCH
    """Batches that the loader reads before they are asked for; 0 = `Cache.read`."""

    @classmethod
    def of(cls, budgets: str, pace_s: float | None, epochs: int | None) -> "Question":
        """As on the command line, budgets as ``10GB,50GB``.

        Raises:
            BadInput: a budget is not a size, the pace is negative, or there are no epochs.
        """
        found = []
        for text in budgets.split(","):
            try:
                found.append(parse_size(text.strip()))
            except ValueError as error:
                raise BadInput(f"--budget {text.strip()!r}: {error}; write sizes as 10GB,50GB,1.5TiB") from None
        if pace_s is not None and not 0 <= pace_s < float("inf"):
            raise BadInput(f"--pace {pace_s}: seconds per batch, 0 or more")
        if epochs is not None and epochs < 1:
            raise BadInput(f"--epochs {epochs}: at least 1")
        return cls(tuple(sorted(set(found))), pace_s, epochs)


@dataclass(frozen=True, slots=True)
class BudgetOutlook:
    """What reading would be like under one budget; docs/what-if.md defines each figure."""

    budget_bytes: int
    error: str = ""
    """Why it cannot be read at all; then nothing else is known."""
    kept: str = ""
    """What is kept of the first generation, and of how many videos."""
    epoch_s: Mapping[int, float] = field(default_factory=dict)
    """Epoch, from 1 → core seconds that one like it costs, as `Horizon.epoch_s`."""
    hit_rates: tuple[float, ...] = ()
    """Of each epoch."""
    stalls: tuple[float, ...] = ()
    """Share of waiting in the time of each epoch."""
    stall: float = 0.0
    """Share of waiting in all the time."""
    packets: int = 0
    decode_s: float = 0.0
    work_s: float = 0.0
    read_bytes: int = 0
    wall_s: float = 0.0
    first_batch_s: float = 0.0
    warm_up_s: float | None = None
    """None = no epoch was steady."""
    most_bytes: int = 0
    """The most that was in use at once."""

    @property
    def hits_first(self) -> float:
        """Of the first epoch."""
        return self.hit_rates[0]

    @property
    def hits_later(self) -> float | None:
        """Of all later epochs, which have the same number of clips; None if there are none."""
        later = self.hit_rates[1:]
        return sum(later) / len(later) if later else None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What reading would be like under some budgets."""

    budgets: tuple[BudgetOutlook, ...]
    epochs: int
    """Simulated, of the longest task."""
    epochs_of_task: int
    uses: int
    """Clips that are read, counted as often as they are."""
    paces_s: dict[str, float]
    """Of each task, in seconds per batch; 0 = as fast as possible."""
    measured: bool
    """Whether any rate of work was measured, and not guessed."""
    once_packets: int
    """Packets that are decoded where there is room for everything."""
    least_bytes: int | None
    """The least budget, as far as it was sought, at which nothing is decoded twice."""
    searched: bool
    """Whether it was sought beyond the budgets that were asked about."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def what_if(
    config: Config,
    question: Question,
    progress: Progress | None = None,
    simulating: Callable[[], Progress] | None = None,
) -> WhatIf:
    """Simulate reading under some budgets.

    Args:
        config: what is asked; its own budget does not count.
        question: which budgets, and at which pace.
        progress: called while videos are looked at.
        simulating: called when they have been; gives what is called while budgets are simulated.

    Raises:
        BadInput: there is no task.
        DatasetNotFound: a dataset is not there.
        BadVideo: a video is bad and the policy is ``raise``.
    """
    with planned_tasks(config, progress) as opened:
        found = list(opened)
        tasks, catalog = [task for task, *_ in found], found[0][1]
        share_among(tasks, catalog, config.cache, {}, nullcontext)
        paces = [_pace(task, catalog) if question.pace_s is None else question.pace_s for task in tasks]
        trace, epochs = _read_all(tasks, paces, question.epochs)
        settings = KeepSettings.of(config.cache)
        cost = CostModel.known(catalog, settings.codec, settings.host)
        share = _disk_share(catalog)

        def kept(budget: int) -> KeepSettings:
            return replace(settings, budget_bytes=budget)

        def setting(budget: int) -> Setting:
            return Setting(
                kept(budget),
                cost,
                config.cache.worker_count,
                max(min(task.outline.batch_bound()[0], budget // 4) for task in tasks),
                tuple(paces),
                question.prefetch,
                share,
                passing_bytes=passing_bytes(config.cache.memory_bytes),
            )

        counted = _Counted(simulating() if simulating is not None else None, len(question.budgets) + 1)

        def under(budget: int) -> Figures:
            return simulate(trace, setting(budget))

        searched = len(trace) <= SEARCHED_USES
        unlimited = counted.done(under(1 << 62)).made.packets
        outlooks = [counted.done(_outlook(budget, tasks, under)) for budget in question.budgets]
        outlooks = [
            each if each.error else replace(each, epoch_s=_epoch_s(tasks, kept(each.budget_bytes), cost))
            for each in outlooks
        ]
        least = _least(outlooks, unlimited)
        if searched:

            def is_enough(budget: int) -> bool:
                try:
                    return not decodes_more(trace, setting(budget), unlimited)
                except Full:
                    return False

            least = _search(trace, tasks, outlooks, unlimited, is_enough, counted)
        return WhatIf(
            budgets=tuple(outlooks),
            epochs=epochs,
            epochs_of_task=max(task.spec.epochs for task in tasks),
            uses=len(trace),
            paces_s={task.spec.name: pace for task, pace in zip(tasks, paces, strict=True)},
            measured=cost != CostModel(),
            once_packets=unlimited,
            least_bytes=least,
            searched=searched,
        )


def _pace(task: Task, catalog: Catalog) -> float:
    """Seconds per batch as measured in the last run; 0 if there was none."""
    return max((row.seconds_per_iteration for row in catalog.load_progress(task.task_id)), default=0.0)


def _disk_share(catalog: Catalog) -> float:
    """Bytes of packed pixels for a byte of pixels, of the objects that were made; 1 if there are none."""
    row = catalog.query("stored_share").to_pylist()[0]
    # Of the last block of an object half is taken to be empty.
    packed = max(0, row["bytes"] - row["copies"] * (OBJECT_BYTES + BLOCK // 2))
    return packed / row["pixel_bytes"] if row["pixel_bytes"] else 1.0


def _read_all(tasks: Sequence[Task], paces: Sequence[float], epochs: int | None) -> tuple[UseTrace, int]:
    """Draw and plan all that is read, and say how many epochs that is."""
    longest = max(task.spec.epochs for task in tasks)
    wanted = longest if epochs is None else min(epochs, longest)
    each = sum(len(task.generation(0).plan) for task in tasks)
    most = max(2, MOST_USES // each) if epochs is None else longest
    last = [min(task.generation_of(min(wanted, task.spec.epochs) - 1), most - 1) for task in tasks]
    sections: list[list[GenerationUses]] = [[] for _ in tasks]
    # Orders that are drawn together depend on the paces: everybody is taken to keep theirs.
    rows: dict[tuple[int, int], list[int]] = {}
    turns = [(0.0, k, 0, 0) for k in range(len(tasks))]
    heapify(turns)
    while turns:
        now, k, epoch, iteration = heappop(turns)
        task = tasks[k]
        number = task.generation_of(epoch)
        if task.draws_together:
            active = task.settled(epoch, iteration)
            rows.setdefault((k, number), []).extend(active.rows(epoch, iteration))
            task.reached(epoch, iteration)
            iteration += 1
            if iteration == active.plan.iterations:
                epoch, iteration = epoch + 1, 0
        else:
            active = task.generation(number)
            epoch = active.plan.last_epoch + 1
        if epoch > active.plan.last_epoch:
            sections[k].append(section_of(k, active, task.index_of(active.plan), rows.pop((k, number), None)))
        if epoch < task.spec.epochs and task.generation_of(epoch) <= last[k]:
            heappush(turns, (now + (paces[k] or 1.0), k, epoch, iteration))
    return trace_of(sections), max(each[-1].first_epoch + each[-1].epochs for each in sections)


def _outlook(budget: int, tasks: Sequence[Task], under: Callable[[int], Figures]) -> BudgetOutlook:
    try:
        for task in tasks:
            need, clips = task.outline.batch_bound()
            if need > budget:
                raise BudgetTooSmall(
                    f"a batch of task {task.spec.name!r} has {clips} clips that take up to {need} bytes; "
                    f"the minimum is {need}",
                    need,
                )
        found = under(budget)
    except (BudgetTooSmall, Full) as error:
        return BudgetOutlook(budget, error=str(error))
    epochs = [found.epochs[epoch] for epoch in sorted(found.epochs)]
    steady = (epoch.begun_s for epoch in epochs if epoch.stall < STEADY)
    decided = found.decision.chosen if found.decision is not None else None
    waited, wall = sum(epoch.waited_s for epoch in epochs), sum(epoch.wall_s for epoch in epochs)
    return BudgetOutlook(
        budget_bytes=budget,
        kept="all clips" if decided is None else ", ".join(f"{what} of {n}" for what, n in decided.ways().items()),
        hit_rates=tuple(epoch.hits / epoch.uses for epoch in epochs),
        stalls=tuple(epoch.stall for epoch in epochs),
        stall=waited / wall if wall else 0.0,
        packets=found.made.packets,
        decode_s=found.made.decode_s,
        work_s=found.made.seconds,
        read_bytes=found.made.read_bytes,
        wall_s=found.wall_s,
        first_batch_s=found.first_batch_s,
        warm_up_s=next(steady, None),
        most_bytes=found.most_bytes,
    )


def _epoch_s(tasks: Sequence[Task], keep: KeepSettings, cost: CostModel) -> dict[int, float]:
    """What an epoch costs by and by with what is chosen for the first generation."""
    chosen = chosen_for([(task.generation(0), task) for task in tasks], keep, cost)
    return {} if chosen is None else dict(horizon_of(chosen, tasks).epoch_s)


def _least(outlooks: Sequence[BudgetOutlook], once: int) -> int | None:
    """The least of some budgets from which on nothing is decoded twice."""
    least = None
    for each in reversed(outlooks):
        if each.error or each.packets > once:
            break
        least = each.budget_bytes
    return least


def _search(
    trace: UseTrace,
    tasks: Sequence[Task],
    outlooks: Sequence[BudgetOutlook],
    once: int,
    is_enough: Callable[[int], bool],
    counted: "_Counted",
) -> int | None:
    """The least budget from which on nothing is decoded twice, to within 3 %; what was asked about says where it is."""
    asked = {each.budget_bytes: each.packets <= once for each in outlooks if not each.error}
    low, high = max(task.outline.batch_bound()[0] for task in tasks), 1
    for number in range(max(len(each) for each in trace.tasks)):
        near = (section for each in trace.tasks for section in each[number : number + 2])
        clips = np.unique(np.concatenate([trace.clips_of(section) for section in near]))
        high = max(high, sum(map(trace.clips.bound.__getitem__, clips.tolist())))
    high += high // 4 + 2 * low  # what is about to be read has room beside what is kept
    low = max([low, *(budget for budget, enough in asked.items() if not enough)])
    known = [budget for budget, enough in asked.items() if enough and budget > low]
    high = min([high, *known])
    if high not in known and (high <= low or not counted.done(is_enough(high))):
        return None
    while high - low > high // 32:
        counted.expect(math.ceil(math.log2((high - low) / (high // 32))))
        middle = (low + high) // 2
        low, high = (low, middle) if counted.done(is_enough(middle)) else (middle, high)
    return high


class _Counted:
    """How many simulations are done, and how many are left."""

    def __init__(self, progress: Progress | None, left: int) -> None:
        self._progress, self._count, self._left = progress, 0, left

    def expect(self, left: int) -> None:
        """So many are left."""
        self._left = left

    def done(self, found: T) -> T:
        """One more is done; gives what was found by it."""
        self._count, self._left = self._count + 1, max(0, self._left - 1)
        if self._progress is not None:
            self._progress(self._count, self._count + self._left, "")
        return found
