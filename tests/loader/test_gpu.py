"""Batches on a GPU: the same as on the CPU, sent ahead, and never overwritten under the loop's kernels.

Skipped where there is none, as in CI; docs/benchmarks.md says on which one they ran.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.loader.small import EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.frameworks import LAYOUTS
from viewcache.errors import BadInput
from viewcache.materializer.reading.batch import Buffers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LONG = 200_000_000
"""Cycles that a kernel does nothing: some 0.1 s, in which a dozen of these batches are read."""


def keep_busy() -> None:
    """Start a kernel on the current stream that takes so long."""
    torch.cuda._sleep(LONG)  # type: ignore[no-untyped-call]


def on_cpu(batches: Iterator[Tensors]) -> Iterator[Tensors]:
    """The same, copied back."""
    for batch in batches:
        for name, each in batch.items():
            assert isinstance(each, int) or each.device.type == "cuda", name
        yield {name: each if isinstance(each, int) else each.cpu() for name, each in batch.items()}


@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_are_those_of_the_cpu(cache: Cache, truth: list[Tensors], *, pin_memory: bool) -> None:
    """Over all epochs, every tensor of every batch, whether pinned memory is asked for or not."""
    loader = cache.loader("train", device="cuda", pin_memory=pin_memory)
    assert equal(on_cpu(loader.all_epochs()), truth)


@pytest.mark.parametrize("task", ["val", "floats", "stacked"])
def test_so_are_those_of_other_tasks(cache: Cache, task: str) -> None:
    """What operations make at reading, several views, and other layouts: bit for bit, since the CPU makes them."""
    assert equal(on_cpu(cache.loader(task, device="cuda").all_epochs()), [*cache.loader(task).all_epochs()])


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if "T" in each])
def test_other_layouts_are_views_there_too(cache: Cache, layout: str) -> None:
    """Axes are put in order by strides."""
    video = next(iter(cache.loader("train", device="cuda", layout=layout)))["video"]
    assert video.permute(0, *(1 + layout.index(axis) for axis in "TCHW")).is_contiguous()


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.uint8]]:
    """The arrays that pixels were read into."""
    taken: list[NDArray[np.uint8]] = []

    class Noting(Buffers):
        def __init__(self, allocate: Callable[[int], NDArray[np.uint8]]) -> None:
            def noting(size: int) -> NDArray[np.uint8]:
                taken.append(allocate(size))
                return taken[-1]

            super().__init__(noting)

    monkeypatch.setattr("viewcache.api.training.frameworks.Buffers", Noting)
    return taken


def test_clips_are_read_into_pinned_memory(cache: Cache, owners: list[NDArray[np.uint8]]) -> None:
    """The device takes them from where they were read, so that no thread copies them first."""
    assert len([*cache.loader("train", device="cuda").all_epochs()]) > EPOCHS
    assert owners
    assert all(torch.from_numpy(owner).is_pinned() for owner in owners)


@pytest.mark.parametrize("own_stream", [False, True])
def test_a_batch_stays_until_the_kernels_that_read_it_ran(
    cache: Cache, truth: list[Tensors], *, own_stream: bool
) -> None:
    """The loop lets go of a batch while the device is busy, and the next ones come: what it has yet to read is there.

    On the stream that is current where a batch is handed out, whichever that is.
    """
    stream = torch.cuda.Stream() if own_stream else torch.cuda.default_stream()  # type: ignore[no-untyped-call]
    copies: list[Tensors] = []
    with torch.cuda.stream(stream):
        for batch in cache.loader("train", device="cuda").all_epochs():
            keep_busy()
            copies.append({name: each if isinstance(each, int) else each.clone() for name, each in batch.items()})
            del batch
    stream.synchronize()
    assert equal(on_cpu(iter(copies)), truth)


def test_sending_does_not_wait_for_the_loop(cache: Cache) -> None:
    """A batch is on the device while kernels that were started before it was read still run."""
    batches = cache.loader("train", device="cuda").all_epochs()
    next(batches)
    for _ in range(20):
        keep_busy()
    busy = torch.cuda.default_stream().record_event()
    for _ in range(4):
        next(batches)
    assert not busy.query(), "batches came while the device was busy for two seconds"
    torch.cuda.synchronize()


def test_a_loop_that_ends_early_leaves_the_device_usable(cache: Cache, truth: list[Tensors]) -> None:
    """Ten loops that stop after their first batch; the eleventh reads all."""
    for _ in range(10):
        assert equal(on_cpu(iter([next(iter(cache.loader("train", device="cuda")))])), truth[:1])
    assert equal(on_cpu(cache.loader("train", device="cuda").all_epochs()), truth)


def test_pinned_batches_stay_on_the_cpu(cache: Cache, truth: list[Tensors]) -> None:
    """``pin_memory`` without a device, for a loop that sends batches itself."""
    batches = [*cache.loader("train", pin_memory=True, epochs=1)]
    tensors: list[Any] = [each for batch in batches for each in batch.values() if not isinstance(each, int)]
    assert all(each.is_pinned() for each in tensors)
    assert equal(batches, truth[: len(batches)])


def test_a_device_that_is_full_is_said_in_the_loop(cache: Cache) -> None:
    """The error of the reading thread is raised in the training loop, and the next loader works."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            next(iter(cache.loader("train", device="cuda")))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert next(iter(cache.loader("train", device="cuda")))["video"].is_cuda


def test_a_device_that_is_not_there(cache: Cache) -> None:
    """Refused when the loader is made."""
    with pytest.raises(BadInput, match="device 'cuda:99' is none that this PyTorch can use"):
        cache.loader("train", device="cuda:99")
