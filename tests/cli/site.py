"""A small cache for the tests of the command line: a few encoded clips and the configuration beside them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.clips import encode
from viewcache.api.cli.main import main

__all__ = ["CONFIG", "Site", "make_site"]

CONFIG = """\
cache:
  store: ./cache
  budget: 64MB
  epochs_per_generation: 2
  workers: 1
dataset:
  tag: train
  input_source: file
  video_dataset_path: ./videos
  epochs: 2
  sampling: {videos_per_batch: 2, frames_per_video: 8, frame_stride: 2, samples_per_video: 2}
  augmentation:
  - name: resize
    branch_type: single
    inputs: [frame]
    outputs: [a0]
    config:
    - resize: {short_side: 40}
  - name: crop
    branch_type: single
    inputs: [a0]
    outputs: [a1]
    config:
    - random_crop: {shape: [32, 32]}
    - flip: {flip_prob: 0.5}
"""


class Site:
    """A folder with ``train.yaml`` and its videos."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Work in a folder that `make_site` made."""
        self.folder = folder
        self.config = folder / "train.yaml"
        self.store = folder / "cache"
        self._capsys = capsys
        self.words = ""
        """What the last command said on stderr."""

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command in this process and return its stdout; it must end with ``code``."""
        self._capsys.readouterr()
        ended = main(arguments)
        out, self.words = self._capsys.readouterr()
        assert ended == code, f"{arguments} ended with {ended}: {out}{self.words}"
        return out

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run a command with ``--json`` and return its answer."""
        value = json.loads(self.run(*arguments, "--json", code=code))
        assert isinstance(value, dict)
        return value

    def spawn(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command in a process of its own."""
        return forked.Popen(
            [sys.executable, "-m", "viewcache.api.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={key: value for key, value in os.environ.items() if key != "VIEWCACHE"},
        )

    def edit(self, old: str, new: str) -> None:
        """Change the configuration."""
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))

    def objects(self) -> list[Path]:
        """The stored shards."""
        return sorted(
            path for path in (self.store / "objects").rglob("*") if path.is_file() and path.name != "zarr.json"
        )


def make_site(folder: Path, clips: Path) -> None:
    """Write the configuration and link the clips."""
    (folder / "videos").mkdir()
    for clip in clips.iterdir():
        os.link(clip, folder / "videos" / clip.name)
    (folder / "train.yaml").write_text(CONFIG)


def encode_clips(folder: Path) -> Path:
    """Three clips: two of usual length, and one that is shorter than a clip's span of 15 frames."""
    for name, frames in (("a.mp4", 40), ("b.mp4", 50), ("short.mp4", 12)):
        encode(folder / name, frames=frames, size=(64, 48))
    return folder
