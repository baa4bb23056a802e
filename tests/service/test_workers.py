"""DataLoader workers and ranks over one service: the order of one loop, whatever reads it."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import viewcache
from tests.service.served import Opener, described, digest
from viewcache.api.service.attached import AttachedCache
from viewcache.api.training.loader import Loader
from viewcache.errors import Misuse, WrongProcess

EPOCHS, BATCHES = 3, 5


def pixels(cache: AttachedCache) -> list[torch.Tensor]:
    """All batches by one loop of this process."""
    return [batch["video"].clone() for batch in cache.loader("train")]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether two runs read the same."""
    return len(some) == len(others) and all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def wrapped(loader: Loader, workers: int = 2, context: str = "fork") -> "DataLoader[dict[str, torch.Tensor]]":
    """A DataLoader around a loader."""
    dataset: Any = loader  # it is registered as an IterableDataset
    return DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context, timeout=120)


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
        assert equal([batch["video"].clone() for batch in wrapped(cache.loader("train"), workers, context)], truth)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_with_workers(attach: Opener, rank: int) -> None:
    """A rank's share of each batch, by two workers; a loop that goes on from a state begins there."""
    cache = attach()
    truth = [digest(cache.read("train", epoch, i, rank, 2)) for epoch in range(EPOCHS) for i in range(BATCHES)]
    loader = cache.loader("train", rank=rank, world=2)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "iteration": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        read = list(wrapped(loader))
    shares = [cache.read("train", *divmod(number, BATCHES), rank, 2) for number in range(7, 15)]
    assert [batch["index"].tolist() for batch in read] == [share.index.tolist() for share in shares]
    assert len(truth) == EPOCHS * BATCHES


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
