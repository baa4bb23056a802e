"""The epoch benchmark runs whole, and its rivals do the work that it says."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks import epoch, rivals
from benchmarks.harness import main
from benchmarks.rivals import Setting
from tests.clips import encode


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Four clips with reordered frames, two of them in one group of pictures."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for number, gop in enumerate((6, 12, 100, 100)):
        encode(folder / f"{number}.mp4", frames=24, gop=gop, options={"bf": "2"})
    return folder


@pytest.fixture
def setting(videos: Path, tmp_path: Path) -> Setting:
    """A small run of a rival that can keep everything."""
    (tmp_path / "kept").mkdir()
    size = Setting("naive", str(videos), str(tmp_path / "kept"), 0.0, budget_bytes=10**9)
    return replace(size, frames=4, short_side=72, crop=64)


def test_quick_run_has_every_system_and_ratio(videos: Path, tmp_path: Path) -> None:
    """`--quick` races each kind of system, all get the same work done, and the report has ratios and bytes."""
    out = tmp_path / "out.json"
    command = ["--quick", "--repeats", "1", "--videos", str(videos), "--dir", str(tmp_path), "--json", str(out)]
    main(epoch.__doc__, epoch.bench, epoch._arguments, command)
    results = json.loads(out.read_text())["results"]
    for comparison in results[:-1]:
        assert set(comparison["ratios"]) == {epoch.ON_DEMAND, epoch.NAIVE_4, epoch.IDEAL, epoch.OURS}
        assert comparison["ratios"][comparison["baseline"]] == 1
    assert results[-1]["value"] > 0
    assert not list(tmp_path.glob("viewcache-epoch-*"))


@pytest.mark.parametrize("opencv", [False, True])
def test_naive_cache_gives_what_decoding_on_demand_gives(setting: Setting, opencv: bool) -> None:
    """A rival's clips are the same from its cache as without it, so seeking by time finds the frame that was drawn."""
    setting = replace(setting, opencv=opencv)
    on_demand, naive = rivals._OnDemand(setting), rivals._Naive(setting)
    for draw in product(range(3), range(4), range(2)):
        expected = on_demand[draw]
        assert expected.shape == (4, 64, 64, 3)
        assert np.array_equal(naive[draw], expected), draw
    assert len(list(Path(setting.folder).glob("*.npy"))) == 4


def test_naive_cache_stays_within_its_budget(setting: Setting) -> None:
    """What does not fit is decoded again each time, and the clips are the same."""
    size = 24 * 72 * 96 * 3
    small = replace(setting, budget_bytes=2 * size)
    on_demand, naive = rivals._OnDemand(small), rivals._Naive(small)
    for video in range(4):
        assert np.array_equal(naive[0, video, 0], on_demand[0, video, 0])
    assert sum(path.stat().st_size for path in Path(small.folder).iterdir()) <= 2 * (size + 128)
