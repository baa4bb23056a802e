"""Batches of a large dataset are read before its headers are all known and its generation is planned (laws 1, 3, 4, 9).

What is large is set to a handful of videos here, so that both ways can be compared clip by clip.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.faults.caches import FRAMES, config, digest_of, encode_one, read_all
from viewcache.api.config.load import load
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import BadInput, BadVideo, Closed, Full
from viewcache.failpoints import VARIABLE
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset import headers, listing
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.planning.plan_generation import plan_generation
from viewcache.materializer.scheduling.generation import PlannedClips
from viewcache.materializer.tasks import early
from viewcache.materializer.tasks import task as tasks
from viewcache.materializer.tasks.batch_work import BatchWork
from viewcache.materializer.tasks.opening import open_task
from viewcache.materializer.tasks.task import Task

ROOT = Path(__file__).resolve().parents[2]
COUNT = 7
EVERYTHING_IS_LARGE = """
from viewcache.materializer.dataset import listing
from viewcache.materializer.tasks import task
task.PLANNED_AT_ONCE, listing.READ_AT_OPEN, listing.FIRST_READ = 0, 0, 1
"""


@contextmanager
def opened_task(store: Path, videos: Path, **more: Any) -> Iterator[Task]:
    """A task without readers, planners and workers."""
    parsed = load(config(store, videos, **more))
    with Catalog.open(str(store)) as catalog:
        task = open_task(parsed.cache, parsed.tasks[0], catalog, budget_bytes=10**8)
        try:
            yield task
        finally:
            task.dataset.files.headers.close()


def places(task: Task) -> list[tuple[int, int]]:
    """(epoch, iteration) of all batches."""
    return [(epoch, i) for epoch in range(task.spec.epochs) for i in range(task.iterations(epoch))]


def clips_of(work: PlannedClips, place: tuple[int, int]) -> list[tuple[object, ...]]:
    """Key, object, place and drawn video of each clip of a batch."""
    rows = work.rows(*place)
    return [(work.key(row), int(work.object_ids[row]), work.place(row), work.drawn_id(row)) for row in rows]


def names_of(task: Task, place: tuple[int, int]) -> set[str]:
    """The videos of a batch, as things are."""
    work = task.batch(*place)
    return {work.plan.videos.names[int(work.plan.video[row])] for row in work.rows(*place)}


def digests(store: Path, videos: Path, **more: Any) -> dict[tuple[int, int], str]:
    """All batches of two epochs."""
    with viewcache.open(config(store, videos, **more)) as cache:
        return dict(read_all(cache))


def failures(cache: Cache) -> list[str]:
    """What readers of the first epoch's batches are told, of those that cannot be read."""
    told = []
    for iteration in range(cache.task("t").iterations(0)):
        try:
            cache.read("t", 0, iteration)
        except BadInput as error:
            told.append(str(error))
    return told


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("bad", ["raise", "replace"])
def test_an_early_batch_has_the_clips_of_the_plan(
    tmp_path: Path, large: None, folder: Path, broken: Path, bad: str, seed: int
) -> None:
    """Keys, objects and places are the same, whichever batches are read first and whichever headers."""
    rng = random.Random(seed)
    videos = broken if bad == "replace" else folder
    shape = {"epochs": 4, "videos_per_batch": rng.choice([1, 2, 3, 7]), "samples_per_video": rng.choice([1, 2])}
    with opened_task(tmp_path / "s", videos, on_bad_video=bad, **shape) as task:
        task.dataset.files.headers.prefer(rng.sample(range(COUNT), COUNT))
        seen = {}
        for place in rng.sample(found := places(task), len(found)):
            work = task.batch(*place)
            assert isinstance(work, BatchWork), "planned alone"
            seen[place] = clips_of(work, place)
            if rng.random() < 0.2:
                break  # the others are read later, of the plan
        for place, clips in seen.items():
            active = task.generation(task.generation_of(place[0]))
            assert clips_of(active, place) == clips
            assert not isinstance(task.batch(*place), BatchWork)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 3, COUNT])
def test_the_sizes_of_batches_are_known_before_anything_is_drawn(
    tmp_path: Path, large: None, folder: Path, size: int, drop_last: bool
) -> None:
    """Who asks what a task is like has no part in its order."""
    with opened_task(tmp_path / "s", folder, videos_per_batch=size, drop_last=drop_last) as task:
        sizes = task.outline.batch_sizes()
        assert not task.early.begun(0)
        samples = task.spec.sampling.samples_per_video
        assert sizes == {len(task.batch(0, k).rows(0, k)) // samples for k in (0, task.iterations(0) - 1)}


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_how_large_a_dataset_is_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Path, workers: str
) -> None:
    """With a file that lies, one without a header and one without pictures: the same batches, also when read again."""
    how: dict[str, Any] = {"on_bad_video": "replace", "worker_kind": workers}
    small = digests(tmp_path / "small", broken, **how)
    for name, value in {"READ_AT_OPEN": 0, "FIRST_READ": 1}.items():
        monkeypatch.setattr(listing, name, value)
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    assert digests(tmp_path / "large", broken, **how) == small
    assert digests(tmp_path / "large", broken, **how) == small
    monkeypatch.undo()
    assert digests(tmp_path / "large", broken, **how) == small


def test_what_was_read_early_stays_when_the_plan_is_there(
    tmp_path: Path, planner: threading.Event, broken: Path
) -> None:
    """Every batch, also those where another video had to stand in, before the plan, after it, and in the next run."""
    with viewcache.open(config(tmp_path / "s", broken, on_bad_video="replace")) as cache:
        before = dict(read_all(cache))
        for name in ("v1", "v4"):
            assert name not in {name for e, i in before for name in cache.read("t", e, i).videos}
        planner.set()
        cache.task("t").task.generation(0)
        assert dict(read_all(cache)) == before
    assert digests(tmp_path / "s", broken, on_bad_video="replace") == before


def test_a_bad_header_is_told_to_its_reader(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch, broken: Path
) -> None:
    """With ``raise``: who reads its batch gets the error, the others are read; who needs the whole plan gets it too."""
    monkeypatch.setattr(early, "LOOKED_AT", 1)
    with opened_task(tmp_path / "s", broken) as task:
        task.outline.batch_bound()  # as the opening does
        told = []
        for place in places(task)[: task.iterations(0)]:
            try:
                assert len(task.batch(*place).rows(*place))
            except BadVideo as error:
                told.append(str(error))
        assert ["v1.mp4" in each for each in told] == [True]
        with pytest.raises(BadVideo, match=r"v1\.mp4"):
            task.generation(0)
    with pytest.raises(BadVideo, match=r"v1\.mp4"):
        viewcache.open(config(tmp_path / "s", broken))


def test_videos_that_give_other_shapes(tmp_path: Path, planner: threading.Event, folder: Path) -> None:
    """A batch of clips of another size than the first ones is refused with both names, as the plan is."""
    steps = [{"resize": {"short_side": 16}}]
    branch = {"name": "a", "branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": steps}
    videos = Path(shutil.copytree(folder, tmp_path / "v"))
    encode(videos / "v5.mp4", frames=FRAMES, size=(48, 48), gop=10)
    (videos / "v2.mp4").unlink()
    whole = config(tmp_path / "s", videos)
    whole["dataset"]["augmentation"] = [branch]
    with viewcache.open(whole) as cache:
        (error,) = failures(cache)
        assert "must have one size" in error
        assert "'v5'" in error
        planner.set()
        with pytest.raises(BadInput, match="one size"):
            cache.task("t").task.generation(0)


def test_many_readers_while_it_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Path) -> None:
    """Four threads read every batch, each in its own order, while the planner comes and goes: the same bytes."""
    expected = digests(tmp_path / "small", broken, on_bad_video="replace")
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    monkeypatch.setattr(listing, "READ_AT_OPEN", 0)

    def read(cache: Cache, seed: int) -> dict[tuple[int, int], str]:
        order = random.Random(seed).sample(sorted(expected), len(expected))
        return {place: digest_of(cache.read("t", *place)) for place in order}

    with viewcache.open(config(tmp_path / "s", broken, on_bad_video="replace")) as cache, ThreadPoolExecutor(4) as pool:
        assert all(each == expected for each in pool.map(read, [cache] * 4, range(4)))


@pytest.mark.parametrize("visit", [1, 2])
def test_killed_while_headers_are_read(tmp_path: Path, folder: Path, visit: int) -> None:
    """With what was found recorded or not: the next opening goes on from there, to the same batches."""
    code = f"{EVERYTHING_IS_LARGE}\nimport viewcache\ncache = viewcache.open({config(tmp_path / 's', folder)!r})\n"
    code += "cache.task('t').task.dataset.files.headers.wait()"
    environment = os.environ | {
        VARIABLE: f"dataset.found:{visit}:kill",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
    }
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60)
    assert killed.returncode == -9
    assert digests(tmp_path / "s", folder) == digests(tmp_path / "whole", folder)


def test_a_file_that_is_replaced_before_its_header_is_read(tmp_path: Path, large: None, folder: Path) -> None:
    """Nobody has seen a clip of it: it is drawn as what it is now, in this run and after a death between the two."""
    videos = Path(shutil.copytree(folder, tmp_path / "v"))
    with opened_task(tmp_path / "s", videos) as task:  # which reads one header
        row = task.dataset.files.row_of_name["v5"]
        assert task.dataset.files.unread[row]
    encode_one(videos / "v5.mp4", 78)
    with opened_task(tmp_path / "s", videos) as task:
        encode_one(videos / "v5.mp4", 77)
        task.dataset.files.headers.wait()
        file = task.dataset.one("v5")
        assert file.stamp.mtime_ns == (videos / "v5.mp4").stat().st_mtime_ns
        assert file.key in task.dataset.items_of([file.video_id]).videos.keys
    assert digests(tmp_path / "s", videos) == digests(tmp_path / "fresh", videos)


def test_closing_does_not_wait_for_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: None, folder: Path
) -> None:
    """Who waits for one gets `Closed`; the next opening reads what is left."""
    asked, given_up = threading.Event(), threading.Event()

    def slow(take: Any, max_pixels: int, *, probe: ProbeMode, workers: int, over: Any, keep: Any) -> Iterator[Any]:
        asked.set()
        while not over():
            given_up.wait(0.01)
        yield from ()

    monkeypatch.setattr(headers, "scan_queue", slow)
    with opened_task(tmp_path / "s", folder) as task, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(task.generation, 0)
        assert asked.wait(60)
        task.dataset.files.headers.close()
        with pytest.raises(Closed):
            waiting.result(60)
        assert task.dataset.files.unread.sum() == COUNT - 1
    monkeypatch.undo()
    with opened_task(tmp_path / "s", folder) as task:
        assert len(task.generation(0).plan) == COUNT * 2 * 2


def test_what_was_read_before_an_error_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: None, folder: Path
) -> None:
    """Too many files are open after the first headers: who waits is told, and those are not read again."""

    def failing(take: Any, max_pixels: int, *, probe: ProbeMode, workers: int, over: Any, keep: Any) -> Iterator[Any]:
        (first, *_) = take()
        yield list(scan([first], max_pixels, probe=probe))
        raise Full("too many open files")

    monkeypatch.setattr(headers, "scan_queue", failing)
    with opened_task(tmp_path / "s", folder) as task, pytest.raises(Full, match="too many open files"):
        task.generation(0)
    with Catalog.open(str(tmp_path / "s")) as catalog:
        statuses = Counter(catalog.load_videos(task.dataset.dataset_id)["status"].to_pylist())
    assert statuses == {"ok": 2, "listed": COUNT - 2}, "one at open, and one before the error"


def test_a_small_dataset_is_planned_when_it_is_read(tmp_path: Path, folder: Path) -> None:
    """No early batches, and all headers at open: what is bad is told at once."""
    with opened_task(tmp_path / "s", folder) as task:
        assert not task.dataset.files.unread.any()
        assert not isinstance(task.batch(0, 0), BatchWork)
        assert np.array_equal(np.sort(task.generation(0).order.ids[:COUNT]), np.sort(task.dataset.files.ids))


def test_tasks_that_draw_together_open_before_anything_is_planned(
    tmp_path: Path, planner: threading.Event, folder: Path
) -> None:
    """What a batch takes is known from the headers of one, also when the order is recorded; it is what plans say."""
    whole = config(tmp_path / "s", folder)
    whole["dataset"] = [whole["dataset"], whole["dataset"] | {"tag": "u"}]
    bounds = []
    for _ in range(2):
        planner.clear()
        with viewcache.open(whole) as cache:
            found = [cache.task(tag).task for tag in "tu"]
            assert all(task.draws_together and task.planned(0) is None for task in found)
            bounds.append([(task.outline.batch_bound(), task.outline.clip_shape()) for task in found])
            planner.set()
            cache.read("t", 0, 0)
            bounds.append([(task.outline.batch_bound(), task.generation(0).plan.shape) for task in found])
    assert all(each == bounds[0] for each in bounds)


@pytest.mark.parametrize("name", ["v2", "v4"])
def test_what_is_found_while_a_generation_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Path, name: str
) -> None:
    """A header that lies, or a bad video: who reads it waits for the plan, which then knows; others are served."""
    (broken / {"v2": "v4.mp4", "v4": "v2.mp4"}[name]).unlink()
    expected = digests(tmp_path / "small", broken, on_bad_video="replace")
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    planning, asked, go = threading.Event(), threading.Event(), threading.Event()
    is_planning = Task.is_planning

    def seen(task: Task) -> bool:
        asked.set()
        return is_planning(task)

    def held(*args: Any, **more: Any) -> Any:
        planning.set()
        assert go.wait(60)
        return plan_generation(*args, **more)

    monkeypatch.setattr("viewcache.materializer.tasks.planner.plan_generation", held)
    monkeypatch.setattr(Task, "is_planning", seen)
    with viewcache.open(config(tmp_path / "s", broken, on_bad_video="replace")) as cache, ThreadPoolExecutor(9) as pool:
        task = cache.task("t").task
        planned = pool.submit(task.generation, 0)
        assert planning.wait(60)
        bad = {place for place in expected if name in names_of(task, place)}
        waiting = {place: pool.submit(cache.read, "t", *place) for place in bad}
        assert asked.wait(60)
        for place in expected.keys() - bad:
            assert digest_of(cache.read("t", *place)) == expected[place]
        assert not any(each.done() for each in waiting.values())
        go.set()
        assert {place: digest_of(each.result()) for place, each in waiting.items()} == {k: expected[k] for k in bad}
        planned.result()
    assert digests(tmp_path / "s", broken, on_bad_video="replace") == expected


def test_headers_are_read_ahead_of_a_reader(
    tmp_path: Path, large: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next ones in the order of need, named anew when half of them are behind; the rest as they were listed."""
    named = list[list[int]]()
    monkeypatch.setattr(early, "PREFERRED", 4)
    monkeypatch.setattr(headers.Headers, "prefer", lambda _, rows: named.append(list(rows)))
    monkeypatch.setattr(headers.Headers, "__len__", lambda _: COUNT)  # as if none was read yet
    with opened_task(tmp_path / "s", folder, videos_per_batch=1) as task:
        order = task.early.order(0).ids(0, 0).tolist()
        rows = list(task.dataset.file_rows(order))
        for iteration in (0, 1, 3, 2, 4, 5):
            task.batch(0, iteration)
    assert named == [rows[at : at + 4] for at in (0, 3, 2, 4)]
