"""A view as a Zarr group of a cache that a service owns: its files are made up once, and never those of before."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.service.conftest import attached
from viewcache.api.service import files
from viewcache.api.views.tree import ViewTree

GROUP = "train/0/0/view.zarr"


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The ten videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def said(tree: ViewTree, what: str) -> list[str]:
    """What the group's metadata say: its ``videos`` or ``keys``."""
    found: list[str] = json.loads(tree.read(f"{GROUP}/zarr.json"))["attributes"][what]
    return found


def test_a_group_is_made_up_once(store: Path, videos: Path) -> None:
    """A client asks for one file after the other: they are those of one description of the batch."""
    with attached(store, videos) as cache:
        tree = ViewTree(cache)
        first = tree.payload(f"{GROUP}/zarr.json")
        assert tree.payload(f"{GROUP}/zarr.json") is first
        other = tree.payload("train/0/1/view.zarr/zarr.json")
        assert other.head != first.head
        assert tree.payload(f"{GROUP}/zarr.json") is first


def test_a_clip_that_is_replaced_gives_another_group(store: Path, folder: Path) -> None:
    """Its video turns out to be gone when it is decoded: what is read from then on says what stands in."""
    with attached(store, folder) as cache:
        tree = ViewTree(cache)
        before = said(tree, "videos")
        gone = before[0]
        (folder / gone.replace(".-", "/")).with_suffix(".mp4").unlink()
        batch = cache.read("train", 0, 0)
        assert gone not in batch.videos
        assert said(tree, "videos") == list(batch.videos)
        assert said(tree, "keys") == list(batch.keys)


def test_another_run_of_the_service_gives_another_group(store: Path, folder: Path) -> None:
    """It may know of other classes and fields: nothing that the run before said is shown on."""
    with attached(store, folder) as cache:
        tree = ViewTree(cache)
        first = tree.payload(f"{GROUP}/zarr.json")
        facts = files.read_facts(store)
        assert facts is not None
        os.kill(facts.pid, signal.SIGKILL)
        files.wait_ended(store, facts)
        again = tree.payload(f"{GROUP}/zarr.json")
        assert again is not first
        assert again.head == first.head
