"""Train on two ranks: `torchrun --standalone --nproc-per-node 2 examples/without/train_ddp.py VIDEOS`."""

import sys
from typing import Any

import torch
from clips import Clips, in_one
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler


def main(folder: str, videos_per_batch: int = 8, **sampling: Any) -> None:
    """One epoch of a classifier over whatever labels the dataset has."""
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    clips = Clips(folder, **sampling)
    shares = DistributedSampler(clips)
    loader = DataLoader(clips, videos_per_batch // world, sampler=shares, collate_fn=in_one, num_workers=2)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(model(batch["video"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} of {world}, batch {number}: videos {batch['index'].tolist()}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
