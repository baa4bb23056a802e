"""Small videos and configurations for the tests of paths."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clips import encode

__all__ = ["SIZE", "STEPS", "VIDEOS", "config", "encode_videos", "single"]

SIZE = (64, 48)
"""Width and height of the videos in pixels."""

VIDEOS = {"cat.mp4": 40, "dog.mp4": 30, "12.mp4": 20, "pets/a b.mkv": 20}
"""Relative path → frames; their names in paths are cat, dog, 12 and pets.-a.20b."""


def single(*operations: object, name: str, of: str = "frame", into: str) -> dict[str, object]:
    """One step with operations in a row."""
    return {"name": name, "branch_type": "single", "inputs": [of], "outputs": [into], "config": list(operations)}


STEPS: list[dict[str, object]] = [
    single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [32, 32]}}, name="crop", into="a"),
    single({"flip": {"flip_prob": 0.5}}, name="flip", of="a", into="b"),
]
"""Two steps: resize and crop at random, flip at random."""


def encode_videos(folder: Path, frames: Mapping[str, int] = VIDEOS) -> Path:
    """Encode videos: relative path → number of frames."""
    for name, count in frames.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encode(path, frames=count, size=SIZE, gop=8, options={"bf": "2", "preset": "ultrafast"})
    return folder


def config(store: Path, videos: Path, **dataset: object) -> dict[str, Any]:
    """One task ``train``: 2 videos a batch, 2 samples of 4 frames with stride 2, 3 epochs, 2 of them a generation."""
    return {
        "cache": {"store": str(store), "budget": "50MB", "workers": 1, "epochs_per_generation": 2, "seed": 7},
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(videos),
            "epochs": 3,
            "sampling": {"videos_per_batch": 2, "frames_per_video": 4, "frame_stride": 2, "samples_per_video": 2},
            "augmentation": STEPS,
            **dataset,
        },
    }
