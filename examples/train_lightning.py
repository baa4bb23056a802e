"""Train with PyTorch Lightning: `python examples/train_lightning.py examples/slowfast.yaml`.

Lightning takes a loader as it is: each of its epochs is one of the task. Needs PyTorch, Lightning
(extra `lightning`), and videos where the YAML file says.
"""

import sys
from typing import Any

import pytorch_lightning
import torch
from torch import nn

import viewcache

EPOCHS = 2


class Classifier(pytorch_lightning.LightningModule):
    """A small 3D network over whatever labels the dataset has."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10)
        )

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        """The loss of one batch."""
        print(f"epoch {self.current_epoch}, batch {number}: videos {batch['index'].tolist()}", flush=True)
        return nn.functional.cross_entropy(self.model(batch["video"].float()), batch["label"].clamp(min=0))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(config: str) -> None:
    """Two epochs on the CPU."""
    trainer = pytorch_lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    with viewcache.open(config) as cache:
        trainer.fit(Classifier(), cache.loader(cache.tasks[0], layout="CTHW", epochs=EPOCHS))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
