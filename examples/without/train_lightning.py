"""Train with PyTorch Lightning: `python examples/without/train_lightning.py VIDEOS`."""

import sys
from typing import Any

import pytorch_lightning
import torch
from clips import Clips, in_one
from torch import nn
from torch.utils.data import DataLoader

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
        return nn.functional.cross_entropy(self.model(batch["video"]), batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(folder: str, videos_per_batch: int = 8, **sampling: Any) -> None:
    """Two epochs on the CPU."""
    trainer = pytorch_lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    clips = Clips(folder, **sampling)
    loader = DataLoader(clips, videos_per_batch, shuffle=True, collate_fn=in_one, num_workers=2)
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main(sys.argv[1])
