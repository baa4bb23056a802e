"""The clips of one batch as pictures: those that are stored are read where they lie, by any process, without a lock.

Nothing is made for a look. Only who asks for it in so many words (`Batches.made`) has the clip made, by the cache's
service, as for a read by path: it moves no reader.
"""

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.api.config.find import Located
from viewcache.api.pictures.waveform import waveform
from viewcache.api.pictures.words import said
from viewcache.api.queries.ask import ask_all, question
from viewcache.api.service.opening import ENVIRONMENT
from viewcache.api.sheet import contact_sheet, jpeg
from viewcache.errors import BadInput, ChunkDamaged, NotFound, ViewcacheError, ViewNotFound
from viewcache.materializer.choices import ServiceMode
from viewcache.materializer.reading.values import ClipRecipe
from viewcache.store import Stored
from viewcache.store.reader import read_into, scan_object

__all__ = ["Batches", "ClipOf", "phrases_of"]

FRAMES = 8
"""Most frames of a clip that are shown, evenly spaced."""
TILE = 112
"""Height of a frame in a picture, pixels."""
MOST_BYTES = 512 << 20
"""Of what is read into memory for one picture."""
REMEMBERED, REMEMBERED_S = 8, 60.0
"""Batches whose description is kept for the pictures of their clips, and for how many seconds."""
SLOTS = 2
"""Pictures that are made at a time."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ClipOf:
    """One clip of a batch, as planned: of an image a picture."""

    video: str
    video_id: int | None
    """The catalog's number; None where nothing tells it any more."""
    is_image: bool
    label: str
    sample: int
    """Which clip of the video."""
    frames: tuple[int, ...]
    """Of the video, in the order of the clip."""
    fps: float | None
    """Of the video."""
    shape: tuple[int, ...]
    """(T,C,H,W), or (V,T,C,H,W) of several views."""
    state: str
    """planned, claimed, ready, failed or evicted."""
    is_stored: bool
    """Whether a copy lies in the local tier."""
    recipe: tuple[str, ...] | None = None
    """What was done to it, a phrase for each operation, as its copy says; None where there is none."""


@dataclass(frozen=True, slots=True)
class _Found:
    clip: ClipOf
    physical: str
    """Place of its copy in the store's folder; empty if there is none."""
    part: int
    """Which part of the copy it is: several images lie in one."""
    audio: str
    """The same of its audio; empty also of a task without."""


class Batches:
    """Looks into batches of one cache. Thread-safe."""

    def __init__(self, located: Located, clock: Callable[[], float] = time.monotonic) -> None:
        """Look into nothing yet.

        Args:
            located: the cache.
            clock: gives seconds that go on.
        """
        self._located, self._clock = located, clock
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(SLOTS)
        self._kept: OrderedDict[tuple[str, int, int], tuple[float, list[_Found]]] = OrderedDict()
        self._said: OrderedDict[tuple[str, int, int], list[tuple[str, ...] | None]] = OrderedDict()
        """Batch → recipes of its clips, as the service told them that made some: what is read once has no copy."""

    def clips(self, task: str, epoch: int, iteration: int) -> list[ClipOf]:
        """What is in a batch, in the batch's order.

        Raises:
            ViewNotFound: there is no such batch, or it is not planned yet.
        """
        batch = self._batch(task, epoch, iteration, anew=True)
        said = self._said.get((task, epoch, iteration)) or [None] * len(batch)
        told = map(self._told, batch)
        return [each if each.recipe else replace(each, recipe=of) for each, of in zip(told, said, strict=False)]

    def stored(self, task: str, epoch: int, iteration: int, clip: int) -> bytes:
        """A picture of a stored clip, as JPEG: some of its frames beside one another.

        Raises:
            NotFound: it is not stored in the local tier.
            ViewNotFound: there is no such batch or clip.
            ChunkDamaged: its bytes are not as written.
        """
        found = self._one(task, epoch, iteration, clip)
        try:
            return self._shown(found)
        except ChunkDamaged:
            self._batch(task, epoch, iteration, anew=True)
            again = self._one(task, epoch, iteration, clip)
            if again.physical == found.physical:
                raise
            return self._shown(again)  # it has left since the batch was described

    def _told(self, found: _Found) -> ClipOf:
        """A clip with its recipe, which its copy has beside the pixels: nothing is planned or drawn for a look."""
        if not found.physical:
            return found.clip
        try:
            attributes = scan_object(self._located.root, found.physical).meta.attributes
            return replace(found.clip, recipe=phrases_of(attributes.get("recipe")))
        except ViewcacheError:  # damaged, or gone since; its picture says so
            return found.clip

    def _shown(self, found: _Found) -> bytes:
        if not found.physical:
            raise NotFound(f"this clip of {found.clip.video} is {found.clip.state}: no copy lies in the folder")
        with self._slots:
            root = self._located.root
            heard = _samples(root, scan_object(root, found.audio).stored) if found.audio else None
            return _picture(_some_frames(root, scan_object(root, found.physical).stored, found), heard)

    def made(self, task: str, epoch: int, iteration: int, clip: int) -> bytes:
        """The same of any clip: the service makes what is not stored; it is started where none runs, if it may be.

        Raises:
            ServiceDown: no service runs, and none may be started.
            ViewNotFound: there is no such batch or clip.
            ViewcacheError: it cannot be made; as reading it would raise.
        """
        from viewcache.api.config.documents import texts_of
        from viewcache.api.service.attached_task import AttachedTask
        from viewcache.api.service.client import Client
        from viewcache.api.service.facts import TaskFacts

        found = self._one(task, epoch, iteration, clip)
        _check_size(math.prod(found.clip.shape), "clip")
        config = self._located.config
        mode = os.environ.get(ENVIRONMENT) or (config.cache.service if config is not None else "")
        files = config.files if config is not None and mode == ServiceMode.AUTO else ()
        with self._slots:
            client = Client(Path(self._located.root), texts_of(map(Path, files)), may_start=bool(files), config=config)
            try:
                asked, one = AttachedTask(client, TaskFacts.of(client, task), {}), range(clip, clip + 1)
                pixels = asked.clips(epoch, iteration, one)
                heard = None if asked.audio_shape is None else asked.audio(epoch, iteration, one)[0]
                self._remember((task, epoch, iteration), asked.recipes(epoch, iteration))
            finally:
                client.close()
            return _picture(pixels[0], heard)

    def _remember(self, place: tuple[str, int, int], recipes: Sequence[ClipRecipe]) -> None:
        with self._lock:
            self._said[place] = [phrases_of(list(each.steps)) for each in recipes]
            while len(self._said) > REMEMBERED:
                self._said.popitem(last=False)

    def _one(self, task: str, epoch: int, iteration: int, clip: int) -> _Found:
        batch = self._batch(task, epoch, iteration)
        if not 0 <= clip < len(batch):
            raise ViewNotFound(f"batch {task}/{epoch}/{iteration} has clips 0 to {len(batch) - 1}, not {clip}")
        return batch[clip]

    def _batch(self, task: str, epoch: int, iteration: int, *, anew: bool = False) -> list[_Found]:
        place, now = (task, epoch, iteration), self._clock()
        with self._lock:
            kept = self._kept.get(place)
            if not anew and kept is not None and now - kept[0] < REMEMBERED_S:
                return kept[1]
        parameters: dict[str, str | int | float] = {"task": task, "epoch": epoch, "iteration": iteration}
        (answer,) = ask_all(self._located.catalog, [question("page_batch")], parameters=parameters)
        found = [_found(row) for row in answer.dicts()]
        if not found:
            raise ViewNotFound(
                f"no batch {task}/{epoch}/{iteration} is planned: there is no such task, epoch or iteration, or it is "
                "too far ahead"
            )
        with self._lock:
            self._kept[place] = now, found
            while len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        return found


def _found(row: dict[str, object]) -> _Found:
    rows, *rest = map(int, str(row["shape"]).split("x"))
    each = rows
    if row["is_image"]:
        each = max(1, rows // int(str(row["pictures"])))
    clip = ClipOf(
        video=_text(row["video"]) or "?",
        video_id=None if row["video_id"] is None else int(str(row["video_id"])),
        is_image=bool(row["is_image"]),
        label=_text(row["label"]),
        sample=int(str(row["sample"])),
        frames=tuple(map(int, _text(row["frames"]).split())),
        fps=float(str(row["fps"])) if row["fps"] else None,
        shape=(each, *rest),
        state=str(row["state"]),
        is_stored=row["physical"] is not None,
    )
    # A block that comes twice has its pictures for each time.
    part = int(str(row["place"])) % (rows // each) if clip.is_image else 0
    return _Found(clip, _text(row["physical"]), part, _text(row["audio"]))


def phrases_of(recipe: object) -> tuple[str, ...] | None:
    """A recipe in words; None for one that is none, since a store may have come from anywhere."""
    try:
        return tuple(said(recipe)) if isinstance(recipe, list) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _check_size(count: int, what: str) -> None:
    if count > MOST_BYTES:
        raise BadInput(f"a {what} of {count >> 20} MiB; pictures are made of at most {MOST_BYTES >> 20} MiB")


def _some_frames(root: str, stored: Stored, found: _Found) -> Pixels:
    """Some frames of a stored clip, (t,C,H,W): only the chunks that hold them are read."""
    if len(stored.shape) == 5:  # several views: the first is shown, which is the first row
        whole = _chunk(root, stored, found.part)
        return np.stack([whole[0][pick] for pick in _spaced(stored.shape[1]).tolist()])
    if found.clip.is_image:
        whole = _chunk(root, stored, found.part)
        return np.stack([whole[pick] for pick in _spaced(len(whole)).tolist()])
    picks = _spaced(stored.shape[0])
    rows = []
    for pick in picks.tolist():
        chunk = _chunk(root, stored, pick // stored.chunk_rows)
        rows.append(chunk[pick % stored.chunk_rows].copy())
    return np.stack(rows)


def _chunk(root: str, stored: Stored, number: int) -> Pixels:
    rows = min(stored.chunk_rows, stored.shape[0] - number * stored.chunk_rows)
    _check_size(rows * math.prod(stored.shape[1:]), "chunk")
    out = np.empty((rows, *stored.shape[1:]), np.uint8)
    read_into(root, stored, out, [number])
    return out


def _spaced(frames: int) -> NDArray[np.int64]:
    spaced: NDArray[np.int64] = np.unique(np.linspace(0, frames - 1, min(FRAMES, frames)).round().astype(np.int64))
    return spaced


def _samples(root: str, stored: Stored) -> NDArray[np.float32]:
    """The samples of stored audio, (C,n)."""
    _check_size(math.prod(stored.shape), "clip's audio")
    out = np.empty(stored.shape, np.uint8)
    read_into(root, stored, out)
    return out.view("<f4")


def _picture(clip: Pixels, heard: NDArray[np.float32] | None) -> bytes:
    """JPEG of a clip (T,C,H,W) or (V,T,C,H,W), with its audio below."""
    picture = contact_sheet(clip[None], columns=FRAMES, tile=TILE)
    return jpeg(picture if heard is None else np.concatenate([picture, waveform(heard, picture.shape[1])]))
