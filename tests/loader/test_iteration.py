"""Loops: over all epochs or some, again, broken off, failing, and closed below."""

import gc
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.loader.small import BATCHES, EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader, RepeatedEpochs
from viewcache.errors import BadInput, BadVideo, Closed, UnknownOption, ViewNotFound
from viewcache.materializer.reading.handle import OwnedSeat


def place(state: dict[str, Any]) -> tuple[int, int]:
    """(epoch, iteration) of a state."""
    return state["epoch"], state["iteration"]


def epoch_of(truth: list[Tensors], epoch: int) -> list[Tensors]:
    """The batches of one epoch."""
    return truth[epoch * BATCHES : (epoch + 1) * BATCHES]


def test_one_pass_is_one_epoch(cache: Cache, truth: list[Tensors]) -> None:
    """``for epoch in range(E): for batch in loader`` reads each epoch once and in order; batches say where they are."""
    loader = cache.loader("train")
    for epoch in range(EPOCHS):
        assert place(loader.state_dict()) == (epoch, 0)
        assert len(loader) == BATCHES
        batches = list(loader)
        assert equal(batches, epoch_of(truth, epoch))
        assert [(batch["epoch"], batch["iteration"]) for batch in batches] == [(epoch, i) for i in range(BATCHES)]
    assert len(loader) == BATCHES, "also at the end"


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_all_epochs_in_one_loop(cache: Cache, truth: list[Tensors], epochs: int | None) -> None:
    """``all_epochs`` reads the first so many epochs of the task, by default all, or what is left of them."""
    loader = cache.loader("train", epochs=epochs)
    assert equal(loader.all_epochs(), truth[: (epochs or EPOCHS) * BATCHES])
    begun = cache.loader("train")
    assert equal(begun, epoch_of(truth, 0))
    assert equal(begun.all_epochs(), truth[BATCHES:])


def test_a_pass_starts_at_the_epoch_that_a_state_says(cache: Cache, truth: list[Tensors]) -> None:
    """Any epoch can be the first, also one of a later generation; the passes go on from there."""
    loader = cache.loader("train")
    loader.load_state_dict({**loader.state_dict(), "epoch": 3})
    assert equal(loader, epoch_of(truth, 3))
    assert equal(loader, epoch_of(truth, 4))


def test_a_state_within_an_epoch_finishes_it_first(cache: Cache, truth: list[Tensors]) -> None:
    """The first pass after a resume reads the rest of the state's epoch, the second the next epoch."""
    loader = cache.loader("train")
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "iteration": 1})
    assert equal(loader, truth[BATCHES + 1 : 2 * BATCHES])
    assert equal(loader, epoch_of(truth, 2))


def test_counting_batches_is_the_same(cache: Cache, truth: list[Tensors]) -> None:
    """Taking ``len(loader)`` batches of each pass, as trainers that count do, reads all epochs in order."""
    loader = cache.loader("train")
    epochs = [list(islice(loader, len(loader))) for _ in range(EPOCHS)]
    assert equal([batch for epoch in epochs for batch in epoch], truth)


def test_set_epoch_says_which_epoch_comes_next(cache: Cache, truth: list[Tensors]) -> None:
    """As with DistributedSampler: before a pass, forwards, backwards and again, also after one that was left."""
    loader = cache.loader("train")
    for epoch in (3, 0, 0, 4):
        loader.set_epoch(epoch)
        assert equal(loader, epoch_of(truth, epoch))
    next(iter(loader := cache.loader("train")))
    loader.set_epoch(0)
    assert equal(loader, epoch_of(truth, 0))


def test_set_epoch_does_not_undo_a_resume(cache: Cache, truth: list[Tensors]) -> None:
    """The usual loop, ``for epoch in range(state["epoch"], E): loader.set_epoch(epoch)``, ends that epoch first."""
    loader = cache.loader("train")
    state = {**loader.state_dict(), "epoch": 3, "iteration": 1}
    loader.load_state_dict(state)
    read: list[Tensors] = []
    for epoch in range(state["epoch"], EPOCHS):
        loader.set_epoch(epoch)
        loader.set_epoch(epoch)
        read.extend(loader)
    assert equal(read, truth[3 * BATCHES + 1 :])


def test_set_epoch_beyond_the_last_counts_on_from_the_first(cache: Cache, truth: list[Tensors]) -> None:
    """Trainers call it with their own number: of several epochs that is told once, of one it is what they mean."""
    val = cache.loader("train", epochs=1)
    for epoch in range(3):
        val.set_epoch(epoch)
        assert equal(val, epoch_of(truth, 0))
    loader = cache.loader("train", epochs=2)
    with pytest.warns(RepeatedEpochs, match="begin again, with epoch 1") as told:
        loader.set_epoch(3)
    assert [each.filename for each in told] == [__file__]
    assert equal(loader, epoch_of(truth, 1))
    loader.set_epoch(4)
    assert equal(loader, epoch_of(truth, 0))


@pytest.mark.parametrize("epoch", [-1, 0.5, "1", None, True])
def test_set_epoch_refuses_what_is_no_epoch(cache: Cache, epoch: Any) -> None:
    """A number that no epoch has is an error at once, and the loader stays where it was."""
    loader = cache.loader("train")
    with pytest.raises(BadInput, match=r"^epoch=(-1: at least 0|.*: a whole number is needed)"):
        loader.set_epoch(epoch)
    assert place(loader.state_dict()) == (0, 0)


def test_a_validation_loader_is_used_again_and_again(cache: Cache, truth: list[Tensors]) -> None:
    """A loader of one epoch reads it in each pass, without a word, also after a pass that was left (a sanity check)."""
    loader = cache.loader("train", epochs=1)
    assert equal(islice(loader, 1), truth[:1])
    for _ in range(3):
        assert equal(loader, truth[:BATCHES])
        assert place(loader.state_dict()) == (1, 0)


def test_more_passes_than_epochs_begin_again_and_are_told_of(cache: Cache, truth: list[Tensors]) -> None:
    """A training that goes on beyond its task's epochs is not ended; it is warned once, with what to do."""
    loader = cache.loader("train", epochs=2)
    assert equal([*loader, *loader], truth[: 2 * BATCHES])
    with pytest.warns(
        RepeatedEpochs, match=r"task 'train' begin again, with epoch 0.* 2 epochs.*last of them.*raise epochs"
    ) as told:
        again = iter(loader)
    assert [each.filename for each in told] == [__file__]
    assert equal(again, epoch_of(truth, 0))
    assert equal([*loader, *loader], [*epoch_of(truth, 1), *epoch_of(truth, 0)]), "told once"


def test_all_epochs_after_the_end_is_told_of(cache: Cache, truth: list[Tensors]) -> None:
    """A loop around the loop over all epochs reads them again, and says so."""
    loader = cache.loader("train", epochs=2)
    assert len(list(loader.all_epochs())) == 2 * BATCHES
    with pytest.warns(RepeatedEpochs) as told:
        assert equal(loader.all_epochs(), truth[: 2 * BATCHES])
    assert [each.filename for each in told] == [__file__]


def test_going_on_from_the_state_of_the_end_is_not_told_of(cache: Cache) -> None:
    """A run that is started again when all is done reads nothing, and nothing is wrong with that."""
    for read in (iter, Loader.all_epochs):
        loader = cache.loader("train", epochs=2)
        loader.load_state_dict({**loader.state_dict(), "epoch": 2})
        assert not list(read(loader))


@pytest.mark.parametrize("taken", [1, BATCHES, BATCHES + 1])
def test_a_pass_that_was_left_is_over(cache: Cache, truth: list[Tensors], taken: int) -> None:
    """As with a DataLoader the next one is a new one, of the next epoch; the state leads back into the middle."""
    loader = cache.loader("train")
    assert equal(islice(loader.all_epochs(), taken), truth[:taken])
    state = loader.state_dict()
    assert place(state) == divmod(taken, BATCHES)
    assert equal(loader, epoch_of(truth, -(-taken // BATCHES)))
    loader.load_state_dict(state)
    assert equal(loader.all_epochs(), truth[taken:])


def test_an_iterator_that_read_nothing_counts_for_nothing(cache: Cache, truth: list[Tensors]) -> None:
    """Trainers make iterators that they drop: only a batch that was handed out begins an epoch."""
    loader = cache.loader("train")
    for _ in range(3):
        assert iter(loader) is not None
    assert equal(loader, epoch_of(truth, 0))


def test_two_loops_at_once_do_not_disturb_each_other(cache: Cache, truth: list[Tensors]) -> None:
    """Two iterators of one loader each read everything, whatever the order in which they are asked."""
    loader = cache.loader("train")
    one, other = iter(loader), iter(loader)
    first = [next(one)]
    seconds = list(other)
    assert equal([*first, *one], epoch_of(truth, 0))
    assert equal(seconds, epoch_of(truth, 0))


def test_two_tasks_are_read_side_by_side(cache: Cache, truth: list[Tensors]) -> None:
    """Training and validation have a loader each, over one cache."""
    train, val = cache.loader("train"), cache.loader("val")
    read = []
    for batch in train:
        read.append(batch)
        assert len(list(val)) == 1
    assert equal(read, epoch_of(truth, 0))


@pytest.mark.usefixtures("no_leaks")
def test_a_loop_that_is_left_leaves_no_thread(cache: Cache) -> None:
    """Breaking out, dropping an iterator, and one that never started: no thread stays, at once and not at exit."""
    loader = cache.loader("train", prefetch=1)
    before = threading.active_count()
    for _ in loader:
        assert threading.active_count() == before + 1
        break
    assert threading.active_count() == before
    begun = iter(loader)
    next(begun)
    del begun
    assert threading.active_count() == before
    unused = iter(loader)
    assert threading.active_count() == before
    del unused


@pytest.mark.usefixtures("no_leaks")
def test_an_error_in_the_loop_is_the_loops_own(cache: Cache, truth: list[Tensors]) -> None:
    """What a training step raises comes out as it is; the thread ends with the frame, and the batch counts as seen."""
    loader = cache.loader("train")

    def step() -> None:
        for _ in loader:
            raise KeyError("a bug in the step")

    with pytest.raises(KeyError, match="a bug in the step") as caught:
        step()
    del caught
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "viewcache-loader"]
    loader.load_state_dict(loader.state_dict())
    assert equal(loader, truth[1:BATCHES])


def failing_once(read: Callable[..., Any], at: tuple[int, int], error: Exception) -> Callable[..., Any]:
    """A seat's `read` that cannot give one batch when it is asked for the first time."""
    failed = threading.Event()

    def instead(seat: OwnedSeat, *where: Any) -> Any:
        if where[:2] == at and not failed.is_set():
            failed.set()
            raise error
        return read(seat, *where)

    return instead


@pytest.mark.usefixtures("no_leaks")
def test_an_error_in_reading_is_raised_in_the_loop(
    cache: Cache, truth: list[Tensors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes at its batch, after those before it; the batch does not count as read: the state leads to it again."""
    broken = failing_once(OwnedSeat.read, (1, 1), BadVideo("v3.mp4 is cut; repair it"))
    monkeypatch.setattr(OwnedSeat, "read", broken)
    loader = cache.loader("train")
    read: list[Tensors] = []
    with pytest.raises(BadVideo, match=r"v3\.mp4 is cut"):
        read.extend(loader.all_epochs())
    assert len(read) == 3
    assert place(loader.state_dict()) == (1, 1)
    loader.load_state_dict(loader.state_dict())
    assert equal([*read, *loader.all_epochs()], truth)


def calling(read: Callable[..., Any], at: tuple[int, int], after: Callable[[], object]) -> Callable[..., Any]:
    """A seat's `read` that does something else after it has read one batch."""

    def instead(seat: OwnedSeat, *where: Any) -> Any:
        batch = read(seat, *where)
        if where[:2] == at:
            after()
        return batch

    return instead


def test_closing_the_cache_ends_the_loop_at_the_next_batch(
    own: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop gets Closed, though more batches were read ahead; the batch that it has stays whole."""
    cache, full = own(), threading.Event()
    # When the second batch is read, there is no room for it: the thread waits for the loop, which has the first.
    monkeypatch.setattr(OwnedSeat, "read", calling(OwnedSeat.read, (0, 1), full.set))
    loader = cache.loader("train", prefetch=1)
    begun = iter(loader)
    batch = next(begun)
    copies = {name: each if isinstance(each, int) else each.clone() for name, each in batch.items()}
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "viewcache-loader")
    assert full.wait(60)
    cache.close()
    thread.join(10)
    assert not thread.is_alive(), "though the iterator is still there"
    with pytest.raises(Closed, match="this cache was closed; open it again"):
        next(begun)
    with pytest.raises(Closed):
        iter(loader)
    with pytest.raises(Closed):
        cache.loader("train")
    assert equal([batch], [copies])
    assert place(loader.state_dict()) == (0, 1), "enough to go on in the next run"


def test_closing_the_cache_wakes_a_loop_that_waits(own: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that waits for a batch that will never come gets Closed, whatever closing did to the reading thread."""
    cache = own()

    def close_and_fail() -> None:
        cache.close()
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(OwnedSeat, "read", calling(OwnedSeat.read, (0, 1), close_and_fail))
    begun = iter(cache.loader("train"))
    with pytest.raises(Closed, match="this cache was closed"):
        list(begun)


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "layout": ({"layout": "NHWC"}, BadInput, "layout 'NHWC' is not one of TCHW, CTHW, THWC"),
    "lower case": ({"layout": "tchw"}, BadInput, "layout 'tchw' is not one of TCHW"),
    "prefetch": ({"prefetch": 0}, BadInput, "prefetch=0: at least 1"),
    "too much prefetch": ({"prefetch": 10**9}, BadInput, "prefetch=1000000000: at most 1000"),
    "no epoch": ({"epochs": 0}, BadInput, "epochs=0: at least 1; leave it out for all 5 of task 'train'"),
    "negative epochs": ({"epochs": -3}, BadInput, "epochs=-3: at least 1; leave it out"),
    "more epochs": ({"epochs": 6}, ViewNotFound, "task 'train' has 5 epochs; asked for 6"),
    "rank too high": ({"rank": 2, "world": 2}, BadInput, "rank 2 of 2: a rank is at least 0 and below the world's"),
    "negative rank": ({"rank": -1, "world": 2}, BadInput, "rank -1 of 2"),
    "rank alone": ({"rank": 1}, BadInput, "rank 1 of 1"),
    "no world": ({"world": 0}, BadInput, "rank 0 of 0"),
    "large world": ({"rank": 0, "world": 7}, BadInput, "cannot be shared by 7 ranks; use videos_per_batch >= 7"),
    "device": ({"device": "cudda"}, BadInput, "device 'cudda' is none that this PyTorch can use: Expected one of cpu"),
    "absent device": ({"device": "cuda:99"}, BadInput, "device 'cuda:99' is none that this PyTorch can use: "),
    "of DataLoader": ({"num_workers": 4}, UnknownOption, "no option 'num_workers': .* set cache.workers in the conf"),
    "shuffle": (
        {"shuffle": True},
        TypeError,
        "no option 'shuffle': the order is drawn by the task's seed, .* it has ep",
    ),
    "epochs of text": ({"epochs": "2"}, BadInput, r"epochs='2': a whole number .*of type str; write int\('2'\)"),
    "prefetch of text": (
        {"prefetch": "a"},
        BadInput,
        "prefetch='a': a whole number is needed, and this is of type str",
    ),
    "rank of text": ({"rank": "a"}, BadInput, "rank='a': a whole number is needed"),
    "world of text": ({"rank": 0, "world": "2"}, BadInput, "world='2': a whole number is needed"),
    "even": ({"even": "yes"}, BadInput, "even='yes': True or False is needed, and this is of type str"),
    "pinned": ({"pin_memory": "no"}, BadInput, "pin_memory='no': True or False is needed"),
    "device of no kind": ({"device": 0.5}, BadInput, r"device '0\.5' is none that this PyTorch can use: "),
    "frameworks": ({"framework": ["torch"]}, BadInput, r"framework=\['torch'\]: text is needed"),
    "framework": ({"framework": "mxnet"}, BadInput, "framework 'mxnet' is not one of torch, numpy, jax"),
    "device of numpy": ({"framework": "numpy", "device": "cpu"}, BadInput, "NumPy's arrays lie in plain memory"),
    "misspelt": ({"epoch": 2}, BadInput, "no option 'epoch': did you mean epochs"),
    "unheard of": ({"zzz": 2}, UnknownOption, "no option 'zzz': none is like it; it has epochs, rank, world, layout, "),
}
"""Wrong options → error and what it says."""


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_option_is_refused_at_once(cache: Cache, name: str) -> None:
    """Not at the first batch: the error names the value and what is allowed."""
    options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        cache.loader("train", **options)


def test_numbers_of_numpy_are_options(cache: Cache, truth: list[Tensors]) -> None:
    """As they come out of arrays; what the loader says of itself afterwards is plain."""
    zero: Any = np.int64(0)
    options = {"epochs": np.int64(1), "rank": zero, "world": np.int32(1), "prefetch": np.uint8(1)}
    loader = cache.loader("train", even=np.False_, **options)
    assert [type(each) for each in (loader.epochs, loader.rank, loader.world, loader.even)] == [int, int, int, bool]
    loader.set_epoch(zero)
    assert equal(loader, epoch_of(truth, 0))


def test_an_unknown_task_is_told_with_those_that_there_are(cache: Cache) -> None:
    """A misspelt task is seen at once."""
    with pytest.raises(ViewNotFound, match="no task 'trian' in this cache; it has train, val, floats, stacked"):
        cache.loader("trian")
