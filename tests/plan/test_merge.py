"""What tasks save by sharing, as `viewcache plan` counts it before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import AUGMENTATION, config, encode_folder, single
from viewcache.api.config.load import load
from viewcache.api.preview.plan import previews
from viewcache.materializer.planning import sharing
from viewcache.materializer.planning.sharing import Saving

SMALL = [single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [16, 16]}})]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos."""
    return encode_folder(tmp_path_factory.mktemp("merge"), {f"v{k}.mp4": 40 + 2 * k for k in range(5)})


def counted(store: Path, videos: Path, *tasks: dict[str, Any]) -> dict[str, Saving]:
    """Kind of work → what is saved in the first generation."""
    whole = config(store, videos)["cache"], [config(store, videos, **task)["dataset"] for task in tasks]
    ((number, savings),) = previews(load(dict(zip(("cache", "dataset"), whole, strict=True))), [0]).savings
    assert number == 0
    return {each.what: each for each in savings}


def wide(tag: str) -> dict[str, Any]:
    """A task of 32x32 crops."""
    return {"tag": tag, "augmentation": AUGMENTATION}


def narrow(tag: str, **sampling: Any) -> dict[str, Any]:
    """A task of 16x16 crops."""
    return {"tag": tag, "augmentation": SMALL, "sampling": sampling}


def test_more_merging_is_never_more_work(tmp_path: Path, videos: Path) -> None:
    """Alone, by task, together: each is at most the one before; what both need is counted once."""
    found = counted(tmp_path, videos, wide("a"), narrow("b"))
    assert all(each.together <= each.by_task <= each.alone for each in found.values())
    assert found["frames decoded"].together < found["frames decoded"].by_task < found["frames decoded"].alone
    assert found["random_crop"].together == found["random_crop"].by_task, "crops of two sizes are different pixels"
    assert found["clips"].together == 5 * 2 * 2 * 2


def test_the_same_task_again_adds_nothing(tmp_path: Path, videos: Path) -> None:
    """Merging is idempotent: an equal task doubles what is made apart and nothing of what is made together."""
    twice = counted(tmp_path / "2", videos, wide("a"), wide("b"))
    thrice = counted(tmp_path / "3", videos, wide("a"), wide("b"), wide("c"))
    for what, each in twice.items():
        assert each.by_task == pytest.approx(2 * each.together)
        assert thrice[what].together == pytest.approx(each.together)


def test_the_order_of_tasks_does_not_matter(tmp_path: Path, videos: Path) -> None:
    """Merging is order-free."""
    one = counted(tmp_path / "1", videos, wide("a"), narrow("b", frame_stride=3))
    other = counted(tmp_path / "2", videos, narrow("b", frame_stride=3), wide("a"))
    assert one.keys() == other.keys()
    for what, each in one.items():
        counts = each.alone, each.by_task, each.together
        assert (other[what].alone, other[what].by_task, other[what].together) == pytest.approx(counts)


def test_many_videos_are_counted_by_a_sample(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of the five videos stand for all: the counts are near, and clips are exact as each video has as many."""
    exact = counted(tmp_path / "1", videos, wide("a"), narrow("b"))
    monkeypatch.setattr(sharing, "MOST_VIDEOS", 3)
    near = counted(tmp_path / "2", videos, wide("a"), narrow("b"))
    assert near["clips"] == exact["clips"]
    assert near["frames decoded"].alone == pytest.approx(exact["frames decoded"].alone, rel=0.02)
    assert near["frames decoded"].together == pytest.approx(exact["frames decoded"].together, rel=0.3)


def test_one_task_has_nobody_to_share_with(tmp_path: Path, videos: Path) -> None:
    """There is no such table for a single task."""
    assert previews(load(config(tmp_path, videos)), [0]).savings == ()
