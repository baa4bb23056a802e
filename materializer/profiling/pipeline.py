"""The work of training on a sample: workers make blocks, each is read, and what was read of a device is cold again.

Workers, jobs and memory are those of a cache, and what they take is measured work as there. Only what is kept lies in a
folder of its own. The trade-off: a few hundred images come round and round, so their pages are dropped after each use,
which takes this process some microseconds a file that training would not spend.
"""

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.records import IoSampleRow
from viewcache.errors import BadInput, BadVideo, Full, WorkerDied
from viewcache.materializer.clock import WorkClock
from viewcache.materializer.media.source import local_path
from viewcache.materializer.planning.recipe import Intermediate, IntermediateObject, Part, Recipe, block_recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.profiling.by_price import Images
from viewcache.materializer.profiling.cold import CHANGED, drop, files_of, warm
from viewcache.materializer.profiling.mixes import TENTHS
from viewcache.materializer.profiling.sample import Sample, pack_of
from viewcache.materializer.profiling.work import WorkDone
from viewcache.materializer.spec import CacheSpec
from viewcache.materializer.workers.ahead import Extent
from viewcache.materializer.workers.job import FolderTarget, Job, Made, PassingTarget, Target
from viewcache.materializer.workers.pool import Event, EventKind
from viewcache.materializer.workers.start import start_pool
from viewcache.store import CODECS, aligned_empty
from viewcache.store.codec_trial import try_codecs
from viewcache.store.passing import Passage, PassingMemory
from viewcache.store.tier import PASSING

__all__ = ["WINDOWS", "Pipeline", "Throughput", "codecs_of"]

WINDOWS = 4
"""Of each measurement; the first is left out."""

_SAID_S = 1.0
"""For so long workers are waited for before it is looked whether they are well."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a pipeline gave in a window of time."""

    per_s: float
    """Images a second."""
    worker_s: float
    """Core seconds of workers for an image."""
    reader_s: float
    """The same of this process, which hands out jobs and reads."""
    queued: float
    """Part of the time in which workers could have worked, and others had the cores."""
    source_bytes: float
    """Of image files, for an image."""
    kept_bytes: float
    """Of kept pictures, for an image."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Images that are made together, and what their pictures are made of this time."""

    parts: tuple[Part, ...]
    kept: tuple[Intermediate, ...] = ()
    extents: tuple[Extent, ...] = ()
    """What is read for it."""
    source_bytes: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Spent:
    """Core seconds since a process began."""

    workers_s: float
    queued_s: float
    """For which workers waited for a core."""
    reader_s: float


@dataclass(slots=True)
class _Window:
    """What has come out since it began."""

    before: _Spent
    begun: float = field(default_factory=time.monotonic)
    images: int = 0
    source_bytes: int = 0
    kept_bytes: int = 0

    def add(self, block: _Block) -> float:
        """A block was read; returns seconds since the beginning."""
        self.images += len(block.parts)
        self.source_bytes += block.source_bytes
        self.kept_bytes += block.kept_bytes
        return time.monotonic() - self.begun

    def end(self, now: _Spent) -> Throughput:
        """What it was."""
        n, before = self.images, self.before
        worked, queued = now.workers_s - before.workers_s, now.queued_s - before.queued_s
        return Throughput(
            n / (time.monotonic() - self.begun),
            worked / n,
            (now.reader_s - before.reader_s) / n,
            queued / max(worked + queued, 1e-9),
            self.source_bytes / n,
            self.kept_bytes / n,
        )


def codecs_of(cache: CacheSpec) -> tuple[str, ...]:
    """The codecs in which a cache may keep pictures of images."""
    return tuple(CODECS) if cache.local.codec == "auto" else (cache.local.codec,)


class Pipeline:
    """Workers and a reader on a sample of images. Not thread-safe; `close` ends the workers."""

    def __init__(self, cache: CacheSpec, sample: Sample, scratch: str) -> None:
        """Start no worker yet.

        Args:
            cache: the settings: how many workers, of which kind, with which memory.
            sample: the images.
            scratch: a folder for what is kept, laid out as a store.

        Raises:
            Full: the system has no descriptors or memory for it now.
        """
        self._sample = sample
        self.codecs = codecs_of(cache)
        """In which pictures are kept."""
        self._workers = cache.worker_count
        self._target = FolderTarget(scratch, durable=False)
        shape = sample.parts[0].recipe.shape
        place_bytes = clip_bound(int(np.prod(shape)) * sample.together, sample.together)
        self._buffer = aligned_empty((sample.together * shape[0], *shape[1:]))
        self._number = 0
        self._kept: dict[str, dict[str, Intermediate]] = {codec: {} for codec in self.codecs}
        """By codec and the image's content key."""
        self._work = WorkDone()
        self._counts = True
        """Whether what is done now is measured work as any other: not where bytes are read cold."""
        self._parts: tuple[tuple[Part, ...], ...] = ()
        """Of each block."""
        self._files: dict[str, Extent] = {}
        """Of the images, by their content keys."""
        self._memory = PassingMemory(2 * self._workers * place_bytes)
        try:
            self._pool = start_pool(cache)
        except BaseException:
            self._memory.close()
            raise

    def __enter__(self) -> Self:
        """The pipeline itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End the workers and give the memory back."""
        self._pool.close()
        self._memory.close()

    @property
    def workers(self) -> int:
        """How many work at once."""
        return self._workers

    # What is kept ---------------------------------------------------------------------------------------------------

    def keep(self) -> Iterator[int]:
        """Make the pictures that may be kept, in each codec, and give how many are there by and by.

        An image that cannot be decoded is left out.

        Raises:
            Full: the disk has no room.
            BadInput: too few images can be decoded.
        """
        packs: Sequence[Recipe] = self._sample.packs
        for codec in self.codecs:
            packs = yield from self._keep(packs, codec)
        self._part_blocks([part for part in self._sample.parts if part.source.key in self._first])

    @property
    def kept_images(self) -> int:
        """How many images have kept pictures: the others cannot be decoded."""
        return len(self._first)

    @property
    def _first(self) -> dict[str, Intermediate]:
        """What is kept in the first codec: the others are made of that."""
        return self._kept[self.codecs[0]]

    def _keep(self, wanted: Sequence[Recipe], codec: str) -> Generator[int, None, list[Recipe]]:
        """Make packs in a codec; those that were."""
        waiting, packs, there = deque(wanted), dict[int, Recipe](), list[Recipe]()
        while waiting or self._pool.busy:
            while waiting and self._pool.has_room():
                pack = replace(waiting.popleft(), key=secrets.token_hex(16), codec=codec)
                first = pack.parts[0].source
                kept = (self._first.get(part.source.key) for part in pack.parts)
                job = self._job((pack,), first.uri, first.name, self._target, kept)
                packs[job.number] = pack
                self._pool.submit(job)
            for event in self._heard():
                if event.made is not None:
                    there.append(packs.pop(event.job.number))
                    self._add(there[-1], event.made)
                    yield sum(map(len, self._kept.values()))
                elif event.job.number in packs:  # an image is bad, and so it has none
                    parts = packs.pop(event.job.number).parts
                    halves = (parts[: len(parts) // 2], parts[len(parts) // 2 :])
                    waiting.extend(pack_of(half) for half in halves if len(parts) > 1)
        return there

    def _add(self, pack: Recipe, made: Made) -> None:
        """A pack is there."""
        for part, first in zip(pack.parts, pack.layout.firsts, strict=True):
            image, recipe = part.source.key, part.recipe
            kept = IntermediateObject(0, image, recipe, pack.key, first).stored_as(made.stored)
            self._kept[pack.codec][image] = kept

    def _part_blocks(self, there: list[Part]) -> None:
        """Part images into blocks, otherwise than into packs: the next epoch has another order."""
        # Each worker has a block, and another one waits while the bytes of the last one are dropped.
        length = min(self._sample.together, len(there) // (2 * self._workers))
        if not length:
            raise BadInput(
                f"task {self._sample.task!r}: {len(there)} of {len(self._sample.parts)} images can be decoded; mixes "
                f"are measured of {2 * self._workers} at least with {self._workers} workers"
            )
        order = np.random.default_rng(0).permutation(len(there)).tolist()
        blocks = (order[at : at + length] for at in range(0, len(there) - length + 1, length))
        self._parts = tuple(tuple(there[each] for each in block) for block in blocks)
        for part in there:
            path = local_path(part.source.uri)
            self._files[part.source.key] = Extent(path, 0, os.stat(path).st_size)

    def extents(self, codec: str | None) -> list[list[Extent]]:
        """What blocks are made of, a list for each block: pictures kept in a codec, or the files of images."""
        return [[self._extent(part, codec) for part in parts] for parts in self._parts]

    def files(self) -> list[list[Extent]]:
        """The files of images as they are read, those beside the sample included."""
        beside, length = [Extent(path) for path in self._sample.beside], len(self._parts[0])
        others = (beside[at : at + length] for at in range(0, len(beside), length))
        return [*self.extents(None), *others]

    def image_bytes(self, codec: str | None) -> float:
        """Bytes of one of them, on average."""
        return float(self._lengths(codec).mean())

    def _lengths(self, codec: str | None) -> NDArray[np.float64]:
        return np.array([extent.length for of in self.extents(codec) for extent in of], np.float64)

    def images(self) -> Images:
        """What each image takes."""
        images = [part.source.key for parts in self._parts for part in parts]
        return Images(
            self._lengths(None),
            np.array([self._sample.pixels[each] for each in images], np.float64),
            np.array([math.prod(self._first[each].picture) for each in images], np.float64),
            np.stack([self._lengths(codec) for codec in self.codecs], axis=1),
        )

    def _extent(self, part: Part, codec: str | None) -> Extent:
        image = part.source.key
        return self._files[image] if codec is None else self._target.extent_of(self._kept[codec][image].stored)

    # Throughput -----------------------------------------------------------------------------------------------------

    def run(self, tenths: int, codec: str, seconds: float, *, cold: bool) -> list[Throughput]:
        """Make and read blocks for a while.

        Args:
            tenths: so many of ten pictures are made of what is kept, the others of their files.
            codec: of what is kept.
            seconds: of each of `WINDOWS`.
            cold: whether files are dropped from memory before they are used; else all are read once before.

        Returns:
            The windows behind the first one.

        Raises:
            Full: a worker had no room, or the machine has no memory.
            WorkerDied: a worker ended.
            BadVideo: a block could not be made, since files were changed.
        """
        self._counts = not cold
        extents = [extent for form in (codec, None) for of in self.extents(form) for extent in of]
        if cold:
            drop(files_of(extents))
        else:
            warm(extents)
        mixed = self._mixed(tenths, codec)
        idle, running, unmade = deque(self._parts), dict[int, tuple[_Block, Passage]](), set[int]()
        done: list[_Block] = []
        windows: list[Throughput] = []
        window = _Window(self._spent())
        while len(windows) < WINDOWS or running:
            while idle and len(windows) < WINDOWS and self._pool.has_room():
                block = mixed(idle.popleft())
                job, passage = self._block_job(block)
                running[job.number] = block, passage
                unmade.add(job.number)
                self._pool.submit(job)
            while done:  # now that workers are busy
                block = done.pop()
                if cold:
                    drop(block.extents)
                idle.append(block.parts)
            for event in self._heard():
                block, passage = running[event.job.number]
                if event.made is not None:
                    self._read(event.made, passage)
                    unmade.discard(event.job.number)
                    if window.add(block) >= seconds:
                        windows.append(window.end(self._spent()))
                        window = _Window(self._spent())
                else:
                    if event.job.number in unmade:
                        raise BadVideo(f"{event.job.file}: a block of it and others could be made before; {CHANGED}")
                    del running[event.job.number]
                    done.append(block)
        return windows[1:WINDOWS]

    def _mixed(self, tenths: int, codec: str) -> Callable[[tuple[Part, ...]], _Block]:
        """Chooses what each block is made of: of all images so many are of what is kept, and about as many of each."""
        random = np.random.default_rng(tenths)
        carried = 0.0

        def mixed(parts: tuple[Part, ...]) -> _Block:
            nonlocal carried
            wanted = carried + len(parts) * tenths / TENTHS[-1]
            count = round(wanted)
            carried = wanted - count
            chosen = set(random.permutation(len(parts))[:count].tolist())
            kept = tuple(self._kept[codec][part.source.key] for at, part in enumerate(parts) if at in chosen)
            extents = tuple(self._extent(part, codec if at in chosen else None) for at, part in enumerate(parts))
            size = {True: 0, False: 0}
            for at, extent in enumerate(extents):
                size[at in chosen] += extent.length
            return _Block(parts, kept, extents, size[False], size[True])

        return mixed

    def _block_job(self, block: _Block) -> tuple[Job, Passage]:
        key = secrets.token_hex(16)
        bound = clip_bound(self._buffer[: len(block.parts)].nbytes, len(block.parts))
        passage = self._memory.claim(bound)
        if passage is None:
            raise Full(f"the machine has no {bound} bytes of memory for a block of {len(block.parts)} pictures")
        target = PassingTarget(self._target, self._memory.handle, {key: passage.place})
        first = block.parts[0].source
        recipe = block_recipe(key, block.parts, 0, bound)
        return self._job((recipe,), first.uri, first.name, target, block.kept), passage

    def _job(
        self, clips: tuple[Recipe, ...], uri: str, name: str, target: Target, kept: Iterable[Intermediate | None]
    ) -> Job:
        self._number += 1
        job = Job(self._number, uri, name, clips[0].key, b"", clips, target)
        return replace(job, intermediates=tuple(each for each in kept if each is not None))

    def _read(self, made: Made, passage: Passage) -> None:
        """What a loader does: copy the block out, checked, and let it go."""
        passage.arrived(made.written.physical)
        clock = WorkClock(PASSING)
        self._memory.read(made.stored, self._buffer[: made.written.shape[0]])
        if self._counts:
            self._work.read(made.written, clock)
        self._memory.delete(made.stored)

    def _heard(self) -> list[Event]:
        """News of the workers.

        Raises:
            Full: a worker had no room.
            WorkerDied: one ended.
        """
        events = self._pool.poll(_SAID_S)
        for event in events:
            if event.kind == EventKind.DIED:
                raise WorkerDied(f"{event.job.file}: a worker ended while mixes were measured: {event.reason}")
            if event.report is not None and event.report.error:
                raise event.report.failure
            if self._counts:
                block = event.job.block
                self._work.heard(event, frozenset() if block is None else {block.key})
        return events

    def measured_work(self) -> list[IoSampleRow]:
        """What all work from memory has taken, and what each codec does to the kept pictures, which is tried now."""
        for kept in self._first.values():
            out = aligned_empty(kept.stored.shape)
            self._target.read_into(kept.stored, out, range(len(kept.stored.table.sizes)))
            self._work.tried(try_codecs(out[: math.prod(kept.picture)]))
        return self._work.rows()

    def _spent(self) -> _Spent:
        pids, own = self._pool.pids(), time.process_time()
        if not pids:  # workers are threads of this process
            return _Spent(own, 0.0, 0.0)
        each = list(map(_scheduled_s, pids))
        return _Spent(sum(had for had, _ in each), sum(waited for _, waited in each), own)


def _scheduled_s(pid: int) -> tuple[float, float]:
    """Seconds for which a process of one thread had a core, and for which it waited for one."""
    try:
        had, waited = Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[:2]
    except OSError:  # the system does not say
        return 0.0, 0.0
    return int(had) * 1e-9, int(waited) * 1e-9
