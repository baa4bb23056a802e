"""The benchmark of a remote dataset runs whole and counts what it promises to."""

import json
from pathlib import Path

import pytest

from benchmarks import remote
from benchmarks.harness import main
from tests.clips import encode

ENDS = ("an epoch, most,", "the last epoch,")


@pytest.mark.long
def test_a_video_is_fetched_once_for_all_epochs(tmp_path: Path) -> None:
    """With all epochs planned at once no more is fetched than each video once; on demand it is fetched each time."""
    videos, out = tmp_path / "videos", tmp_path / "out.json"
    videos.mkdir()
    for name in ("a.mp4", "b.mp4"):
        encode(videos / name, frames=80, size=(64, 48), gop=8, options={"preset": "ultrafast"})
    command = ["--quick", "--videos", str(videos), "--dir", str(tmp_path), "--json", str(out)]
    main(remote.__doc__, remote.bench, remote._arguments, command)
    values = {each["title"]: each["value"] for each in json.loads(out.read_text())["results"]}
    assert values["on demand ÷ the dataset's bytes, 2 epochs"] >= 1
    assert 0 < values["viewcache ÷ each video in each epoch, 2 epochs, 2 of them a generation"] <= 1 / 2
    most, last = (values[f"disk at the end of {when} 2 epochs, 2 of them a generation"] for when in ENDS)
    assert most >= last > 0
