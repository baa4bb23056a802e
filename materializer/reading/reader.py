"""Reading a task's batches: wait until the clips are there, copy them out, rebuild what turns out damaged (law 5)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow, ProgressRow
from viewcache.errors import BadInput, Broken, Closed, ViewNotFound
from viewcache.materializer.clock import Clock
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.ops import get
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.reading.accounts import Accounts
from viewcache.materializer.reading.batch import Batch, Buffers, audio_slots, check_shares, rank_share
from viewcache.materializer.reading.finishing import ReadOps
from viewcache.materializer.reading.frames import Singles
from viewcache.materializer.reading.held import Held
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.generation import PlannedClips
from viewcache.materializer.scheduling.seats import Seat, SeatKey
from viewcache.materializer.scheduling.work import READ_TRIES
from viewcache.materializer.storage.tiers import Slots, Tiers, load_samples
from viewcache.materializer.tasks.missing import has_gone
from viewcache.materializer.tasks.task import Task
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.telemetry.stalls import NOTICED_S, Reading

__all__ = ["Reader"]


class Reader:
    """Reads one task's batches. Thread-safe."""

    def __init__(
        self,
        task: Task,
        catalog: Catalog,
        tiers: Tiers,
        dispatcher: Callable[[], Dispatcher],
        ahead: Callable[[int], None],
        observer: Observer,
        learning: Learning,
        *,
        draws_for_all: bool = False,
    ) -> None:
        """Read ``task`` out of some tiers.

        Args:
            task: whose batches.
            catalog: gets the progress.
            tiers: where objects lie.
            dispatcher: makes what is missing; started on the first call.
            ahead: told the number of the generation that is about to be read, so that what follows is made in time.
            observer: told of batches that were read.
            learning: knows videos that nobody has decoded yet.
            draws_for_all: whether all ranks of the task read through this process, so that they have one order.
        """
        self.task = task
        self.spec = task.spec
        self.accounts = Accounts(catalog, task.task_id)
        """Where readers spent their time."""
        self.singles = Singles(task, catalog, tiers, dispatcher, learning)
        """Single frames of the task's videos."""
        self._catalog = catalog
        self._tiers = tiers
        self._dispatcher = dispatcher
        self._ahead = ahead
        self._observer = observer
        self._learning = learning
        self._draws_for_all = draws_for_all
        self._size = 1, 1
        """Ranks, and parts of a rank, that the catalog knows of."""

    # Seats ---------------------------------------------------------------------------------------------------------

    def sit(self, key: SeatKey, epoch: int, iteration: int) -> Seat:
        """Take a seat, to read from a place on: what is read from it is what the task needs.

        Raises:
            BadInput: the batches are too small for so many ranks, or these would have different orders.
        """
        self.check_world(key.world)
        return self.task.seats.sit(key, epoch, iteration)

    # Reading -------------------------------------------------------------------------------------------------------

    def read(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
        seat: Seat | None = None,
    ) -> Batch | None:
        """Read one batch, or one rank's share of it; what is not in the store is made now.

        Args:
            epoch: of the task.
            iteration: in the epoch.
            rank: whose share.
            world: number of shares.
            buffers: where the pixels' memory comes from; None allocates.
            cancelled: set by another thread, it ends the wait; then None is returned.
            seat: who reads; None is a read by path, which moves the task only where nobody sits.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        reading = self._begin(epoch, iteration, rank)
        seat = seat or self.task.seats.by_path(rank, world)
        clips, rows = self._settle(reading, rank, world, seat)
        out: NDArray[np.uint8] | None = None
        for _ in range(READ_TRIES):
            try:
                held = self._hold(reading, clips, rows, seat, cancelled)
            except Closed:
                if cancelled is not None and cancelled.is_set():
                    return None
                raise
            with held.given_back_on_error():
                if out is None:
                    out = (buffers or Buffers()).take(held.shape)
                audio, slots = audio_slots(held.audio_shape)
            if self._load(held, [*out, *slots] if slots else out):
                return self.facts(held, out, audio)
        raise self._too_damaged(epoch, iteration)

    def hold(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        which: range | None = None,
        seat: Seat | None = None,
        cancelled: Cancelled | None = None,
        *,
        heard: bool = False,
    ) -> Held:
        """Make a batch, or some clips of it, and hold it for somebody else to load, who says so to `end`.

        Args:
            epoch: of the task.
            iteration: in the epoch.
            rank: whose share.
            world: number of shares.
            which: of the share's clips; None = all of them, with their audio if the task has any.
            seat: who reads; None is a look, or a read by path of all of it.
            cancelled: set by another thread, it ends the wait.
            heard: of ``which`` hold the audio, and not the pixels.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
            Closed: the cache was closed, or ``cancelled`` was set.
        """
        reading = self._begin(epoch, iteration, rank)
        if which is None:
            seat = seat or self.task.seats.by_path(rank, world)
            clips, rows = self._settle(reading, rank, world, seat)
            return self._hold(reading, clips, rows, seat, cancelled)
        clips, rows = self.rows(epoch, iteration, rank, world)
        return self._part(reading, clips, rows[which.start : which.stop], cancelled, heard=heard)

    def end(self, held: Held, wrong: Mapping[int, Exception], samples: Sequence[IoSampleRow], loaded_s: float) -> None:
        """What was held was loaded; clips at the places in ``wrong`` were not as promised, and are made again."""
        held.fetched.give_back()
        self._loaded(held, wrong, samples, loaded_s)
        if not wrong:
            self._moved(held)

    def _settle(self, reading: Reading, rank: int, world: int, seat: Seat | None) -> tuple[PlannedClips, list[int]]:
        """Plan and draw as far as a batch that is about to be read, and have what follows made."""
        place = reading.epoch, reading.iteration
        self.task.check_iteration(*place)
        planned_s = reading.clock.lap("plan")
        clips, rows = self.rows(*place, rank, world)
        drawn_s = reading.clock.lap("draw")
        if seat is not None:
            self.task.seats.at(seat, *place)
            self._ahead(clips.plan.number)
        planned_s += reading.clock.lap("plan")
        waited = {cause: s for cause, s in (("plan", planned_s), ("draw", drawn_s)) if s >= NOTICED_S}
        self.accounts.stalled(reading, waited)
        return clips, rows

    def _hold(
        self,
        reading: Reading,
        clips: PlannedClips,
        rows: list[int],
        seat: Seat | None,
        cancelled: Cancelled | None = None,
    ) -> Held:
        return Held(reading, clips, rows, self._fetch(reading, clips, clips.with_audio(rows), cancelled), seat)

    def _part(
        self,
        reading: Reading,
        clips: PlannedClips,
        rows: list[int],
        cancelled: Cancelled | None = None,
        *,
        heard: bool = False,
    ) -> Held:
        """Hold the pixels of some clips, or their audio."""
        objects = clips.with_audio(rows)[len(rows) :] if heard else rows
        fetched = self._fetch(reading, clips, objects, cancelled)
        return Held(reading, clips, rows, fetched, None, is_part=True, heard=heard)

    def _fetch(
        self, reading: Reading, clips: PlannedClips, objects: Sequence[int], cancelled: Cancelled | None
    ) -> Fetched:
        dispatcher = self._dispatcher()
        reading.clock.skip()
        fetched = dispatcher.fetch(clips, objects, cancelled=cancelled)
        if clips.plan.blocks is not None:
            fetched = replace(fetched, copies=[*map(clips.part, objects, fetched.copies)], whole=tuple(fetched.copies))
        if fetched.waited_s:
            reading.clock.lap("wait")
        reading.clock.skip()
        return fetched

    def _load(self, held: Held, out: Slots) -> bool:
        """Read what is held into ``out``; False if some was damaged, which is then made again."""
        with held.given_back_on_error():
            wrong, loaded = self._tiers.read_slots(held.fetched.copies, out)
            loaded_s = held.reading.clock.lap("load")
        self.end(held, wrong, load_samples(loaded), loaded_s)
        return not wrong

    def _loaded(
        self, held: Held, wrong: Mapping[int, Exception], samples: Sequence[IoSampleRow], loaded_s: float
    ) -> None:
        dispatcher = self._dispatcher()
        dispatcher.tally.read(loaded_s)
        damaged = dispatcher.evictor.rebuild(held.fetched.originals, wrong)
        self._catalog.add_io_samples(samples)
        self.accounts.loaded(held.reading, held.fetched, loaded_s, damaged)

    def _moved(self, held: Held) -> None:
        """A batch was read whole: who reads from the seat needs the next one."""
        if held.is_part:
            return
        self._observer.read(held.reading)
        self.accounts.read()
        seat, seats = held.seat, self.task.seats
        if seat is None or not seats.is_known(seat):
            return
        key, reading, plan = seat.key, held.reading, held.clips.plan
        size = key.world, key.parts
        if size != self._size:
            self._size = size
            self._catalog.limit_seats(self.task.task_id, *size)
        place = reading.epoch, reading.iteration
        seats.read(seat, *place, plan.iterations)
        slowest = seats.slowest(key)
        if slowest is not None:
            seq = slowest.epoch * plan.iterations + slowest.iteration
            row = ProgressRow(
                self.task.task_id, key.rank, *slowest.place, seq, slowest.pace_s, key.part, round(time.time(), 3)
            )
            self._catalog.advance(row)
        if reading.epoch + 1 == min(seats.epochs(), default=0):
            self.accounts.ended(reading.epoch, self._dispatcher().tally.spent_s())
        self._dispatcher().progressed(held.clips, *seats.positions())
        self.task.reached(*place)

    def clips(
        self,
        epoch: int,
        iteration: int,
        which: range,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
    ) -> NDArray[np.uint8]:
        """Some clips of a batch, uint8 (len(which), T,C,H,W), for whoever looks at a part; it does not count as read.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
            Closed: the cache was closed, or ``cancelled`` was set.
        """
        reading = self._begin(epoch, iteration, rank)
        active, rows = self.rows(epoch, iteration, rank, world)
        rows = rows[which.start : which.stop]
        out = (buffers or Buffers()).take((len(rows), *active.plan.shape))
        for _ in range(READ_TRIES):
            if self._load(self._part(reading, active, rows, cancelled), out):
                return out
        raise self._too_damaged(epoch, iteration)

    def audio(self, epoch: int, iteration: int, which: range, rank: int = 0, world: int = 1) -> NDArray[np.float32]:
        """The audio of some clips of a batch, float32 (len(which),C,n); it does not count as read.

        Raises:
            ViewNotFound: no such epoch or iteration, or the task has no audio.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        if self.spec.audio is None:
            raise ViewNotFound(f"task {self.spec.name!r} has no audio; give dataset.audio a rate")
        reading = self._begin(epoch, iteration, rank)
        active, rows = self.rows(epoch, iteration, rank, world)
        for _ in range(READ_TRIES):
            held = self._part(reading, active, rows[which.start : which.stop], heard=True)
            with held.given_back_on_error():
                audio, slots = audio_slots(held.audio_shape)
            if audio is not None and self._load(held, slots):
                return audio
        raise self._too_damaged(epoch, iteration)

    def describe(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """A batch as planned, without its pixels: ``video`` has the shape but takes no memory and holds zeros.

        Videos that nobody has decoded yet are looked into now, so that what is said of them holds.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadVideo: a video cannot be decoded and the policy is ``raise``.
            BadInput: the batch is too small for so many ranks.
        """
        reading = self._begin(epoch, iteration, rank)
        active, rows = self.rows(epoch, iteration, rank, world)
        self._look(active, rows)
        plan = active.plan
        nothing = np.broadcast_to(np.uint8(0), (len(rows), *plan.shape))
        silence = None if plan.audio is None else np.broadcast_to(np.float32(0), (len(rows), *plan.audio.shape))
        return self._batch(plan, rows, nothing, tuple(plan.key(row) for row in rows), reading, silence)

    def _look(self, active: PlannedClips, rows: list[int]) -> None:
        """Look into the videos of some clips; for one that turns out bad another stands in, by the task's policy."""
        while bad := self._bad_among(active, rows):
            for row, why in bad:
                gone = has_gone(self.task.dataset, active.video_id(row), self._catalog)
                error = self.task.substitute(active, [row], why, gone=gone)
                if error is not None:
                    raise error

    def _bad_among(self, active: PlannedClips, rows: list[int]) -> list[tuple[int, str]]:
        """Which of some clips cannot be made, and why: their videos are looked into now if nobody has."""
        ids = [active.video_id(row) for row in rows]
        why = self._learning.look(self.task.dataset, ids)
        return [(row, why[video_id]) for row, video_id in zip(rows, ids, strict=True) if video_id in why]

    def _too_damaged(self, epoch: int, iteration: int) -> Broken:
        return Broken(
            f"view {self.spec.name}/{epoch}/{iteration}: its clips were damaged {READ_TRIES} times in a row after "
            "being made anew; check the disk, then run `viewcache doctor`"
        )

    def rows(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> tuple[PlannedClips, list[int]]:
        """The generation and the rows of a batch, or of one rank's share; draws the order up to there.

        Of an epoch's last batch, if it has fewer videos than there are ranks, some ranks have nothing.

        Raises:
            ViewNotFound: no such epoch or iteration.
            BadInput: batches are too small for so many ranks, or these would have different orders.
        """
        self.check_world(world)
        check_shares(self.spec.sampling.videos_per_batch, world, self.spec.dataset.media)
        active = self.task.batch(epoch, iteration)
        samples = self.spec.sampling.samples_per_video
        rows = active.rows(epoch, iteration)
        return active, rows[rank_share(len(rows) // samples, samples, rank, world)]

    def check_world(self, world: int) -> None:
        """Refuse several ranks of a task that draws its order with others, unless one process draws for all of them.

        That order depends on the paces of all their readers, and what is drawn of a dataset that grows on when it is.
        Ranks that are processes have a cache each, so each would draw another order, and nothing would tell them.

        Raises:
            BadInput: the message says what to change.
        """
        if world < 2 or self._draws_for_all:
            return
        if self.spec.dataset.grows:
            raise BadInput(
                f"the dataset of task {self.spec.name!r} grows, so {world} ranks that each list it would read other "
                "batches; let a service own the cache (cache.service: auto)"
            )
        if self.task.draws_together:
            raise BadInput(
                f"task {self.spec.name!r} draws its order with other tasks, which no other process can know, so "
                f"{world} ranks would read different batches; let a service own the cache (cache.service: auto), set "
                "coordination: independent under its sampling, or open it alone"
            )

    def _begin(self, epoch: int, iteration: int, rank: int) -> Reading:
        return Reading(self.spec.name, epoch, iteration, rank, time.monotonic(), Clock(laps=self._observer.laps))

    def facts(self, held: Held, out: NDArray[np.uint8], audio: NDArray[np.float32] | None = None) -> Batch:
        """A batch as it was read, with its pixels in ``out``."""
        return self._batch(held.clips.plan, held.rows, out, held.keys, held.reading, audio)

    def _batch(
        self,
        plan: GenerationPlan,
        rows: list[int],
        out: NDArray[np.uint8],
        keys: tuple[str, ...],
        reading: Reading,
        audio: NDArray[np.float32] | None,
    ) -> Batch:
        videos = plan.video[rows]
        dataset, ids = self.task.dataset, plan.videos.ids[videos]
        items, item = plan.items, plan.item[rows]
        frames, times = self._learning.frames(dataset, plan, rows, out.shape[:-3])
        return Batch(
            task=self.spec.name,
            epoch=reading.epoch,
            iteration=reading.iteration,
            video=out,
            label=dataset.labels(items.ids[item], reading.epoch),
            index=ids,
            frame=frames,
            time_s=times,
            sample=plan.ordinal[rows],
            item=items.ids[item],
            start_s=np.where(np.isfinite(items.start_s[item]), items.start_s[item], 0.0),
            end_s=items.end_s[item],
            videos=tuple(plan.videos.names[v] for v in videos.tolist()),
            keys=keys,
            audio=audio,
            fields=dataset.fields(items.ids[item], reading.epoch),
            waited_s=reading.waited_s,
            stalls=dict(reading.stalls),
        )

    @property
    def read_ops(self) -> ReadOps:
        """The task's operations that run at reading."""
        return [(get(call.name), call.params) for call in self.task.graph.read_ops]
