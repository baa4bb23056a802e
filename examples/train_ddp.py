"""Train on two ranks: `torchrun --standalone --nproc-per-node 2 examples/train_ddp.py examples/slowfast.yaml`.

All ranks share one store, one plan and one order; each reads its share of every batch. Needs PyTorch, and videos where
the YAML file says.
"""

import sys

import torch
from torch import distributed, nn

import viewcache


def main(config: str) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    distributed.init_process_group("gloo")
    with viewcache.open(config) as cache:
        loader = cache.loader(cache.tasks[0], layout="CTHW", epochs=1)
        model = nn.parallel.DistributedDataParallel(
            nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for number, batch in enumerate(loader):
            scores = model(batch["video"].float() / 255)
            loss = nn.functional.cross_entropy(scores, batch["label"].clamp(min=0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"rank {loader.rank} of {loader.world}, batch {number}: videos {batch['index'].tolist()}", flush=True)
    distributed.barrier()  # who ends while another still talks to it may take it down
    distributed.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
