"""A dataset that lives, through the service: clients are told what changed, and kill -9 between runs costs nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.house.tree import ROOT
from tests.service.conftest import attached
from tests.service.served import described
from tests.tiny import drawn, encode_folder
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.failpoints import VARIABLE
from viewcache.materializer.reading.batch import Batch

OPENS = """
import json, sys
import viewcache
with viewcache.open(json.loads(sys.argv[1]), service="off") as cache:
    print(len(cache.changes("train")))
"""


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The ten videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def all_batches(cache: AttachedCache) -> dict[tuple[int, int], Batch]:
    """All batches of the task, in order."""
    task = cache.task("train")
    return {
        (epoch, each): cache.read("train", epoch, each)
        for epoch in range(task.epochs)
        for each in range(task.iterations(epoch))
    }


def assert_same(before: dict[tuple[int, int], Batch], after: dict[tuple[int, int], Batch]) -> None:
    """What was read is what is read now."""
    for place, batch in before.items():
        assert np.array_equal(batch.video, after[place].video)
        assert np.array_equal(batch.label, after[place].label)
        assert batch.videos == after[place].videos


def test_clients_are_told_and_read_what_they_read(store: Path, folder: Path) -> None:
    """Files came, went and were replaced while no service ran: clients read the same, and are told; once."""
    with attached(store, folder, epochs=2) as cache:
        assert cache.changes("train") == ()
        before = all_batches(cache)
        assert cache.sql("select epoch from progress").to_pylist() == [{"epoch": 2}]  # where it is, is committed now
    stop(store, now=True)
    encode_folder(folder, {"cats/a-new.mp4": 44, "dogs/v2.mp4": 60})
    os.utime(folder / "dogs" / "v2.mp4", ns=(1, 1))
    (folder / "cats" / "v3.mp4").unlink()
    with attached(store, folder, epochs=4, on_changed_video="version") as cache:
        added, removed, replaced = cache.changes("train")
        after = all_batches(cache)
    assert (str(added.change), added.names, added.from_epoch) == ("added", ("cats.-a-new",), 2)
    assert (str(removed.change), removed.names, removed.views) == ("removed", ("cats.-v3",), 2)
    assert (str(replaced.change), replaced.names, replaced.views) == ("replaced", ("dogs.-v2",), 2)
    assert_same(before, after)
    names = drawn(after)
    assert "dogs.-v2.v2" in names[2]
    assert "cats.-a-new" in names[3]
    stop(store, now=True)
    with attached(store, folder, epochs=4, on_changed_video="version") as cache:
        assert cache.changes("train") == ()
        assert_same(after, all_batches(cache))


@pytest.mark.parametrize("failpoint", ["dataset.versions", "dataset.listed", "dataset.found"])
def test_a_kill_while_changes_are_taken_in(store: Path, folder: Path, failpoint: str) -> None:
    """Killed anywhere in the opening that finds them: the next one has each version once, and all that was read."""
    with attached(store, folder, epochs=2) as cache:
        before = all_batches(cache)
    stop(store, now=True)
    encode_folder(folder, {"cats/a-new.mp4": 44, "dogs/v2.mp4": 60})
    os.utime(folder / "dogs" / "v2.mp4", ns=(1, 1))
    (folder / "cats" / "v3.mp4").unlink()
    given = described(store, folder, epochs=4, on_changed_video="version")
    dead = subprocess.run(
        [sys.executable, "-c", OPENS, json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: f"{failpoint}:1:kill"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    with attached(store, folder, epochs=4, on_changed_video="version") as cache:
        after = all_batches(cache)
        rows = cache.sql("select video, status from videos where uri like '%v2.mp4%' order by video").to_pylist()
        events = cache.sql("select distinct kind from events where kind like 'videos_%' order by kind").to_pylist()
    assert rows == [{"video": "dogs.-v2", "status": "gone"}, {"video": "dogs.-v2.v2", "status": "ok"}]
    assert_same(before, after)
    assert [each["kind"] for each in events] == ["videos_added", "videos_removed", "videos_replaced"]


def test_a_removed_clip_that_is_not_stored_goes_on_through_a_loader(store: Path, folder: Path) -> None:
    """A long training over ranks whose clips go: every batch comes, of other videos, and both ranks see the same."""
    with attached(store, folder, epochs=2) as cache:
        cache.task("train").iterations(0)
    stop(store, now=True)
    shutil.rmtree(store / "objects", ignore_errors=True)
    for k in (1, 3):
        (folder / "cats" / f"v{k}.mp4").unlink()
    with attached(store, folder, epochs=2) as cache:
        whole = all_batches(cache)
        for place, batch in whole.items():
            parts = [cache.read("train", *place, rank=rank, world=2).videos for rank in range(2)]
            assert (*parts[0], *parts[1]) == batch.videos
        rows = cache.sql("select distinct video, policy from substitutions order by video").to_pylist()
    assert rows == [{"video": f"cats.-v{k}", "policy": "replace"} for k in (1, 3)]
    assert all(len(names) == 20 for names in drawn(whole).values())
    assert not {"cats.-v1", "cats.-v3"} & {name for names in drawn(whole).values() for name in names}


def test_classes_that_shift_are_told_through_a_service(
    store: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A class that comes between two services: the client has it in its warnings, its changes and its log."""
    with attached(store, folder, labels="folders") as cache:
        assert cache.warnings == ()
        assert cache.classes("train") == ("cats", "dogs")
    stop(store, now=True)
    encode_folder(folder, {"ants/a.mp4": 44})
    with attached(store, folder, labels="folders") as cache:
        (warning,) = cache.warnings
        assert str(cache.changes("train")[-1].change) == "renumbered"
    assert "class 'cats' was 0 and is 1, class 'dogs' was 1 and is 2" in warning
    assert warning in [each.getMessage() for each in caplog.records if each.name == "viewcache.service"]


def test_names_of_classes_that_renumber_are_told_through_a_service(store: Path, folder: Path) -> None:
    """Names that are given in another order, to the service that runs or to the next one: the client is told once."""
    with attached(store, folder, labels="folders") as cache:
        before = cache.read("train", 0, 0)
    with attached(store, folder, labels="folders", classes=["dogs", "cats"]) as cache:
        (warning,) = cache.warnings
        (moved,) = cache.changes("train")
        after = cache.read("train", 0, 0)
    assert warning == f"task 'train': {moved}"
    assert "class 'cats' was 0 and is 1, class 'dogs' was 1 and is 0" in warning
    assert after.videos == before.videos
    assert np.array_equal(after.label, 1 - before.label)
    stop(store, now=True)
    with attached(store, folder, labels="folders", classes=["dogs", "cats"]) as cache:
        assert (cache.warnings, cache.changes("train")) == ((), ())
