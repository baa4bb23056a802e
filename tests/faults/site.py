"""What the state machine's caches have in common: videos, a store to start from, and what an undisturbed run gave."""

import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import viewcache
from tests.faults.caches import config, encode_videos, read_all
from tests.scheduling.harness import until
from viewcache.api.session.cache import Cache
from viewcache.store import LocalTier, Reservation

__all__ = ["EPOCHS", "MINIMUM", "Place", "Site", "WatchedTier", "digest", "make_site", "names_of", "single", "stop"]

EPOCHS = 4
"""Most epochs of the task: two generations."""

MINIMUM = 97_568
"""Bytes of the smallest budget: one batch."""

Place = tuple[int, int]


class WatchedTier(LocalTier):
    """Remembers the most that was ever used and promised at a time."""

    most = 0

    def reserve(self, size: int) -> Reservation | None:
        """Promise bytes, and look."""
        reservation = super().reserve(size)
        with self._lock:
            self.most = max(self.most, self._used + self._reserved)
        return reservation


@dataclass(frozen=True)
class Site:
    """What all machines of a test share: the videos, a store to start from, and the model."""

    videos: Path
    scratch: Path
    template: Path
    """A store with planned epochs and no object."""
    batches: dict[Place, str]
    """(epoch, iteration) → digest."""
    clips: dict[str, str]
    """Key of a clip → digest of its pixels."""
    frames: dict[tuple[Any, ...], str]
    """Arguments of `single` → digest."""
    orders: dict[int, list[str]]
    """Epoch → names of the videos as drawn."""
    steps: Counter[str] = field(default_factory=Counter)
    """How often each rule ran, over all machines."""


def digest(pixels: NDArray[np.uint8]) -> str:
    return blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=16).hexdigest()


def single(cache: Cache, video: str, frame: int, depth: int, epoch: int, sample: int) -> str:
    """Digest of a single frame: as decoded for depth 0, else augmented."""
    if depth == 0:
        return digest(cache.frame("t", video, frame))
    return digest(cache.aug("t", video, frame, depth, epoch=epoch, sample=sample))


def names_of(cache: Cache, epoch: int) -> list[str]:
    task = cache.task("t")
    return [name for k in range(task.task.iterations(epoch)) for name in task.describe(epoch, k).videos]


def make_site(folder: Path) -> Site:
    """Everything in a folder, by one undisturbed run."""
    videos = encode_videos(folder / "videos")
    scratch, template = folder / "scratch", folder / "template"
    scratch.mkdir()
    wanted = [(f"v{k}", frame, 0, 0, 0) for k in range(4) for frame in (0, 29)]
    wanted += [(f"v{k}", frame, 1, epoch, k % 2) for k in range(4) for frame, epoch in ((3, 0), (17, 3))]
    with viewcache.open(config(scratch / "truth", videos, epochs=EPOCHS)) as cache:
        batches = dict(read_all(cache, EPOCHS))
        clips: dict[str, str] = {}
        for place in batches:
            batch = cache.read("t", *place)
            clips |= {key: digest(clip) for key, clip in zip(batch.keys, batch.video, strict=True)}
        frames = {each: single(cache, *each) for each in wanted}
        orders = {epoch: names_of(cache, epoch) for epoch in range(EPOCHS)}
    with viewcache.open(config(template, videos, epochs=EPOCHS)) as cache:
        assert {epoch: names_of(cache, epoch) for epoch in range(EPOCHS)} == orders
    return Site(videos, scratch, template, batches, clips, frames, orders)


def state_of(pid: int) -> str:
    """One letter of /proc: T is stopped, Z and X are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def stop(pid: int) -> None:
    """Stop a process, or find that it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) in "TtZX", "a worker to stop")
