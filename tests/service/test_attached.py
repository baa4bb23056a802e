"""An attached cache gives what a cache of one's own gives: batches, loops, frames, paths and errors."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import viewcache
from tests.service.served import Opener, described, digest
from viewcache.api.service.attached import AttachedCache
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, Closed, ViewcacheError, ViewNotFound
from viewcache.materializer.reading.values import FrameRequest
from viewcache.testing.leaks import settle

EPOCHS, BATCHES = 3, 5
V1, V2 = "cats.-v1", "dogs.-v2"
"""Names of videos."""


@pytest.fixture(scope="module")
def owned(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """The same tasks in a store of this process, whose threads start before a test counts them."""
    given = described(tmp_path_factory.mktemp("own"), videos)
    with viewcache.open(given, service="off") as cache:
        for epoch in range(EPOCHS):
            for iteration in range(BATCHES):
                cache.read("train", epoch, iteration)
        yield cache


@pytest.fixture
def attached(attach: Opener) -> AttachedCache:
    """Through a service."""
    return attach()


def test_every_batch_is_the_same(owned: Cache, attached: AttachedCache) -> None:
    """Pixels, labels, frames, times, names and keys, of all batches and of shares."""
    places = [(epoch, iteration, 0, 1) for epoch in range(EPOCHS) for iteration in range(BATCHES)]
    for place in [*places, (0, 1, 0, 2), (0, 1, 1, 2)]:
        mine, theirs = owned.read("train", *place), attached.read("train", *place)
        assert np.array_equal(mine.video, theirs.video)
        assert digest(mine) == digest(theirs)
        assert (mine.videos, mine.keys, mine.task) == (theirs.videos, theirs.keys, theirs.task)
        theirs.video[:] = 0  # it belongs to who read it


def test_a_loop_is_the_same(owned: Cache, attached: AttachedCache) -> None:
    """Also what runs at reading, and where a loop is stopped and gone on with."""
    truth = [batch["video"] for batch in owned.loader("train").all_epochs()]
    loader = attached.loader("train")
    read = []
    for batch in loader.all_epochs():
        read.append(batch["video"].clone())
        if len(read) == 4:
            break
    state = loader.state_dict()
    again = attached.loader("train")
    again.load_state_dict(state)
    read += [batch["video"].clone() for batch in again.all_epochs()]
    assert len(read) == len(truth)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(truth, read, strict=True))
    assert attached.task("train").spent.batches >= EPOCHS * BATCHES


def test_what_its_reads_spent_is_counted(attached: AttachedCache) -> None:
    """As the owner counts for this client: clips that were there when they were asked for, and that were not."""
    task = attached.task("train")
    for expected in ("misses", "hits"):
        before = copy(task.spent)
        read = [attached.read("train", 0, iteration) for iteration in range(BATCHES)]
        asked = task.spent.hits + task.spent.misses - before.hits - before.misses
        assert asked == sum(len(batch.videos) for batch in read)
        assert getattr(task.spent, expected) > getattr(before, expected)
    settle(lambda: [] if attached.snapshot().tasks["train"].batches == task.spent.batches else ["the last is not told"])
    told = attached.snapshot().tasks["train"]
    assert (told.batches, told.hits, told.misses) == (task.spent.batches, task.spent.hits, task.spent.misses)
    assert told.rebuilds == task.spent.rebuilt == 0


def test_the_facts_are_the_same(owned: Cache, attached: AttachedCache) -> None:
    """What loaders and paths ask of a task."""
    mine, theirs = owned.task("train"), attached.task("train")
    for name in (
        "name epochs seed layout videos_per_batch samples_per_video classes draws_together clip_shape".split()  # noqa: SIM905
    ):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.batch_sizes() == theirs.batch_sizes()
    assert [mine.iterations(epoch) for epoch in range(EPOCHS)] == [theirs.iterations(epoch) for epoch in range(EPOCHS)]
    assert [mine.generation_of(epoch) for epoch in range(EPOCHS)] == [
        theirs.generation_of(epoch) for epoch in range(EPOCHS)
    ]
    assert mine.shape(0, 1, 1, 2) == theirs.shape(0, 1, 1, 2)
    assert mine.depths() == theirs.depths()
    assert theirs.planned_at(0) > 0
    assert theirs.version(0, 0) == theirs.version(0, 0) != theirs.version(2, 0)
    assert [each.name for each in mine.videos()] == [each.name for each in theirs.videos()]
    one, other = mine.video(V1), theirs.video(V1)
    assert replace(one, duration_s=0) == replace(other, duration_s=0)
    assert one.duration_s == pytest.approx(other.duration_s)
    assert theirs.find_video("v99") is None
    assert attached.classes("train") == ("cats", "dogs")
    assert attached.video("train", V1) == owned.video("train", V1)
    described = theirs.describe(0, 2)
    assert digest(described) == digest(mine.describe(0, 2))


def test_frames_are_the_same(owned: Cache, attached: AttachedCache) -> None:
    """Decoded ones, augmented ones, several at once, and what is said of them."""
    requests = [FrameRequest(V1, 3), FrameRequest(V2, 0), FrameRequest(V1, 7, 1, epoch=0)]
    for mine, theirs in zip(owned.task("train").frames(requests), attached.task("train").frames(requests), strict=True):
        assert np.array_equal(mine, theirs)
    for request in requests:
        one, other = (each.task("train").describe_frame(request) for each in (owned, attached))
        assert (one.shape, one.key, one.time_s, one.label) == (other.shape, other.key, other.time_s, other.label)
    assert np.array_equal(attached.frame("train", V1, 3), owned.frame("train", V1, 3))
    times = [0.04, 0.2]
    assert np.array_equal(attached.frames("train", V1, seconds=times), owned.frames("train", V1, seconds=times))
    assert np.array_equal(attached.aug("train", V1, 3, 1, epoch=0), owned.aug("train", V1, 3, 1, epoch=0))


@pytest.mark.parametrize(
    "path",
    ["train/0/0/view", "train/1/3/view", f"train/{V1}/frame3", f"train/{V1}/frame3/aug1?epoch=0", f"train/{V1}.mp4"],
)
def test_paths_are_the_same(owned: Cache, attached: AttachedCache, path: str, videos: Path) -> None:
    """``view://`` reads the cache that was opened last, whoever owns it."""
    with fsspec.open(f"view://{path}") as file:
        theirs = file.read()
    fs = fsspec.filesystem("view", cache=owned.config.cache.local.url, skip_instance_cache=True)
    assert theirs == fs.cat_file(path)
    assert fsspec.filesystem("view").info(path)["size"] == len(theirs)


BAD: dict[str, Callable[[Any], object]] = {
    "task": lambda cache: cache.read("tarin", 0, 0),
    "epoch": lambda cache: cache.read("train", 99, 0),
    "iteration": lambda cache: cache.read("train", 0, 99),
    "world": lambda cache: cache.read("train", 0, 0, rank=0, world=9),
    "video": lambda cache: cache.frame("train", "v99", 0),
    "frame": lambda cache: cache.frame("train", V1, 999),
    "loader": lambda cache: cache.loader("train", epochs=9),
    "task's type": lambda cache: cache.read(3, 0, 0),
    "epoch's type": lambda cache: cache.read("train", "0", 0),
    "large epoch": lambda cache: cache.read("train", 2**70, 0),
    "ranks as of os.environ": lambda cache: cache.read("train", 0, 0, rank="0", world="2"),
    "video's type": lambda cache: cache.frames("train", 3, [1]),
    "frame's type": lambda cache: cache.frames("train", V1, [1.5]),
    "shown": lambda cache: cache.show("train", epoch="0"),
    "loader's rank": lambda cache: cache.loader("train", rank="a"),
    "query's time": lambda cache: cache.sql("select 1", seconds="x"),
    "epochs made": lambda cache: cache.materialize("1"),
    "who left": lambda cache: cache.leave(3),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_the_same(owned: Cache, attached: AttachedCache, name: str) -> None:
    """The same class with the same words; the next question is answered."""
    with pytest.raises(ViewcacheError) as mine:
        BAD[name](owned)
    with pytest.raises(ViewcacheError) as theirs:
        BAD[name](attached)
    assert type(theirs.value) is type(mine.value)
    assert str(theirs.value) == str(mine.value)
    assert isinstance(theirs.value, ViewNotFound | BadInput)
    assert attached.read("train", 0, 0).video.shape == (4, 4, 3, 32, 32)


def test_numbers_of_numpy_are_numbers(owned: Cache, attached: AttachedCache) -> None:
    """As indices that come out of arrays."""
    zero: Any = np.int64(0)
    one: Any = np.int64(1)
    assert digest(attached.read("train", zero, one)) == digest(owned.read("train", 0, 1))
    assert np.array_equal(attached.frame("train", V1, one), owned.frame("train", V1, 1))
    mine, theirs = (next(iter(each.loader("train", rank=zero, world=one))) for each in (owned, attached))
    assert torch.equal(mine["video"], theirs["video"])


def test_a_question_that_cannot_be_is_no_death(attached: AttachedCache) -> None:
    """What is asked past the checks of a cache is told by the service, which serves on, in the same session."""
    session, task = attached.stats(), attached.task("train")
    epoch: Any = "0"
    with pytest.raises(BadInput, match=r"'look' was asked .* Expected `int`, got `str` - at `\$\.epoch`"):
        task.read(epoch, 0)
    with pytest.raises(BadInput, match=r"view train/0/0 cannot be asked for: .*numpy.int64"):
        task.read(np.int64(0), 0)  # type: ignore[arg-type]  # it is what is refused
    with pytest.raises(BadInput, match="cannot be asked for"):
        task.read(2**70, 0)
    again = attached.stats()
    assert (again.pid, [each.pid for each in again.clients]) == (session.pid, [each.pid for each in session.clients])
    assert task.read(0, 0) is not None


def test_closed_is_closed(attached: AttachedCache) -> None:
    """Whatever is asked then says so, twice closed is closed, and a loop that runs ends with it."""
    loop = iter(attached.loader("train"))
    next(loop)
    attached.close()
    attached.close()
    for ask in (lambda: attached.read("train", 0, 0), lambda: next(loop), lambda: attached.loader("train")):
        with pytest.raises(Closed):
            ask()


def test_a_damaged_clip_is_made_again(attached: AttachedCache, store: Path) -> None:
    """A client that finds a clip damaged says so; the bytes are made anew, and are the same."""
    before = attached.read("train", 0, 0)
    for shard in store.glob("objects/*/*/c*"):
        if shard.parent.name in before.keys:
            data = bytearray(shard.read_bytes())
            data[len(data) // 3] ^= 0xFF
            shard.write_bytes(bytes(data))
    after = attached.read("train", 0, 0)
    assert digest(after) == digest(before)
    assert attached.task("train").spent.rebuilt > 0
    rebuilt = attached.read("train", 0, 0)
    assert digest(rebuilt) == digest(before)
