"""Search a learning rate with Ray Tune and ASHA, in four trials: `python examples/without/tune_ray.py VIDEOS`."""

import os
import sys
from pathlib import Path
from typing import Any

# Before Ray is imported: it listens on 127.0.0.1 only, and reports to nobody.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
from clips import Clips, in_one
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from torch import nn
from torch.utils.data import DataLoader

TRIALS, EPOCHS = 4, 3


def train(trial: dict[str, Any]) -> None:
    """One trial: some epochs of a classifier, unless ASHA stops it before."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=trial["lr"])
    clips = Clips(trial["folder"], **trial["sampling"])
    loader = DataLoader(clips, trial["videos_per_batch"], shuffle=True, collate_fn=in_one, num_workers=2)
    for epoch in range(EPOCHS):
        losses = []
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["video"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        tune.report({"epoch": epoch, "loss": sum(losses) / len(losses)})


def main(folder: str, results: str, videos_per_batch: int = 8, **sampling: Any) -> None:
    """All trials at once, on this machine; what Tune writes goes to the folder ``results``."""
    own = str(Path(__file__).resolve().parent)
    ray.init(
        num_cpus=TRIALS,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        runtime_env={"env_vars": {"PYTHONPATH": own}},  # where the trials find clips.py
    )
    scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2)
    space = {
        "lr": tune.grid_search([0.3, 0.1, 0.03, 0.01]),
        "folder": str(Path(folder).resolve()),
        "videos_per_batch": videos_per_batch,
        "sampling": sampling,
    }
    tuner = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(Path(results).resolve()), verbose=0),
    )
    for trial in tuner.fit():
        assert trial.metrics is not None
        print(f"{trial.metrics['trial_id']}: {trial.metrics['epoch'] + 1} epochs, loss {trial.metrics['loss']:.3f}")
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "tune-results")
