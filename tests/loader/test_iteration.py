"""Loops: over all epochs or some, again, broken off, failing, and closed below."""

import gc
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from tests.loader.small import BATCHES, EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import RepeatedEpochs
from viewcache.errors import BadInput, BadVideo, Closed, UnknownOption, ViewNotFound
from viewcache.materializer.reading.handle import OwnedSeat


def place(state: dict[str, Any]) -> tuple[int, int]:
    """(epoch, iteration) of a state."""
    return state["epoch"], state["iteration"]


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_epochs_says_how_many(cache: Cache, truth: list[Tensors], epochs: int | None) -> None:
    """A loop reads the first so many epochs of the task, by default all; ``len`` is the batches of one."""
    loader = cache.loader("train", epochs=epochs)
    assert len(loader) == BATCHES
    assert equal(loader, truth[: (epochs or EPOCHS) * BATCHES])
    assert len(loader) == BATCHES, "also at the end"


def test_a_loop_starts_at_the_epoch_that_a_state_says(cache: Cache, truth: list[Tensors]) -> None:
    """Any epoch can be the first, also one of a later generation."""
    loader = cache.loader("train", epochs=4)
    loader.load_state_dict({**loader.state_dict(), "epoch": 3})
    assert equal(loader, truth[3 * BATCHES : 4 * BATCHES])


def test_one_epoch_at_a_time(cache: Cache, truth: list[Tensors]) -> None:
    """Taking ``len(loader)`` batches at a time, as trainers that count do, reads all epochs in order."""
    loader = cache.loader("train")
    epochs = []
    for epoch in range(EPOCHS):
        assert place(loader.state_dict()) == (epoch, 0)
        epochs.append(list(islice(loader, len(loader))))
    assert equal([batch for epoch in epochs for batch in epoch], truth)


def test_after_the_end_a_loop_starts_over(cache: Cache, truth: list[Tensors]) -> None:
    """A validation loader, of one epoch, can be used again and again."""
    loader = cache.loader("train", epochs=1)
    for _ in range(3):
        assert equal(loader, truth[:BATCHES])
        assert place(loader.state_dict()) == (1, 0)


def test_a_loop_around_a_loop_over_all_epochs_is_told_of(cache: Cache, truth: list[Tensors]) -> None:
    """Beginning again after several epochs is warned of once, with what to do, and works; after a break it is not."""
    loader = cache.loader("train", epochs=2)
    next(iter(loader))
    assert equal(loader, truth[1 : 2 * BATCHES]), "a break is no end"
    with pytest.warns(RepeatedEpochs, match="task 'train' begins again with epoch 0.* all 2 epochs.*leave out") as told:
        first = next(iter(loader))
    assert [each.filename for each in told] == [__file__]
    assert equal([first], truth[:1])
    assert len(list(loader)) == 2 * BATCHES - 1
    assert len(list(loader)) == 2 * BATCHES, "told once"


def test_going_on_from_the_state_of_the_end_is_not_told_of(cache: Cache) -> None:
    """A run that is started again when all is done reads nothing, and nothing is wrong with that."""
    loader = cache.loader("train", epochs=2)
    loader.load_state_dict({**loader.state_dict(), "epoch": 2})
    assert not list(loader)


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_after_a_break_the_next_loop_goes_on(cache: Cache, truth: list[Tensors], taken: int) -> None:
    """The batch at which a loop was left was seen; the next loop starts behind it."""
    loader = cache.loader("train")
    for number, _ in enumerate(loader, 1):
        if number == taken:
            break
    assert equal(loader, truth[taken:])


def test_two_loops_at_once_do_not_disturb_each_other(cache: Cache, truth: list[Tensors]) -> None:
    """Two iterators of one loader each read everything, whatever the order in which they are asked."""
    loader = cache.loader("train")
    one, other = iter(loader), iter(loader)
    first = [next(one) for _ in range(3)]
    seconds = list(other)
    assert equal([*first, *one], truth)
    assert equal(seconds, truth)


def test_two_tasks_are_read_side_by_side(cache: Cache, truth: list[Tensors]) -> None:
    """Training and validation have a loader each, over one cache."""
    train, val = cache.loader("train"), cache.loader("val")
    read = []
    for batch in train:
        read.append(batch)
        assert len(list(val)) == 1
    assert equal(read, truth)


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
    assert equal(loader, truth[1:])


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
    """It comes at its batch, after those before it; the batch does not count as read, so the next loop tries again."""
    broken = failing_once(OwnedSeat.read, (1, 1), BadVideo("v3.mp4 is cut; repair it"))
    monkeypatch.setattr(OwnedSeat, "read", broken)
    loader = cache.loader("train")
    read: list[Tensors] = []
    with pytest.raises(BadVideo, match=r"v3\.mp4 is cut"):
        read.extend(loader)
    assert len(read) == 3
    assert place(loader.state_dict()) == (1, 1)
    assert equal([*read, *loader], truth)


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
    copies = {name: each.clone() for name, each in batch.items()}
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


def test_an_unknown_task_is_told_with_those_that_there_are(cache: Cache) -> None:
    """A misspelt task is seen at once."""
    with pytest.raises(ViewNotFound, match="no task 'trian' in this cache; it has train, val, floats, stacked"):
        cache.loader("trian")
