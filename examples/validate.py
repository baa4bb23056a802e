"""Score videos over all views: `torchrun --standalone --nproc-per-node 2 examples/validate.py examples/test_10x3.yaml`.

Each rank scores its part of each batch, filled up to one shape, and what is filling is not counted. The same script
runs in one process: `python examples/validate.py examples/test_10x3.yaml`. Needs PyTorch, and videos where the YAML
file says.
"""

import sys

import torch
from torch import distributed, nn

import viewcache


def main(config: str) -> None:
    """Top-1 of a classifier that knows nothing yet, the scores of a video averaged over its views."""
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")
    torch.manual_seed(0)
    with viewcache.open(config) as cache:
        task = cache.tasks[0]
        loader = cache.loader(task, layout="CTHW", epochs=1, even=True)
        views, classes = cache.task(task).samples_per_video, len(cache.classes(task))
        model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, classes))
        counts = torch.zeros(2, dtype=torch.int64)
        for batch in loader:
            with torch.no_grad():
                scores = model(batch["video"].float() / 255).softmax(dim=1)
            videos = batch["valid"][::views]
            found = scores.unflatten(0, (-1, views)).mean(dim=1).argmax(dim=1)
            counts += torch.stack([(videos & (found == batch["label"][::views])).sum(), videos.sum()])
            print(
                f"rank {loader.rank} of {loader.world}: videos {batch['index'][::views][videos].tolist()}", flush=True
            )
        if distributed.is_initialized():
            distributed.all_reduce(counts)
        if loader.rank == 0:
            print(f"{counts[0]} of {counts[1]} videos are right", flush=True)
    if distributed.is_initialized():
        distributed.barrier()  # who ends while another still talks to it may take it down
        distributed.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
