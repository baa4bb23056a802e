"""Training that is killed at any step and started again reads what it would have read.

tests/loader/test_ranks.py resumes in one process, from every step and among other numbers of ranks.
"""

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.faults.trainee import command, train
from tests.faults.victim import EPOCHS
from tests.house.tree import ROOT

Step = list[Any]
"""[digest, state]"""


def killed(store: Path, videos: Path, epochs: int, world: int, prefetch: int, state: object, at: int) -> list[Step]:
    """The lines of a run that is killed when it has said so many; it may have said more."""
    with forked.Popen(
        command(store, videos, epochs, world, prefetch, state), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as trainee:
        assert trainee.stdout is not None
        lines = [trainee.stdout.readline() for _ in range(at)]
        trainee.kill()
        lines += trainee.stdout
        assert trainee.wait() == -signal.SIGKILL, f"it was not killed at {at}"
    return [json.loads(line) for line in lines if line.endswith("\n")]


def assert_killed_runs_make_one(folder: Path, videos: Path, epochs: int, world: int, dice: random.Random) -> int:
    """Kill it again and again, each time a step or more further on: the lines of all runs are those of one.

    Returns:
        How often it was killed.
    """
    whole = [digest for digest, _ in train(folder / "whole", videos, epochs, world, 2, None)]
    lines: list[Step] = []
    kills = 0
    while len(whole) - len(lines) > 2:
        state = lines[-1][1] if lines else None
        lines += killed(folder / "store", videos, epochs, world, dice.randint(1, 4), state, dice.randint(1, 2))
        kills += 1
    lines += train(folder / "store", videos, epochs, world, dice.randint(1, 4), lines[-1][1])
    assert [digest for digest, _ in lines] == whole
    return kills


def test_killed_in_training(tmp_path: Path, empty_store: Path, videos: Path) -> None:
    """Two ranks, killed at a step again and again, resume from the state they saved: no step twice, none left out."""
    for name in ("whole", "store"):
        shutil.copytree(empty_store, tmp_path / name)
    assert assert_killed_runs_make_one(tmp_path, videos, 2, 2, random.Random(0)) >= 1


@pytest.mark.long
def test_killed_in_training_twenty_times(tmp_path: Path, videos: Path) -> None:
    """The same until there were twenty kills, also with one rank."""
    kills = 0
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += assert_killed_runs_make_one(folder, videos, EPOCHS, 1 + seed % 2, random.Random(seed))
        if kills >= 20:
            return
    pytest.fail(f"{kills} kills in 20 trainings")
