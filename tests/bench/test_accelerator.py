"""The benchmark of trainings on an accelerator runs whole, here on the CPU and with a network of our own."""

import json
from pathlib import Path

from benchmarks import accelerator
from benchmarks.harness import main
from benchmarks.image_rivals import PILLOW
from tests.clips import encode


def test_runs_whole(tmp_path: Path) -> None:
    """Every system that can be installed here has its row; the others are told of."""
    videos, out = tmp_path / "videos", tmp_path / "out.json"
    videos.mkdir()
    for name in "ab":
        encode(videos / f"{name}.mp4", frames=40)
    sizes = ["--images", "24", "--clips", "16", "--epochs", "2", "--repeats", "1", "--workers", "1", "--quick"]
    where = ["--videos", str(videos), "--dir", str(tmp_path), "--json", str(out)]
    main(
        accelerator.__doc__,
        accelerator.bench,
        accelerator.arguments,
        [*sizes, *where, "--device", "cpu", "--networks", "small"],
    )
    results = json.loads(out.read_text())["results"]
    images, clips = (each for each in results if each["kind"] == "table")
    assert {*images["rows"]} >= {PILLOW, *accelerator.MINE}
    assert {*clips["rows"]} == {accelerator.ON_DEMAND, *accelerator.MINE}
    assert all("torchvision" in each["text"] for each in results if each["kind"] == "note")


def test_without_an_accelerator_that_is_said(tmp_path: Path) -> None:
    """Nothing is measured on another device than was asked for."""
    out = tmp_path / "out.json"
    main(accelerator.__doc__, accelerator.bench, accelerator.arguments, ["--device", "cuda:99", "--json", str(out)])
    (note,) = json.loads(out.read_text())["results"]
    assert "cuda:99" in note["text"]
