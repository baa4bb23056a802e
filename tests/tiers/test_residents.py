"""Pictures that stay in memory, in whole caches: how often the folder is read then, and that all else is the same."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests import forked, tiny
from tests.images.small import config, save_folder
from tests.images.test_images import Read, read, same
from tests.scheduling.harness import WAIT_S, until
from tests.tiny import sql
from viewcache.api.queries.status import status
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import Broken
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.recipe import PART_METADATA_BOUND
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.scheduling import migration
from viewcache.materializer.scheduling.evictor import Evictor
from viewcache.materializer.scheduling.work import Work
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.workers.job import Job, Report
from viewcache.materializer.workers.pool import Event
from viewcache.store import MemoryHandle
from viewcache.store.arena import MemoryReader
from viewcache.store.tier import LOCAL, MEMORY

IMAGES, BATCH, EPOCHS = 24, 4, 5
SMALL = 130_000
"""Bytes of residents: pages of four packs of four pictures."""
PICTURE_BYTES = 3 * 36 * 48
"""Of one kept picture."""
MOST = clip_bound(BATCH * PICTURE_BYTES, BATCH) + BATCH * PART_METADATA_BOUND
"""Bytes that are promised to one pack before it is in memory."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of one size."""
    return save_folder(tmp_path_factory.mktemp("images"), {f"{k}.jpg": (64, 48) for k in range(IMAGES)})


def tiered(folder: Path, images: Path, residents: str | int | None = SMALL, **cache: Any) -> dict[str, Any]:
    """Images in batches of four, over a folder, and memory if there are to be residents; one generation."""
    store: list[dict[str, Any]] = [{"url": str(folder), "budget": "50MB"}]
    if residents is not None:
        store.append({"url": "memory://", "budget": "1MB", "residents": residents})
    settings = {"store": store, "budget": None, "epochs_per_generation": EPOCHS, **cache}
    return config(folder, images, cache=settings, sampling={"images_per_batch": BATCH}, epochs=EPOCHS)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Read:
    """What a cache without memory gives."""
    with viewcache.open(tiered(tmp_path_factory.mktemp("truth"), images, None)) as cache:
        return read(cache)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Job, Report]]:
    """All jobs that ended, with what they reported."""
    ended: list[tuple[Job, Report]] = []
    heard = Observer.on_event

    def on_event(self: Observer, event: Event) -> None:
        if event.report is not None:
            ended.append((event.job, event.report))
        heard(self, event)

    monkeypatch.setattr(Observer, "on_event", on_event)
    return ended


def residents_of(cache: Cache) -> set[str]:
    """Keys of what is to stay in memory."""
    assert cache.owner.mover is not None
    return set(cache.owner.mover.residents.keys)


def settle(cache: Cache) -> set[str]:
    """Wait until all residents are in memory, and no more have room; their keys.

    The pictures are still to be read, as they are behind the first epoch: what no batch needs is not made.
    """

    def state() -> tuple[set[str], int, int]:
        """Residents that are not in memory; bytes of those that are, and of all by the mover's count."""
        there, chosen = cache.owner.ledger.copies(MEMORY), residents_of(cache)
        assert cache.owner.mover is not None
        used = sum(there[key].bytes for key in chosen if key in there)
        return chosen - there.keys(), used, cache.owner.mover.residents.bytes

    def settled() -> bool:
        absent, used, counted = state()
        return not absent and counted == used > SMALL - MOST

    until(settled, "residents are in memory", state)
    assert cache.owner.dispatcher is not None
    assert cache.owner.dispatcher.wait_idle(WAIT_S)
    return residents_of(cache)


def rest_is(cache: Cache, truth: Read) -> bool:
    """Whether all epochs but the first are what they should be; budgets hold at every batch."""
    for place, expected in truth.items():
        if place[0] > 0:
            assert np.array_equal(cache.read("train", *place).video[:, 0], expected["image"])
            assert in_budget(cache)
    return True


def in_budget(cache: Cache) -> bool:
    """Whether every tier, and what stays in memory, has no more bytes than it may."""
    tiers = [cache.tiers[name] for name in cache.tiers.names()]
    there, chosen = cache.owner.ledger.copies(MEMORY), residents_of(cache)
    return (
        all(each.counted_bytes <= each.budget_bytes for each in tiers)
        and sum(there[key].bytes for key in chosen if key in there) <= SMALL
    )


def test_every_epoch_reads_the_folder_for_all_but_residents(
    tmp_path: Path, images: Path, truth: Read, jobs: list[tuple[Job, Report]]
) -> None:
    """After the first epoch N - R pictures are read in the folder and R in memory, in each; the bytes are the same.

    Budgets hold at every batch, and who is resident does not change while the generation is read.
    """
    with viewcache.open(tiered(tmp_path, images)) as cache:
        epochs: dict[int, set[str]] = {}
        residents: set[str] = set()
        for (epoch, iteration), expected in truth.items():
            batch = cache.read("train", epoch, iteration)
            assert np.array_equal(batch.video[:, 0], expected["image"])
            assert in_budget(cache)
            if iteration == IMAGES // BATCH - 1:
                if epoch == 0:
                    residents = settle(cache)
                    decoded = sum(report.frames.get("decoded", 0) for _, report in jobs)
                    del jobs[:]
                if epoch < EPOCHS - 1:  # behind the last one nothing is read any more
                    assert residents_of(cache) == residents
            epochs.setdefault(epoch, set()).update(batch.keys)
        pictures = {each.video for job, _ in jobs for each in job.intermediates if each.key in residents}
        count = len(pictures)
        assert count == 4 * len(residents) == 16
        for job, report in jobs:
            if job.block is not None:
                mine = [part.source.key in pictures for part in job.block.parts]
                assert (report.frames.get("resident", 0), report.frames["loaded"]) == (sum(mine), BATCH)
        whole = 0
        for keys in epochs.values():
            mine_of = [report.frames for job, report in jobs if job.block is not None and _is_of(job, keys)]
            in_memory = [frames.get("resident", 0) for frames in mine_of]
            if len(mine_of) == IMAGES // BATCH:  # else some of its blocks were made while the first epoch was read
                whole += 1
                assert (sum(in_memory), sum(frames["loaded"] for frames in mine_of)) == (count, IMAGES)
                assert len(set(in_memory)) > 1  # a batch has some of several packs
        assert whole
        tally = cache.owner.dispatcher.tally.frames  # type: ignore[union-attr]
        assert tally["decoded"] == decoded
        picture, block = PICTURE_BYTES.bit_length() - 1, batch.video.nbytes.bit_length() - 1
        assert picture < block  # blocks that were moved up are read in memory too
        of_pictures = f"op = 'load' and tier = 'memory' and size_bucket = {picture}"
        [(n,)] = sql(cache, f"select cast(sum(n) as bigint) from io_samples where {of_pictures}")
        assert n == tally["resident"]


def _is_of(job: Job, keys: set[str]) -> bool:
    """Whether a job makes a block of some pictures."""
    assert job.block is not None
    return bool(keys & {job.block.key, *(part.recipe.key for part in job.block.parts)})


@pytest.mark.parametrize("residents", [0, "auto", "900kB"])
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_bytes_and_order_are_the_same(
    tmp_path: Path, images: Path, truth: Read, residents: str | int, kind: str
) -> None:
    """None, as many as there is room for, and all: the same batches in the same order, cold and warm."""
    with viewcache.open(tiered(tmp_path, images, residents, worker_kind=kind)) as cache:
        assert same(read(cache, epochs=1), {place: batch for place, batch in truth.items() if place[0] == 0})
        if residents:
            settle(cache)
        assert same(read(cache), truth)
        assert same(read(cache), truth)
        tally = cache.owner.dispatcher.tally.frames  # type: ignore[union-attr]
        assert bool(tally["resident"]) == (residents != 0)


def test_no_policy_sees_them(tmp_path: Path, images: Path) -> None:
    """What stays in memory is never named as what may leave, and does not leave if it is; its copy below may."""
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents, ledger = settle(cache), cache.owner.ledger
        assert residents <= ledger.spared(MEMORY, set())
        assert residents.isdisjoint(copy.key for copy in ledger.choose(MEMORY, 1 << 40, set()))
        assert ledger.leave([ledger.copies(MEMORY)[key] for key in residents]) == []
        assert residents & {copy.key for copy in ledger.choose(LOCAL, 1 << 40, set())}


def test_they_may_leave_when_nobody_reads_their_generation(
    tmp_path: Path, images: Path, truth: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is left has none: its pictures leave when their place is needed. Read again, it has the same ones."""
    monkeypatch.setattr(migration, "LINGER_S", 0.0)
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents, ledger = settle(cache), cache.owner.ledger
        cache.owner.suspend("train")
        until(lambda: not residents_of(cache), "there are none")
        assert residents <= {copy.key for copy in ledger.choose(MEMORY, 1 << 40, set())}
        assert np.array_equal(cache.read("train", 1, 0).video[:, 0], truth[1, 0]["image"])
        assert settle(cache) == residents


def test_they_linger_while_a_generation_is_decided(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while after their work is gone, and nothing has come in its place, they stay as they are."""
    looks: list[int] = []
    asked = Evictor.recurring_work

    def recurring_work(self: Evictor) -> list[Work[str]]:
        works = asked(self)
        looks.append(len(works))
        return works

    monkeypatch.setattr(migration, "LINGER_S", 1e9)
    monkeypatch.setattr(Evictor, "recurring_work", recurring_work)
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents = settle(cache)
        cache.owner.suspend("train")
        until(lambda: looks[-3:] == [0, 0, 0], "it was seen that nobody reads")
        assert residents_of(cache) == residents


def test_what_left_memory_by_itself_is_forgotten(
    tmp_path: Path, images: Path, truth: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was brought because it came next no more is remembered than lies there, also where memory never fills."""
    monkeypatch.setattr(migration, "WINDOW", 4)
    with viewcache.open(tiered(tmp_path, images, 0, keep="leaves")) as cache:
        brought: set[str] = set()
        ledger = cache.owner.ledger
        for place in list(truth)[:-1]:
            assert np.array_equal(cache.read("train", *place).video[:, 0], truth[place]["image"])
            assert cache.owner.dispatcher is not None
            until(lambda: bool(ledger.copies(MEMORY)), "what comes next is brought")
            copies = ledger.copies(MEMORY)
            brought |= copies.keys()
            cache.owner.dispatcher.evictor.give_up(list(copies.values()))  # as what nobody wants any more is
        assert len(brought) > 16
        mover = cache.owner.mover
        assert mover is not None
        until(lambda: len(mover.shown | mover.demoted) <= 8, "what is gone is forgotten")


def test_a_smaller_budget_demotes(tmp_path: Path, images: Path, truth: Read) -> None:
    """With less memory fewer stay, of the same ones; the others give their bytes back."""
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents, memory = settle(cache), cache.tiers[MEMORY]
        memory.resize(50_000)
        until(lambda: memory.counted_bytes <= memory.budget_bytes, "memory is in its budget")
        assert residents_of(cache) < residents
        assert residents_of(cache)
        assert rest_is(cache, truth)


def test_two_tasks_share_them(tmp_path: Path, images: Path, truth: Read, jobs: list[tuple[Job, Report]]) -> None:
    """What two tasks make pictures of lies in memory once, and both read it there."""
    described = tiered(tmp_path, images)
    second = described["dataset"] | {"tag": "second", "seed": 11}
    alone = described | {"dataset": second} | {"cache": described["cache"] | {"store": str(tmp_path / "alone")}}
    with viewcache.open(alone) as cache:
        expected = {"train": truth, "second": read(cache, "second")}
    del jobs[:]
    with viewcache.open(described | {"dataset": [described["dataset"], second]}) as cache:
        keys: dict[str, set[str]] = {task: set() for task in expected}
        for place in truth:
            for task, batches in expected.items():
                batch = cache.read(task, *place)
                assert np.array_equal(batch.video[:, 0], batches[place]["image"])
                keys[task].update(batch.keys)
            assert in_budget(cache)
            if place == (0, IMAGES // BATCH - 1):
                residents, before = settle(cache), len(jobs)
        # A pack has the pictures of a batch that are in no other, so that most have fewer than a batch.
        pictures = {each.video for job, _ in jobs for each in job.intermediates if each.key in residents}
        assert len(pictures) > BATCH
        found = dict.fromkeys(expected, 0)
        for job, report in jobs[before:]:
            assert job.block is not None
            mine = sum(part.source.key in pictures for part in job.block.parts)
            assert (report.frames.get("resident", 0), report.frames["loaded"]) == (mine, BATCH)
            [task] = (task for task, of in keys.items() if _is_of(job, of))
            found[task] += mine
        assert all(found.values())


def test_memory_that_changed_is_noticed(tmp_path: Path, images: Path, truth: Read) -> None:
    """A turned byte: the picture is read in the folder, nothing is decoded again, and the copy leaves memory."""
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents = settle(cache)
        assert cache.owner.dispatcher is not None
        decoded = cache.owner.dispatcher.tally.frames["decoded"]
        handle = cache.tiers.memory
        assert handle is not None
        copies = cache.owner.ledger.copies(MEMORY)
        with handle.writable() as file:
            for key in residents:
                place = copies[key].stored.table.offsets[0]
                os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 255]), place)
        assert rest_is(cache, truth)
        assert cache.owner.dispatcher.tally.frames["decoded"] == decoded
        assert cache.owner.ledger.gone[MEMORY, "rebuild"] == len(residents)
        assert cache.owner.ledger.gone[LOCAL, "rebuild"] == 0


def test_workers_that_cannot_have_the_memory_read_the_folder(
    tmp_path: Path, images: Path, truth: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel does not let a worker in, no reader notices."""

    def refuse(self: MemoryHandle, descriptor: int | None = None) -> MemoryReader:
        raise Broken("cannot read the memory tier of another process")

    monkeypatch.setattr(MemoryHandle, "attach", refuse)
    with viewcache.open(tiered(tmp_path, images, worker_kind="threads")) as cache:
        assert same(read(cache), truth)
        assert cache.owner.dispatcher is not None
        tally = cache.owner.dispatcher.tally.frames
        assert tally["resident"] == 0
        assert tally["loaded"] >= IMAGES
        assert cache.owner.ledger.gone[MEMORY, "rebuild"] == 0, "what lies there is whole"


_VICTIM = """
import json, sys, viewcache
cache = viewcache.open(json.loads(sys.argv[1]), service="off")
batches = cache.loader("train", framework="numpy").all_epochs()
while not cache.owner.mover or len(cache.owner.ledger.copies("memory")) < 3:
    next(batches)
cache.catalog.flush()
print("memory has some", flush=True)
sys.stdin.read()
"""


def test_kill_9_loses_nothing(tmp_path: Path, images: Path, truth: Read) -> None:
    """Killed with residents in memory: the next start knows of none, reads the same batches and brings them up."""
    described = tiered(tmp_path, images)
    victim = forked.Popen(
        [sys.executable, "-c", _VICTIM, json.dumps(described)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    assert victim.stdout.readline().strip() == "memory has some"
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    victim.communicate()
    with viewcache.open(described) as cache:
        assert not cache.owner.ledger.copies(MEMORY)
        for place, expected in truth.items():
            assert np.array_equal(cache.read("train", *place).video[:, 0], expected["image"])
            assert in_budget(cache)
            if place == (2, 0):
                assert settle(cache)
    with Catalog.open(tmp_path, create=False, writable=False) as catalog:
        assert set(catalog.load_copies()["tier"].to_pylist()) == {LOCAL}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    return tiny.encode_folder(tmp_path_factory.mktemp("videos"), {f"v{k}.mp4": 40 + k for k in range(4)})


def of_videos(folder: Path, videos: Path, memory: bool, share: float) -> dict[str, Any]:
    """A task of four epochs in one generation, with room for a share of its clips."""
    store: list[dict[str, Any]] = [{"url": str(folder), "budget": int(4 * 3 * 4 * 33_400 * share)}]
    if memory:
        store.append({"url": "memory://", "budget": "2MB", "residents": "1500kB"})
    settings = {"store": store, "budget": None, "epochs_per_generation": 4}
    return tiny.config(folder, videos, cache=settings, sampling={"samples_per_video": 3}, epochs=4)


@pytest.mark.parametrize("way", ["frames", "aug"])
def test_pictures_of_videos_stay_too(tmp_path: Path, videos: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded and resized frames from which the clips of a video are made: read in memory, and the clips are equal."""
    with viewcache.open(of_videos(tmp_path / "truth", videos, memory=False, share=3)) as cache:
        expected = tiny.pixels(cache)
    rates = {"frames": (1e-5, 1e-12), "aug": (1e-5, 1e-6)}[way]
    cost = CostModel(decode_s_per_pixel=rates[0], convert_s_per_pixel=rates[1])
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))
    with viewcache.open(of_videos(tmp_path / "cache", videos, memory=True, share=0.5)) as cache:
        read_so_far = {}
        for place in expected:
            read_so_far[place] = cache.read("train", *place)
            if place == (0, 1):
                until(lambda: residents_in_memory(cache), "some are in memory")
        assert tiny.same(read_so_far, expected)
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.tally.frames["resident"] > 0


def residents_in_memory(cache: Cache) -> bool:
    """Whether there are residents, and all of them have come."""
    chosen = residents_of(cache)
    return bool(chosen) and chosen <= cache.owner.ledger.copies(MEMORY).keys()


def test_status_shows_them(tmp_path: Path, images: Path) -> None:
    """How many there are and what they take, from any process."""
    with viewcache.open(tiered(tmp_path, images)) as cache:
        read(cache, epochs=1)
        residents = settle(cache)
        cache.owner.publish()
        used = sum(cache.owner.ledger.copies(MEMORY)[key].bytes for key in residents)
        assert status(str(tmp_path)).parts["residents"] == [
            {"kind": "pack", "residents": len(residents), "bytes": used}
        ]
