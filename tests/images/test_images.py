"""A task of images keeps the laws: same bytes however they come to be, each image once, and no image lost."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

import viewcache
from tests.house.tree import ROOT
from tests.images.small import config, save_folder
from tests.tiny import AUGMENTATION, single, sql
from viewcache.api.session.cache import Cache
from viewcache.materializer.dataset import listing
from viewcache.materializer.tasks import task as tasks

CROP = [single({"center_crop": {"shape": [32, 32]}})]
"""No conversion but the decoder's, so that pixels can be compared with those of another reader."""
Read = dict[tuple[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four images in two folders, of unequal sizes and formats."""
    return save_folder(tmp_path_factory.mktemp("images"))


def read(cache: Cache, task: str = "train", **options: Any) -> Read:
    """All batches of a loader, as copies."""
    found = {}
    for batch in cache.loader(task, framework="numpy", **options).all_epochs():
        place = batch.pop("epoch"), batch.pop("iteration")
        found[place] = {name: np.array(values) for name, values in batch.items()}
    return found


def same(one: Read, other: Read) -> bool:
    """Whether all arrays of all batches are equal."""
    return one.keys() == other.keys() and all(
        one[place].keys() == other[place].keys()
        and all(np.array_equal(one[place][name], other[place][name]) for name in one[place])
        for place in one
    )


def test_pixels_are_those_of_the_files(tmp_path: Path) -> None:
    """Of lossless formats the pixels of a crop are bit for bit what PIL reads."""
    folder = save_folder(tmp_path / "in", {"a.png": (40, 50), "b.webp": (61, 33), "c.bmp": (32, 32), "d.png": (33, 47)})
    with viewcache.open(config(tmp_path / "store", folder, augmentation=CROP)) as cache:
        names: dict[Any, Any] = dict(sql(cache, "select image_id, uri from images"))  # type: ignore[arg-type]
        for batch in read(cache, epochs=1).values():
            assert batch["image"].shape == (2, 3, 32, 32)
            for pixels, number in zip(batch["image"], batch["index"].tolist(), strict=True):
                whole = np.asarray(Image.open(str(names[number])).convert("RGB"))
                top, left = (whole.shape[0] - 32) // 2, (whole.shape[1] - 32) // 2
                wanted = whole[top : top + 32, left : left + 32].transpose(2, 0, 1)
                np.testing.assert_array_equal(pixels, wanted)


def test_a_batch_has_images_and_their_labels(tmp_path: Path, images: Path) -> None:
    """Each image comes once an epoch, with its folder as label, in an order of its own in each epoch."""
    with viewcache.open(config(tmp_path, images, labels="folders")) as cache:
        loader = cache.loader("train")
        assert "(2, 3, 32, 32) CHW" in repr(loader)
        orders = []
        for _ in range(3):
            batches = list(loader)
            assert all(set(batch) == {"image", "label", "index", "sample", "epoch", "iteration"} for batch in batches)
            orders.append([number for batch in batches for number in batch["index"].tolist()])
            labels = [number for batch in batches for number in batch["label"].tolist()]
            names: dict[Any, Any] = dict(sql(cache, "select image_id, label from images"))  # type: ignore[arg-type]
            assert [cache.task("train").classes[label] for label in labels] == [names[each] for each in orders[-1]]
        assert all(Counter(order) == Counter(orders[0]) for order in orders)
        assert len(set(map(tuple, orders))) > 1


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Read:
    """What a cache with room for everything gives."""
    with viewcache.open(config(tmp_path_factory.mktemp("truth"), images)) as cache:
        return read(cache)


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": "100kB"},
        {"keep": "leaves"},
        {"mix": 0.5},
        {"mix": 0.0},
        {"epochs_per_generation": 2, "workers": 2, "worker_kind": "threads"},
        {"store": [{"url": "memory://", "budget": "1MB"}, {"url": "STORE", "budget": "20MB", "codec": "zstd1"}]},
    ],
)
def test_the_same_bytes_whatever_is_kept(tmp_path: Path, images: Path, truth: Read, settings: dict[str, Any]) -> None:
    """A small budget, another rule, threads and tiers change no pixel, warm neither."""
    settings = dict(settings)
    if isinstance(tiers := settings.get("store"), list):
        settings["store"] = [{**tier, "url": tier["url"].replace("STORE", str(tmp_path))} for tier in tiers]
        settings["budget"] = None
    with viewcache.open(config(tmp_path, images, cache=settings)) as cache:
        assert same(read(cache), truth)
        assert same(read(cache), truth)


@pytest.mark.parametrize(("mix", "kept"), [(0.0, 0), (0.5, 2), (1.0, 4)])
def test_a_share_of_the_images_is_kept(tmp_path: Path, images: Path, mix: float, kept: int) -> None:
    """So many of the four, in every generation the same, and the others are decoded in each epoch."""
    with viewcache.open(config(tmp_path, images, cache={"mix": mix}, epochs=6)) as cache:
        read(cache)
        found = sql(cache, "select count(distinct image) from packs where state = 'ready'")
        assert found == [(kept,)]


def test_a_restart_and_damage_change_nothing(tmp_path: Path, images: Path, truth: Read) -> None:
    """Closed in the middle of an epoch, with every stored byte turned over: the same batches."""
    with viewcache.open(config(tmp_path, images)) as cache:
        assert len(list(islice(cache.loader("train").all_epochs(), 3))) == 3
    for shard in (tmp_path / "objects").rglob("c.*"):
        if shard.is_file():
            data = bytearray(shard.read_bytes())
            data[0] ^= 255
            shard.write_bytes(data)
    with viewcache.open(config(tmp_path, images)) as cache:
        assert same(read(cache), truth)


def test_what_is_read_before_its_generation_is_planned(
    tmp_path: Path, images: Path, truth: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large dataset a batch is planned alone: its blocks are those that its generation has."""
    monkeypatch.setattr(tasks, "PLANNED_AT_ONCE", 0)
    monkeypatch.setattr(listing, "READ_AT_OPEN", 0)
    monkeypatch.setattr(listing, "FIRST_READ", 1)
    with viewcache.open(config(tmp_path, images)) as cache:
        first = cache.read("train", 0, 0)
        np.testing.assert_array_equal(first.video[:, 0], truth[0, 0]["image"])
        assert same(read(cache), truth)
        assert first.keys == cache.read("train", 0, 0).keys


def test_ranks_share_each_batch(tmp_path: Path, images: Path, truth: Read) -> None:
    """The shares of all ranks are the batch."""
    world = 2
    with viewcache.open(config(tmp_path, images)) as cache:
        shares = [read(cache, rank=rank, world=world) for rank in range(world)]
        for place, batch in truth.items():
            for name, values in batch.items():
                np.testing.assert_array_equal(np.concatenate([share[place][name] for share in shares]), values)


def test_an_image_is_decoded_once_for_all_tasks_and_epochs(tmp_path: Path) -> None:
    """Two crops of the same resized pictures, in six epochs: what is decoded twice is what was asked for at once."""
    count = 40
    folder = save_folder(tmp_path / "in", {f"{k}.jpg": (64, 48) for k in range(count)})
    own = config(tmp_path / "store", folder, epochs=6, sampling={"images_per_batch": 8})
    other = [single({"resize": {"short_side": 36}}, {"random_crop": {"shape": [24, 24]}})]
    second = {**own["dataset"], "tag": "small", "augmentation": other}
    with viewcache.open(own | {"dataset": [own["dataset"], second]}) as cache:
        loaders = [cache.loader(task, framework="numpy").all_epochs() for task in ("train", "small")]
        for one, two in zip(*loaders, strict=True):
            assert (one["image"].shape[1:], two["image"].shape[1:]) == ((3, 32, 32), (3, 24, 24))
        decoded = cache.owner.dispatcher_now().tally.frames["packets"]
        # What was asked for before it was decided what is kept is decoded for itself.
        assert decoded <= 2 * 6 * count // 2, "half of what decoding on demand takes"


def test_paths(tmp_path: Path, images: Path, truth: Read) -> None:
    """The file, its pixels, the steps and the batch have URLs; none has an axis of time."""
    with viewcache.open(config(tmp_path, images, augmentation=[AUGMENTATION[0]])) as cache:
        fs = fsspec.filesystem("view", cache=str(tmp_path))
        assert fs.cat("view://train/cats.-a.png") == (images / "cats/a.png").read_bytes()
        frame = np.load(fs.open("view://train/cats.-a/frame0"))
        np.testing.assert_array_equal(frame, np.asarray(Image.open(images / "cats/a.png")).transpose(2, 0, 1))
        assert np.load(fs.open("view://train/cats.-a/frame0/aug1")).shape == (3, 32, 32)
        view = np.load(fs.open("view://train/0/0/view"))
        np.testing.assert_array_equal(view, truth[0, 0]["image"])
        assert fs.info("view://train/0/0/view")["view"]["shape"] == [2, 3, 32, 32]
        assert sorted(each.rpartition("/")[2] for each in fs.ls("view://train/0/0/view.zarr", detail=False))[:2] != []
        assert fs.exists("view://train/0/0/view.zarr/image/zarr.json")
        assert cache.read("train", 0, 0).video.shape == (2, 1, 3, 32, 32)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_layouts_are_those_of_images(tmp_path: Path, images: Path, truth: Read, layout: str) -> None:
    """As strided views of the same pixels, with torch as with NumPy."""
    with viewcache.open(config(tmp_path, images, layout=layout)) as cache:
        wanted = truth[0, 0]["image"]
        wanted = wanted if layout == "CHW" else wanted.transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(next(iter(cache.loader("train", framework="numpy")))["image"], wanted)
        np.testing.assert_array_equal(next(iter(cache.loader("train")))["image"].numpy(), wanted)
        with pytest.raises(viewcache.ViewcacheError, match="layout 'TCHW' is not one of CHW, HWC"):
            cache.loader("train", layout="TCHW")


def test_samples_views_and_ops_at_reading(tmp_path: Path, images: Path) -> None:
    """Several pictures of an image, several views of one, floats: as of videos, without the axis of time."""
    two = [
        {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
        single({"resize": {"shape": [24, 24]}}, of="a", into="c"),
        single({"random_crop": {"shape": [24, 24]}}, {"flip": {"flip_prob": 0.5}}, of="b", into="d"),
        {"branch_type": "merge", "inputs": ["c", "d"], "outputs": ["e"], "merge": "stack"},
        single({"normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}}, of="e", into="f"),
    ]
    with viewcache.open(config(tmp_path, images, sampling={"samples_per_image": 3}, augmentation=two)) as cache:
        batch = next(iter(cache.loader("train")))
        assert batch["image"].shape == (6, 2, 3, 24, 24)
        assert batch["image"].dtype.is_floating_point
        assert batch["sample"].tolist() == [0, 1, 2] * 2


def test_labels_of_a_table(tmp_path: Path, images: Path) -> None:
    """The table names images in its column ``image``; further columns come with them."""
    table = tmp_path / "labels.csv"
    rows = {"cats/a.png": ("cat", 1), "cats/b.jpg": ("cat", 2), "dogs/c.jpg": ("dog", 3), "dogs/d.webp": ("dog", 4)}
    table.write_text("image,label,age\n" + "".join(f"{name},{label},{age}\n" for name, (label, age) in rows.items()))
    with viewcache.open(config(tmp_path / "s", images, labels=str(table), fields=["age"], where="age > 1")) as cache:
        assert sql(cache, "select image, label from images order by image_id") == [
            ("cats.-a", "cat"),
            ("cats.-b", "cat"),
            ("dogs.-c", "dog"),
            ("dogs.-d", "dog"),
        ]
        batches = read(cache, epochs=1).values()
        assert sorted(age for batch in batches for age in batch["age"].tolist()) == [2, 3, 4]


def test_where_leaves_out_images_without_one_of_several_labels(tmp_path: Path, images: Path) -> None:
    """An image that no row names, and one with an empty cell, have no label, as with one label an image."""
    table = tmp_path / "labels.csv"
    table.write_text("image,label\ncats/a.png,small;cat\ncats/b.jpg,\ndogs/c.jpg,dog\n")
    given: dict[str, Any] = {"labels": str(table), "label_separator": ";", "where": "label is not null"}
    with viewcache.open(config(tmp_path / "s", images, **given)) as cache:
        batches = read(cache, epochs=1).values()
        assert sorted(row for batch in batches for row in batch["label"].tolist()) == [[0, 1, 0], [1, 0, 1]]


def test_a_folder_of_both(tmp_path: Path, images: Path) -> None:
    """A task of images sees the images, one of videos the videos, in one cache."""
    from tests.tiny import config as of_videos
    from tests.tiny import encode_folder

    folder = save_folder(tmp_path / "both")
    encode_folder(folder, {"v.mp4": 20, "w.mp4": 20})
    of_images = config(tmp_path / "store", folder)
    task = {**of_videos(tmp_path / "store", folder)["dataset"], "tag": "clips"}  # type: ignore[dict-item]
    with viewcache.open(of_images | {"dataset": [of_images["dataset"], task]}) as cache:
        assert cache.read("clips", 0, 0).video.shape == (4, 4, 3, 32, 32)
        assert cache.read("train", 0, 0).video.shape == (2, 1, 3, 32, 32)
        assert sql(cache, "select count(*) from images") == [(4,)]
        assert sql(cache, "select count(*) from videos") == [(6,)]


def test_damage_behind_the_header_is_replaced_for_ever(tmp_path: Path) -> None:
    """A JPEG that ends early is found when it is decoded; another image stands in, the same in every run."""
    folder = save_folder(tmp_path / "in", {f"{k}.jpg": (64, 48) for k in range(6)})
    data = (folder / "3.jpg").read_bytes()
    (folder / "3.jpg").write_bytes(data[: len(data) // 2])
    runs = []
    for name in ("one", "one", "two"):
        with viewcache.open(config(tmp_path / name, folder, on_bad_image="replace")) as cache:
            runs.append(read(cache))
            assert sql(cache, "select distinct video from substitutions") == [("3",)]
            assert len(sql(cache, "select * from substitutions")) >= 3
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


def test_a_batch_is_shown_as_a_grid(tmp_path: Path, images: Path) -> None:
    """A sheet of 16 images has four in a row, each to the bit, rather than one below another."""
    with viewcache.open(config(tmp_path, images, sampling={"images_per_batch": 4, "samples_per_image": 4})) as cache:
        sheet, shown = cache.show("train").sheet, cache.read("train", 0, 0).video[:, 0]
        under_one_another = cache.show("train", columns=1).sheet
        assert under_one_another.shape[0] > sheet.shape[0]
        assert under_one_another.shape[1] < sheet.shape[1]
    assert len(shown) == 16
    places = []
    for wanted in shown.transpose(0, 2, 3, 1):
        starts = np.argwhere((sheet[:-31, :-31] == wanted[0, 0]).all(-1))
        places.append(next(tuple(at) for at in starts if np.array_equal(sheet[at[0] :, at[1] :][:32, :32], wanted)))
    assert len({top for top, _ in places}) == len({left for _, left in places}) == 4


def test_the_loop_of_the_page(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/images.md shows first reads every epoch that its configuration has, as it is written there."""
    page = (ROOT / "docs" / "images.md").read_text()
    written, loop = (re.search(rf"^```{kind}\n(.*?)^```", page, re.M | re.S)[1] for kind in ("yaml", "python no-run"))  # type: ignore[index]
    monkeypatch.chdir(tmp_path)
    dataset = written.replace("./flowers/train", str(images)).replace("images_per_batch: 64", "images_per_batch: 4")
    assert dataset.count("90") == loop.count("90") == 1
    Path("images.yaml").write_text(dataset.replace("90", "3").replace("60GB", "50MB"))
    seen: list[tuple[int, int]] = []
    data = loop[: loop.index("            loss = ")]
    names: dict[str, Any] = {"seen": seen}
    exec(f"{data}            seen.append((batch['epoch'], len(batch['image'])))\n".replace("90", "3"), names)
    assert seen == [(0, 4), (1, 4), (2, 4)]
