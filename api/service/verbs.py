"""What the service does when it is asked; nothing of sockets is known here."""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from math import inf
from typing import Any, Protocol

import msgspec

import viewcache
from viewcache.api.config.documents import TextSource, check_code, differences, load_texts
from viewcache.api.config.settings import settings_of
from viewcache.api.service import answers, asks, wire
from viewcache.api.service.counted import counters_of, counts_of
from viewcache.api.service.handing import Handing, fetched_of
from viewcache.api.service.jobs import of_job
from viewcache.api.service.retiring import Retiring
from viewcache.api.service.sessions import Session, Sessions, Sitting
from viewcache.api.service.usage import cpu_seconds
from viewcache.api.session.cache import Cache
from viewcache.api.session.making import AheadOfTime
from viewcache.errors import Busy, Closed, Misuse, SeatTaken, ServiceVersion, ViewNotFound
from viewcache.materializer.dataset.listing import Progress
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.reading.handle import OwnedTask
from viewcache.materializer.reading.values import FrameRequest, VideoInfo

__all__ = ["Verbs", "Waiting"]

RISE_S = 2.0
"""How long a seat that is taken is waited for: the workers of a DataLoader end a little later than their loop."""

ORPHANED_S = 15.0
"""The same where their training was killed: they look every five seconds whether it is there."""

LOOK_S = 0.02

PLANNED_S = 10.0
"""How long the end of the service waits for what is being planned: a task in the midst of it cannot be closed."""

VIDEOS_AT_ONCE = 1000
"""In one answer."""


class Waiting(Cancelled, Protocol):
    """Who waits for an answer."""

    def looked(self, done: int, total: int, name: str) -> None:
        """Hear how far the files of a dataset were looked at."""


class Verbs:
    """An open cache, as its clients ask for it. Thread-safe."""

    def __init__(self, cache: Cache, incarnation: str, *, begun_by_hand: bool = False) -> None:
        """Answer for a cache.

        Args:
            cache: which.
            incarnation: of the service.
            begun_by_hand: whether no client began the service, so that none may end it to begin another.
        """
        self._begun_by_hand = begun_by_hand
        self.cache = cache
        self.sessions = Sessions()
        self.incarnation = incarnation
        self.stopping = threading.Event()
        """Set when a client wants the service to end."""
        self._since = time.time()
        self._settings = settings_of(cache.config)
        self._sitting = threading.Lock()
        self._handing = Handing(cache)
        self._retiring = Retiring(cache.owner.retire)
        self._verbs: dict[type[asks.Ask], Callable[[Session, Any, Waiting], answers.Answer]] = {
            asks.Join: self._join,
            asks.Leave: self._leave,
            asks.About: self._about,
            asks.Sit: self._sit,
            asks.Iterations: self._iterations,
            asks.Positions: self._positions,
            asks.Fetch: self._fetch,
            asks.Look: self._look,
            asks.Describe: self._describe,
            asks.Recipes: self._recipes,
            asks.Parts: self._parts,
            asks.PlannedAt: self._planned_at,
            asks.Version: self._version,
            asks.Video: self._video,
            asks.Videos: self._videos,
            asks.DescribeFrame: self._describe_frame,
            asks.Frames: self._frames,
            asks.Make: self._make,
            asks.EndMake: self._end_make,
            asks.Publish: self._publish,
            asks.Stats: self._stats,
            asks.Counters: self._counters,
            asks.Stop: self._stop,
        }

    # Clients -------------------------------------------------------------------------------------------------------

    def hello(self, hello: asks.Hello, pid: int, waiting: Waiting | None = None) -> tuple[Session, answers.Welcome]:
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
        session = Session(pid, hello.program, hello.job)
        try:
            names, warnings = self._admit(session, hello, None if waiting is None else waiting.looked)
        except BaseException:
            self._retiring.end(session, at_once=True)
            raise
        self.sessions.begin(session)
        return session, answers.Welcome(
            wire.PROTOCOL,
            viewcache.__version__,
            self.incarnation,
            os.getpid(),
            session.number,
            session.token,
            self._handing.tiers(),
            names,
            tuple(warnings),
            self._settings,
        )

    def descriptor(self, tier: str) -> int:
        """A new descriptor by which clients read a tier, see `Handing.descriptor`; the caller closes it."""
        return self._handing.descriptor(tier)

    def _admit(
        self, session: Session, said: asks.Hello | asks.Join, progress: Progress | None
    ) -> tuple[tuple[str, ...], list[str]]:
        if not said.documents:
            return (), []
        sources = [TextSource(each.name, each.folder, each.text, each.ops) for each in said.documents]
        config = load_texts(sources, self.cache.config)
        check_code(sources)
        warnings = differences(sources, config, self.cache.config)
        mine = of_job(config, said.job)
        if said.job:
            self._retiring.begin(session, (task.name for task in mine.tasks))
        return self.cache.owner.admit(mine, progress), warnings

    def end(self, session: Session) -> None:
        """A process has gone, however it did: what it held is given back, and nothing is made ahead for it."""
        if not self.sessions.remove(session):
            return
        leases, seats = session.close()
        self._end_ahead(session)
        for lease in leases:
            self._handing.let_go(lease)
        for sitting in seats:
            sitting.seat.leave()
        for task in {sitting.task for sitting in seats} | session.by_path:
            with suppress(ViewNotFound):  # it was of another job, which has ended
                self._suspend_unread(task)
        self._retiring.end(session, at_once=session.said_bye)

    def expire(self) -> None:
        """End what clients hold for too long, and jobs that nobody comes back to."""
        now = time.monotonic()
        for session in self.sessions.all():
            for lease in session.overdue(now):
                self._handing.let_go(lease)
        self._retiring.look(now)

    def close(self) -> None:
        """End all sessions; those that are there come back to the next run of the service."""
        if not self._retiring.look(inf):
            with suppress(TimeoutError):
                self.cache.owner.look_ahead.wait_idle(PLANNED_S)
            self._retiring.look(inf)
        for session in self.sessions.all():
            self.end(session)
        self._handing.close()

    def _suspend_unread(self, task: str) -> None:
        with self._sitting:
            if not any(session.reads(task) for session in self.sessions.all()):
                self.cache.owner.suspend(task)

    # Asking --------------------------------------------------------------------------------------------------------

    def answer(self, session: Session, ask: asks.Ask, waiting: Waiting) -> answers.Answer:
        """Do what a client asks.

        Raises:
            Misuse: not in a session that has begun.
            ViewcacheError: what the verb raises.
        """
        verb = self._verbs.get(type(ask))
        if verb is None:
            raise Misuse(f"{type(ask).__name__} is no question of a session that has begun")
        return verb(session, ask, waiting)

    def done(self, session: Session, done: asks.Done) -> None:
        """A client has read what was held for it."""
        self._handing.done(session, done)

    def drop(self, session: Session, drop: asks.Drop) -> None:
        """A client will not read what was held for it."""
        self._handing.drop(session, drop.lease)

    def _task(self, name: str) -> OwnedTask:
        return self.cache.task(name)

    def _join(self, session: Session, ask: asks.Join, waiting: Waiting) -> answers.Joined:
        names, _ = self._admit(session, ask, waiting.looked)
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
            task.audio_shape,
            tuple(
                answers.ChangeOf(each.change, each.count, each.names, each.from_epoch, each.views, each.first_views)
                for each in task.changes
            ),
        )

    # Reading -------------------------------------------------------------------------------------------------------

    def _sit(self, session: Session, ask: asks.Sit, cancelled: Cancelled) -> answers.Seated:
        task, begun = self._task(ask.task), time.monotonic()
        while True:
            try:
                with self._sitting:
                    self.sessions.check_free(session, ask.task, task.epochs, ask.rank, ask.world, ask.part, ask.parts)
                    seat = task.sit(ask.rank, ask.world, ask.part, ask.parts, ask.epoch, ask.iteration)
                    try:
                        return answers.Seated(session.sit(Sitting(ask.task, seat)))
                    except Closed:
                        seat.leave()
                        raise
            except SeatTaken:
                patience_s = ORPHANED_S if self.sessions.have_orphans(ask.task) else RISE_S
                if cancelled.is_set() or time.monotonic() - begun > patience_s:
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
        try:
            fetched = self._handing.fetched(
                session, task, lambda: sitting.seat.hold(ask.epoch, ask.iteration, cancelled), cancelled
            )
            return self._telling(session, task, fetched)
        finally:
            if session.over.is_set():  # it ended while this was planned, which has what follows made
                sitting.seat.leave()
                self._suspend_unread(sitting.task)

    def _look(self, session: Session, ask: asks.Look, cancelled: Cancelled) -> answers.Fetched:
        task = self._task(ask.task)
        which = None if ask.last < 0 else range(max(0, ask.first), ask.last)
        if which is None:
            session.by_path.add(ask.task)
        try:
            fetched = self._handing.fetched(
                session,
                task,
                lambda: task.hold(ask.epoch, ask.iteration, ask.rank, ask.world, which, cancelled, heard=ask.heard),
                cancelled,
            )
            return self._telling(session, task, fetched)
        finally:
            if session.over.is_set():  # the same
                self._suspend_unread(ask.task)

    def _telling(self, session: Session, task: OwnedTask, fetched: answers.Fetched) -> answers.Fetched:
        """The same with what its training is to be told of."""
        lines = self.sessions.untold(session, task.name, task.task.stand_ins.after)
        return msgspec.structs.replace(fetched, stand_ins=lines) if lines else fetched

    def _describe(self, _session: Session, ask: asks.Describe, _cancelled: Cancelled) -> answers.Fetched:
        facts = self._task(ask.task).describe(ask.epoch, ask.iteration, ask.rank, ask.world)
        return fetched_of(facts, facts.video.shape, 0, (), () if facts.audio is None else facts.audio.shape)

    def _recipes(self, _session: Session, ask: asks.Recipes, _cancelled: Cancelled) -> answers.Text:
        task = self._task(ask.task)
        found = task.recipes_of(ask.video, ask.epoch) if ask.video else task.recipes(ask.epoch, ask.iteration)
        return answers.Text(json.dumps([astuple(each) for each in found]))

    def _parts(self, _session: Session, ask: asks.Parts, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).parts)

    def _planned_at(self, _session: Session, ask: asks.PlannedAt, _cancelled: Cancelled) -> answers.Number:
        return answers.Number(self._task(ask.task).planned_at(ask.epoch))

    def _version(self, _session: Session, ask: asks.Version, _cancelled: Cancelled) -> answers.Text:
        return answers.Text(f"{self.incarnation}/{self._task(ask.task).version(ask.epoch, ask.iteration)}")

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
        return self._handing.frames(session, task, task.frames(list(map(_request, ask.frames))))

    # The service itself --------------------------------------------------------------------------------------------

    def _make(self, session: Session, ask: asks.Make, _cancelled: Cancelled) -> answers.Counts:
        owner, wanted = self.cache.owner, (ask.tasks, ask.epochs)
        ahead = session.ahead.get(wanted)
        if ahead is None:
            tasks = [self._task(name).task for name in ask.tasks]
            ahead = AheadOfTime.begin(tasks, ask.epochs, owner.keeper, owner.look_ahead, owner.dispatcher_now())
            session.ahead[wanted] = ahead
            if session.over.is_set():  # it ended while this was planned
                self._end_ahead(session)
        over, now = ahead.step()
        if over:
            session.ahead.pop(wanted, None)
            ahead.end()
        return counts_of(now, over=over)

    def _end_make(self, session: Session, ask: asks.EndMake, _cancelled: Cancelled) -> answers.Ok:
        ahead = session.ahead.pop((ask.tasks, ask.epochs), None)
        if ahead is not None:
            ahead.end()
        return answers.Ok()

    def _end_ahead(self, session: Session) -> None:
        while session.ahead:
            _, ahead = session.ahead.popitem()
            ahead.end()

    def _publish(self, _session: Session, _ask: asks.Publish, _cancelled: Cancelled) -> answers.Ok:
        self.cache.owner.publish()
        return answers.Ok()

    def _stats(self, _session: Session, _ask: asks.Stats, _cancelled: Cancelled) -> answers.StatsOf:
        return self.stats()

    def stats(self) -> answers.StatsOf:
        """Who uses the service, and what it took."""
        clients = tuple(session.shown() for session in self.sessions.all())
        lying = tuple(self.cache.owner.ledger.in_memory())
        taken = self._since, cpu_seconds()
        return answers.StatsOf(os.getpid(), viewcache.__version__, *taken, clients, self._settings, lying)

    def _counters(self, _session: Session, _ask: asks.Counters, _cancelled: Cancelled) -> answers.CountersOf:
        return counters_of(self.cache.snapshot())

    def _stop(self, session: Session, ask: asks.Stop, _cancelled: Cancelled) -> answers.Ok:
        others = [each for each in self.sessions.all() if each is not session]
        if ask.if_idle and others:
            who = ", ".join(f"{each.pid} ({each.program})" for each in others)
            raise Busy(f"the service is used by the processes {who}; end them first")
        if self._begun_by_hand and not ask.begun_by_hand:
            raise Misuse("the service was begun by hand: whoever did so ends it")
        self.stopping.set()
        return answers.Ok()


def _request(frame: asks.FrameAsked) -> FrameRequest:
    clip = frame.epoch, frame.sample, frame.output
    return FrameRequest(frame.video, frame.frame, frame.depth, *clip, frame.at_s, frame.item)


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
