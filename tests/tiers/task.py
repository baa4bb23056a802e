"""The task of the tests of tiers: few clips, each a few pages long."""

from typing import Any

__all__ = ["EPOCHS", "TASK"]

EPOCHS = 4

TASK: dict[str, Any] = {"frames_per_video": 16, "frame_stride": 1, "epochs": EPOCHS}
"""Overrides of `tests.faults.caches.config`."""
