"""The page of a cache of images: which images a batch has, each with its own picture of the block that it lies in."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests.images.small import config, picture, save
from tests.page.conftest import Pictured, cookie, served
from tests.page.test_server import alike, get
from tests.page.test_server import picture as shown
from viewcache.api.config.find import locate
from viewcache.api.page.server import PageServer
from viewcache.api.sheet import contact_sheet

PLACE = "task=train&epoch=0&iteration={}"


@pytest.fixture
def page(pictured: Pictured) -> Iterator[PageServer]:
    """The page of the cache of images."""
    with served(locate(str(pictured.store))) as server:
        yield server


def test_a_batch_names_its_images(page: PageServer, pictured: Pictured) -> None:
    """Each picture with its image, also where one stands in for another, and its label."""
    for iteration, batch in enumerate(pictured.batches):
        _, body, _ = get(page, f"/batch.json?{PLACE.format(iteration)}", cookie(page))
        clips = json.loads(body)["clips"]
        assert [each["video"] for each in clips] == [*batch.videos]
        assert [each["label"] for each in clips] == [each.partition(".")[0] for each in batch.videos]
        assert {each["is_image"] for each in clips} == {True}
        assert {tuple(each["shape"]) for each in clips} == {(1, 3, 32, 32)}
        assert {each["state"] for each in clips} == {"ready"}


def test_each_image_has_its_own_picture(page: PageServer, pictured: Pictured) -> None:
    """It is that which training reads at this place."""
    for iteration, batch in enumerate(pictured.batches):
        expected = [contact_sheet(batch.video[k : k + 1], columns=8, tile=112) for k in range(len(batch.video))]
        for k, each in enumerate(expected):
            assert alike(shown(page, f"/clip.jpg?{PLACE.format(iteration)}&clip={k}"), each)


def test_a_name_leads_to_the_image(page: PageServer) -> None:
    """As it is decoded, whole."""
    _, body, _ = get(page, f"/batch.json?{PLACE.format(0)}", cookie(page))
    each = json.loads(body)["clips"][0]
    whole = shown(page, f"/video.jpg?id={each['video_id']}")
    number = int(each["video"].rpartition("-")[2])
    assert abs(whole.shape[1] / whole.shape[0] - (64 + number) / 48) < 0.05


@pytest.mark.parametrize("exif", ["apply", "ignore"])
def test_an_image_is_shown_as_its_task_has_it(tmp_path: Path, exif: str) -> None:
    """Turned as it tells, or as it is stored."""
    from PIL import Image

    tells = Image.Exif()
    tells[0x0112] = 6
    for k in range(2):
        save(tmp_path / "images" / f"{k}.jpg", picture(80, 40, k), exif=tells)
    with viewcache.open(config(tmp_path / "store", tmp_path / "images", exif=exif), service="off") as cache:
        cache.read("train", 0, 0)
    with served(locate(str(tmp_path / "store"))) as page:
        whole = shown(page, "/video.jpg?id=1")
        assert np.diff(whole.shape[:2])[0] * (1 if exif == "ignore" else -1) > 0
