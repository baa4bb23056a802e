"""What commands say of a task of images: pictures and images are counted, and nothing that only videos have."""

import shutil
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.cli.conftest import Template
from tests.cli.site import Site
from tests.images.small import config, save_folder
from tests.tiny import single
from viewcache.errors import BadInput


@pytest.fixture
def images(site: Site, template: Template) -> Site:
    """A site whose task is of four images, with everything made."""
    return template("images", site, _make_images)


def _make_images(site: Site) -> None:
    shutil.rmtree(site.folder / "videos")
    save_folder(site.folder / "images")
    given = config(Path("cache"), Path("images"), labels="folders", epochs=20)
    site.config.write_text(yaml.safe_dump(given))
    out = site.run("run", "--epochs", "2")
    assert " images ready" in out or " image ready" in out
    assert "clip" not in out + site.words
    with viewcache.open(site.config) as cache:
        for batch in cache.loader("train", framework="numpy").all_epochs():
            assert len(batch["image"]) == 2


def test_verify_shows_no_rows_of_nothing(images: Site) -> None:
    """Starts and distinct frames are of clips; a task that has none has no row for them."""
    text = images.run("verify")
    assert "neighbours" in text or "place" in text
    assert "distinct frames" not in text
    assert "start" not in text
    assert images.json("verify")["evidence"]["diversity"] == []


def test_pictures_of_a_task_have_one_size(tmp_path: Path, images: Site) -> None:
    """The message speaks of pictures, and of all of the task: a batch may have a single one."""
    one = config(
        tmp_path / "s",
        images.folder / "images",
        sampling={"images_per_batch": 1},
        augmentation=[single({"resize": {"short_side": 16}})],
    )
    with pytest.raises(BadInput, match="all pictures must have one size"):
        viewcache.open(one)


def test_status_says_how_many_changes_it_shows(images: Site) -> None:
    """Only the last five are shown, whatever changed; the head says so, and counts no videos."""
    for number in range(6):
        save_folder(images.folder / "images", {f"dogs/{number}.png": (40 + number, 40)})
        with viewcache.open(images.config):
            pass
    save_folder(images.folder / "images", {"ants/a.png": (40, 40)})
    with viewcache.open(images.config):
        pass
    assert len(images.json("status")["changes"]) == 5
    text = images.run("status")
    assert "the last 5 changes of files and classes" in text
    assert "class 'cats' was 0 and is 1" in text
    assert "videos" not in text
