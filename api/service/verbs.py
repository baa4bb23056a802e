"""What the service does when it is asked; nothing of sockets is known here."""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import viewcache
from viewcache.api.config.documents import TextSource, differences, load_texts
from viewcache.api.service import answers, asks, wire
from viewcache.api.service.jobs import of_job
from viewcache.api.service.sessions import Lease, Session, Sessions, Sitting
from viewcache.api.service.transit import TRANSIT, Transit
from viewcache.api.service.usage import cpu_seconds
from viewcache.api.session.cache import Cache
from viewcache.api.session.making import Making
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Broken, ChunkDamaged, Misuse, SeatTaken, ServiceVersion, StoreUnreachable
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.reading.reader import Held
from viewcache.materializer.reading.values import FrameRequest, VideoInfo
from viewcache.materializer.scheduling.work import READ_TRIES
from viewcache.materializer.storage.ledger import Copy
from viewcache.store import Stored
from viewcache.store.memory import MemoryTier
from viewcache.store.tier import LOCAL, MEMORY

__all__ = ["READ_BY_CLIENTS", "Verbs"]

READ_BY_CLIENTS = (MEMORY, LOCAL)
"""Tiers that clients read themselves."""

RISE_S = 2.0
"""How long a seat that is taken is waited for: the workers of a DataLoader end a little later than their loop."""

LOOK_S = 0.02

VIDEOS_AT_ONCE = 1000
"""In one answer."""


class Verbs:
    """An open cache, as its clients ask for it. Thread-safe."""

    def __init__(self, cache: Cache, incarnation: str) -> None:
        """Answer for a cache.

        Args:
            cache: which.
            incarnation: of the service.
        """
        self.cache = cache
        self.sessions = Sessions()
        self.incarnation = incarnation
        self.stopping = threading.Event()
        """Set when a client wants the service to end."""
        self._since = time.time()
        self._sitting = threading.Lock()
        self._transit: Transit | None = None
        self._verbs: dict[type[asks.Ask], Callable[[Session, Any, Cancelled], answers.Answer]] = {
            asks.Join: self._join,
            asks.Leave: self._leave,
            asks.About: self._about,
            asks.Sit: self._sit,
            asks.Iterations: self._iterations,
            asks.Positions: self._positions,
            asks.Fetch: self._fetch,
            asks.Look: self._look,
            asks.Describe: self._describe,
            asks.Parts: self._parts,
            asks.PlannedAt: self._planned_at,
            asks.Version: self._version,
            asks.Video: self._video,
            asks.Videos: self._videos,
            asks.DescribeFrame: self._describe_frame,
            asks.Frames: self._frames,
            asks.Make: self._make,
            asks.Stats: self._stats,
            asks.Stop: self._stop,
        }

    # Clients -------------------------------------------------------------------------------------------------------

    def hello(self, hello: asks.Hello, pid: int) -> tuple[Session, answers.Welcome]:
        """A process begins.

        Raises:
            ServiceVersion: it speaks another protocol.
            ConfigError: its configuration contradicts that of the cache.
        """
        if hello.protocol != wire.PROTOCOL:
            raise ServiceVersion(
                f"the service runs viewcache {viewcache.__version__}, which speaks protocol {wire.PROTOCOL}; this "
                f"process has {hello.version} and speaks {hello.protocol}: the service ends with its clients, or by "
                "`viewcache stop`"
            )
        names, warnings = self._admit(hello.documents, hello.job)
        session = self.sessions.begin(pid, hello.program)
        tiers = (*(name for name in READ_BY_CLIENTS if name in self.cache.tiers), TRANSIT)
        return session, answers.Welcome(
            wire.PROTOCOL,
            viewcache.__version__,
            self.incarnation,
            os.getpid(),
            session.number,
            session.token,
            tiers,
            names,
            tuple(warnings),
        )

    def descriptor(self, tier: str) -> int:
        """A new descriptor by which clients read a tier: of its folder, or of its memory; the caller closes it."""
        if tier == TRANSIT:
            return self.transit().descriptor()
        found = self.cache.tiers[tier]
        if isinstance(found, MemoryTier):
            return found.descriptor()
        return os.open(self.cache.tier.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def transit(self) -> Transit:
        """The memory for what clients cannot read themselves, made when it is asked for first."""
        with self._sitting:
            if self._transit is None:
                local = self.cache.owner.tier.budget_bytes
                self._transit = Transit(min(1 << 30, max(local // 4, 64 << 20)))
            return self._transit

    def _admit(self, documents: Sequence[asks.Document], job: str) -> tuple[tuple[str, ...], list[str]]:
        if not documents:
            return (), []
        sources = [TextSource(each.name, each.folder, each.text) for each in documents]
        config = load_texts(sources, self.cache.config)
        warnings = differences(sources, config, self.cache.config)
        return self.cache.owner.admit(of_job(config, job)), warnings

    def end(self, session: Session) -> None:
        """A process has gone, however it did: what it held is given back, and nothing is made ahead for it."""
        if not self.sessions.remove(session):
            return
        leases, seats = session.close()
        for lease in leases:
            self._let_go(lease)
        for sitting in seats:
            sitting.seat.leave()
        for task in {sitting.task for sitting in seats} | session.by_path:
            self._suspend_unread(task)

    def expire(self) -> None:
        """End what clients hold for too long."""
        now = time.monotonic()
        for session in self.sessions.all():
            for lease in session.overdue(now):
                self._let_go(lease)

    def close(self) -> None:
        """End all sessions."""
        for session in self.sessions.all():
            self.end(session)
        if self._transit is not None:
            self._transit.close()

    def _suspend_unread(self, task: str) -> None:
        with self._sitting:
            if not any(session.reads(task) for session in self.sessions.all()):
                self.cache.owner.suspend(task)

    def _let_go(self, lease: Lease) -> None:
        if lease.held is not None:
            lease.held.fetched.give_back()
        if lease.transit and self._transit is not None:
            self._transit.remove(lease.transit)

    # Asking --------------------------------------------------------------------------------------------------------

    def answer(self, session: Session, ask: asks.Ask, cancelled: Cancelled) -> answers.Answer:
        """Do what a client asks.

        Raises:
            Misuse: not in a session that has begun.
            ViewcacheError: what the verb raises.
        """
        verb = self._verbs.get(type(ask))
        if verb is None:
            raise Misuse(f"{type(ask).__name__} is no question of a session that has begun")
        return verb(session, ask, cancelled)

    def done(self, session: Session, done: asks.Done) -> None:
        """A client has read what was held for it."""
        lease = session.end(done.lease)
        if lease is None:
            return
        if lease.transit:
            self.transit().remove(lease.transit)
        if lease.held is None:
            return
        held = lease.held
        copies = held.fetched.copies
        wrong: dict[int, Exception] = {
            k: ChunkDamaged(f"{copies[k].stored.physical} was found damaged by process {session.pid}")
            for k in done.damaged
            if 0 <= k < len(copies)
        }
        samples = [
            IoSampleRow("load", each.size_bits, each.codec, each.tier, each.count, each.seconds, each.bytes)
            for each in done.loaded
        ]
        lease.task.end(held, wrong, samples, done.seconds)

    def _task(self, name: str) -> OwnedTask:
        return self.cache.task(name)

    def _join(self, _session: Session, ask: asks.Join, _cancelled: Cancelled) -> answers.Joined:
        names, _ = self._admit(ask.documents, ask.job)
        return answers.Joined(names)

    def _leave(self, _session: Session, ask: asks.Leave, _cancelled: Cancelled) -> answers.Ok:
        self.cache.leave(ask.task)
        return answers.Ok()

    def _about(self, _session: Session, ask: asks.About, _cancelled: Cancelled) -> answers.AboutTask:
        task = self._task(ask.task)
        return answers.AboutTask(
            task.task_id,
            task.name,
            task.epochs,
            task.seed,
            task.layout,
            task.videos_per_batch,
            task.samples_per_video,
            task.classes,
            task.draws_together,
            task.clip_shape,
            tuple(sorted(task.batch_sizes())),
            task.task.joined,
            task.task.epochs_at_once,
            json.dumps([[call.name, call.params] for call in task.task.graph.read_ops]),
            task.depths(),
            task.task.spec.dataset.grows,
        )

    # Reading -------------------------------------------------------------------------------------------------------

    def _sit(self, session: Session, ask: asks.Sit, cancelled: Cancelled) -> answers.Seated:
        task, until = self._task(ask.task), time.monotonic() + RISE_S
        while True:
            try:
                with self._sitting:
                    self.sessions.check_free(session, ask.task, ask.rank, ask.world, ask.part, ask.parts)
                    seat = task.sit(ask.rank, ask.world, ask.part, ask.parts, ask.epoch, ask.iteration)
                    return answers.Seated(session.sit(Sitting(ask.task, seat)))
            except SeatTaken:
                if cancelled.is_set() or time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)

    def rise(self, session: Session, ask: asks.Rise) -> None:
        """A client has stopped reading from a seat."""
        session.rise(ask.seat)

    def _iterations(self, _session: Session, ask: asks.Iterations, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).iterations(ask.epoch))

    def _positions(self, _session: Session, ask: asks.Positions, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).task.positions(ask.epoch))

    def _fetch(self, session: Session, ask: asks.Fetch, cancelled: Cancelled) -> answers.Fetched:
        sitting = session.seat(ask.seat)
        task = self._task(sitting.task)
        return self._fetched(session, task, lambda: sitting.seat.hold(ask.epoch, ask.iteration, cancelled))

    def _look(self, session: Session, ask: asks.Look, cancelled: Cancelled) -> answers.Fetched:
        task = self._task(ask.task)
        which = None if ask.last < 0 else range(max(0, ask.first), ask.last)
        if which is None:
            session.by_path.add(ask.task)
        return self._fetched(
            session, task, lambda: task.hold(ask.epoch, ask.iteration, ask.rank, ask.world, which, cancelled)
        )

    def _fetched(self, session: Session, task: OwnedTask, hold: Callable[[], Held]) -> answers.Fetched:
        for _ in range(READ_TRIES):
            held, transit = hold(), dict[int, Stored]()
            try:
                transit = self._bring_near(held.fetched.copies)
                facts = task.facts(held)
            except (ChunkDamaged, StoreUnreachable):  # it is made again, or read from where it is whole
                held.fetched.give_back()
                continue
            except BaseException:
                self._let_go(Lease(task, held, list(transit.values())))
                raise
            places = tuple(
                _place_of(TRANSIT, transit[k]) if k in transit else _place_of(copy.tier, copy.stored)
                for k, copy in enumerate(held.fetched.copies)
            )
            number = session.hold(Lease(task, held, list(transit.values())), self._let_go)
            waited_s, stalls = held.fetched.waited_s, {**held.reading.stalls, **held.fetched.stalls}
            facts = replace(facts, waited_s=waited_s, stalls=stalls)
            return _fetched_of(facts, held.shape, number, places)
        raise Broken(f"clips of task {task.name!r} were damaged {READ_TRIES} times in a row; run `viewcache doctor`")

    def _bring_near(self, copies: Sequence[Copy]) -> dict[int, Stored]:
        """Put copies that clients cannot read into memory that they can; by position.

        Raises:
            ChunkDamaged: one is damaged, and made again.
            StoreUnreachable: the tier does not answer, and is passed over for a while.
        """
        far = [k for k, copy in enumerate(copies) if copy.tier not in READ_BY_CLIENTS]
        if not far:
            return {}
        owner, chosen = self.cache.owner, [copies[k] for k in far]
        arrays = [np.empty(copy.stored.shape, np.uint8) for copy in chosen]
        wrong, _ = owner.tiers.read_slots(chosen, arrays)
        if wrong:
            owner.dispatcher_now().evictor.rebuild(chosen, wrong)
            raise next(iter(wrong.values()))
        return dict(zip(far, self.transit().put(arrays), strict=True))

    def _describe(self, _session: Session, ask: asks.Describe, _cancelled: Cancelled) -> answers.Fetched:
        facts = self._task(ask.task).describe(ask.epoch, ask.iteration, ask.rank, ask.world)
        return _fetched_of(facts, facts.video.shape, 0, ())

    def _parts(self, _session: Session, ask: asks.Parts, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).parts)

    def _planned_at(self, _session: Session, ask: asks.PlannedAt, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).planned_at(ask.epoch))

    def _version(self, _session: Session, ask: asks.Version, _cancelled: Cancelled) -> answers.Text:
        return answers.Text(self._task(ask.task).keys_of(ask.epoch, ask.iteration))

    # Videos and frames ---------------------------------------------------------------------------------------------

    def _video(self, _session: Session, ask: asks.Video, _cancelled: Cancelled) -> answers.VideosOf:
        return answers.VideosOf((_video_of(self._task(ask.task).video(ask.name)),))

    def _videos(self, _session: Session, ask: asks.Videos, _cancelled: Cancelled) -> answers.VideosOf:
        return answers.VideosOf(tuple(map(_video_of, self._task(ask.task).videos_after(ask.after, VIDEOS_AT_ONCE))))

    def _describe_frame(self, _session: Session, ask: asks.DescribeFrame, _cancelled: Cancelled) -> answers.FrameFacts:
        found = self._task(ask.task).describe_frame(_request(ask.frame))
        recipe = json.dumps(found.recipe)
        return answers.FrameFacts(
            found.video_id, found.video, found.label, found.frame, found.depth, found.shape, found.time_s, found.key,
            recipe,
        )  # fmt: skip

    def _frames(self, session: Session, ask: asks.Frames, _cancelled: Cancelled) -> answers.Held:
        task = self._task(ask.task)
        stored = self.transit().put([each[None] for each in task.frames(list(map(_request, ask.frames)))])
        number = session.hold(Lease(task, None, stored), self._let_go)
        return answers.Held(number, tuple(_place_of(TRANSIT, each) for each in stored))

    # The service itself --------------------------------------------------------------------------------------------

    def _make(self, session: Session, ask: asks.Make, _cancelled: Cancelled) -> answers.Counts:
        owner, wanted = self.cache.owner, (ask.tasks, ask.epochs)
        making = session.making.get(wanted)
        if making is None:
            tasks = [self._task(name).task for name in ask.tasks]
            making = Making.begin(tasks, ask.epochs, owner.keeper, owner.dispatcher_now())
            session.making = {wanted: making}
        over, counts = making.step()
        if over:
            session.making = {}
        return answers.Counts(counts, over)

    def _stats(self, _session: Session, _ask: asks.Stats, _cancelled: Cancelled) -> answers.StatsOf:
        work = {name: float(count) for name, count in self.cache.snapshot().work.items()}
        clients = tuple(session.shown() for session in self.sessions.all())
        return answers.StatsOf(os.getpid(), viewcache.__version__, self._since, cpu_seconds(), work, clients)

    def _stop(self, session: Session, ask: asks.Stop, _cancelled: Cancelled) -> answers.Ok:
        others = [each for each in self.sessions.all() if each is not session]
        if ask.if_idle and others:
            who = ", ".join(f"{each.pid} ({each.program})" for each in others)
            raise Misuse(f"the service is used by the processes {who}; end them first")
        self.stopping.set()
        return answers.Ok()


def _place_of(tier: str, stored: Stored) -> answers.PlaceOf:
    return answers.PlaceOf(
        tier, stored.physical, stored.shape, stored.chunk_rows, stored.codec, stored.table.to_bytes()
    )


def _fetched_of(
    batch: Batch, shape: tuple[int, ...], lease: int, places: tuple[answers.PlaceOf, ...]
) -> answers.Fetched:
    return answers.Fetched(
        lease,
        places,
        shape,
        batch.keys,
        batch.videos,
        batch.label.astype("<i8").tobytes(),
        batch.index.astype("<i8").tobytes(),
        batch.frame.astype("<i8").tobytes(),
        batch.time_s.astype("<f8").tobytes(),
        batch.waited_s,
        dict(batch.stalls),
    )


def _request(frame: asks.FrameAsked) -> FrameRequest:
    return FrameRequest(frame.video, frame.frame, frame.depth, frame.epoch, frame.sample, frame.output)


def _video_of(video: VideoInfo) -> answers.VideoFacts:
    return answers.VideoFacts(
        video.video_id,
        video.name,
        video.uri,
        video.extension,
        video.key,
        video.label,
        str(video.status),
        video.error,
        *video.stamp,
        video.frames,
        video.height,
        video.width,
        video.fps,
        video.duration_s,
        video.codec,
    )
