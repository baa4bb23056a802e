"""Small images and configurations for the tests of images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.tiny import AUGMENTATION, make_decoding_dear
from viewcache.materializer.telemetry.observer import Observer
from viewcache.materializer.workers.job import Job
from viewcache.materializer.workers.pool import Event

__all__ = ["SIZES", "config", "jobs_given", "picture", "save", "save_folder"]

SIZES = {"cats/a.png": (64, 48), "cats/b.jpg": (48, 64), "dogs/c.jpg": (70, 41), "dogs/d.webp": (41, 53)}
"""Relative path → width and height in pixels."""


def jobs_given(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that workers say something of from now on; what is kept is decided by rates that noise does not move."""
    jobs: list[Job] = []
    heard = Observer.on_event

    def on_event(self: Observer, event: Event) -> None:
        jobs.append(event.job)
        heard(self, event)

    make_decoding_dear(monkeypatch)
    monkeypatch.setattr(Observer, "on_event", on_event)
    return jobs


def picture(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth colours that tell every pixel's place: uint8 (height, width, 3)."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [0.5 + 0.5 * np.sin(6 * (x * (1 + k) + y * (3 - k)) + seed + k) for k in range(3)]
    return (np.stack(waves, axis=2) * 255).astype(np.uint8)


def save(path: Path, pixels: NDArray[np.uint8], **options: Any) -> Path:
    """Write an image as its suffix says; WebP without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lossless: dict[str, Any] = {"lossless": True} if path.suffix == ".webp" else {}
    Image.fromarray(pixels).save(path, **lossless, **options)
    return path


def save_folder(folder: Path, sizes: Mapping[str, tuple[int, int]] = SIZES) -> Path:
    """Write images that differ: relative path → width and height."""
    for seed, (name, size) in enumerate(sizes.items()):
        save(folder / name, picture(*size, seed))
    return folder


def config(
    store: Path,
    images: Path,
    *,
    cache: Mapping[str, object] | None = None,
    sampling: Mapping[str, object] | None = None,
    **dataset: object,
) -> dict[str, Any]:
    """One task ``train``: 2 images a batch, resized, cropped to 32x32 and flipped; 3 epochs, 2 of them a generation."""
    usual = {"store": str(store), "budget": "50MB", "workers": 1, "epochs_per_generation": 2, "seed": 7}
    return {
        "cache": usual | dict(cache or {}),
        "dataset": {
            "tag": "train",
            "image_dataset_path": str(images),
            "epochs": 3,
            "sampling": {"images_per_batch": 2} | dict(sampling or {}),
            "augmentation": AUGMENTATION,
            **dataset,
        },
    }
