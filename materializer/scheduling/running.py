"""Jobs that workers have: who wants what of them, and what a job is given to make.

A job is one decode of one video. It makes what somebody wants of that video now, and with it what the cache's other
tasks want of it in the same time, so that tasks over the same videos decode them once (SAND §5.2).
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import BadVideo, Broken, Full, ViewcacheError
from viewcache.materializer.planning.cost import work_rows
from viewcache.materializer.planning.devices import SOURCE
from viewcache.materializer.planning.ladder import trial_rows
from viewcache.materializer.planning.recipe import Intermediate, KeptFile, Recipe
from viewcache.materializer.scheduling.intermediate_work import hold_intermediates
from viewcache.materializer.scheduling.rules import Wanted, in_order_of_need
from viewcache.materializer.scheduling.work import SECONDS_PER_FRAME, Makeable, Work
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.telemetry.stalls import Arrival, Stretch
from viewcache.materializer.workers.job import Job, Made, Near, Report, Target
from viewcache.store import LocalTier, Reservation, Written, find_written
from viewcache.store.codec_choice import RAW
from viewcache.store.codec_trial import Trial
from viewcache.store.passing import Passage
from viewcache.store.tier import LOCAL, MEMORY

__all__ = ["Running", "Tally", "begin", "by_work", "describe", "makeable", "no_room", "salvaged", "sweep"]

_log = logging.getLogger("viewcache.dispatcher")

SomeWork = TypeVar("SomeWork", bound=Work[str])

Packing = Callable[[Recipe, str], Recipe]
"""Gives an object its codec, see `CodecChooser.for_recipe`; told the content key of what it is made of, too."""


@dataclass(slots=True)
class Running:
    """A job that a worker has."""

    job: Job
    wanted: dict[str, list[Wanted[str]]]
    """Key → rows that need it; what is left to be made."""
    reservations: dict[str, Reservation]
    """Key → room for its object."""
    held: list[Copy] = field(default_factory=list)
    """Intermediates that it starts from."""
    passages: dict[str, Passage] = field(default_factory=dict)
    """Key → place in memory for its object, where that is not stored."""
    passed: set[str] = field(default_factory=set)
    """Keys of what it has made that is not stored."""
    made: list[Written] = field(default_factory=list)
    """What it made of frames and of audio: a file that it kept says nothing of what these cost."""
    seconds: Counter[str] = field(default_factory=Counter)
    """Busy seconds by stage."""
    cpu_s: Counter[str] = field(default_factory=Counter)
    """Of these, core seconds."""
    given: float = field(default_factory=time.monotonic)
    """When, of `time.monotonic`."""
    fresh: bool = False
    """Whether the worker was started for it."""
    stretches: list[Stretch] = field(default_factory=list)
    """What the worker said of its work, in order."""
    declared: int = 0
    """Most raw bytes that what is left of it holds in a worker."""
    task_id: int | None = None
    """Of the first task that wants something of it; None = what it makes is for no single one."""

    def __post_init__(self) -> None:
        """Add up what it declares: that is asked for at each choice of a job, and changes with each object only."""
        self.declared = sum(work.held(row) for (work, row), *_ in self.wanted.values())
        whose = (work.task_id for wanted in self.wanted.values() for work, _ in wanted)
        self.task_id = next((task_id for task_id in whose if task_id >= 0), None)

    def take(self, key: str) -> list[Wanted[str]]:
        """Who wants a key that it has nothing more to do with."""
        wanted = self.wanted.pop(key, [])
        for work, row in wanted[:1]:
            self.declared -= work.held(row)
        return wanted

    def took(self, made: Made) -> Arrival:
        """Note an object that was made; returns how it came to be, for who waited for it."""
        if self.job.to_keep is None or made.key != self.job.to_keep.key:
            self.made.append(made.written)
        self.seconds.update(made.seconds)
        self.cpu_s.update(made.span.cpu_s)
        if made.span.ended:  # else the worker died before it could say
            self.stretches.append(Stretch(made.span.begun, made.span.ended, made.seconds))
        return Arrival(self.given, self.fresh, tuple(self.stretches))

    def damaged(self, report: Report) -> list[Copy]:
        """Of what it started from, the copies that were not as they were written."""
        in_memory, elsewhere = set(report.damaged_in_memory), set(report.damaged)
        return [each for each in self.held if each.key in (in_memory if each.tier == MEMORY else elsewhere)]

    def release(self, ledger: Ledger, *, certain: bool = True) -> None:
        """Give back what was promised to objects that it did not make, and the holds on what it started from.

        Args:
            ledger: which has the holds.
            certain: whether its worker writes nothing more.
        """
        for reservation in self.reservations.values():
            reservation.release()
        for passage in self.passages.values():
            passage.release(certain=certain)
        ledger.release(self.held)

    def failures(self, report: Report) -> Iterator[tuple[ViewcacheError, list[tuple[Work[str], list[int]]]]]:
        """What rows that still wait for the job are told: why all of it failed, or why some objects were not made."""
        if report.error:
            yield report.failure, self.left()
        by_reason: dict[str, list[Wanted[str]]] = {}
        for key, why in report.broken.items():
            by_reason.setdefault(why, []).extend(self.wanted.get(key, ()))
        for why, wanted in by_reason.items():
            yield Broken(why), by_work(wanted)

    def left(self) -> list[tuple[Work[str], list[int]]]:
        """All rows that still wait for the job."""
        return by_work(each for same in self.wanted.values() for each in same)


SLOWEST_BYTES_PER_S = 256 << 10
"""Of a network: whoever fetches slower counts as hung."""


def _fetched(frames: Mapping[str, int]) -> list[IoSampleRow]:
    """What a job brought from far away, as measured work."""
    size = frames.get("fetched_bytes", 0)
    if not size:
        return []
    return [IoSampleRow("fetch", size.bit_length() - 1, "raw", SOURCE, 1, frames["fetched_us"] / 1e6, size)]


def _resident(frames: Mapping[str, int], intermediates: Iterable[Intermediate]) -> list[IoSampleRow]:
    """What a job read in memory, as measured work."""
    count, size, took_us = (frames.get(name, 0) for name in ("resident", "resident_bytes", "resident_us"))
    codec = next((each.stored.codec for each in intermediates if each.tier == MEMORY), "raw")
    bucket = (size // max(1, count)).bit_length() - 1
    took_s = took_us / 1e6  # of a core: memory is waited for by nobody
    return [IoSampleRow("load", bucket, codec, MEMORY, count, took_s, size, took_s)] if count else []


COUNTED = ("packets", "decoded", "wanted", "converted", "loaded", "resident")
"""Of what reports say of frames."""


class Tally:
    """What workers have done since the start."""

    def __init__(self, tried: Callable[[str, Sequence[Trial]], None] = lambda *_: None) -> None:
        """Nothing yet; ``tried`` is told how well pictures of a video were packed, with its content key."""
        self._tried = tried
        self.failure = ""
        """Why the last job failed as a whole (the disk is full, say); empty when it did not."""
        self.busy: Counter[str] = Counter()
        """Worker seconds by stage."""
        self.frames: Counter[str] = Counter()
        """Packets fed, frames decoded and wanted, pictures read, and of these from memory; objects made and passed on,
        and their raw bytes; samples packed to choose a codec, and the microseconds of a core that this took."""
        self._lock = threading.Lock()
        self._read_s = self._told_s = 0.0

    def read(self, seconds: float) -> None:
        """A reader has loaded clips; it says so from its own thread."""
        with self._lock:
            self._read_s += seconds

    def spent_s(self) -> float:
        """Core seconds of workers and readers since this was asked last."""
        with self._lock:
            before, self._told_s = self._told_s, self._read_s + sum(list(self.busy.values()))
            return self._told_s - before

    def made(self, made: Made, *, passes: bool) -> None:
        """An object was made; whether it passes through memory and is not stored."""
        size = made.written.raw_bytes
        self.frames.update(objects=1, object_bytes=size)
        if passes:
            self.frames.update(passed=1, passed_bytes=size)
        self.busy.update(made.seconds)

    def ended(self, running: Running, report: Report, ledger: Ledger) -> None:
        """A job is over: note what its stages cost."""
        self.failure = "" if report.error_kind == BadVideo.kind else report.error
        self.busy.update(report.seconds)
        self.frames.update({name: report.frames.get(name, 0) for name in COUNTED})
        running.seconds.update(report.seconds)
        running.cpu_s.update(report.span.cpu_s)
        self._tried(running.job.video_key, report.trials)
        sampled_s = [each.pack_s for each in report.trials if each.unpack_s is None]
        self.frames.update(sampled=len(sampled_s), sampled_us=round(1e6 * sum(sampled_s)))
        resident = _resident(report.frames, running.job.intermediates)
        trials = [*trial_rows(report.trials), *_fetched(report.frames), *resident]
        seconds: dict[str, float] = dict(running.seconds)
        cpu_s: dict[str, float] = dict(running.cpu_s)
        frames, loads = dict(report.frames), running.job.loads
        for row in resident:  # the rest was read in the folder
            seconds["load"] = max(0.0, seconds.get("load", 0.0) - row.seconds)
            cpu_s["load"] = max(0.0, cpu_s.get("load", 0.0) - row.cpu_s)
            frames["loaded"] -= row.n
            frames["loaded_bytes"] -= row.bytes
        ledger.add_samples([*work_rows(seconds, cpu_s, frames, running.made, loads, running.passed), *trials])


def by_work(wanted: Iterable[tuple[SomeWork, int]]) -> list[tuple[SomeWork, list[int]]]:
    """The same rows, for each work."""
    found: dict[int, tuple[SomeWork, list[int]]] = {}
    for work, row in wanted:
        found.setdefault(id(work), (work, []))[1].append(row)
    return list(found.values())


def makeable(wanted: Sequence[Wanted[str]]) -> tuple[Makeable, int]:
    """The first of the rows that need an object, for which it is made."""
    work, row = wanted[0]
    assert isinstance(work, Makeable)  # all work of a cache is
    return work, row


def describe(
    number: int,
    wanted: dict[str, list[Wanted[str]]],
    target: Target,
    packing: Packing,
    intermediates: Sequence[Intermediate] = (),
    urgent: Set[str] = frozenset(),
    *,
    trial: bool = False,
) -> Job:
    """Describe a job that makes each key for the first row that wants it, out of ``intermediates``.

    Keys that are ``urgent``, because readers wait for them, come first, wherever in their epochs these readers are;
    then what is needed soonest.
    """
    first = [makeable(wanted[key]) for key in in_order_of_need(wanted, urgent)]
    recipes = {(id(work), row): recipe for work, rows in by_work(first) for row, recipe in work.recipes(rows).items()}
    ordered = [recipes[id(work), row] for work, row in first]
    at = next((at for at, recipe in enumerate(ordered) if recipe.kind == ObjectKind.BLOCK), 0)
    work, row = first[at]
    source = work.source(row)
    clips = tuple(replace(packing(recipe, source.key), due=due) for due, recipe in enumerate(ordered))
    return Job(
        number=number,
        uri=source.uri,
        name=source.name,
        video_key=source.key,
        index=source.index,
        claims=source.claims,
        clips=clips,
        target=target,
        intermediates=tuple(intermediates),
        trial=trial,
        estimate_s=SECONDS_PER_FRAME * (source.frames + sum(len(clip.frames) for clip in clips)) + _fetching_s(clips),
    )


def _fetching_s(clips: Sequence[Recipe]) -> float:
    """Seconds that a worker is silent at most while it copies the video's file, if it does."""
    return sum(clip.shape[0] for clip in clips if clip.kind == ObjectKind.SOURCE) / SLOWEST_BYTES_PER_S


def begin(
    number: int,
    wanted: dict[str, list[Wanted[str]]],
    promises: Mapping[str, Reservation | Passage],
    ledger: Ledger,
    target_of: Callable[[Mapping[str, Passage]], Target],
    packing: Packing,
    urgent: Set[str],
    near_of: Callable[[str], KeptFile | None] = lambda _: None,
    *,
    trial: bool,
) -> Running:
    """A job, see `describe`, with what was promised to its objects and the holds on what it starts from.

    ``near_of`` tells the copy of a video's file, by the video's content key. Where the job cannot be described, rooms
    are given back; places in memory are the caller's.
    """
    intermediates, held = hold_intermediates(ledger, map(makeable, wanted.values()))
    places = {key: each for key, each in promises.items() if isinstance(each, Passage)}
    rooms = {key: each for key, each in promises.items() if isinstance(each, Reservation)}

    def unless_passing(recipe: Recipe, video: str) -> Recipe:
        return replace(recipe, codec=RAW) if recipe.key in places else packing(recipe, video)  # it lies so shortly

    try:
        job = describe(number, wanted, target_of(places), unless_passing, intermediates, urgent, trial=trial)
        if kept := near_of(job.video_key):
            for copy in ledger.hold([kept.key], LOCAL) or ():
                job = replace(job, near=Near(kept.key, kept.stamp, copy.stored))
                held.append(copy)
    except BaseException:  # the packet index of the video cannot be read in the catalog, say
        ledger.release(held)
        for room in rooms.values():
            room.release()
        raise
    return Running(job, wanted, rooms, held, places)


def salvaged(running: Running, ledger: Ledger, root: str) -> Iterator[Made]:
    """What a worker published but did not live to say: it lies there and must be counted."""
    for key in [key for key in running.wanted if key in running.reservations]:
        written = None if ledger.has(key) else find_written(root, key)
        if written is not None:
            yield Made(key, written, {})


def no_room(work: Work[str], rows: Sequence[int], tier: LocalTier) -> Full:
    """What a reader is told when the budget cannot hold what it waits for."""
    what = f"{len(rows)} objects of up to {work.bound(rows[0])} bytes"
    used = f"{tier.used_bytes} of {tier.budget_bytes} bytes are in use"
    return Full(f"no room for {what}: {used} and nothing can be evicted; raise cache.budget")


def sweep(tier: LocalTier) -> bool:
    """Remove what dead workers left; False if that was not possible."""
    try:
        tier.sweep()
    except OSError as error:  # no descriptor is free just now, say: the next sweep finds it
        _log.warning("what dead workers left stays for now: %s", error, extra={"action": "sweep_failed"})
        return False
    return True
