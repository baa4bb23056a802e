"""Train a small 3D network on views: `python examples/train_torch.py examples/slowfast.yaml`.

Stop it with Ctrl-C and start it again: it goes on at the batch where it was. Needs PyTorch, and videos where the YAML
file says.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import viewcache


def main(config: str) -> None:
    """Two epochs of a classifier over whatever labels the dataset has."""
    checkpoint = Path("checkpoint.pt")
    with viewcache.open(config) as cache:
        task = cache.tasks[0]
        loader = cache.loader(task, layout="CTHW", epochs=min(2, cache.task(task).epochs))
        classes = max(2, len(cache.classes(task)))
        model = nn.Sequential(
            nn.Conv3d(3, 16, kernel_size=(3, 7, 7), stride=(2, 4, 4)),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True)
            model.load_state_dict(state["model"])
            loader.load_state_dict(state["loader"])
        done = loader.state_dict()  # a batch that is handed out counts as read; ours counts when it was learned from
        try:
            for batch in loader.all_epochs():
                video = batch["video"].float() / 255
                label = batch["label"]  # -1 where a clip has none: it adds nothing to the sum
                loss = nn.functional.cross_entropy(model(video), label, ignore_index=-1, reduction="sum") / len(label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done = loader.state_dict()
                print(f"{done}: loss {loss.item():.3f}")
        except KeyboardInterrupt:
            torch.save({"model": model.state_dict(), "loader": done}, checkpoint)
            print(f"stopped; {checkpoint} has the state")
        else:
            checkpoint.unlink(missing_ok=True)  # all is learned: the next run is a new one


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
