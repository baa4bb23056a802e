"""One loader for several trainings that take the same batches in lock step, as CoorDL shares them (Mohan et al., 2021).

A process of its own decodes on demand and puts each batch into shared memory once; a place is filled again when every
training has let go of it. So each decode serves all, and the slowest training sets the pace of all.
"""

from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event, Semaphore
from typing import Any

import numpy as np

from benchmarks.rivals import READ_AHEAD, Batches, Bytes, Setting, _data_loader, _OnDemand

__all__ = ["PATIENCE_S", "Desk", "make_desk", "serve", "taken"]

PLACES = READ_AHEAD + 2
"""Batches in shared memory, as many as our loader has in its own."""
PATIENCE_S = 300.0
"""For the slowest training, or the loader."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Shared memory for some batches, and who waits for what of it; it goes to other processes by inheritance."""

    shape: tuple[int, ...]
    """Of one batch, uint8."""
    memory: Any
    """Of all places, one behind the other."""
    clips: Any
    """In each place; 0 = there are no more batches."""
    filled: tuple[Semaphore, ...]
    """For each training: places that it has not taken yet."""
    let_go: tuple[Semaphore, ...]
    """For each place: trainings that have let go of what it held."""

    def place(self, number: int) -> Bytes:
        """The memory of the batch with a number."""
        places: Bytes = np.frombuffer(self.memory, np.uint8).reshape(PLACES, *self.shape)
        place: Bytes = places[number % PLACES]
        return place


def make_desk(context: SpawnContext, setting: Setting, trainings: int) -> Desk:
    """Make an empty one for batches of a setting."""
    clips = setting.videos_per_batch * setting.samples
    shape = (clips, setting.frames, setting.crop, setting.crop, 3)
    return Desk(
        shape,
        context.RawArray("B", PLACES * int(np.prod(shape))),
        context.RawArray("q", PLACES),
        tuple(context.Semaphore(0) for _ in range(trainings)),
        tuple(context.Semaphore(trainings) for _ in range(PLACES)),
    )


def serve(desk: Desk, setting: Setting, ready: Event, begin: Event) -> None:
    """Fill places until all batches were there: the main function of the loader's process."""
    dataset = _OnDemand(setting)
    ready.set()
    begin.wait()
    number = -1
    for number, batch in enumerate(_data_loader(dataset)):
        _wait_for(desk, number)
        desk.place(number)[: len(batch)] = batch
        _tell(desk, number, len(batch))
    _wait_for(desk, number + 1)
    _tell(desk, number + 1, 0)


def _wait_for(desk: Desk, number: int) -> None:
    """Until every training has let go of what the place held."""
    for _ in desk.filled:
        assert desk.let_go[number % PLACES].acquire(timeout=PATIENCE_S), "a training has ended before its last batch"


def _tell(desk: Desk, number: int, clips: int) -> None:
    desk.clips[number % PLACES] = clips
    for each in desk.filled:
        each.release()


def taken(desk: Desk, training: int) -> Batches:
    """The batches of one training, in the shared memory itself: each is valid until the next is asked for."""
    number = 0
    while True:
        assert desk.filled[training].acquire(timeout=PATIENCE_S), "the loader has ended before the last batch"
        clips = desk.clips[number % PLACES]
        if not clips:
            return
        yield desk.place(number)[:clips]
        desk.let_go[number % PLACES].release()
        number += 1
