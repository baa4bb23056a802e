"""Random use of a cache through its public verbs: several threads, restarts, joins, leaves, budgets and deleted files.

Everything is drawn from one seed, the threads' turns excepted. Whatever happens, calls end, and with nothing worse than
what they say they raise; a path gives the same pixels for ever; an epoch has each video once.
"""

import faulthandler
import os
import sys
import threading
import time
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pytest

import viewcache
from tests.laws.test_groups import SMALL
from tests.tiny import config, encode_folder, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, Closed

VIDEOS, EPOCHS = 5, 12
THREADS = 3
HANG_S = 100.0
"""Longer than any life takes on a busy machine."""

TASKS: dict[str, dict[str, Any]] = {
    "a": {"videos_per_batch": 2, "frames_per_video": 2, "samples_per_video": 1},
    "b": {"videos_per_batch": 3, "frames_per_video": 4, "samples_per_video": 2},
    "c": {"videos_per_batch": 1, "frames_per_video": 2, "samples_per_video": 1, "frame_stride": 4},
    "d": {"videos_per_batch": 2, "frames_per_video": 2, "samples_per_video": 1, "coordination": "independent"},
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five short videos."""
    return encode_folder(tmp_path_factory.mktemp("fuzz"), {f"v{k}.mp4": 20 + k for k in range(VIDEOS)})


class Fuzz:
    """One cache's lives."""

    def __init__(self, seed: int, folder: Path, videos: Path) -> None:
        """Nothing is opened yet."""
        self.random = Random(seed)
        self.folder, self.videos = folder, videos
        self.seen: dict[tuple[str, int, int], bytes] = {}
        """Path of a batch → digest of what it gave first."""
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []

    def task(self, tag: str) -> dict[str, Any]:
        """The description of a task."""
        return config(self.folder / "s", self.videos, tag=tag, epochs=EPOCHS, augmentation=SMALL, sampling=TASKS[tag])[
            "dataset"
        ]  # type: ignore[return-value]

    def live(self, calls: int) -> None:
        """Open, let the threads make so many calls each, and close, now and then under them."""
        cache = {
            "store": str(self.folder / "s"),
            "budget": self.random.choice(["200KB", "1MB", "20MB"]),
            "workers": self.random.choice([1, 2]),
            "worker_kind": "threads",
            "epochs_per_generation": 2,
            "seed": 7,
            "draw_ahead": 2,
        }
        tags = self.random.sample(list(TASKS), self.random.randint(1, len(TASKS)))
        opened = viewcache.open({"cache": cache, "dataset": [self.task(tag) for tag in tags]})
        rude = self.random.random() < 0.3
        left = threading.Semaphore(0)
        seeds = [self.random.random() for _ in range(THREADS)]
        threads = [
            threading.Thread(target=self._use, args=(opened, Random(each), calls, left), daemon=True) for each in seeds
        ]
        until = time.monotonic() + HANG_S
        for thread in threads:
            thread.start()
        for _ in range(self.random.randrange(THREADS * calls) if rude else THREADS * calls):
            left.acquire(timeout=max(0.0, until - time.monotonic()))
        if not rude:
            self._check_draws(opened)
        opened.close()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
            raise AssertionError("threads hang; their stacks were written to stderr")
        assert not self.wrong, self.wrong

    def _use(self, cache: Cache, random: Random, calls: int, left: threading.Semaphore) -> None:
        verbs = (self.read, self.read, self.epoch, self.far, self.frame, self.make, self.join, self.leave, self.lose)
        for _ in range(calls):
            verb = random.choice(verbs)
            try:
                verb(cache, random)
            except Closed:
                left.release(calls)
                return
            except Exception as error:
                self.wrong.append(f"{verb.__name__}: {error!r}")
            self.done[verb.__name__] += 1
            left.release()

    def _check_draws(self, cache: Cache) -> None:
        rows = sql(cache, "select task, epoch, count(*), count(distinct video) from draws group by all")
        self.wrong += [f"{task} epoch {epoch}: {have} of {n}" for task, epoch, n, have in rows if have != n]

    # What threads do -----------------------------------------------------------------------------------------------

    def read(self, cache: Cache, random: Random) -> None:
        """Read a batch somewhere."""
        self._read(cache, random.choice(cache.tasks), random.randrange(EPOCHS), random)

    def epoch(self, cache: Cache, random: Random) -> None:
        """Read an epoch in order; it has each video once, each with all its samples."""
        task, epoch = random.choice(cache.tasks), random.randrange(EPOCHS)
        found: Counter[str] = Counter()
        for iteration in range(cache.task(task).iterations(epoch)):
            found.update(self._read(cache, task, epoch, random, iteration))
        expected = dict.fromkeys((f"v{k}" for k in range(VIDEOS)), TASKS[task]["samples_per_video"])
        if found != expected:
            self.wrong.append(f"epoch {epoch} of {task}: {found}")

    def _read(
        self, cache: Cache, task: str, epoch: int, random: Random, iteration: int | None = None
    ) -> tuple[str, ...]:
        if iteration is None:
            iteration = random.randrange(-(-VIDEOS // TASKS[task]["videos_per_batch"]))
        batch = cache.read(task, epoch, iteration)
        digest = blake2b(batch.video.tobytes() + repr(batch.videos).encode()).digest()
        if self.seen.setdefault((task, epoch, iteration), digest) != digest:
            self.wrong.append(f"{task}/{epoch}/{iteration} gives something else than before")
        return batch.videos

    def far(self, cache: Cache, random: Random) -> None:
        """Plan an epoch somewhere."""
        cache.task(random.choice(cache.tasks)).iterations(random.randrange(EPOCHS))

    def frame(self, cache: Cache, random: Random) -> None:
        """Read a single frame."""
        cache.frame(random.choice(cache.tasks), f"v{random.randrange(VIDEOS)}", random.randrange(20))

    def make(self, cache: Cache, random: Random) -> None:
        """Make some epochs ahead, or begin to."""
        for _ in zip(range(2), cache.materialize(random.randrange(1, EPOCHS)), strict=False):
            pass

    def join(self, cache: Cache, random: Random) -> None:
        """Let a task join that is not there yet."""
        tag = random.choice(list(TASKS))
        if tag not in cache.tasks:
            try:
                cache.join({"dataset": self.task(tag)})
            except BadInput:  # it joined in another thread meanwhile
                if tag not in cache.tasks:
                    raise

    def leave(self, cache: Cache, random: Random) -> None:
        """A task ends; reading it lets it go on."""
        cache.leave(random.choice(cache.tasks))

    def lose(self, cache: Cache, random: Random) -> None:
        """Delete some objects' files."""
        objects = [Path(folder) for folder, _, files in os.walk(self.folder / "s" / "objects") if files]
        for each in random.sample(objects, min(3, len(objects))):
            rmtree(each, ignore_errors=True)


def test_a_few_lives(tmp_path: Path, videos: Path, no_leaks: None) -> None:
    """Two lives of a cache, with three threads each."""
    fuzz = Fuzz(1, tmp_path, videos)
    for _ in range(2):
        fuzz.live(10)
    assert fuzz.done["read"]


@pytest.mark.long
@pytest.mark.timeout(5000)
def test_an_hour_of_lives(tmp_path: Path, videos: Path) -> None:
    """As many seconds as VIEWCACHE_FUZZ_S says, else 3,000; a new cache every eight lives."""
    until, seed = time.monotonic() + float(os.environ.get("VIEWCACHE_FUZZ_S", "3000")), 1000
    while time.monotonic() < until:
        folder = tmp_path / str(seed)
        folder.mkdir()
        fuzz = Fuzz(seed, folder, videos)
        for _ in range(8):
            fuzz.live(30)
        seed += 1
