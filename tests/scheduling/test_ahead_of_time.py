"""Making epochs ahead comes to an end, also beside readers who keep the workers busy."""

import time
from pathlib import Path

import pytest

from tests.tiny import encode_folder, open_cache
from viewcache.materializer.scheduling.dispatcher import Dispatcher


@pytest.mark.parametrize("iterations", [(0, 2), (0, 1, 2)], ids=str)
def test_it_ends_beside_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iterations: tuple[int, ...]) -> None:
    """What is left is what readers are past, or what the budget does not keep: they need not stop for it to be over."""
    videos = encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(8)})

    def busy(_dispatcher: Dispatcher, seconds: float) -> bool:
        time.sleep(min(seconds, 0.02))
        return False

    with open_cache(tmp_path / "s", videos, cache={"keep": "leaves"}) as cache:
        for iteration in iterations:
            cache.read("train", 0, iteration)
        with monkeypatch.context() as patch:
            patch.setattr(Dispatcher, "wait_idle", busy)
            steps = [counts for _, counts in zip(range(1000), cache.materialize(2), strict=False)]
        assert len(steps) < 1000, "it does not end"
        assert steps[-1]["making"] == 0
        task = cache.task("train").task
        active = task.generation(0)
        read = range((max(iterations) + 1) * active.clips_per_epoch // task.iterations(0))
        left = [row for row in range(len(active.plan)) if not cache.owner.ledger.has(active.key(row))]
        assert set(left) <= set(read), "all that readers are yet to have is there"
