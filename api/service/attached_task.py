"""A task whose cache another process owns, with the interface of one that this process owns.

Questions go to the service; pixels are read here, from where it says that they lie. This module and what it imports
load no database and no decoder, so that a DataLoader's worker starts quickly and stays small.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.api.service import answers, asks
from viewcache.api.service.asking import Ended
from viewcache.api.service.client import Client
from viewcache.api.service.connected import Connected
from viewcache.api.service.facts import TaskFacts
from viewcache.api.service.field_wire import field_values
from viewcache.api.service.received import array_of, change_of, frame_asked, loads, placed, video_info
from viewcache.errors import Broken, Closed, ViewNotFound
from viewcache.materializer.choices import Layout
from viewcache.materializer.dataset.changes import DatasetChange
from viewcache.materializer.gate import Cancelled
from viewcache.materializer.ops import get
from viewcache.materializer.ops.fields import frozen
from viewcache.materializer.ops.mix import Mixer
from viewcache.materializer.reading.batch import Batch, Buffers, audio_slots, check_shares, rank_share
from viewcache.materializer.reading.finishing import Mixing, finished, mixer_of
from viewcache.materializer.reading.values import ClipRecipe, FrameInfo, FrameRequest, Spent, VideoInfo
from viewcache.store.client_tiers import Slots

__all__ = ["AttachedSeat", "AttachedTask"]

_log = logging.getLogger("viewcache.service")

READ_TRIES = 5
"""How often a batch is asked for when some of it was damaged; each time it has been made anew."""


class AttachedSeat:
    """A seat of a task at the service. Thread-safe; survives the service."""

    def __init__(self, task: "AttachedTask", sit: asks.Sit) -> None:
        """Take it; see `TaskHandle.sit`."""
        self._task = task
        self._sit = sit
        self._sitting = threading.Lock()
        self._session, seated = task.client.asking(lambda _: (answers.Seated, sit))
        self._seat = seated.seat

    def read(
        self, epoch: int, iteration: int, buffers: Buffers | None = None, cancelled: Cancelled | None = None
    ) -> Batch | None:
        """Read the seat's share of a batch; see `Reader.read`."""
        return self._task.fetched(
            (epoch, iteration), lambda session: self._fetch(session, epoch, iteration), buffers, cancelled
        )

    def rise(self) -> None:
        """Stop reading; see `TaskSeat.rise`."""
        self._task.client.tell(self._session, asks.Rise(self._seat))

    def _fetch(self, session: Connected, epoch: int, iteration: int) -> asks.Ask:
        with self._sitting:
            if self._session is not session:  # the service was started again, and knows of no seats
                if session is not self._task.client.connected():
                    raise Ended  # it is over by now: the one that has begun since is asked
                sit = self._sit
                at = asks.Sit(sit.task, sit.rank, sit.world, sit.part, sit.parts, epoch, iteration)
                self._session, seated = self._task.client.asking(lambda _: (answers.Seated, at))
                self._seat = seated.seat
            return asks.Fetch(self._seat, epoch, iteration)


class AttachedTask:
    """The handle of a task whose cache another process owns. Thread-safe."""

    def __init__(self, client: Client, facts: TaskFacts, layouts: Mapping[str, str]) -> None:
        """Ask through a client.

        Args:
            client: asks.
            facts: what is known of the task.
            layouts: of the tasks that this process described, by their names at the service.
        """
        self.client = client
        self.facts = facts
        self._layouts = layouts
        self._iterations: dict[tuple[str, int], int] = {}
        """Run of the service and epoch → batches in it: epochs that are not drawn may have others in the next run."""
        self._read_ops = [
            (get(name), tuple((key, frozen(value)) for key, value in params))
            for name, params in json.loads(self._about.read_ops)
        ]
        self.spent = Spent()
        """Where this process's reads of it spent their time."""

    # Facts ---------------------------------------------------------------------------------------------------------

    @property
    def _about(self) -> answers.AboutTask:
        """As the last run of the service told that was asked; most of it is the same in all."""
        return self.facts.latest.about

    @property
    def name(self) -> str:
        """The task's name in paths."""
        return self._about.name

    @property
    def task_id(self) -> int:
        """Its number in the catalog."""
        return self._about.task_id

    @property
    def epochs(self) -> int:
        """How many epochs it has."""
        return self._about.epochs

    @property
    def seed(self) -> int:
        """Seed of its random numbers."""
        return self._about.seed

    @property
    def layout(self) -> str:
        """Axis order of its clips, as this process described the task, else as who opened it did."""
        return self._layouts.get(self.name, self._about.layout)

    @property
    def videos_per_batch(self) -> int:
        """Videos in a batch; the last one of an epoch may have fewer."""
        return self._about.videos_per_batch

    @property
    def samples_per_video(self) -> int:
        """Clips of one video in one epoch."""
        return self._about.samples_per_video

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels; see `TaskHandle.classes`."""
        if self._about.grows:
            return self.client.ask(answers.AboutTask, asks.About(self.name)).classes
        return self.facts.current().classes

    @property
    def changes(self) -> tuple[DatasetChange, ...]:
        """What happened to its files; see `TaskHandle.changes`."""
        return tuple(map(change_of, self.facts.current().changes))

    @property
    def draws_together(self) -> bool:
        """Whether its order depends on how far the readers of other tasks are."""
        return self._about.draws_together

    @property
    def clip_shape(self) -> tuple[int, ...]:
        """Shape of every clip: (T,C,H,W), or (V,T,C,H,W) after ``stack``."""
        return self._about.clip_shape

    @property
    def audio_shape(self) -> tuple[int, int] | None:
        """Shape of every clip's audio, (C,n); None without."""
        return self._about.audio

    def generation_of(self, epoch: int) -> int:
        """Number of the generation that an epoch belongs to; see `TaskHandle.generation_of`."""
        if not 0 <= epoch < self.epochs:
            raise ViewNotFound(f"task {self.name!r} has epochs 0 to {self.epochs - 1}; asked for {epoch}")
        k = self._about.epochs_per_generation
        return (epoch + self._about.joined % k) // k

    def check_epochs(self, epochs: int) -> None:
        """Refuse more epochs than the task has; see `TaskHandle.check_epochs`."""
        if not 1 <= epochs <= self.epochs:
            raise ViewNotFound(f"task {self.name!r} has {self.epochs} epochs; asked for {epochs}")

    def iterations(self, epoch: int) -> int:
        """Batches in an epoch; see `TaskHandle.iterations`."""
        place = self.facts.latest.run, epoch
        known = self._iterations.get(place)
        if known is None:
            answer = self.client.ask(answers.Number, asks.Iterations(self.name, epoch))
            known = self._iterations[place] = int(answer.value)
        return known

    def check_iteration(self, epoch: int, iteration: int) -> None:
        """Refuse a batch that the task does not have; see `TaskHandle.check_iteration`."""
        batches = self.iterations(epoch)
        if not 0 <= iteration < batches:
            raise ViewNotFound(
                f"epoch {epoch} of task {self.name!r} has iterations 0 to {batches - 1}; asked for {iteration}"
            )

    def batch_sizes(self) -> set[int]:
        """How many videos a batch has: the usual number, and that of the last batch of an epoch."""
        return set(self._about.batch_sizes)

    def check_world(self, world: int) -> None:
        """Any number of ranks: one process draws for all of them."""

    @property
    def parts(self) -> int:
        """How many DataLoader workers take turns at a rank's batches, as it was read last."""
        return int(self.client.ask(answers.Number, asks.Parts(self.name)).value)

    def planned_at(self, epoch: int) -> float:
        """When the generation of an epoch was planned first; see `TaskHandle.planned_at`."""
        return self.client.ask(answers.Number, asks.PlannedAt(self.name, epoch)).value

    def version(self, epoch: int, iteration: int) -> object:
        """See `TaskHandle.version`; each run of the service has others."""
        return self.client.ask(answers.Text, asks.Version(self.name, epoch, iteration)).value

    # Batches -------------------------------------------------------------------------------------------------------

    def sit(
        self, rank: int = 0, world: int = 1, part: int = 0, parts: int = 1, epoch: int = 0, iteration: int = 0
    ) -> AttachedSeat:
        """Take a seat; see `TaskHandle.sit`."""
        return AttachedSeat(self, asks.Sit(self.name, rank, world, part, parts, epoch, iteration))

    def read(
        self,
        epoch: int,
        iteration: int,
        rank: int = 0,
        world: int = 1,
        buffers: Buffers | None = None,
        cancelled: Cancelled | None = None,
    ) -> Batch | None:
        """Read one batch, or one rank's share of it; see `Reader.read`."""
        ask = asks.Look(self.name, epoch, iteration, rank, world)
        return self.fetched((epoch, iteration), lambda _: ask, buffers, cancelled)

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
        """Some clips of a batch; see `TaskHandle.clips`."""
        ask = asks.Look(self.name, epoch, iteration, rank, world, which.start, which.stop)
        batch = self.fetched((epoch, iteration), lambda _: ask, buffers, cancelled)
        if batch is None:
            raise Closed("the reader was cancelled")
        return batch.video

    def audio(self, epoch: int, iteration: int, which: range, rank: int = 0, world: int = 1) -> NDArray[np.float32]:
        """The audio of some clips of a batch; see `TaskHandle.audio`."""
        if self.audio_shape is None:
            raise ViewNotFound(f"task {self.name!r} has no audio; give dataset.audio a rate")
        ask = asks.Look(self.name, epoch, iteration, rank, world, which.start, which.stop, heard=True)
        for _ in range(READ_TRIES):
            session, fetched = self.client.asking(lambda _: (answers.Fetched, ask))
            with self._dropping(session, fetched.lease):
                audio, slots = audio_slots(fetched.audio)
                if audio is not None and self._load(session, fetched.lease, fetched.places, slots):
                    return audio
        raise Broken(f"audio of view {self.name}/{epoch}/{iteration} was damaged {READ_TRIES} times in a row")

    def describe(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> Batch:
        """A batch as planned, without its pixels; see `TaskHandle.describe`."""
        fetched = self.facts.ask(answers.Fetched, asks.Describe(self.name, epoch, iteration, rank, world))
        silence = np.broadcast_to(np.float32(0), fetched.audio) if fetched.audio else None
        return self._batch(fetched, (epoch, iteration), np.broadcast_to(np.uint8(0), fetched.shape), silence)

    def recipes(self, epoch: int, iteration: int) -> tuple[ClipRecipe, ...]:
        """What was decided for each clip of a batch; see `TaskHandle.recipes`."""
        return self._recipes(asks.Recipes(self.name, epoch, iteration))

    def recipes_of(self, video: str, epoch: int) -> tuple[ClipRecipe, ...]:
        """The same of the clips of a video in an epoch; see `TaskHandle.recipes_of`."""
        return self._recipes(asks.Recipes(self.name, epoch, video=video))

    def _recipes(self, ask: asks.Recipes) -> tuple[ClipRecipe, ...]:
        found = json.loads(self.client.ask(answers.Text, ask).value)
        return tuple(
            ClipRecipe(video, sample, item, start_s, end_s, tuple(frames), tuple(steps))
            for video, sample, item, start_s, end_s, frames, steps in found
        )

    def shape(self, epoch: int, iteration: int, rank: int = 0, world: int = 1) -> tuple[int, ...]:
        """Shape of a batch, or of one rank's share; see `TaskHandle.shape`."""
        self.check_iteration(epoch, iteration)
        check_shares(self.videos_per_batch, world, Layout(self.layout).media)
        videos = self.client.ask(answers.Number, asks.Positions(self.name, epoch)).value
        size, samples = self.videos_per_batch, self.samples_per_video
        count = min(size, int(videos) - iteration * size)
        share = rank_share(count, samples, rank, world)
        return (share.stop - share.start, *self.clip_shape)

    @property
    def mixer(self) -> Mixer | None:
        """What mixes its batches when they are handed out; None if clips stay apart."""
        return mixer_of(self._read_ops, self.seed, self.name)

    def finish(self, video: Any, mixing: Mixing | None = None) -> Any:
        """Apply the operations that run at reading (normalize, dtype, mixup); see `finished`."""
        return finished(self._read_ops, video, mixing)

    def fetched(
        self,
        place: tuple[int, int],
        ask: Callable[[Connected], asks.Ask],
        buffers: Buffers | None,
        cancelled: Cancelled | None,
    ) -> Batch | None:
        """Ask for a batch, load it, and say that it was read; again if some of it was damaged."""
        view, out = f"view {self.name}/{place[0]}/{place[1]}", None
        for _ in range(READ_TRIES):
            try:
                session, fetched = self.facts.asking(
                    lambda session: (answers.Fetched, ask(session)), cancelled, what=view
                )
            except Closed:
                if cancelled is not None and cancelled.is_set():
                    return None
                raise
            with self._dropping(session, fetched.lease):
                if out is None:
                    out = (buffers or Buffers()).take(fetched.shape)
                audio, slots = audio_slots(fetched.audio or None)
                whole = self._load(session, fetched.lease, fetched.places, [*out, *slots] if slots else out)
            for line in fetched.stand_ins:
                _log.warning("task %r: %s", self.name, line, extra={"action": "missing_videos"})
            self.spent.waited(fetched.waited_s, fetched.hits, fetched.misses, fetched.stalls)
            if whole:
                self.spent.batches += 1
                return self._batch(fetched, place, out, audio)
        raise Broken(
            f"{view}: its clips were damaged {READ_TRIES} times in a row after being made anew; check the disk, then "
            "run `viewcache doctor`"
        )

    @contextmanager
    def _dropping(self, session: Connected, lease: int) -> Iterator[None]:
        """If an error or Ctrl-C ends the reading of what is held, say so: it would be held for a minute in vain."""
        try:
            yield
        except BaseException:
            self.client.tell(session, asks.Drop(lease))
            raise

    def _load(self, session: Connected, lease: int, places: Sequence[answers.PlaceOf], out: Slots) -> bool:
        """Read what is held into ``out`` and give it back; whether all of it was whole."""
        damaged, took = session.tiers.read_slots(list(map(placed, places)), out)
        seconds = sum(each.seconds for each in took)
        self.spent.loaded_s += seconds
        self.spent.rebuilt += len(damaged)
        loaded = tuple(row for each in took for row in loads(each))
        self.client.tell(session, asks.Done(lease, tuple(damaged), loaded, seconds))
        return not damaged

    def _batch(
        self,
        fetched: answers.Fetched,
        place: tuple[int, int],
        video: NDArray[np.uint8],
        audio: NDArray[np.float32] | None,
    ) -> Batch:
        count, classes = len(fetched.keys), fetched.classes
        return Batch(
            task=self.name,
            epoch=place[0],
            iteration=place[1],
            video=video,
            label=array_of(fetched.label, "<f4" if classes else "<i8", (count, classes) if classes else (count,)),
            index=array_of(fetched.index, "<i8", (count,)),
            frame=array_of(fetched.frame, "<i8", (count, *video.shape[1:-3])),
            time_s=array_of(fetched.time_s, "<f8", (count, *video.shape[1:-3])),
            sample=array_of(fetched.sample, "<i8", (count,)),
            item=array_of(fetched.item, "<i8", (count,)),
            start_s=array_of(fetched.start_s, "<f8", (count,)),
            end_s=array_of(fetched.end_s, "<f8", (count,)),
            videos=fetched.videos,
            keys=fetched.keys,
            audio=audio,
            fields={field.name: field_values(field) for field in fetched.fields},
            waited_s=fetched.waited_s,
            stalls=fetched.stalls,
        )

    # Videos and frames ---------------------------------------------------------------------------------------------

    def videos(self) -> Iterator[VideoInfo]:
        """All videos of the dataset, by name."""
        after = ""
        while found := self.facts.ask(answers.VideosOf, asks.Videos(self.name, after)).videos:
            yield from map(video_info, found)
            after = found[-1].name

    def video(self, name: str) -> VideoInfo:
        """One video; see `TaskHandle.video`."""
        return video_info(self.facts.ask(answers.VideosOf, asks.Video(self.name, name)).videos[0])

    def find_video(self, name: str) -> VideoInfo | None:
        """One video, or None where there is none of that name."""
        try:
            return self.video(name)
        except ViewNotFound:
            return None

    def depths(self) -> tuple[int, ...]:
        """The numbers of augmentation steps after which a single frame can be asked for."""
        return self._about.depths

    def describe_frame(self, request: FrameRequest) -> FrameInfo:
        """What a single frame is; see `TaskHandle.describe_frame`."""
        found = self.facts.ask(answers.FrameFacts, asks.DescribeFrame(self.name, frame_asked(request)))
        return FrameInfo(
            video_id=found.video_id,
            video=found.video,
            label=found.label,
            frame=found.frame,
            depth=found.depth,
            shape=found.shape,
            time_s=found.time_s,
            key=found.key,
            recipe=tuple(json.loads(found.recipe)),
        )

    def frames(self, requests: Sequence[FrameRequest]) -> list[NDArray[np.uint8]]:
        """Single frames, uint8 (3,H,W) each; see `TaskHandle.frames`."""
        if not requests:
            return []
        ask = asks.Frames(self.name, tuple(map(frame_asked, requests)))
        for _ in range(READ_TRIES):
            session, held = self.client.asking(lambda _: (answers.Held, ask))
            with self._dropping(session, held.lease):
                out = [np.empty(each.shape, np.uint8) for each in held.places]
                # One at a time: frames of several videos differ in size, and a lease ends as a whole.
                whole = [self._load_one(session, place, each) for place, each in zip(held.places, out, strict=True)]
            self.client.tell(session, asks.Done(held.lease, (), (), 0.0))
            if all(whole):
                return [each[0] for each in out]
        raise Broken(f"frames of {requests[0].video!r} could not be read {READ_TRIES} times in a row")

    def _load_one(self, session: Connected, place: answers.PlaceOf, out: NDArray[np.uint8]) -> bool:
        return not session.tiers.read_slots([placed(place)], out[None])[0]
