"""Tasks over one dataset: what they share, and the drawing of their orders together (docs/design/0009).

Orders are drawn a few iterations ahead of each reader and recorded before anybody sees them, so that a path keeps its
meaning; what is behind is planned, and may still change places. Who shares is known when tasks are opened.

An order in memory is the truth of what is drawn: it knows what the catalog has not got yet, and outlives members. The
sampler is made of orders, and made anew of them whenever it may have got ahead of one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow
from viewcache.errors import ViewcacheError
from viewcache.materializer.choices import Media
from viewcache.materializer.planning.clip_starts import shared_grid
from viewcache.materializer.planning.draws import settled_rows
from viewcache.materializer.planning.joint_order import DependentOrder, KeyedChance, Pick
from viewcache.materializer.planning.rows import audio_sample
from viewcache.materializer.planning.twins import asks_for, is_twin
from viewcache.materializer.sampling import Coordination
from viewcache.materializer.spec import TaskSpec
from viewcache.materializer.tasks.drawn import Drawable
from viewcache.materializer.tasks.planner import Twin
from viewcache.materializer.tasks.settings import Share
from viewcache.materializer.tasks.task import Task

__all__ = ["Group", "shares"]


def shares(tasks: Sequence[Task]) -> list[Share]:
    """What each of some tasks shares with the others: tasks that have videos in common, directly or through others.

    Independent tasks share nothing. Conditions on the iteration decide what a clip is by its place, so a task that has
    some draws its epochs whole, but shares clips; so does one that is not shuffled, or whose videos come by weight.
    """
    circle = list(range(len(tasks)))  # task → the first of those it shares with
    for one, other in combinations(range(len(tasks)), 2):
        if circle[one] != circle[other] and _may_share(tasks[one], tasks[other]):
            joined = {circle[one], circle[other]}
            circle = [min(joined) if each in joined else each for each in circle]
    found = []
    for task, mine in zip(tasks, circle, strict=True):
        others = [each for each, theirs in zip(tasks, circle, strict=True) if theirs == mine]
        drawing = [each for each in others if _draws_with_others(each.spec)]
        alike = (each.spec.sampling for each in others if each.spec.sampling.by_time == task.spec.sampling.by_time)
        grid = shared_grid(each.pitch for each in alike)
        found.append(Share(grid, task in drawing and len(drawing) > 1))
    return found


def _draws_with_others(spec: TaskSpec) -> bool:
    """Whether a task's order can be drawn with others', for which each video must come once an epoch.

    That of images is settled when it is planned, so that the pictures of a batch can be made together.
    """
    if spec.dataset.media == Media.IMAGE:
        return False
    return spec.shuffle and spec.dataset.weighted is None and not asks_for(spec, "iteration")


def _may_share(task: Task, other: Task) -> bool:
    modes = task.spec.sampling.coordination, other.spec.sampling.coordination
    if task.dataset.dataset_id != other.dataset.dataset_id or Coordination.INDEPENDENT in modes:
        return False
    if task.epochs_at_once != other.epochs_at_once:  # their generations would not go together
        return False
    return task.dataset.overlaps(other.dataset)


@dataclass(slots=True)
class _Member:
    """A task that is being read."""

    task: Task
    place: tuple[int, int]
    """Epoch and position of the first video that its reader has not had."""
    drawing: int = -1
    """Epoch that it is in the sampler with; -1 = it is not."""
    active: Drawable | None = None
    """The generation of that epoch."""
    ahead: int = 0
    """Positions that are drawn beyond its place."""

    @property
    def batch(self) -> int:
        """Videos of an iteration."""
        return self.task.spec.sampling.videos_per_batch

    def rest(self) -> None:
        """It is in the sampler no more."""
        self.drawing, self.active = -1, None


class Group:
    """Draws the orders of the tasks over one dataset. Thread-safe."""

    def __init__(
        self, catalog: Catalog, seed: int, ahead: int, guard: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Start without members; a task becomes one when it is read first.

        Args:
            catalog: where orders are recorded.
            seed: of the random numbers.
            ahead: iterations that each order is drawn ahead of its reader.
            guard: the lock under which clips may change places.
        """
        self._catalog = catalog
        self._ahead = ahead
        self._guard = guard
        self._seed = seed
        self._order = DependentOrder(0, KeyedChance(seed))
        self._tasks: dict[str, Task] = {}
        self._members: dict[str, _Member] = {}
        self.lock = threading.RLock()
        """Held while orders change; a task's own lock may be held already, never the other way round."""

    def add(self, task: Task) -> None:
        """Let a task draw with the others, from when the first of all is read, or from when it is read itself."""
        self._tasks[task.spec.name] = task

    def epoch(self, asking: Task) -> int:
        """The furthest epoch that a task is in besides the one that asks, counted from the group's first."""
        others = [task for task in list(self._tasks.values()) if task is not asking]
        begun = [task for task in others if (0, 0) < task.place() < (task.spec.epochs, 0)]
        return max((task.place()[0] + task.joined for task in begun), default=0)

    def matching_generations(self, task: Task, number: int, *, joined: bool = False) -> Iterator[tuple[Task, int]]:
        """The generations of other tasks that belong to the same epochs of the group, where these are near them.

        Args:
            task: whose generation.
            number: of the generation.
            joined: leave out tasks of which it is not decided yet when they joined. Deciding it takes a task's own
                lock, so who holds that of the group must.
        """
        for other in list(self._tasks.values()):
            if joined and not other.has_joined:
                continue
            theirs, (epoch, _) = number + task.skipped - other.skipped, other.place()
            if other is task or epoch >= other.spec.epochs:
                continue
            if 0 <= theirs <= min(other.last_generation(), other.generation_of(epoch) + 1):
                yield other, theirs

    def twins(self, task: Task, number: int) -> list[Twin]:
        """Plans of a generation's epochs that tasks of the same definition have, and their rows' objects."""
        by_epoch, found = asks_for(task.spec, "epoch"), list[Twin]()
        for other in list(self._tasks.values()):
            # One that has not joined has planned nothing, and asking when it does would wait for its lock.
            if other is task or not other.has_joined or not is_twin(task.spec, other.spec):
                continue
            active = other.planned(number + task.skipped - other.skipped)
            if active is not None and (other.joined == task.joined or not by_epoch):
                with self.lock:  # under which a plan is replaced together with its objects
                    found.append((active.plan, active.object_ids))
        return found

    def newest_drawn(self, group_generation: int) -> int | None:
        """The largest ``item_id`` that a task whose dataset grows has drawn of a generation; None if none has."""
        drawn: list[int | None] = []
        for task in list(self._tasks.values()):
            number = group_generation - task.skipped
            if task.spec.dataset.grows and 0 <= number <= task.last_generation():
                drawn.append(self._catalog.newest_drawn(task.task_id, task.epochs_of(number).start))
        return max((each for each in drawn if each is not None), default=None)

    def leave(self, task: Task) -> None:
        """Draw no more for a task, also in the middle of an epoch; reading it again brings it back.

        What could not be recorded stays with the task, and is when it is read again.
        """
        with self.lock:
            self._tasks.pop(task.spec.name, None)
            self._order.remove(task.spec.name)
            self._members.pop(task.spec.name, None)

    def rest(self, task: Task) -> None:
        """Record what is drawn of a task, and draw on from what it has planned then; the lock is held."""
        self._record(task)
        self._order.remove(task.spec.name)
        member = self._members.get(task.spec.name)
        if member is not None:
            member.rest()

    def settle(self, task: Task, epoch: int, positions: int) -> None:
        """Draw an epoch of a task at least so far: a reader is there."""
        self._tasks.setdefault(task.spec.name, task)
        self._prepare(task, task.generation_of(epoch))
        with self.lock:
            member = self._at(task, (epoch, max(0, positions - task.spec.sampling.videos_per_batch)))
            self._draw(member, lambda: _drawn(task, epoch) >= positions, forced=True)

    def reached(self, task: Task, epoch: int, position: int) -> None:
        """A reader has had the videos before ``position``; draw on if little is drawn ahead."""
        with self.lock:
            member = self._at(task, (epoch, position))
            if member.ahead <= self._ahead * member.batch // 2:
                self._draw(member, lambda: member.ahead >= self._ahead * member.batch)

    def _prepare(self, task: Task, number: int) -> None:
        """Let the others' epochs that belong to a generation be known, so that they can be drawn with it.

        When the first of all tasks is read, those that are configured with it are about to be.
        """
        begun = bool(self._members)
        for other, theirs in self.matching_generations(task, number):
            with suppress(ViewcacheError):  # who reads that task gets it
                other.drawn(theirs)
                if not begun:
                    with self.lock:
                        self._at(other, other.place())

    # Drawing -------------------------------------------------------------------------------------------------------

    def _at(self, task: Task, place: tuple[int, int]) -> _Member:
        """The member, its reader at a place; what is drawn ahead counts from there."""
        member = self._members.setdefault(task.spec.name, _Member(task, place))
        member.place, member.ahead = place, -place[1]
        for epoch in range(place[0], task.spec.epochs):
            active = task.begun(task.generation_of(epoch))
            if active is None:
                break
            member.ahead += _drawn(task, epoch)
            if _drawn(task, epoch) < active.order.positions:
                break
        return member

    def _draw(self, member: _Member, enough: Callable[[], bool], *, forced: bool = False) -> None:
        """Draw rounds until it is enough, and record them; nothing is drawn on top of what cannot be recorded."""
        self._record()
        try:
            self._draw_rounds(member, enough, forced=forced)
        except BaseException:  # what the sampler has drawn may not be placed: it is made anew of the orders
            self._order = DependentOrder(0, KeyedChance(self._seed))
            for each in self._members.values():
                each.rest()
            raise
        self._record()

    def _draw_rounds(self, member: _Member, enough: Callable[[], bool], *, forced: bool) -> None:
        """Draw rounds until it is enough.

        Unless a reader is there (``forced``), a task draws alone only until half of ``ahead`` is drawn, and opens an
        epoch only with the others. A quarter of ``ahead`` is play: readers of one pace are never quite in step, and
        what one of them has drawn without the others they draw at another time.
        """
        while not enough():
            if not self._open(member, alone=forced):
                break
            ready = [each for each in self._members.values() if each is member or self._may_draw(each)]
            if len(ready) == 1 and not forced and member.ahead > self._ahead * member.batch // 2:
                break
            with self._guard():
                for pick in self._order.draw([each.task.spec.name for each in ready]):
                    self._place(pick)

    def _may_draw(self, each: _Member) -> bool:
        wanted = self._ahead * each.batch
        return each.ahead < wanted + max(each.batch, wanted // 4) and self._open(each, alone=False)

    def _open(self, member: _Member, *, alone: bool) -> bool:
        """Let a task draw in the first epoch, from its reader on, that is not drawn whole; False if there is none.

        An epoch whose order the others do not know yet is opened only if ``alone`` is fine.
        """
        task, name = member.task, member.task.spec.name
        if member.drawing >= member.place[0] and self._order.left(name):
            return True
        self._order.remove(name)
        member.rest()
        for epoch in range(member.place[0], task.spec.epochs):
            active = task.begun(task.generation_of(epoch))
            if active is None:
                return False  # it is being planned: look again later
            # Of one that has not joined it would be decided now, under a lock that its planner may hold who waits here.
            matching = self.matching_generations(task, active.number, joined=True)
            if not alone and not all(other.begun(number) for other, number in matching):
                return False
            drawn = _drawn(task, epoch)
            if drawn < active.order.positions:
                waiting = active.order.waiting(epoch - active.first_epoch)
                self._widen(int(waiting.max()) + 1)
                self._order.insert(name, waiting, epoch=epoch, position=drawn)
                member.drawing, member.active = epoch, active
                return True
        return False

    def _widen(self, elements: int) -> None:
        """Elements are video ids; a file that was found later has a larger one."""
        self._order.elements = max(self._order.elements, elements)

    def _place(self, pick: Pick) -> None:
        member = self._members[pick.job]
        active = member.active
        assert active is not None  # it is drawing
        member.task.unrecorded[active.number] = active
        active.draw(pick.epoch, pick.position, pick.element)
        active.order.drawn[pick.epoch - active.first_epoch] = pick.position + 1
        member.ahead += 1

    def _record(self, *others: Task) -> None:
        """Record what was drawn of all members, and of some other tasks, in one transaction.

        Only then may anybody read it. After an error it is not known what of it is recorded, so all of it waits for the
        next time: recording the same again is harmless.
        """
        tasks = [*(each.task for each in self._members.values()), *others]
        behind = [each for task in dict.fromkeys(tasks) for each in _behind(task)]
        if behind:
            draws, uses, settled = (pa.concat_tables(each) for each in zip(*map(_changes, behind), strict=True))
            self._catalog.settle_draws(draws, uses, settled)
            self._catalog.add_substitutions([row for each in behind for row in _certain(each)])
            for each in behind:
                _settle(each)


@dataclass(frozen=True, slots=True)
class _Behind:
    """An epoch of which more is drawn than the catalog knows."""

    task: Task
    active: Drawable
    """The generation."""
    epoch: int
    drawn: int
    """Positions that are drawn."""


def _behind(task: Task) -> Iterator[_Behind]:
    for active in task.unrecorded.values():
        for at, positions in enumerate(active.order.unrecorded):
            if positions:
                yield _Behind(task, active, active.first_epoch + at, int(active.order.drawn[at]))


def _drawn(task: Task, epoch: int) -> int:
    """Positions of an epoch that are drawn, whether they are recorded yet or not."""
    active = task.begun(task.generation_of(epoch))
    return int(active.order.drawn[epoch - active.first_epoch]) if active is not None else 0


def _changes(behind: _Behind) -> tuple[pa.Table, pa.Table, pa.Table]:
    """What the catalog must know of an epoch: moved draws, moved uses, and how far it is settled."""
    task, active, epoch = behind.task, behind.active, behind.epoch
    positions = np.array(sorted(active.order.unrecorded[epoch - active.first_epoch]), np.int64)
    planned_indexes = np.array([active.planned_index(epoch, position) for position in positions.tolist()], np.int64)
    task_id, of_video = task.task_id, task.spec.sampling.samples_per_video

    def columns(count: int, position: np.ndarray) -> dict[str, object]:
        return {
            "task_id": np.full(count, task_id),
            "epoch": np.full(count, epoch, np.int32),
            "position": position.astype(np.int32),
        }

    draws = pa.table(columns(len(planned_indexes), positions) | {"video_id": active.order.ids[planned_indexes]})
    object_ids = np.zeros(0, np.int64) if active.object_ids is None else active.object_ids
    used = len(planned_indexes) if len(object_ids) else 0  # before it is planned nothing uses anything
    samples = np.tile(np.arange(of_video), used)
    rows = np.repeat(planned_indexes[:used], of_video) * of_video + samples
    moved = columns(len(rows), np.repeat(positions[:used], of_video))
    uses = pa.table(moved | {"sample": samples.astype(np.int32), "object_id": object_ids[rows]})
    clips = active.order.ids.size * of_video
    if len(object_ids) > clips:
        audio = {"sample": audio_sample(samples.astype(np.int32)), "object_id": object_ids[clips + rows]}
        uses = pa.concat_tables([uses, pa.table(moved | audio)])
    return draws, uses, settled_rows(task_id, range(epoch, epoch + 1), np.array([behind.drawn]))


def _certain(behind: _Behind) -> Iterator[SubstitutionRow]:
    """The uses of policies that have their place now."""
    active, epoch = behind.active, behind.epoch
    for position in range(active.settled(epoch), behind.drawn):
        for row in active.policies.get(active.planned_index(epoch, position), ()):
            yield replace(row, position=position)


def _settle(behind: _Behind) -> None:
    """Let positions be read, which are recorded."""
    active, epoch = behind.active, behind.epoch
    for position in range(active.settled(epoch), behind.drawn):
        active.policies.pop(active.planned_index(epoch, position), None)
    active.order.settle(epoch - active.first_epoch)
    if not any(active.order.unrecorded):
        behind.task.unrecorded.pop(active.number)
