"""Search a learning rate with Ray Tune and ASHA, in four trials: `python examples/tune_ray.py examples/slowfast.yaml`.

Each trial is a process and a job of its own, with an order of its own; one decode serves all of them. A trial that ASHA
stops leaves, and nothing more is made for it. Needs PyTorch, Ray (extra `ray`), and videos where the YAML file says.
"""

import os
import sys
from pathlib import Path
from typing import Any

# Before Ray is imported: it listens on 127.0.0.1 only, and reports to nobody.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from torch import nn

import viewcache

TRIALS, EPOCHS = 4, 3


def train(trial: dict[str, Any]) -> None:
    """One trial: some epochs of a classifier, unless ASHA stops it before."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=trial["lr"])
    with viewcache.open(trial["config"]) as cache:  # the trial is its job
        loader = cache.loader(cache.tasks[0], layout="CTHW", epochs=EPOCHS)
        for epoch in range(EPOCHS):
            losses = []
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["video"].float()), batch["label"].clamp(min=0))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            tune.report({"epoch": epoch, "loss": sum(losses) / len(losses)})


def main(config: str, results: str) -> None:
    """All trials at once, on this machine; what Tune writes goes to the folder ``results``."""
    ray.init(num_cpus=TRIALS, include_dashboard=False, object_store_memory=80 * 2**20)
    scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2)
    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([0.3, 0.1, 0.03, 0.01]), "config": str(Path(config).resolve())},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(Path(results).resolve()), verbose=0),
    )
    for trial in tuner.fit():
        assert trial.metrics is not None
        print(f"{trial.metrics['trial_id']}: {trial.metrics['epoch'] + 1} epochs, loss {trial.metrics['loss']:.3f}")
    ray.shutdown()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "tune-results")
