"""Train through a mount, in eight lines of plain Python for the data, of which none imports viewcache.

First `viewcache mount examples/slowfast.yaml DIR`, with videos where the YAML file says; then, with PyTorch,
`python examples/train_mount.py DIR slowfast`.
"""

import json
import os
import sys

import numpy as np
import torch
from torch import nn


def main(folder: str, task: str) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    classes = len(json.loads(os.getxattr(f"{folder}/{task}", "user.viewcache.classes"))) or 1
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, classes)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(video: torch.Tensor, label: torch.Tensor) -> float:
        loss = nn.functional.cross_entropy(model(video.float() / 255), label.clamp(min=0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    training = os.open(f"{folder}/{task}", os.O_RDONLY)
    for iteration in range(int(os.getxattr(training, "user.viewcache.iterations"))):
        with open(f"{folder}/{task}/0/{iteration}/view", "rb") as view:
            clips = torch.from_numpy(np.load(view)).transpose(1, 2)
            label = torch.tensor(json.loads(os.getxattr(view.fileno(), "user.viewcache.label")))
        loss = step(clips, label)
        print(f"batch {iteration}: {tuple(clips.shape)}, loss {loss:.3f}", flush=True)
    os.close(training)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
