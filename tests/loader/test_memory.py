"""Buffers are used again when the loop has let go of them, and nothing crosses a process."""

import copy
import gc
import os
import pickle
import signal
import weakref
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset

from tests.loader.small import BATCHES, EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader, RepeatedEpochs
from viewcache.errors import WrongProcess
from viewcache.materializer.reading.batch import Buffers

KEPT: dict[str, Callable[[torch.Tensor], object]] = {
    "the tensor": lambda video: video,
    "a clip": lambda video: video[3],
    "a view in another order": lambda video: video.permute(0, 2, 1, 3, 4),
    "one pixel": lambda video: video[0, 0, 0, 0, 0],
    "a detached part": lambda video: video.detach()[:, 1],
    "a NumPy view": lambda video: video.numpy()[1:],
    "the storage": lambda video: video.untyped_storage(),
}
"""Ways to hold on to a batch's pixels."""


def content(kept: object) -> bytes:
    """The bytes that something kept shows now."""
    if isinstance(kept, torch.UntypedStorage):
        kept = torch.empty(0, dtype=torch.uint8).set_(kept)
    return np.ascontiguousarray(np.asarray(kept)).tobytes()


@pytest.mark.parametrize("way", KEPT)
def test_what_the_loop_keeps_does_not_change(cache: Cache, way: str) -> None:
    """Whatever part of a batch is held on to, in whatever form, has its bytes while the loader reads on."""
    kept, before = [], []
    for batch in cache.loader("train", prefetch=1).all_epochs():
        kept.append(KEPT[way](batch["video"]))
        before.append(content(kept[-1]))
        del batch
    assert len(kept) == BATCHES * EPOCHS
    assert [content(each) for each in kept] == before


def test_what_the_loop_keeps_does_not_change_in_later_passes(cache: Cache) -> None:
    """The same over passes: what one has kept is not memory for the next."""
    loader, kept, before = cache.loader("train", prefetch=1), [], []
    for epoch in range(EPOCHS):
        for batch in islice(loader, BATCHES - epoch % 2):  # some are left before their end
            kept.append(batch["video"][3:])
            before.append(content(kept[-1]))
            del batch
    assert [content(each) for each in kept] == before


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many buffers the reading thread has, each time that it takes one."""
    counts: list[int] = []

    class Counting(Buffers):
        def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
            array = super().take(shape)
            counts.append(len(self._owners))
            return array

    monkeypatch.setattr("viewcache.api.training.frameworks.Buffers", Counting)
    return counts


@pytest.mark.parametrize("prefetch", [1, 2])
def test_a_loop_needs_as_many_buffers_as_batches_that_are_under_way(
    cache: Cache, buffers: list[int], prefetch: int
) -> None:
    """One is read into, ``prefetch`` wait, the loop has one: more are never made, however long it runs."""
    for _ in cache.loader("train", prefetch=prefetch).all_epochs():
        continue
    assert len(buffers) == BATCHES * EPOCHS
    assert max(buffers) <= prefetch + 2


def test_a_pass_reads_into_the_memory_of_the_one_before(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory would cost more than the read; after the last pass that is expected none is held."""
    begun = 0

    class Counting(Buffers):
        def __init__(self) -> None:
            nonlocal begun
            begun += 1
            super().__init__()

    monkeypatch.setattr("viewcache.api.training.frameworks.Buffers", Counting)
    loader = cache.loader("train", epochs=EPOCHS)
    places = []
    for _ in range(EPOCHS):
        for batch in loader:
            places.append(batch["video"].data_ptr())
            del batch
    assert begun == 1
    assert set(places[BATCHES:]) & set(places[:BATCHES])
    with pytest.warns(RepeatedEpochs):
        next(iter(loader))
    assert begun == 2


def owner_of(array: NDArray[Any]) -> NDArray[Any]:
    """The memory that an array lies in."""
    while array.base is not None:
        array = array.base
    return array


def test_a_pass_whose_batches_were_all_held_leaves_few(cache: Cache) -> None:
    """Whoever collects an epoch has that much memory again when it is let go of."""
    loader = cache.loader("train", prefetch=1, framework="numpy")
    held = [batch["video"] for epoch in range(3) for batch in loader]
    owners = [weakref.ref(owner_of(array)) for array in held]
    assert len(owners) == 3 * BATCHES
    for _ in loader:
        continue
    del held
    gc.collect()
    assert sum(owner() is not None for owner in owners) <= 3


@pytest.mark.parametrize("when", ["behind a pass", "in the middle of one"])
def test_a_closed_cache_leaves_no_memory_in_its_loaders(own: Callable[..., Cache], when: str) -> None:
    """A training that is stopped early keeps no batch for a pass that cannot come."""
    cache = own()
    loader, owners = cache.loader("train", framework="numpy"), []
    batches = iter(loader)
    for batch in batches if when == "behind a pass" else islice(batches, 1):
        owners.append(weakref.ref(owner_of(batch["video"])))
        del batch
    cache.close()
    del batches
    gc.collect()
    assert owners
    assert not any(owner() is not None for owner in owners)
    assert loader.epochs == EPOCHS  # it is still here


def test_the_loop_may_write_into_its_batch(cache: Cache, truth: list[Tensors]) -> None:
    """In-place operations on a batch spoil neither the next one nor the store."""
    loader = cache.loader("train")
    for batch, expected in zip(loader.all_epochs(), truth, strict=True):
        assert torch.equal(batch["video"], expected["video"])
        batch["video"].fill_(255)
    assert equal(cache.loader("train").all_epochs(), truth)


def test_a_dataloader_without_workers_hands_batches_on(cache: Cache, truth: list[Tensors]) -> None:
    """``DataLoader(loader, batch_size=None)`` works where a framework insists on one: each pass is the next epoch."""
    loader: Any = cache.loader("train", epochs=2)
    assert isinstance(loader, IterableDataset)
    wrapped = DataLoader(loader, batch_size=None, num_workers=0)
    assert len(wrapped) == BATCHES
    for epoch in range(2):
        assert equal(wrapped, truth[epoch * BATCHES : (epoch + 1) * BATCHES])
    again: Any = cache.loader("train", epochs=2)
    wrapped = DataLoader(again, batch_size=None)
    assert equal(islice(wrapped, 1), truth[:1])
    assert equal(wrapped, truth[BATCHES : 2 * BATCHES]), "a pass that was left is over"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_of_a_dataloader_says_what_to_do(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """With workers that fork the error comes with the first batch and names the cure; nothing hangs."""
    # PyTorch waits this long, 5 s, for a worker that failed.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1, raising=False)
    loader: Any = cache.loader("train")
    loop = iter(DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60))
    with pytest.raises(WrongProcess, match=r"worker 0 of a DataLoader with num_workers=1: iterate over the loader"):
        next(loop)
    del loop
    gc.collect()  # the worker ends now, and not in a test that comes later


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_loader_is_not_sent_to_another_process(cache: Cache, send: Callable[[Loader], object]) -> None:
    """What spawning a worker would pickle is refused with the cure, not with torch's or a lock's own complaint."""
    with pytest.raises(WrongProcess, match="open the cache there; a DataLoader around it needs num_workers=0"):
        send(cache.loader("train"))


def in_a_fork(act: Callable[[], object]) -> str:
    """What an action comes to in a forked child: its error, or its result; a hang is ended after 30 s."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            told = repr(act())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child hung or died"
    return told


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
def test_a_forked_child_is_told_so(cache: Cache, truth: list[Tensors], begun: bool) -> None:
    """A loop that starts, goes on, or is dropped in a forked child neither hangs nor reads; the parent's goes on."""
    loader = cache.loader("train", epochs=1)
    loop = cast("Generator[Tensors, None, None]", iter(loader))
    read = [next(loop)] if begun else []
    assert in_a_fork(lambda: next(loop)).startswith("WrongProcess: the cache was opened by process ")
    assert in_a_fork(loop.close) == "None"
    assert in_a_fork(lambda: next(iter(loader))).startswith("WrongProcess: ")
    assert in_a_fork(lambda: cache.loader("train")).startswith("WrongProcess: ")
    assert equal([*read, *loop], truth[:BATCHES])


def test_a_short_batch_before_a_full_one() -> None:
    """Memory of a smaller batch serves no larger one, by however few bytes they differ."""
    buffers = Buffers()
    for size in range(8000, 8200, 10):
        assert buffers.take((size,)).shape == (size,)
