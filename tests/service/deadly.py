"""An operation that ends the process in which it runs, while a file says so: with threads as workers, the service."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.ops import FrameOp

__all__ = ["ARMED", "OPS", "Deadly"]

ARMED = "VIEWCACHE_TEST_ARMED"
"""Variable that names the file; who dies of it leaves a line there."""


class Deadly(FrameOp):
    """Changes nothing."""

    name = "deadly"

    def resolve(self, params: Any, draw: Any, h: NDArray[Any], w: NDArray[Any]) -> Any:
        """Nothing is drawn."""
        return np.zeros((len(draw.sample), 0), np.int32), h, w

    def apply(self, params: Any, row: Any, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Die, or give the frame as it is."""
        path = Path(os.environ[ARMED])
        if path.exists():
            with path.open("a") as file:
                file.write(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return frame


OPS = [Deadly]
