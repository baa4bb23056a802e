"""Train in a plain loop over torch's DataLoader: `python examples/without/train_loop.py VIDEOS`."""

import sys
from typing import Any

import torch
from clips import Clips, in_one
from torch import nn
from torch.utils.data import DataLoader


def main(folder: str, videos_per_batch: int = 8, **sampling: Any) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    clips = Clips(folder, **sampling)
    loader = DataLoader(clips, videos_per_batch, shuffle=True, collate_fn=in_one, num_workers=2)
    for number, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(model(batch["video"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"batch {number}: videos {batch['index'].tolist()}, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
