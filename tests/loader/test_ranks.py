"""Ranks share each batch; resuming, also among other numbers of ranks, neither repeats nor skips."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.loader.small import BATCHES, EPOCHS, Tensors, equal, joined, tasks, whole
from tests.tiny import config
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader
from viewcache.errors import BadInput

WORLDS = (1, 2, 3, 4)


def ranks(cache: Cache, world: int, task: str = "train", **options: object) -> list[Loader]:
    """The loaders of all ranks."""
    return [cache.loader(task, rank=rank, world=world, **options) for rank in range(world)]


def in_step(loaders: Sequence[Loader], limit: int | None = None) -> list[Tensors]:
    """What training in step reads: the shares of each iteration, joined."""
    loops = [loader.all_epochs() for loader in loaders]
    return [joined(shares) for shares in islice(zip(*loops, strict=True), limit)]


@pytest.mark.parametrize("world", WORLDS)
def test_the_ranks_together_read_each_batch_once(cache: Cache, truth: list[Tensors], world: int) -> None:
    """At any world size the shares make up the same batches in the same order, short last ones included."""
    together = in_step(ranks(cache, world))
    assert equal(together, truth)
    for epoch in range(EPOCHS):
        batches = together[epoch * BATCHES : (epoch + 1) * BATCHES]
        seen = Counter(number for batch in batches for number in batch["index"].tolist())
        assert sorted(seen.values()) == [2] * 10, "ten videos with two samples each"


@pytest.mark.parametrize("world", [*WORLDS, 5, 6])
def test_dropping_the_last_batch_leaves_whole_ones(cache: Cache, world: int) -> None:
    """With drop_last six ranks can share batches of six videos; nothing comes twice."""
    (batch,) = in_step(ranks(cache, world, "val", layout="TCHW"))
    assert equal([batch], whole(cache, "val"))
    assert sorted(Counter(batch["index"].tolist()).values()) == [2] * 6


@pytest.mark.parametrize("world", WORLDS)
def test_all_ranks_have_as_many_batches(cache: Cache, world: int) -> None:
    """``len`` and what is read are the same for each rank: none waits for another at the end; no share is empty."""
    for loader in ranks(cache, world):
        assert len(loader) == BATCHES
        sizes = [len(batch["index"]) for batch in loader.all_epochs()]
        assert len(sizes) == BATCHES * EPOCHS
        assert min(sizes) >= 2


def test_a_batch_that_is_too_short_for_the_ranks_is_refused_at_once(cache: Cache) -> None:
    """The last batch has four videos: a fifth rank would have none, so no rank starts; the message says the cure."""
    for rank in range(5):
        with pytest.raises(
            BadInput, match=r"4 videos cannot be shared by 5 ranks; use videos_per_batch >= 5, and drop"
        ):
            cache.loader("train", rank=rank, world=5)


@pytest.mark.parametrize("world", [*WORLDS, 5, 6])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_even_ranks_read_each_clip_once(cache: Cache, truth: list[Tensors], world: int, framework: str) -> None:
    """With ``even`` all batches of all ranks have one shape, also of more ranks than the last batch has videos.

    What is valid of them makes up the same batches as without, and the filling is nobody's.
    """
    loaders = ranks(cache, world, even=True, framework=framework)
    shares = [[{name: torch.as_tensor(value) for name, value in each.items()} for each in loader.all_epochs()]
              for loader in loaders]  # fmt: skip
    clips = -(-6 // world) * 2
    for each in (each for of_rank in shares for each in of_rank):
        assert {len(tensor) for tensor in each.values() if tensor.ndim} == {clips}
        assert each["valid"].dtype == torch.bool
        filling = ~each["valid"]
        assert not each["video"][filling].any()
        for name in ("label", "index", "sample"):
            assert (each[name][filling] == -1).all()
    for number, expected in enumerate(truth):
        parts = [of_rank[number] for of_rank in shares]
        assert {(int(part["epoch"]), int(part["iteration"])) for part in parts} == {
            (expected["epoch"], expected["iteration"])
        }
        for name in ("video", "label", "index", "frame", "time_s", "sample"):
            assert torch.equal(torch.cat([part[name][part["valid"]] for part in parts]), expected[name])


def test_even_ranks_of_views_and_finished_pixels(cache: Cache) -> None:
    """Filling goes through what runs at reading, and has the views of a clip, too."""
    for task, shape, kind in (("stacked", (2, 2, 4, 3), torch.uint8), ("floats", (2, 4, 3), torch.float32)):
        *_, short = cache.loader(task, rank=0, world=6, even=True)
        assert short["video"].shape[: len(shape)] == shape
        assert short["video"].dtype == kind
        assert not short["valid"].any(), "the first of six ranks has nothing of four videos"
        assert not short["video"].any()


def test_even_ranks_still_need_a_video_each(cache: Cache) -> None:
    """A rank that would have filling alone in every batch is refused."""
    with pytest.raises(BadInput, match="6 videos cannot be shared by 7 ranks; use videos_per_batch >= 7"):
        cache.loader("train", rank=0, world=7, even=True)


def test_a_rank_that_has_nothing_of_a_batch(cache: Cache) -> None:
    """Read by its place, a short last batch has empty parts for some ranks, and a whole one of so many is refused."""
    parts = [cache.read("train", 0, 1, rank, 6) for rank in range(6)]
    assert [len(part.index) for part in parts] == [0, 2, 2, 0, 2, 2]
    assert parts[0].video.shape == (0, *cache.task("train").shape(0, 1)[1:]) == cache.task("train").shape(0, 1, 0, 6)
    with pytest.raises(BadInput, match="6 videos cannot be shared by 7 ranks"):
        cache.read("train", 0, 1, 0, 7)


@pytest.fixture
def third_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a member of a group of torch.distributed."""
    for name, value in {"is_initialized": True, "get_rank": 2, "get_world_size": 3}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)


def test_rank_and_world_are_one_alone(cache: Cache) -> None:
    """Without a process group there is one rank."""
    alone = cache.loader("train")
    assert (alone.rank, alone.world) == (0, 1)


@pytest.mark.usefixtures("third_of_three")
def test_rank_and_world_come_from_torch_distributed(tmp_path: Path, videos: Path) -> None:
    """In a process group nothing need be said; an argument wins over the group."""
    with viewcache.open(tasks(tmp_path / "store", videos)[:1]) as cache:
        member = cache.loader("train")
        assert (member.rank, member.world) == (2, 3)
        other = cache.loader("train", rank=0, world=1)
        assert (other.rank, other.world) == (0, 1)


@pytest.fixture
def together(videos: Path, tmp_path: Path) -> Iterator[Cache]:
    """A cache of two tasks that draw their orders together."""
    with viewcache.open(tasks(tmp_path / "store", videos, together=True)[:2]) as cache:
        yield cache


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.loader("train", rank=1, world=2),
        lambda cache: cache.read("train", 0, 0, rank=1, world=2),
        lambda cache: fsspec.open("view://train/0/0/view?rank=1&world=2").open().read(),
    ],
    ids=["loader", "read", "path"],
)
def test_ranks_of_a_task_that_draws_with_others_are_refused(together: Cache, read: Callable[[Cache], object]) -> None:
    """Each process has a cache of its own, which would draw another order: however the rank is named, nothing is read,
    and the message says the cure. The whole batch can be read.
    """
    with pytest.raises(BadInput, match="so 2 ranks would read different batches; let a service own the cache"):
        read(together)
    assert together.loader("train", rank=0, world=1).world == 1
    assert len(together.read("train", 0, 0).video) == 12


@pytest.mark.usefixtures("third_of_three")
def test_so_are_those_of_a_process_group(together: Cache) -> None:
    """The number of ranks that torch.distributed says counts like one that was given; a world of one is free."""
    with pytest.raises(BadInput, match="so 3 ranks would read different batches; let a service own the cache"):
        together.loader("train")
    assert together.loader("train", rank=0, world=1).world == 1


def test_a_task_that_others_join_is_refused_to_ranks_from_then_on(videos: Path, tmp_path: Path) -> None:
    """A loop of a rank ends with the error as soon as its order depends on another task; before, it reads."""
    first, second, *_ = tasks(tmp_path / "store", videos, together=True)
    with viewcache.open(first) as cache:
        loop = cache.loader("train", rank=0, world=2, prefetch=1).all_epochs()
        next(loop)
        cache.join({"dataset": second["dataset"]})
        with pytest.raises(BadInput, match="2 ranks would read different batches"):
            list(loop)


RANK = """
import json, sys
import viewcache
with viewcache.open(json.loads(sys.argv[1])) as cache:
    rank = int(sys.argv[2])
    loaders = {name: cache.loader(name, rank=rank, world=2) for name in ("b", "a")[:: 1 if rank else -1]}
    read = {name: [n for batch in loaders[name] for n in batch["index"].tolist()] for name in loaders}
print(json.dumps(read))
"""


@pytest.mark.parametrize("coordination", ["shared", pytest.param("independent", marks=pytest.mark.long)])
def test_ranks_in_two_processes_read_each_video_once_or_are_refused(
    videos: Path, tmp_path: Path, coordination: str
) -> None:
    """Two tasks in one file, two processes with a store each that read them in another order: orders that are drawn
    together are refused by both; independent ones agree, so that the shares make up the epoch.
    """
    done = []
    for rank in range(2):
        of = [
            config(
                tmp_path / f"store{rank}", videos, cache={"draw_ahead": 1}, tag=name, epochs=1,
                sampling={"videos_per_batch": 2, "samples_per_video": 1, "coordination": coordination},
            )
            for name in ("a", "b")
        ]  # fmt: skip
        given = json.dumps([of[0], {"dataset": of[1]["dataset"]}])
        command = [sys.executable, "-c", RANK, given, str(rank)]
        done.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = [each.communicate(timeout=200) for each in done]
    if coordination == "shared":
        assert all("ranks would read different batches" in errors for _, errors in told)
        return
    shares = [json.loads(out) for out, _ in told]
    for name in ("a", "b"):
        seen = Counter(number for share in shares for number in share[name])
        assert sorted(seen.values()) == [1] * 10


def carried(loaders: Sequence[Loader]) -> dict[str, Any]:
    """The state of a run as it comes back from a file; all ranks have the same."""
    states = [loader.state_dict() for loader in loaders]
    assert states.count(states[0]) == len(states)
    back: dict[str, Any] = json.loads(json.dumps(states[0]))
    return back


RUNS = st.lists(st.tuples(st.sampled_from(WORLDS), st.integers(0, 4), st.integers(1, 3)), max_size=5)


@given(runs=RUNS)
def test_stopped_and_resumed_at_random_every_sample_comes_once(
    cache: Cache, truth: list[Tensors], runs: list[tuple[int, int, int]]
) -> None:
    """Runs of any world size and prefetch, each stopped anywhere, together read every batch once and in order."""
    state = cache.loader("train").state_dict()
    read: list[Tensors] = []
    for world, count, prefetch in [*runs, (1, BATCHES * EPOCHS, 2)]:
        loaders = ranks(cache, world, prefetch=prefetch)
        for loader in loaders:
            loader.load_state_dict(state)
        read += in_step(loaders, count)
        state = carried(loaders)
    assert equal(read, truth)
    assert (state["epoch"], state["iteration"]) == (EPOCHS, 0)


def assert_stopped_anywhere(
    cache: Cache, truth: list[Tensors], world: int, prefetch: int, stops: Sequence[int]
) -> None:
    """A loop that is stopped after so many batches and gone on with in new loaders reads what one loop does."""
    for stop in stops:
        loaders = ranks(cache, world, prefetch=prefetch)
        read = in_step(loaders, stop)
        state = carried(loaders)
        loaders = ranks(cache, world, prefetch=prefetch)
        for loader in loaders:
            loader.load_state_dict(state)
        read += in_step(loaders)
        assert equal(read, truth), f"stopped after {stop}"
        for epoch in range(EPOCHS):
            batches = read[epoch * BATCHES : (epoch + 1) * BATCHES]
            seen = Counter(number for batch in batches for number in batch["index"].tolist())
            assert sorted(seen.values()) == [2] * 10, "each sample exactly once"


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 2, 8])
def test_stopped_at_a_step_and_resumed(cache: Cache, truth: list[Tensors], world: int, prefetch: int) -> None:
    """At any depth of reading ahead and number of ranks: the order is equal, each sample comes once in its epoch."""
    assert_stopped_anywhere(cache, truth, world, prefetch, (1 + prefetch % 3, BATCHES * EPOCHS - 1))


@pytest.mark.long
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 2, 3, 4, 8])
def test_stopped_at_every_step_and_resumed(cache: Cache, truth: list[Tensors], world: int, prefetch: int) -> None:
    """The same for a stop after every batch."""
    assert_stopped_anywhere(cache, truth, world, prefetch, range(BATCHES * EPOCHS + 1))


def test_resumed_by_other_numbers_of_workers_and_ranks(own: Callable[..., Cache], truth: list[Tensors]) -> None:
    """In a new process with more workers and ranks, and an empty store, the rest of the epochs is the same."""
    with own(workers=1) as before:
        loaders = ranks(before, 2)
        read = in_step(loaders, 3)
        state = carried(loaders)
    with own(workers=2) as after:
        loaders = ranks(after, 3)
        for loader in loaders:
            loader.load_state_dict(state)
        read += in_step(loaders)
    assert equal(read, truth)
