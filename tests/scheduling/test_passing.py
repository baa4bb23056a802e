"""Clips that are read once pass through memory: the same bytes, within bounds, whoever dies, jumps or flips a bit."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.scheduling.harness import until
from tests.sounds import Track, encode_with_audio
from tests.tiny import config, encode_folder, pixels, places, same, sql
from viewcache.api.session import storage
from viewcache.api.session.cache import Cache
from viewcache.errors import Broken
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.storage.ledger import Copy
from viewcache.store.passing import PassingMemory, Place
from viewcache.store.tier import PASSING
from viewcache.testing.leaks import nothing_left

EPOCHS, SAMPLES, VIDEOS = 4, 3, 6
ROOM_OF_A_CLIP = 33_400
"""Bytes that the budget counts for a clip, metadata included."""

Batches = dict[tuple[int, int], Batch]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six videos."""
    return encode_folder(tmp_path_factory.mktemp("passing"), {f"v{k}.mp4": 40 + k for k in range(VIDEOS)})


def opened(store: Path, videos: Path, share: float = 0.3, task: object = None, **cache: Any) -> Cache:
    """A task of four epochs in one generation, with room for a share of its clips."""
    budget = int(VIDEOS * SAMPLES * EPOCHS * ROOM_OF_A_CLIP * share)
    settings = {"budget": budget, "epochs_per_generation": EPOCHS, **cache}
    sampling = {"samples_per_video": SAMPLES}
    return viewcache.open(config(store, videos, cache=settings, sampling=sampling, epochs=EPOCHS))


@pytest.fixture(scope="module")
def plenty(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Batches:
    """Every batch, read with room for all: nothing passes."""
    with opened(tmp_path_factory.mktemp("plenty"), videos, 3) as cache:
        found = pixels(cache)
        assert passed(cache) == 0
    return found


def memory_of(cache: Cache) -> PassingMemory:
    """Where clips lie that pass."""
    found = cache.tiers.passing
    assert found is not None
    return found


def lying(cache: Cache) -> dict[str, Copy]:
    """Clips that lie there now."""
    return cache.owner.ledger.copies(PASSING)


def passed(cache: Cache) -> int:
    """How many have passed since the opening."""
    return cache.snapshot().work.get("passed", 0)


def check_bounds(cache: Cache) -> None:
    """The budgets hold, of the folder and of the memory, and what is counted there is what the kernel gives."""
    local, memory = cache.tier, memory_of(cache)
    assert local.used_bytes + local.reserved_bytes <= local.budget_bytes
    assert memory.counted_bytes <= memory.budget_bytes
    assert sum(copy.bytes for copy in lying(cache).values()) <= memory.used_bytes


def read_all(cache: Cache, after: Callable[[], None] = lambda: None) -> Batches:
    """Every batch in order, with the bounds looked at after each."""
    found: Batches = {}
    for place in places(cache):
        found[place] = cache.read("train", *place)
        check_bounds(cache)
        after()
    return found


@pytest.mark.parametrize("kind", ["processes", "threads"])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_same_bytes_whatever_passes(tmp_path: Path, videos: Path, plenty: Batches, share: float, kind: str) -> None:
    """Batches are those of a cache with room for all; what passed has no row, no folder and no place afterwards."""
    with nothing_left(), opened(tmp_path / "store", videos, share, worker_kind=kind) as cache:
        assert same(read_all(cache), plenty)
        assert passed(cache) > 10
        assert not lying(cache), "all were read, and nobody needs them"
        assert cache.owner.dispatcher is not None
        cache.owner.dispatcher.wait_idle(60)
        assert memory_of(cache).reserved_bytes == 0
        rows = sql(cache, "select count(*) from copies") + sql(cache, "select count(*) from evictions")
        stored, left = (int(str(count)) for (count,) in rows)
        work = cache.snapshot().work
        assert stored + left == work["objects"] - work["passed"], "what passed is not in the catalog"
        assert sql(cache, "select count(*) from copies where tier = 'passing'") == [(0,)]
        folders = sum(1 for _ in Path(cache.tier.root, "objects").glob("*/*"))
        assert folders == stored
        (counted,) = sql(cache, "select sum(n), sum(bytes) from io_samples where tier = 'passing' and op = 'store'")
        assert counted == (work["passed"], work["passed_bytes"])


def test_without_such_memory_all_is_stored(
    tmp_path: Path, videos: Path, plenty: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that gives no such memory stores all clips, as before: the same bytes."""
    monkeypatch.setattr(storage, "passing_memory", lambda _: None)
    with opened(tmp_path / "store", videos) as cache:
        assert same(pixels(cache), plenty)
        assert passed(cache) == 0
        now = cache.snapshot().passing
        assert (now.used, now.reserved, now.budget) == (0, 0, 0)


@pytest.mark.parametrize("clips", [0, 1, 2])
def test_memory_too_small_for_a_batch(
    tmp_path: Path, videos: Path, plenty: Batches, monkeypatch: pytest.MonkeyPatch, clips: int
) -> None:
    """With room for none, one or two clips of a batch of six the rest goes through the folder, and nothing is stuck."""
    monkeypatch.setattr(storage, "passing_memory", lambda _: PassingMemory(max(1, clips * 36_864)))
    with opened(tmp_path / "store", videos) as cache:
        assert same(read_all(cache), plenty)
        assert (passed(cache) > 0) == (clips > 0)


def test_a_second_read_is_the_same_and_then_it_is_stored(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """What was read through memory is made again when its path is read again, and lies in the store after that."""
    with opened(tmp_path / "store", videos, 0.1) as cache:
        for place in places(cache):
            for _ in range(3):
                assert np.array_equal(cache.read("train", *place).video, plenty[place].video)
                check_bounds(cache)
            keys = cache.read("train", *place).keys
            assert not lying(cache).keys() & set(keys)
        assert passed(cache) > 10


def flip(cache: Cache, copy: Copy, at: int) -> None:
    """Flip a bit of a clip that lies in memory."""
    table = copy.stored.table
    with memory_of(cache).handle.writable() as file:
        place = table.offsets[0] + at % table.sizes[0]
        os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 1]), place)


def test_a_damaged_clip_is_made_again(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """Flipped bits in memory are noticed before anybody has them: the clip is made again, with the same bytes."""
    rng = random.Random(0)
    with opened(tmp_path / "store", videos) as cache:
        flipped = 0

        def damage() -> None:
            nonlocal flipped
            assert cache.owner.dispatcher is not None
            cache.owner.dispatcher.wait_idle(60)
            for copy in lying(cache).values():
                flip(cache, copy, rng.randrange(1 << 20))
                flipped += 1

        assert same(read_all(cache, damage), plenty)
        assert flipped > 5
        assert 0 < cache.task("train").spent.rebuilt <= flipped


def test_readers_that_jump_leave_nothing_behind(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """Whoever jumps forth and back gets the same bytes; memory stays bounded, and who leaves takes all with him."""
    rng = random.Random(1)
    with opened(tmp_path / "store", videos) as cache:
        every = list(places(cache))
        for _ in range(40):
            place = rng.choice(every)
            assert np.array_equal(cache.read("train", *place).video, plenty[place].video)
            check_bounds(cache)
        assert passed(cache) > 5
        cache.leave("train")
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        until(lambda: not lying(cache), "all of it is gone")


def test_room_is_made_by_what_is_needed_latest(
    tmp_path: Path, videos: Path, plenty: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory holds little, clips of a place that was jumped away from make room; readers lose nothing."""
    monkeypatch.setattr(storage, "passing_memory", lambda _: PassingMemory(7 * 36_864))
    rng = random.Random(2)
    with opened(tmp_path / "store", videos) as cache:
        every = list(places(cache))
        for _ in range(60):
            place = rng.choice(every)
            assert np.array_equal(cache.read("train", *place).video, plenty[place].video)
            check_bounds(cache)
        assert passed(cache) > 5


def test_a_killed_worker_leaves_nothing(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """Workers that are killed in the middle change no byte, and their places come back."""
    rng = random.Random(3)
    with opened(tmp_path / "store", videos, workers=2) as cache:
        found: Batches = {}
        for place in places(cache):
            assert cache.owner.dispatcher is not None or not found
            for pid in cache.owner.dispatcher.pool.pids() if cache.owner.dispatcher else []:
                if rng.random() < 0.3:
                    os.kill(pid, signal.SIGKILL)
            found[place] = cache.read("train", *place)
            check_bounds(cache)
        assert same(found, plenty)
        assert passed(cache) > 5
        assert cache.owner.dispatcher is not None
        cache.owner.dispatcher.wait_idle(60)
        assert memory_of(cache).reserved_bytes == 0


def test_workers_that_cannot_write_there_store(
    tmp_path: Path, videos: Path, plenty: Batches, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If workers may not write into the memory nobody gets an error: the clips are stored, and a warning says so."""

    def refuse(*_: object) -> None:
        raise Broken("cannot write into the memory of process 1: Permission denied")

    monkeypatch.setattr(Place, "write", refuse)
    with opened(tmp_path / "store", videos, worker_kind="threads") as cache:
        assert same(read_all(cache), plenty)
        assert passed(cache) == 0
        assert memory_of(cache).reserved_bytes == 0
    assert "clips are stored for 60 s" in caplog.text


def two_tasks(store: Path, videos: Path, share: float, crop: int) -> Cache:
    """Two tasks over the same videos; with equal crops they share clips."""
    budget = int(2 * VIDEOS * EPOCHS * ROOM_OF_A_CLIP * share)
    one = config(store, videos, cache={"budget": budget, "epochs_per_generation": EPOCHS}, epochs=EPOCHS)
    return viewcache.open([one, _second(one, crop)])


def _second(one: Any, crop: int) -> Any:
    other = {"dataset": {**one["dataset"], "tag": "other"}}
    steps = [{**each, "config": [dict(op) for op in each["config"]]} for each in other["dataset"]["augmentation"]]
    steps[0]["config"][1] = {"random_crop": {"shape": [crop, crop]}}
    other["dataset"]["augmentation"] = steps
    return other


@pytest.mark.parametrize("crop", [32, 24])
def test_two_tasks(tmp_path: Path, videos: Path, crop: int) -> None:
    """Two tasks read the same as with room for all: clips that both need are stored, those of one pass."""
    with two_tasks(tmp_path / "plenty", videos, 5, crop) as cache:
        whole = {task: pixels(cache, task) for task in cache.tasks}
    with two_tasks(tmp_path / "store", videos, 0.2, crop) as cache:
        found: dict[str, Batches] = {task: {} for task in cache.tasks}
        shared = set[str]()
        for place in places(cache):
            for task in cache.tasks:
                found[task][place] = cache.read(task, *place)
                check_bounds(cache)
                shared |= _needed_by_both(cache) & lying(cache).keys()
        assert all(same(found[task], whole[task]) for task in cache.tasks)
        assert (passed(cache) > 0) == (crop != 32), "equal crops are equal clips"
        assert not shared, "what both have to come was stored"


def _needed_by_both(cache: Cache) -> set[str]:
    dispatcher = cache.owner.dispatcher
    assert dispatcher is not None
    with dispatcher.lock:
        works = dispatcher.state.ahead
        keys = {key for work in works for _, key in work.next_needed(100)}
        return {key for key in keys if sum(work.uses_to_come(key) > 0 for work in works) > 1}


def test_ranks_get_their_shares(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """Two ranks read their halves of each batch; a clip stays until no rank needs its batch."""
    with opened(tmp_path / "store", videos) as cache:
        for place in places(cache):
            halves = [cache.read("train", *place, rank=rank, world=2).video for rank in range(2)]
            assert np.array_equal(np.concatenate(halves), plenty[place].video)
            check_bounds(cache)
        assert passed(cache) > 10
        assert not lying(cache)


def test_paths_of_view(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """A batch by its path, whole or in pieces, has the same bytes."""
    import fsspec

    with opened(tmp_path / "store", videos) as cache:
        for epoch, iteration in list(places(cache))[:6]:
            with fsspec.open(f"view://train/{epoch}/{iteration}/view", "rb") as file:
                assert np.array_equal(np.load(file), plenty[epoch, iteration].video)
            check_bounds(cache)


def test_a_loader_reads_ahead(tmp_path: Path, videos: Path, plenty: Batches) -> None:
    """Through a loader, that reads several batches ahead, all batches are the same, twice in a row."""
    with opened(tmp_path / "store", videos) as cache:
        for epoch in range(EPOCHS):
            loader = cache.loader("train")
            loader.set_epoch(epoch)
            for iteration, batch in enumerate(loader):
                assert np.array_equal(np.asarray(batch["video"]), plenty[epoch, iteration].video)
        assert passed(cache) > 10


def test_audio_passes_with_its_clip(tmp_path: Path) -> None:
    """The audio of clips that pass does so too, the silent one of a video without a track as well: the same samples."""
    folder = tmp_path / "heard"
    folder.mkdir()
    encode_with_audio(folder / "aac.mp4", [Track("aac")])
    encode_with_audio(folder / "later.mp4", [Track("aac", start_s=1.0, seconds=1.5)], frames=80)
    encode(folder / "silent.mp4", frames=70, size=(64, 48))
    encode(folder / "other.mp4", frames=75, size=(64, 48))
    by_time = {"fps": 10, "frames_per_video": 6, "frame_stride": None, "samples_per_video": 3}
    given: dict[str, Any] = {"sampling": by_time, "audio": {"rate": 16_000}, "epochs": EPOCHS}
    found = []
    for name, budget in (("plenty", "50MB"), ("store", 1_000_000)):
        cache = {"budget": budget, "epochs_per_generation": EPOCHS}
        with viewcache.open(config(tmp_path / name, folder, cache=cache, **given)) as opened_cache:
            found.append(read_all(opened_cache))
            (audio,) = sql(
                opened_cache,
                "select count(*) from objects where kind = 'audio' and state <> 'planned'",
            )
            passed_now = passed(opened_cache)
            assert not lying(opened_cache)
    whole, batches = found
    assert same(whole, batches)
    for place, batch in whole.items():
        mine, theirs = batch.audio, batches[place].audio
        assert mine is not None
        assert theirs is not None
        assert np.array_equal(mine, theirs)
    assert passed_now > 10
    assert int(str(audio[0])) < EPOCHS * 4 * 3, "not all audio was stored"
