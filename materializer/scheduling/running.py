"""Jobs that workers have: who wants what of them, and what a job is given to make.

A job is one decode of one video. It makes what somebody wants of that video now, and with it what the cache's other
tasks want of it in the same time, so that tasks over the same videos decode them once (SAND §5.2).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from viewcache.errors import Full
from viewcache.materializer.planning.recipe import Base, Recipe
from viewcache.materializer.scheduling.work import SECONDS_PER_FRAME, Work
from viewcache.materializer.storage.ledger import Copy
from viewcache.materializer.telemetry.stalls import Arrival, Stretch
from viewcache.materializer.workers.job import Job, Made, Place
from viewcache.store import LocalTier, Reservation, Written

__all__ = ["Running", "Wanted", "by_work", "bytes_of", "describe", "no_room", "reserve", "worth_making"]

Wanted = tuple[Work, int]
"""A row of some work."""


@dataclass(slots=True)
class Running:
    """A job that a worker has."""

    job: Job
    wanted: dict[str, list[Wanted]]
    """Key → rows that need it; what is left to be made."""
    reservations: dict[str, Reservation]
    """Key → room for its object."""
    held: list[Copy] = field(default_factory=list)
    """Kept pictures that it starts from."""
    made: list[Written] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)
    """Busy seconds by stage."""
    given: float = field(default_factory=time.monotonic)
    """When, of `time.monotonic`."""
    fresh: bool = False
    """Whether the worker was started for it."""
    stretches: list[Stretch] = field(default_factory=list)
    """What the worker said of its work, in order."""

    def took(self, made: Made) -> Arrival:
        """Note an object that was made; returns how it came to be, for who waited for it."""
        self.made.append(made.written)
        self.seconds.update(made.seconds)
        if made.span.ended:  # else the worker died before it could say
            self.stretches.append(Stretch(made.span.begun, made.span.ended, made.seconds))
        return Arrival(self.given, self.fresh, tuple(self.stretches))

    @property
    def declared(self) -> int:
        """Most raw bytes that what is left of it holds in a worker."""
        return sum(work.held(row) for (work, row), *_ in self.wanted.values())

    def left(self) -> list[tuple[Work, list[int]]]:
        """All rows that still wait for the job."""
        return by_work(each for same in self.wanted.values() for each in same)


def by_work(wanted: Iterable[Wanted]) -> list[tuple[Work, list[int]]]:
    """The same rows, for each work."""
    found: dict[int, tuple[Work, list[int]]] = {}
    for work, row in wanted:
        found.setdefault(id(work), (work, []))[1].append(row)
    return list(found.values())


def worth_making(work: Work, rows: Sequence[int], works: Iterable[Work]) -> Iterator[Wanted]:
    """What a job can make: first what it is for, then what is worth making of the video meanwhile, soonest first.

    Args:
        work: whom the job is for.
        rows: of it, all of one video.
        works: all that is worth making. Of other tasks only what belongs to the same generation of the group, or is
            needed before that of ``work`` ends: more would fill the budget with what is needed late.
    """
    yield from ((work, row) for row in rows)
    video, until_s, asked = work.video(rows[0]), work.last_need_s(), set(rows)
    others = [each for each in works if each is not work]
    siblings = [(work.need_s(row), work, row) for row in work.planned_of(video) if row not in asked]
    for other in others:
        needs = ((other.need_s(row), other, row) for row in other.planned_of(video))
        siblings += [each for each in needs if other.born == work.born or each[0] <= until_s]
    siblings.sort(key=lambda each: each[0])
    yield from ((each, row) for _, each, row in siblings)


def bytes_of(wanted: Iterable[Wanted], has: Callable[[str], bool], *, only_next: bool) -> int:
    """Most bytes of the objects of some rows that are not in the store, or of those that are needed next."""
    sizes = {work.key(row): work.bound(row) for work, row in wanted if not only_next or work.is_next(row)}
    return sum(size for key, size in sizes.items() if not has(key))


def reserve(
    candidates: Iterable[Wanted], known: Callable[[str], bool], tier: LocalTier, room: int, memory: int
) -> tuple[dict[str, list[Wanted]], dict[str, Reservation]]:
    """Take what fits of what a job can make, and promise room to it.

    Args:
        candidates: from `worth_making`.
        known: whether an object, by its key, is there or being made.
        tier: where the objects go.
        room: most bytes of them on disk.
        memory: most raw bytes of them in the worker.

    Returns:
        Key → rows that need it, and key → room for its object.
    """
    wanted: dict[str, list[Wanted]] = {}
    reservations: dict[str, Reservation] = {}
    for work, row in candidates:
        key, size, held = work.key(row), work.bound(row), work.held(row)
        if key in wanted:
            wanted[key].append((work, row))
        elif not known(key) and size <= room and held <= memory:
            reservation = tier.reserve(size)
            if reservation is not None:
                wanted[key], reservations[key] = [(work, row)], reservation
                room, memory = room - size, memory - held
    return wanted, reservations


def describe(
    number: int,
    wanted: dict[str, list[Wanted]],
    place: Place,
    codec_of: Callable[[Recipe], str],
    bases: Sequence[Base] = (),
    urgent: Set[str] = frozenset(),
    *,
    trial: bool = False,
) -> Job:
    """Describe a job that makes each key for the first row that wants it, out of ``bases``.

    Keys that are ``urgent``, because readers wait for them, come first, wherever in their epochs these readers are;
    then what is needed soonest.
    """
    first = [same[0] for same in wanted.values()]
    first.sort(key=lambda each: (each[0].key(each[1]) not in urgent, each[0].need_s(each[1])))
    work, row = first[0]
    source = work.source(row)
    recipes = [replace(work.recipe(row), due=due) for due, (work, row) in enumerate(first)]
    clips = tuple(replace(recipe, codec=codec_of(recipe)) for recipe in recipes)
    return Job(
        number=number,
        uri=source.uri,
        name=source.name,
        video_key=source.key,
        index=source.index,
        clips=clips,
        place=place,
        bases=tuple(bases),
        trial=trial,
        estimate_s=SECONDS_PER_FRAME * (source.frames + sum(len(clip.frames) for clip in clips)),
    )


def no_room(work: Work, rows: Sequence[int], tier: LocalTier) -> Full:
    """What a reader is told when the budget cannot hold what it waits for."""
    what = f"{len(rows)} objects of up to {work.bound(rows[0])} bytes"
    used = f"{tier.used_bytes} of {tier.budget_bytes} bytes are in use"
    return Full(f"no room for {what}: {used} and nothing can be evicted; raise cache.budget")
