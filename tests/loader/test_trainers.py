"""Trainers that bring their own loop: PyTorch Lightning and accelerate, which the Trainer of transformers uses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from tests.loader.small import BATCHES, EPOCHS, Tensors, equal
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader, RepeatedEpochs

Seen = list[tuple[int, int]]

quietly = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",  # Lightning asks torch in a way that torch has given up
    "ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning",  # its advice, as to log by a logger
)


class Watching(pytorch_lightning.LightningModule):
    """Notes where each batch comes from; stops in the middle of an epoch if it is told to."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.trained: Seen = []
        self.validated: Seen = []
        self._stop_after = stop_after

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        """Note it."""
        self.trained.append((batch["epoch"], batch["iteration"]))
        self.log("loss", 0.0, batch_size=len(batch["label"]))
        loss: torch.Tensor = (self.weight * batch["video"].float().mean()).sum()
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        """Save a checkpoint in the middle of an epoch, and end."""
        if len(self.trained) == self._stop_after:
            self.trainer.save_checkpoint("middle.ckpt")
            self.trainer.should_stop = True

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        """Note it."""
        self.validated.append((batch["epoch"], batch["iteration"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(epochs: int, **options: Any) -> pytorch_lightning.Trainer:
    """A quiet one on the CPU."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pytorch_lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", enable_checkpointing=False, **quiet, **options
    )


def of(*epochs: int) -> Seen:
    """All places of some epochs."""
    return [(epoch, iteration) for epoch in epochs for iteration in range(BATCHES)]


@quietly
def test_lightning_trains_and_validates(cache: Cache) -> None:
    """Each of its epochs is one of the task; the validation loader serves its sanity check and every epoch."""
    module = Watching()
    val = cache.loader("train", epochs=1)
    trainer(3, num_sanity_val_steps=1).fit(module, cache.loader("train"), val)
    assert module.trained == of(0, 1, 2)
    assert module.validated == [(0, 0), *of(0, 0, 0)]


@quietly
def test_lightning_that_leaves_epochs_early(cache: Cache) -> None:
    """With ``limit_train_batches`` each epoch is a new one, as with a DataLoader."""
    module = Watching()
    trainer(3, limit_train_batches=1).fit(module, cache.loader("train"))
    assert module.trained == [(0, 0), (1, 0), (2, 0)]


@quietly
def test_lightning_beyond_the_tasks_epochs(cache: Cache) -> None:
    """More epochs than the task has come again, with one warning; nothing ends a training that runs."""
    module = Watching()
    with pytest.warns(RepeatedEpochs, match="begin again, with epoch 0"):
        trainer(4).fit(module, cache.loader("train", epochs=2))
    assert module.trained == of(0, 1, 0, 1)


@quietly
def test_lightning_resumes_in_the_middle(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint has the loader's state: the new run finishes the epoch, and each batch comes once in all."""
    monkeypatch.chdir(tmp_path)
    before, after = Watching(stop_after=BATCHES + 1), Watching()
    trainer(3, limit_val_batches=0).fit(before, cache.loader("train"))
    assert before.trained == of(0, 1)[: BATCHES + 1]
    trainer(3).fit(after, cache.loader("train"), ckpt_path="middle.ckpt")
    assert before.trained + after.trained == of(0, 1, 2)


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """A new one, on the CPU."""
    yield Accelerator(cpu=True)
    Accelerator().free_memory()


def wrapped(loader: Loader) -> "DataLoader[dict[str, Any]]":
    """A DataLoader around a loader, as accelerate asks for."""
    dataset: Any = loader
    return DataLoader(dataset, batch_size=None)


def test_accelerate_reads_each_epoch(cache: Cache, truth: list[Tensors], accelerator: Accelerator) -> None:
    """``accelerator.prepare(DataLoader(loader, batch_size=None))``: one pass is one epoch, batches are whole."""
    train = accelerator.prepare(wrapped(cache.loader("train")))
    val = accelerator.prepare(wrapped(cache.loader("train", epochs=1)))
    assert len(train) == BATCHES
    for epoch in range(EPOCHS):
        assert equal(train, truth[epoch * BATCHES : (epoch + 1) * BATCHES])
        assert equal(val, truth[:BATCHES])


def test_accelerate_resumes(cache: Cache, truth: list[Tensors], accelerator: Accelerator) -> None:
    """A state is loaded into the loader, and ``set_epoch`` tells accelerate: the epoch is finished, the next follow."""
    loader = cache.loader("train")
    loader.load_state_dict({**loader.state_dict(), "epoch": 2, "iteration": 1})
    prepared = accelerator.prepare(wrapped(loader))
    read: list[Tensors] = []
    for epoch in range(loader.state_dict()["epoch"], EPOCHS):
        prepared.set_epoch(epoch)
        read.extend(prepared)
    assert equal(read, truth[2 * BATCHES + 1 :])
