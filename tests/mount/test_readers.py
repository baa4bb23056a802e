"""Opening a task's folder registers its job, reading moves it, closing leaves it (SAND §5.1)."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mount.mounted import Mounted, Site, eventually, mount, program
from viewcache.api.service.ancestors import ancestors
from viewcache.api.service.answers import ClientOf
from viewcache.api.service.attached import AttachedCache

HOLDER = """
import os, sys
root = sys.argv[1]
training = os.open(f"{root}/train", os.O_RDONLY)
print("open")
for line in sys.stdin:
    with open(f"{root}/train/{line.strip()}/view", "rb") as view:
        print(len(view.read()))
"""


@pytest.fixture
def mounted(shared: Mounted, cache: AttachedCache) -> Mounted:
    """The mount of all tests, once nobody reads through it."""
    (shared.root / "train/0/0/view").read_bytes()  # it says hello again where another test has ended the service
    eventually(lambda: len(_clients(cache, shared)) == 1, "the last test's readers have left")
    return shared


def _clients(cache: AttachedCache, mounted: Mounted) -> list[ClientOf]:
    """Sessions of the mount's process."""
    return [each for each in cache.stats().clients if each.pid == mounted.process.pid]


def _seats(cache: AttachedCache, mounted: Mounted) -> list[tuple[int, int, int, int]]:
    """(rank, world, epoch, iteration) of the seats that the mount has taken."""
    return sorted(
        (seat.rank, seat.world, seat.epoch, seat.iteration) for each in _clients(cache, mounted) for seat in each.seats
    )


def _read(holder: "subprocess.Popen[str]", place: str) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write(f"{place}\n")
    holder.stdin.flush()
    assert int(holder.stdout.readline()) > 1000


def _begin(mounted: Mounted) -> "subprocess.Popen[str]":
    holder = program(HOLDER, mounted.root)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    return holder


def test_a_held_folder_is_a_reader(mounted: Mounted, cache: AttachedCache) -> None:
    """It is registered before its first batch; each batch moves its seat; when it is killed, all of it is gone."""
    assert len(_clients(cache, mounted)) == 1
    with _begin(mounted) as holder:
        eventually(lambda: len(_clients(cache, mounted)) == 2, "the task is registered")
        assert _seats(cache, mounted) == []
        _read(holder, "1/2")
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 1, 3)], "it stands behind what it has read")
        _read(holder, "1/3")
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 1, 4)], "and moves on")
        holder.kill()
        eventually(lambda: len(_clients(cache, mounted)) == 1, "the kernel has closed its folder")


def test_closing_leaves(mounted: Mounted, cache: AttachedCache) -> None:
    """A folder that is closed is no reader any more, although its process goes on."""
    training = os.open(mounted.root / "train", os.O_RDONLY)
    try:
        (mounted.root / "train/0/0/view").read_bytes()
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 0, 1)], "this process reads")
    finally:
        os.close(training)
    eventually(lambda: len(_clients(cache, mounted)) == 1, "it has left")


def test_children_read_for_their_parent(mounted: Mounted, cache: AttachedCache) -> None:
    """A process that the holder has started, and a thread of it, move the holder's seat: workers of a loader do."""
    training = os.open(mounted.root / "train", os.O_RDONLY)
    try:
        command = [sys.executable, "-I", "-c", f"open({str(mounted.root / 'train/0/3/view')!r}, 'rb').read()"]
        subprocess.run(["sh", "-c", '"$@"; true', "sh", *command], check=True, close_fds=True)
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 0, 4)], "a grandchild has read 0/3")
    finally:
        os.close(training)


def test_looking_is_no_reading(mounted: Mounted, cache: AttachedCache) -> None:
    """Listing a task's folder, and batches that somebody else reads, register nobody and move no seat."""
    with _begin(mounted) as holder:
        _read(holder, "0/1")
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 0, 2)], "one process reads")
        for _ in range(3):
            os.listdir(mounted.root / "train")
        (mounted.root / "train/2/4/view").read_bytes()
        assert _seats(cache, mounted) == [(0, 1, 0, 2)]
        assert len(_clients(cache, mounted)) == 2
        holder.kill()


def test_two_holders_have_a_place_each(mounted: Mounted, cache: AttachedCache) -> None:
    """What one of them still needs stays needed, and who leaves takes only its own place."""
    with _begin(mounted) as slow, _begin(mounted) as fast:
        _read(slow, "0/0")
        _read(fast, "2/1")
        eventually(lambda: _seats(cache, mounted) == [(0, 1, 0, 1), (0, 1, 2, 2)], "both read")
        fast.kill()
        fast.wait()
        _read(slow, "0/1")
        eventually(lambda: (0, 1, 0, 2) in _seats(cache, mounted), "the other reads on")
        slow.kill()
    eventually(lambda: len(_clients(cache, mounted)) == 1, "nobody holds the folder")


def test_ranks_sit_apart(mounted: Mounted, cache: AttachedCache) -> None:
    """Who opens shares of a batch sits as these ranks."""
    training = os.open(mounted.root / "train", os.O_RDONLY)
    try:
        for rank in range(2):
            (mounted.root / f"train/0/0/view?rank={rank}&world=2").read_bytes()
        eventually(lambda: _seats(cache, mounted) == [(0, 2, 0, 1), (1, 2, 0, 1)], "two ranks")
    finally:
        os.close(training)


def test_a_seat_that_is_taken_makes_it_a_look(mounted: Mounted, cache: AttachedCache) -> None:
    """While a loader of another process reads the task, a holder reads all the same, moves nobody, and is told."""
    seat = cache.task("train").sit()
    training = os.open(mounted.root / "train", os.O_RDONLY)
    try:
        assert (mounted.root / "train/2/0/view").read_bytes() == (mounted.root / "train/2/0/view").read_bytes()
    finally:
        os.close(training)
        seat.rise()
    assert _seats(cache, mounted) == []
    assert mounted.process.stderr is not None
    assert any("only looks: rank 0 of 1 of task 'train' is process" in line for line in mounted.process.stderr)


def test_a_job_has_draws_of_its_own(site: Site, cache: AttachedCache, tmp_path: Path) -> None:
    """Mounted as a job, the same paths show the job's batches: all videos once an epoch, in another order."""
    with mount(replace(site, folder=tmp_path), "--job", "lr-0.1") as mounted:
        paths = [mounted.root / f"train/0/{iteration}/view" for iteration in range(5)]
        shown = [json.loads(os.getxattr(path, "user.viewcache.index")) for path in paths]
        assert os.getxattr(paths[0], "user.viewcache.task") == b'"train.lr-0.1"'
    plain = [cache.task("train").describe(0, iteration).index.tolist() for iteration in range(5)]
    assert shown != plain
    assert sorted(number for each in shown for number in each) == sorted(number for each in plain for number in each)


def test_ancestors() -> None:
    """A thread belongs to its process, whose parent follows; who is not there has none."""
    assert next(ancestors(os.getpid())) == os.getpid()
    assert list(ancestors(os.getpid()))[1] == os.getppid()
    assert list(ancestors(0)) == list(ancestors(1 << 22)) == []
