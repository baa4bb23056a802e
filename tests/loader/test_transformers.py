"""The Trainer of Hugging Face transformers over loaders, with a tiny model that is made here: nothing is downloaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.loader.small import BATCHES
from viewcache.api.session.cache import Cache
from viewcache.api.training.loader import Loader, RepeatedEpochs

Seen = list[tuple[int, int]]


class Watching(torch.nn.Module):
    """Notes where each batch comes from; scores two classes by brightness."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Linear(1, 2)
        self.trained: Seen = []
        self.evaluated: Seen = []

    def forward(self, video: torch.Tensor, label: torch.Tensor, **rest: Any) -> dict[str, torch.Tensor]:
        """Loss and scores, as transformers want them."""
        (self.trained if self.training else self.evaluated).append((int(rest["epoch"]), int(rest["iteration"])))
        scores = self.scores(video.float().mean(dim=(1, 2, 3, 4))[:, None] / 255)
        return {"loss": torch.nn.functional.cross_entropy(scores, label), "logits": scores}


class VideoTrainer(Trainer):
    """As docs/loader.md has it: a Trainer whose batches are those of loaders."""

    def get_train_dataloader(self) -> Any:
        """Batches as they are, not put together again."""
        return DataLoader(self.train_dataset, batch_size=None)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The same for evaluation."""
        return DataLoader(eval_dataset or self.eval_dataset, batch_size=None)


def trainer(model: Watching, folder: Path, train: Loader, val: Loader | None = None, **options: Any) -> VideoTrainer:
    """A quiet one on the CPU."""
    quiet: dict[str, Any] = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    settings = TrainingArguments(str(folder), remove_unused_columns=False, label_names=["label"], **quiet, **options)
    datasets: Any = {"train_dataset": train, "eval_dataset": val}
    return VideoTrainer(model, settings, **datasets)


def of(*epochs: int) -> Seen:
    """All places of some epochs."""
    return [(epoch, iteration) for epoch in epochs for iteration in range(BATCHES)]


def test_it_trains_and_evaluates(cache: Cache, tmp_path: Path) -> None:
    """Each of its epochs is one of the task, and each evaluation sees the same clips and counts each once."""
    model = Watching()
    done = trainer(
        model, tmp_path, cache.loader("train"), cache.loader("train", epochs=1), num_train_epochs=3,
        eval_strategy="epoch", save_strategy="no",
    )  # fmt: skip
    result = done.train()
    assert result.global_step == 3 * BATCHES
    assert model.trained == of(0, 1, 2)
    assert model.evaluated == of(0, 0, 0)
    assert done.evaluate().keys() >= {"eval_loss"}


class Saving(TrainerCallback):
    """Keeps the loader's state with each checkpoint, as docs/loader.md has it."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Beside the model's."""
        path = Path(args.output_dir, f"checkpoint-{state.global_step}", "loader.json")
        path.write_text(json.dumps(self.loader.state_dict()))


def test_it_resumes(cache: Cache, tmp_path: Path) -> None:
    """With the loader's state and `ignore_data_skip` a training goes on in the middle of an epoch: each batch once."""
    before, after = Watching(), Watching()
    loader = cache.loader("train")
    first = trainer(before, tmp_path, loader, max_steps=BATCHES + 1, save_strategy="steps", save_steps=BATCHES + 1)
    first.add_callback(Saving(loader))
    first.train()
    checkpoint = tmp_path / f"checkpoint-{BATCHES + 1}"
    loader = cache.loader("train")
    loader.load_state_dict(json.loads((checkpoint / "loader.json").read_text()))
    later = trainer(after, tmp_path, loader, num_train_epochs=3, save_strategy="no", ignore_data_skip=True)
    later.train(resume_from_checkpoint=str(checkpoint))
    assert before.trained == of(0, 1)[: BATCHES + 1]
    assert before.trained + after.trained == of(0, 1, 2)


def test_it_begins_again_beyond_the_tasks_epochs(cache: Cache, tmp_path: Path) -> None:
    """More epochs than the task has come again, with one warning; nothing ends a training that runs."""
    model = Watching()
    with pytest.warns(RepeatedEpochs, match="begin again, with epoch 0"):
        trainer(model, tmp_path, cache.loader("train", epochs=2), num_train_epochs=3, save_strategy="no").train()
    assert model.trained == of(0, 1, 0)
