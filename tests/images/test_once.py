"""What is needed of an image several times in one block is done once: its file is read, and it is decoded, once."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.images.small import config, save_folder
from tests.images.test_images import read
from tests.tiny import make_decoding_dear, single
from viewcache.api.session.cache import Cache
from viewcache.materializer.media.source import LocalSource
from viewcache.materializer.media.whole import WholeSource
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.ladder import Ladder
from viewcache.materializer.reading.values import FrameRequest
from viewcache.materializer.retention.keeper import Keeper
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.running import Running, Tally
from viewcache.materializer.storage.ledger import Ledger
from viewcache.materializer.workers.job import Report

COUNT = 6


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images of unequal sizes, and a table that has weights for some."""
    folder = save_folder(tmp_path_factory.mktemp("images"), {f"{k}.png": (60 + k, 48 + k) for k in range(COUNT)})
    rows = "".join(f"{k},{3 if k < 2 else 1}\n" for k in range(COUNT))
    (folder / "labels.csv").write_text(f"image,often\n{rows}")
    return folder


@pytest.fixture(autouse=True)
def decoding_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small images what to keep would be decided by noise."""
    make_decoding_dear(monkeypatch)


def done(cache: Cache) -> Counter[str]:
    """What workers have done, when all is done."""
    assert cache.owner.dispatcher is not None
    cache.owner.look_ahead.wait_idle()
    assert cache.owner.dispatcher.wait_idle(60)
    return Counter(cache.owner.dispatcher.tally.frames)


CENTER = [single({"resize": {"short_side": 36}}, {"center_crop": {"shape": [32, 32]}})]
"""Nothing is drawn, so all pictures of one image are one."""
SIX_BATCHES = {"sampling": {"images_per_batch": 1, "samples_per_image": 3}}
ONE_BATCH = {"sampling": {"images_per_batch": COUNT, "samples_per_image": 3}}


@pytest.mark.parametrize("more", [{}, {"augmentation": CENTER}], ids=["drawn", "center"])
@pytest.mark.parametrize("sampling", [ONE_BATCH, SIX_BATCHES], ids=["one", "six"])
def test_several_samples_of_an_image(tmp_path: Path, images: Path, sampling: Any, more: Any) -> None:
    """Three pictures of each, as each would be made alone: six decodes, and one conversion for the resize of all."""
    with viewcache.open(config(tmp_path, images, cache={"mix": 0.0}, epochs=1, **sampling, **more)) as cache:
        found, frames = read(cache), done(cache)
        names = {video.video_id: video.name for video in cache.task("train").videos()}
        for batch in found.values():
            for pixels, number, sample in zip(batch["image"], batch["index"], batch["sample"], strict=True):
                (alone,) = cache.task("train").frames([FrameRequest(names[int(number)], 0, 1, 0, int(sample))])
                np.testing.assert_array_equal(pixels, alone)
    pictures = np.concatenate([found[place]["image"] for place in sorted(found)]).reshape(COUNT, 3, 3, 32, 32)
    assert (frames["packets"], frames["decoded"], frames["converted"]) == (COUNT, COUNT, COUNT)
    alike = (pictures[:, 0] == pictures[:, 1]).all(axis=(1, 2, 3))
    assert alike.all() == bool(more)


def test_an_image_that_comes_several_times(tmp_path: Path, images: Path) -> None:
    """Two of them three times as often as the others: each image of the one block is decoded once."""
    weighted = {"labels": str(images / "labels.csv"), "label_column": "often", "weight": "often"}
    sampling = {"images_per_batch": 10}
    with viewcache.open(config(tmp_path, images, cache={"mix": 0.0}, epochs=1, sampling=sampling, **weighted)) as cache:
        (batch,), frames = read(cache).values(), done(cache)
    assert sorted(Counter(batch["index"].tolist()).values()) == [1, 1, 1, 1, 3, 3]
    assert frames["decoded"] == COUNT


def test_what_is_kept_is_loaded_once(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image of a block is either decoded or read from what is kept, once for its three pictures."""
    of_blocks: list[tuple[int, int]] = []
    ended = Tally.ended

    def tell(self: Tally, running: Running, report: Report, ledger: Ledger) -> None:
        if running.job.block is not None:
            of_blocks.append((report.frames.get("decoded", 0), report.frames.get("loaded", 0)))
        ended(self, running, report, ledger)

    monkeypatch.setattr(Tally, "ended", tell)
    with viewcache.open(config(tmp_path, images, cache={"mix": 1.0}, epochs=6, **ONE_BATCH)) as cache:
        loader = cache.loader("train", framework="numpy")
        for _ in range(6):
            list(loader)
            done(cache)
    assert len(of_blocks) == 6
    assert {decoded + loaded for decoded, loaded in of_blocks} == {COUNT}
    assert of_blocks[-1] == (0, COUNT)


def test_a_file_is_read_once(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum, its header and its pixels are made of the same bytes, which come once: as many as it has."""
    came: Counter[str] = Counter()
    before = LocalSource.close

    def close(self: LocalSource) -> None:
        came[Path(self.uri).name] += self.bytes_read
        self.bytes_read = 0
        before(self)

    monkeypatch.setattr(LocalSource, "close", close)
    given = config(tmp_path, images, cache={"mix": 0.0, "worker_kind": "threads"}, epochs=1, **ONE_BATCH)
    with viewcache.open(given) as cache:
        read(cache)
        assert done(cache)["decoded"] == COUNT
    assert came == {path.name: path.stat().st_size for path in images.glob("*.png")}


def test_parts_of_a_file_that_is_held(images: Path) -> None:
    """Before all of it was read its parts are read; after that they come from memory, and end where the file does."""
    path = images / "0.png"
    data = path.read_bytes()
    with WholeSource(LocalSource(str(path))) as file:
        assert (file.read(3, 5), file.bytes_read) == (data[3:8], 5)
        assert (file.read(0, len(data)), file.bytes_read) == (data, 5 + len(data))
        assert (file.read(3, 5), file.read(len(data) - 2, 9)) == (data[3:8], data[-2:])
        assert file.read_many([(0, 4), (4, 4)]) == [data[:4], data[4:8]]
        assert file.read_near(0, 16) == data[:16]
        assert file.bytes_read == 5 + len(data)


def test_two_tasks_over_one_folder(tmp_path: Path) -> None:
    """Other crops in another order: what one task decodes is kept for both, but what is decoded at the same time."""
    count = 320
    folder = save_folder(tmp_path / "in", {f"{k:03}.jpg": (64, 48) for k in range(count)})
    crops = [
        [single({"resize": {"short_side": 36}}), single({crop: {"shape": [32, 32]}}, of="a", into="b")]
        for crop in ("random_crop", "center_crop")
    ]
    described = config(tmp_path / "store", folder, epochs=4, sampling={"images_per_batch": 16}, augmentation=crops[0])
    second = described["dataset"] | {"tag": "second", "seed": 11, "augmentation": crops[1]}
    with viewcache.open(described | {"dataset": [described["dataset"], second]}) as cache:
        for _ in cache.materialize(2):
            pass
        frames = done(cache)
        assert sum(1 for task in ("train", "second") for _ in cache.loader(task, framework="numpy")) == 2 * count // 16
    assert count <= frames["decoded"] <= 1.1 * count


@pytest.mark.parametrize("epochs", [3, 4, 5])
def test_a_last_generation_finds_what_the_one_before_has_made(
    tmp_path: Path, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decided before the first picture was made, and however few epochs it has, it reads what is there then."""
    count, both, before, give_jobs = 96, threading.Event(), Keeper.decide, Dispatcher.give_jobs

    def decide(self: Keeper, *given: Any) -> Any:
        found = before(self, *given)
        if found.keys() >= {0, 1}:
            both.set()
        return found

    # Of one epoch it is cheaper to decode than to decode and write pictures down.
    cost = CostModel(1e-6, 1e-7, store_s_per_byte=1e-6, ladder=Ladder(("raw",)))
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))
    monkeypatch.setattr(Keeper, "decide", decide)
    monkeypatch.setattr(Dispatcher, "give_jobs", lambda self: both.is_set() and give_jobs(self))
    folder = save_folder(tmp_path / "in", {f"{k:03}.jpg": (64, 48) for k in range(count)})
    with viewcache.open(config(tmp_path / "store", folder, sampling={"images_per_batch": 16}, epochs=epochs)) as cache:
        loader = cache.loader("train", framework="numpy")
        for _ in range(epochs):
            assert sum(len(batch["image"]) for batch in loader) == count
        assert count <= done(cache)["decoded"] <= 1.1 * count
