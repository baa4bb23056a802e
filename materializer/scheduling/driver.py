"""The loop that gives jobs to workers by the rules, whoever drives it: the dispatcher, or the simulation.

What differs between the two (workers, room, time) is what a driver says; the order of decisions is written here once.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from viewcache.errors import ViewcacheError
from viewcache.materializer.scheduling.rules import (
    Candidate,
    Need,
    NextJob,
    State,
    Wanted,
    fits,
    need_of,
    worth_making,
)
from viewcache.materializer.scheduling.work import Key, RowState

__all__ = ["Driver"]

_log = logging.getLogger("viewcache.dispatcher")

Promise = TypeVar("Promise")
Promised = TypeVar("Promised", covariant=True)
Given = TypeVar("Given")


class Space(Protocol[Promised]):
    """Where objects go."""

    @property
    def free_bytes(self) -> int:
        """Bytes that can be promised."""

    def reserve(self, size: int) -> Promised | None:
        """Promise bytes to an object; None if they are not free any more."""


class Passes(Protocol[Key, Given]):
    """What passes through memory instead of going there."""

    def of_job(
        self, choice: NextJob[Key], candidates: list[Candidate[Key]], memory: int
    ) -> tuple[list[Candidate[Key]], dict[Key, Given]]:
        """What a job can make, without what is better made later; and places in memory for what passes.

        The driver's lock is held. Of ``memory`` raw bytes at most; 0 asks for no places.
        """

    def unused(self, places: Mapping[Key, Given]) -> None:
        """Places that no job has taken are given back."""


class Driver(ABC, Generic[Key, Promise]):
    """Gives jobs to workers. One thread runs `give_jobs`."""

    state: State[Key]
    lock: AbstractContextManager[object]
    """Guards the state."""
    space: Space[Promise]
    passing: Passes[Key, Promise]
    demand_reserve: int
    """Bytes of the budget that look-ahead leaves free, so that a demand need not wait for an eviction."""
    full: bool
    """Look-ahead found no room; until a job ends or a reader moves on there will be none."""
    most_free = math.inf
    """Bytes of the budget that can ever be free: where a tier lies below, what is needed next stays here."""
    undecided = False
    """A policy was asked for the job that is being chosen, and has yet to answer: there may be more room soon."""
    failure: ViewcacheError | None = None
    """Why the job that is being chosen cannot be begun just now: a catalog that does not answer, say."""

    def leave_to_readers(self, demand_reserve: int) -> None:
        """Let look-ahead leave so many bytes of the budget free: a task with larger batches has joined."""
        self.demand_reserve = demand_reserve

    def give_jobs(self) -> bool:
        """Give out all that there is to make and room for; returns whether a reader lacks room."""
        tight: int | None = None
        while True:
            choice = self._choose(only_soon=tight is not None)
            if choice is None:
                if tight is not None:
                    self._found_no_room(tight)
                return False
            if not self._has_worker(choice):
                return False
            if self._join(choice):
                continue
            before = self._before_start()
            number = self._start(choice)
            if number is not None:
                if not self._submit(number):
                    return False
                continue
            if choice.demanded and self.failure is not None:
                self._refuse(choice, self.failure)
                continue
            if choice.demanded:
                self._lacks_room(choice)
                return True
            if tight is None and not choice.work.is_soon(choice.rows[0]):
                tight = before  # what is only kept evicts nothing, but what is read soon does
            else:
                self._found_no_room(before)

    def _join(self, choice: NextJob[Key]) -> bool:
        """Let rows whose objects are being made for others wait for those; True if there were any."""
        work, joined = choice.work, False
        with self.lock:
            for row in choice.rows:
                number = self.state.objects.making.get(work.key(row))
                if number is not None:
                    self.state.jobs[number][work.key(row)].append((work, row))
                    work.set_state(row, RowState.MAKING)
                    joined = True
        return joined

    def _start(self, choice: NextJob[Key]) -> int | None:
        """Choose what a job makes beside the rows, make room for it and describe it; None if there is no room."""
        self.failure = None
        memory = self._allowance(choice)
        if not memory:
            return None
        with self.lock:
            candidates, passing = self.passing.of_job(choice, worth_making(self.state, choice), memory)
            at_once = int(min(memory, max(0, self.most_free - self.demand_reserve)))
            need = need_of(self.state, choice, candidates, at_once, self.demand_reserve, passing.keys())
        taken: dict[Key, Promise] = {}
        number: int | None = None
        try:
            number, taken = self._begin(choice, candidates, need, passing, memory)
        except ViewcacheError as error:
            _log.warning("a job is not begun for now: %s", error, extra={"action": "job_not_begun"})
            self.failure = error
        finally:
            self.passing.unused({key: place for key, place in passing.items() if key not in taken})
        return number

    def _begin(
        self,
        choice: NextJob[Key],
        candidates: Sequence[Candidate[Key]],
        need: Need,
        passing: Mapping[Key, Promise],
        memory: int,
    ) -> tuple[int | None, dict[Key, Promise]]:
        """Make room for a job and describe it; its number, None if there is no room, and what was promised to it."""
        evicted = waits = False
        for size in need.sizes:
            if size and self.space.free_bytes < size + need.keep_free:
                self._try_room(size + need.keep_free, need.before_s, choice)
                evicted = True
            waits = self.undecided and not choice.demanded and size > 0
            if not size or self.space.free_bytes >= size + need.keep_free or waits:
                break  # less would be made for readers only: one decode for all of it is worth waiting for an answer
        wanted_free = size + need.keep_free + need.beside
        if need.beside and size + need.keep_free <= self.space.free_bytes < wanted_free:
            self._try_room(wanted_free, math.inf, choice)
        with self.lock:
            room = self.space.free_bytes - need.keep_free
            if room < size:
                if waits or passing.keys().isdisjoint(choice.work.keys(choice.rows)):
                    return None, {}
                room = 0  # what passes through memory needs none
            if evicted:  # what has left may be worth making
                candidates, _ = self.passing.of_job(choice, worth_making(self.state, choice), 0)
            wanted, promises = fits(self.state, candidates, self.space.reserve, max(0, room), memory, passing)
            if not wanted:
                return None, {}
            number = self._describe(choice, wanted, promises)  # first: of what cannot be described nothing is noted
            for same in wanted.values():
                for work, row in same:
                    work.set_state(row, RowState.MAKING)
            self.state.jobs[number] = wanted
            self.state.objects.making.update(dict.fromkeys(wanted, number))
        return number, promises

    def _try_room(self, need: int, before_s: float | None, choice: NextJob[Key]) -> None:
        try:
            self._make_room(need, before_s, choice)
        except ViewcacheError as error:  # a job that makes less may need no room
            self.failure = error

    def _put_back(self, number: int) -> None:
        """What a job was to make and has not made is planned again; the lock is held."""
        wanted = self.state.jobs.pop(number)
        for key in wanted:
            self.state.objects.making.pop(key, None)
        for same in wanted.values():
            for work, row in same:
                if work.state(row) == RowState.MAKING:
                    work.set_state(row, RowState.PLANNED)

    # What a driver says --------------------------------------------------------------------------------------------

    @abstractmethod
    def _choose(self, *, only_soon: bool) -> NextJob[Key] | None:
        """What is made next, see `next_job`."""

    @abstractmethod
    def _has_worker(self, choice: NextJob[Key]) -> bool:
        """Whether a worker can take a job for it, now or by pausing another; `_submit` gives it to that one."""

    @abstractmethod
    def _allowance(self, choice: NextJob[Key]) -> int:
        """Most raw bytes that a new job may hold; 0 = it must wait for others."""

    @abstractmethod
    def _make_room(self, need: int, before_s: float | None, choice: NextJob[Key]) -> None:
        """Evict what may leave for the choice (see `Need`) so that ``need`` bytes are free, as far as that goes.

        Raises:
            ViewcacheError: it cannot be found out what may leave.
        """

    @abstractmethod
    def _describe(
        self, choice: NextJob[Key], wanted: dict[Key, list[Wanted[Key]]], promises: dict[Key, Promise]
    ) -> int:
        """Describe the job for `_submit` and return its number; the lock is held.

        Raises:
            ViewcacheError: what it takes cannot be found out; nothing was promised to it then.
        """

    @abstractmethod
    def _submit(self, number: int) -> bool:
        """Give a job to the worker that `_has_worker` found; False if it could not be started."""

    @abstractmethod
    def _lacks_room(self, choice: NextJob[Key]) -> None:
        """There is no room for what a reader waits for; it fails if there never will be."""

    def _refuse(self, choice: NextJob[Key], error: ViewcacheError) -> None:
        """What a reader waits for cannot be begun just now: the reader is told, and waits for it no more."""
        raise error

    def _before_start(self) -> int:
        """A number that tells whether a reader has asked or moved on since; what is held may be noted."""
        return 0

    def _found_no_room(self, before: int) -> None:
        """Look-ahead waits until a job ends or a reader moves on, unless one has since `_before_start`."""
        self.full = True
