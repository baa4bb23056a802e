"""DataLoader workers and ranks over one service: the order of one loop, whatever reads it."""

import pickle
import warnings
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import viewcache
from tests.service.served import Opener, batch_digest, described, digest, ended, start, told
from viewcache.api.service.attached import AttachedCache
from viewcache.api.training.loader import Loader
from viewcache.errors import Misuse, WrongProcess

EPOCHS, BATCHES = 3, 5

SLOWLY = """
with viewcache.open(given, job=sys.argv[2]) as cache:
    seat = cache.task("train").sit()
    for number in range(15):
        seat.read(*divmod(number, 5))
        if not number:
            print(0, flush=True)
            sys.stdin.readline()
    print(number + 1)
"""

KILLED_WORKER = """
import multiprocessing, os, signal
from torch.utils.data import DataLoader
from tests.service.served import batch_digest
with viewcache.open(given) as cache:
    def wrapped():
        return iter(DataLoader(cache.loader("train"), batch_size=None, num_workers=2))
    batches = wrapped()
    next(batches)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        for batch in batches:
            pass
        error = "none"
    except Exception as met:
        error = type(met).__name__
    del batches
    print(json.dumps([error, *map(batch_digest, wrapped())]))
"""


def pixels(cache: AttachedCache) -> list[torch.Tensor]:
    """All batches by one loop of this process."""
    return [batch["video"].clone() for batch in cache.loader("train").all_epochs()]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether two runs read the same."""
    return len(some) == len(others) and all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def wrapped(
    loader: "Loader | IterableDataset[Any]",
    workers: int = 2,
    context: str = "fork",
    *,
    persistent_workers: bool = False,
) -> "DataLoader[dict[str, Any]]":
    """A DataLoader around a loader."""
    dataset: Any = loader  # it is registered as an IterableDataset
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
        timeout=120,
        persistent_workers=persistent_workers,
    )


def places(batches: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """Epoch and iteration of each batch of a pass."""
    return [(batch["epoch"], batch["iteration"]) for batch in batches]


def of(epoch: int) -> list[tuple[int, int]]:
    """Those of one epoch."""
    return [(epoch, iteration) for iteration in range(BATCHES)]


def state_of(loader: Loader, epoch: int, iteration: int) -> dict[str, Any]:
    """A state of a place, made without asking how far its workers are."""
    return {"task": loader.task, "seed": 7, "videos_per_batch": 2, "epoch": epoch, "iteration": iteration}


@pytest.mark.parametrize(
    ("context", "workers"),
    [("fork", 2), ("spawn", 1), ("forkserver", 2), pytest.param("fork", 4, marks=pytest.mark.long)],
)
def test_workers_hand_out_the_order_of_one_loop(attach: Opener, context: str, workers: int) -> None:
    """Under any start method: worker k of n reads every n-th batch, and torch's turns restore the order."""
    cache = attach()
    truth = pixels(cache)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork in a process that has threads
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)  # where there are fewer cores
        batches = wrapped(cache.loader("train"), workers, context)
        for epoch in range(EPOCHS):
            of_one = truth[epoch * BATCHES : (epoch + 1) * BATCHES]
            assert equal([batch["video"].clone() for batch in batches], of_one), f"epoch {epoch}"


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_with_workers(attach: Opener, rank: int) -> None:
    """A rank's share of each batch, by two workers; a loop that goes on from a state begins there."""
    cache = attach()
    truth = [digest(cache.read("train", epoch, i, rank, 2)) for epoch in range(EPOCHS) for i in range(BATCHES)]
    loader = cache.loader("train", rank=rank, world=2)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "iteration": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        batches = wrapped(loader)
        read = [*batches, *batches]
    shares = [cache.read("train", *divmod(number, BATCHES), rank, 2) for number in range(7, 15)]
    assert [batch["index"].tolist() for batch in read] == [share.index.tolist() for share in shares]
    assert len(truth) == EPOCHS * BATCHES


def test_a_worker_that_is_killed_takes_nothing_with_it(attach: Opener, store: Path, videos: Path) -> None:
    """Its DataLoader gets torch's own error; another process reads on, and so does the next loop of the same one.

    What torch raises hangs on where it sees the death first: at the queue, or at the socket of a batch that lay there.
    Its handler of SIGCHLD is taken off: that raises wherever the main thread is, be it where torch ends its workers.
    """
    truth = [batch_digest(batch) for batch in attach().loader("train", epochs=1)]
    given = described(store, videos)
    other = start(SLOWLY, given, "other")
    assert told(other) == 0
    error, *read = cast("list[str]", ended(start(KILLED_WORKER, given)))
    assert error in ("RuntimeError", "EOFError", "ConnectionResetError", "ConnectionRefusedError", "FileNotFoundError")
    assert read == truth
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()
    assert ended(other) == EPOCHS * BATCHES


def test_a_state_that_nobody_knows_is_refused(attach: Opener) -> None:
    """While workers read, their loader does not know what was handed out: no state is better than a wrong one."""
    cache = attach()
    loader = cache.loader("train")
    assert loader.state_dict()["epoch"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loop = iter(wrapped(loader))
        next(loop)
    with pytest.raises(Misuse, match="read by the workers of a DataLoader"):
        loader.state_dict()
    del loop
    assert len(list(cache.loader("train", epochs=1))) == BATCHES
    assert loader.state_dict()["epoch"] == 0, "one process reads it now"


def test_a_loader_travels(attach: Opener) -> None:
    """Pickled with its place; an owner's is refused."""
    cache = attach()
    loader = cache.loader("train", epochs=2)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "iteration": 3})
    again = pickle.loads(pickle.dumps(loader))
    assert again.state_dict() == loader.state_dict()
    assert [batch["index"].tolist() for batch in again] == [batch["index"].tolist() for batch in loader]


def test_an_owners_loader_does_not(tmp_path: Path, videos: Path) -> None:
    """Its process owns the store; the message says how others can read."""
    given = described(tmp_path / "own", videos)
    with viewcache.open(given, service="off") as owner, pytest.raises(WrongProcess, match="let a service own it"):
        pickle.dumps(owner.loader("train"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("context", "persistent"),
    [("fork", False), ("fork", True), ("spawn", True), pytest.param("spawn", False, marks=pytest.mark.long)],
)
def test_each_pass_of_a_dataloader_is_the_next_epoch(attach: Opener, context: str, persistent: bool) -> None:
    """Whether torch starts its workers for each pass or keeps them; left passes, ``set_epoch`` and states count."""
    loader = attach().loader("train")
    batches = wrapped(loader, context=context, persistent_workers=persistent)
    assert places(batches) == of(0)
    for batch in batches:
        assert (batch["epoch"], batch["iteration"]) == (1, 0)
        break  # a pass that was left is over
    assert places(batches) == of(2)
    loader.set_epoch(0)
    assert places(batches) == of(0)
    assert places(batches) == of(1)
    loader.load_state_dict(state_of(loader, 1, 3))
    assert places(batches) == of(1)[3:]
    assert places(batches) == of(2)
    loader.set_epoch(1)
    assert places(loader) == of(1), "without workers"
    assert places(batches) == of(2)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_passes_by_workers_and_without_them_are_one_count(attach: Opener) -> None:
    """A loop of the training process goes on behind what workers read, and they behind it."""
    loader = attach().loader("train")
    assert places(wrapped(loader)) == of(0)
    assert places(loader) == of(1)
    assert places(wrapped(loader, workers=1)) == of(2)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_validation_loader_with_workers(attach: Opener) -> None:
    """One epoch comes again in each pass, also where torch draws the same seed for its workers each time."""
    batches = wrapped(attach().loader("train", epochs=1), persistent_workers=True)
    again = wrapped(attach().loader("train"))
    for epoch in range(2):
        assert places(batches) == of(0)
        torch.manual_seed(0)
        assert places(again) == of(epoch)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, False), (2, True)])
@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
def test_a_stateful_dataloader_goes_on(attach: Opener, workers: int, persistent: bool) -> None:
    """The one of torchdata keeps its workers' states: a new one goes on behind the batch at which a state was taken."""
    cache = attach()

    def stateful() -> Any:
        return StatefulDataLoader(
            cache.loader("train"),
            batch_size=None,
            num_workers=workers,
            persistent_workers=persistent,
            multiprocessing_context="fork" if workers else None,
        )

    whole = [place for epoch in range(EPOCHS) for place in of(epoch)]
    for read in (0, 3, BATCHES - 1, BATCHES, BATCHES + 2):
        before, found = stateful(), list[tuple[int, int]]()
        while len(found) < read:
            found += places(islice(before, read - len(found)))
        state = before.state_dict()
        del before  # its workers end
        after = stateful()
        after.load_state_dict(state)
        while len(found) < len(whole):
            found += places(after)
        del after
        assert found == whole, f"a state after {read} batches"
