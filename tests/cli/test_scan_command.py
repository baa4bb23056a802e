"""`viewcache scan`: every packet ahead of training, going on where it was ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import viewcache
from tests.cli.site import Site
from tests.house.tree import ROOT
from tests.images import small as images
from tests.images.small import save_folder
from tests.tiny import sql
from viewcache.failpoints import VARIABLE


def indexed(site: Site) -> list[tuple[object, ...]]:
    """Each video's name, status and whether all of its packets were looked at."""
    with viewcache.open(site.config) as cache:
        return sql(cache, "select video, status, indexed from videos order by video")


def test_it_looks_at_what_nobody_has_looked_at(site: Site) -> None:
    """Opening reads headers; the scan reads the rest, once, and says what there is."""
    assert {looked for *_, looked in indexed(site)} == {False}
    (found,) = site.json("scan", "train.yaml")["datasets"]
    assert found["videos"] == len(list(Path("videos").iterdir()))
    assert found["frames"] > 0
    assert found["bad"] == []
    assert {looked for *_, looked in indexed(site)} == {True}
    before = (site.folder / "cache" / "catalog.indexes").stat().st_size
    site.run("scan", "train.yaml")
    assert (site.folder / "cache" / "catalog.indexes").stat().st_size == before


def test_it_names_files_that_cannot_be_decoded(site: Site) -> None:
    """Exit code 1, each with its reason; the others are scanned, and lint tells of it with --full."""
    Path("videos/torn.mp4").write_bytes(b"not a video")
    found = site.json("scan", "train.yaml", code=1)["datasets"][0]
    assert ["torn.mp4" in each for each in found["bad"]] == [True]
    problems = site.json("lint", "train.yaml", "--full", code=1)["problems"]
    assert {each["kind"] for each in problems} == {"bad_video"}


def test_it_goes_on_after_a_kill(site: Site) -> None:
    """Killed when the first batch is recorded: what is recorded stays, the rest is done next time."""
    environment = os.environ | {VARIABLE: "dataset.found:1:kill", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "viewcache.api.cli.main", "scan", "train.yaml"]
    killed = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=60)
    assert killed.returncode == -9
    assert json.loads(json.dumps(site.json("scan", "train.yaml")))["datasets"][0]["bad"] == []
    assert {looked for *_, looked in indexed(site)} == {True}


def test_it_wants_the_cache_for_itself(site: Site) -> None:
    """While another process has the cache open, the scan says who."""
    with viewcache.open(site.config):
        site.run("scan", "train.yaml", code=4)
        assert str(os.getpid()) in site.words


def test_images(site: Site) -> None:
    """An image has one frame, so only the images are counted."""
    save_folder(Path("images"), {f"{k}.png": (32, 24) for k in range(3)})
    Path("images.yaml").write_text(json.dumps(images.config(Path("cache2"), Path("images"))))
    assert "/images: 3 images, 0 bad; " in site.run("scan", "images.yaml")
    assert site.json("scan", "images.yaml")["datasets"][0]["media"] == "image"
