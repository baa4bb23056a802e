"""Train from a DataLoader with workers: `python examples/train_workers.py examples/slowfast.yaml`.

The workers share one store and hand out the order of one loop. Needs PyTorch, and videos where the YAML file says.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import viewcache


def main(config: str) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with viewcache.open(config) as cache:
        loader = cache.loader(cache.tasks[0], layout="CTHW", epochs=1)
        for number, batch in enumerate(DataLoader(loader, batch_size=None, num_workers=2)):
            loss = nn.functional.cross_entropy(model(batch["video"].float()), batch["label"].clamp(min=0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"batch {number}: videos {batch['index'].tolist()}, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
