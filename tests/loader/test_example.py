"""examples/train_torch.py trains, can be stopped, and goes on where it was."""

import builtins
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.loader.small import BATCHES, tasks

SCRIPT = Path(__file__).parents[2] / "examples" / "train_torch.py"


def places(lines: list[str]) -> list[str]:
    """The states in the lines that the example prints, one a batch."""
    return [line.partition(": loss ")[0] for line in lines if ": loss " in line]


def test_the_example_stops_and_goes_on(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by Ctrl-C after three batches and started again, two epochs come out as four batches, once each."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump(tasks(tmp_path / "store", videos)[0]))
    monkeypatch.chdir(tmp_path)
    first: list[str] = []

    def stop_after_three(text: object) -> None:
        first.append(str(text))
        if len(first) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(builtins, "print", stop_after_three)
    runpy.run_path(str(SCRIPT))["main"](str(config))
    monkeypatch.undo()
    assert first[-1] == "stopped; checkpoint.pt has the state"
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert set(saved) == {"model", "loader"}

    command = [sys.executable, "-W", "error", str(SCRIPT), str(config)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rest = done.stdout.splitlines()
    assert len(places(first)) == 3
    assert len(places(rest)) == 2 * BATCHES - 3
    expected = [divmod(number + 1, BATCHES) for number in range(2 * BATCHES)]
    told = [f"'epoch': {epoch}, 'iteration': {iteration}}}" for epoch, iteration in expected]
    assert all(line.endswith(end) for line, end in zip(places(first + rest), told, strict=True))
