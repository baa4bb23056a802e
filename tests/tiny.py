"""Small caches of small videos: what the tests of laws, plans and loader have in common.

Clips are 64x48 pixels and encoded once per test session, so that a cache opens in a second and reads in milliseconds.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import viewcache
from tests.clips import encode
from viewcache.api.session import Cache
from viewcache.materializer.batch import Batch

__all__ = ["AUGMENTATION", "FRAMES", "SIZE", "config", "folder_of", "opened", "read_all", "single", "sql", "whole"]

SIZE = (64, 48)
"""Width and height of the videos in pixels."""

FRAMES = 40
"""Of each video, unless a test says otherwise."""


def single(*operations: object, name: str = "augment", into: str = "a", out_of: str = "frame") -> dict[str, object]:
    """One step with operations in a row."""
    return {"name": name, "branch_type": "single", "inputs": [out_of], "outputs": [into], "config": list(operations)}


AUGMENTATION = [single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [32, 32]}}, {"flip": {"flip_prob": 0.5}})]
"""Resize, crop at random, flip at random: 32x32."""


def folder_of(folder: Path, frames: Mapping[str, int]) -> Path:
    """Encode videos: relative path → number of frames. Equal names and lengths give equal bytes."""
    for name, count in frames.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        encode(path, frames=count, size=SIZE, gop=8, options={"bf": "2", "preset": "ultrafast"})
    return folder


def config(
    store: Path,
    videos: Path,
    *,
    cache: Mapping[str, object] | None = None,
    sampling: Mapping[str, object] | None = None,
    **dataset: object,
) -> dict[str, object]:
    """A configuration of one task ``train``: 2 videos a batch, 4 frames with stride 2, 2 samples, 3 epochs, k = 2."""
    return {
        "cache": {
            "store": str(store),
            "budget": "50MB",
            "workers": 1,
            "epochs_per_generation": 2,
            "seed": 7,
            **(cache or {}),
        },
        "dataset": {
            "tag": "train",
            "video_dataset_path": str(videos),
            "epochs": 3,
            "sampling": {
                "videos_per_batch": 2,
                "frames_per_video": 4,
                "frame_stride": 2,
                "samples_per_video": 2,
                **(sampling or {}),
            },
            "augmentation": AUGMENTATION,
            **dataset,
        },
    }
