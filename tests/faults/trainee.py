"""A training loop that writes down each step until it is killed, and goes on where its last line says.

Run as `python -m tests.faults.trainee STORE VIDEOS EPOCHS WORLD PREFETCH STATE` in the root of the repository; STATE is
what the loader's state was, as JSON, or ``null``. A line is JSON, ``[digest, state]``: what all ranks got in a step,
and where they were after it, written at once.
"""

import json
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import viewcache
from tests.faults.caches import config

__all__ = ["command", "train"]


def command(store: Path, videos: Path, epochs: int, world: int, prefetch: int, state: object) -> list[str]:
    """How to start it."""
    numbers = [str(each) for each in (epochs, world, prefetch)]
    return [sys.executable, "-m", "tests.faults.trainee", str(store), str(videos), *numbers, json.dumps(state)]


def train(store: Path, videos: Path, epochs: int, world: int, prefetch: int, state: object) -> Iterator[list[Any]]:
    """All steps from a state on: ``[digest, state]``."""
    with viewcache.open(config(store, videos, epochs=epochs)) as cache:
        ranks = [cache.loader("t", rank=rank, world=world, prefetch=prefetch) for rank in range(world)]
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
        for shares in zip(*(loader.all_epochs() for loader in ranks), strict=True):
            digest = blake2b(digest_size=16)
            for name in ("video", "label", "index", "frame", "time_s"):
                for share in shares:
                    digest.update(share[name].numpy().tobytes())
            states = [loader.state_dict() for loader in ranks]
            assert states == states[:1] * world
            yield [digest.hexdigest(), states[0]]


def main() -> None:
    """Train."""
    epochs, world, prefetch = (int(each) for each in sys.argv[3:6])
    for step in train(Path(sys.argv[1]), Path(sys.argv[2]), epochs, world, prefetch, json.loads(sys.argv[6])):
        os.write(1, (json.dumps(step) + "\n").encode())


if __name__ == "__main__":
    main()
