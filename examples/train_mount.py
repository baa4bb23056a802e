"""Train through a mount, in eight lines of plain Python for the data, of which none imports viewcache.

First `viewcache mount examples/slowfast.yaml DIR`, with videos where the YAML file says; then, with PyTorch,
`python examples/train_mount.py DIR train`.
"""

import json
import os
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn


def batches(folder: str, task: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The first epoch of a task, as a program that has never heard of viewcache would read it."""
    training = os.open(f"{folder}/{task}", os.O_RDONLY)
    for iteration in range(int(os.getxattr(training, "user.viewcache.iterations"))):
        with open(f"{folder}/{task}/0/{iteration}/view", "rb") as view:
            labels = json.loads(os.getxattr(view.fileno(), "user.viewcache.label"))
            yield torch.from_numpy(np.load(view)).transpose(1, 2), torch.tensor(labels)
    os.close(training)


def main(folder: str, task: str) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (video, label) in enumerate(batches(folder, task)):
        loss = nn.functional.cross_entropy(model(video.float() / 255), label.clamp(min=0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"batch {number}: {tuple(video.shape)}, loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
