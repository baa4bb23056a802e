"""Bad input of tasks of images: each mistake is told with its cure, each bad file is the policy's case."""

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.images.small import config, picture, save, save_folder
from tests.images.test_images import Read, read, same
from tests.tiny import config as of_videos
from tests.tiny import single, sql
from viewcache.api.config.load import load
from viewcache.api.preview.plan import previews
from viewcache.errors import BadInput, BadVideo, ConfigError, DatasetNotFound, Full, ViewcacheError, ViewNotFound
from viewcache.materializer.workers.job import FolderTarget


def changed(store: Path, images: Path, **changes: Any) -> dict[str, Any]:
    """The configuration with other keys of its task; None takes one out."""
    written = config(store, images)
    task = {**written["dataset"], **changes}
    return {**written, "dataset": {key: value for key, value in task.items() if value is not None}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"video_dataset_path": "videos"}, "image_dataset_path: a task is of videos or of images"),
        ({"sampling": {"videos_per_batch": 2}}, "needs the key images_per_batch"),
        ({"sampling": {"images_per_batch": 2, "videos_per_batch": 2}}, "give images_per_batch in its place"),
        ({"sampling": {"images_per_batch": 2, "frames_per_video": 4}}, "frames_per_video: this task is of images"),
        ({"sampling": {"images_per_batch": 2, "fps": 4}}, "sampling.fps: this task is of images: leave it out"),
        ({"sampling": {"images_per_batch": 0}}, "images_per_batch must be a whole number from 1"),
        ({"on_bad_video": "skip"}, "on_bad_video: this task is of images: give on_bad_image in its place"),
        ({"audio": {"rate": 16000}}, "audio: this task is of images: leave it out"),
        ({"on_short_video": "loop"}, "on_short_video: this task is of images: leave it out"),
        ({"exif": "turn"}, "dataset.exif must be one of apply, ignore, got 'turn'"),
        ({"layout": "TCHW"}, "TCHW is of videos and this task of images; use one of CHW, HWC"),
        ({"augmentation": [single({"subsample": {"frames": 2}})]}, "subsample: it chooses among the frames of a clip"),
        (
            {
                "augmentation": [
                    {"branch_type": "multi", "inputs": ["frame"], "outputs": ["a", "b"]},
                    {"branch_type": "merge", "inputs": ["a", "b"], "outputs": ["c"]},
                ]
            },
            "merge: concat puts clips one after the other in time",
        ),
        ({"image_dataset_path": None}, "needs the key video_dataset_path: .* `image_dataset_path` in its place"),
    ],
)
def test_mistakes_in_the_configuration(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Each is refused before anything is opened."""
    with pytest.raises(ConfigError, match=message):
        viewcache.open(changed(tmp_path / "store", tmp_path, **changes))
    assert not (tmp_path / "store").exists()


def test_keys_of_images_are_not_for_videos(tmp_path: Path) -> None:
    """The other way round."""
    sampling = {"videos_per_batch": 2, "frames_per_video": 4, "images_per_batch": 2}
    written = of_videos(tmp_path / "store", tmp_path)
    with pytest.raises(ConfigError, match="images_per_batch: this task is of videos: give videos_per_batch"):
        viewcache.open(written | {"dataset": written["dataset"] | {"sampling": sampling}})  # type: ignore[operator]
    for value in ("apply", "ignore"):
        with pytest.raises(ConfigError, match=r"exif: this task is of videos: .* container says: leave it out"):
            viewcache.open(of_videos(tmp_path / "store", tmp_path, exif=value))
    with pytest.raises(ConfigError, match="CHW is of images and this task of videos"):
        viewcache.open(of_videos(tmp_path / "store", tmp_path, layout="CHW"))


def test_folders_without_images(tmp_path: Path) -> None:
    """It is said what was looked for, what else is there, and which key takes videos; of videos the other way round."""
    (tmp_path / "in").mkdir()
    encode(tmp_path / "in" / "v.mp4", frames=4)
    (tmp_path / "in" / "readme.txt").touch()
    there = r"1 videos are there: video_dataset_path takes them; 1 other files are there"
    with pytest.raises(DatasetNotFound, match=rf"holds no images: looked for .*\*\.jpg.*; {there}"):
        viewcache.open(config(tmp_path / "store", tmp_path / "in"))
    save_folder(tmp_path / "pictures")
    there = r"4 images are there: image_dataset_path takes them$"
    for place in (tmp_path / "pictures", tmp_path / "pictures" / "*" / "*"):
        with pytest.raises(DatasetNotFound, match=rf"holds no videos: looked for .*; {there}"):
            viewcache.open(of_videos(tmp_path / "store", place))


def too_large(path: Path) -> Path:
    """A PNG file whose header claims 30,000 x 30,000 pixels."""
    body = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)))
    return path


@pytest.mark.parametrize("kind", ["video", "html", "empty", "large", "link"])
def test_what_is_no_image(tmp_path: Path, kind: str) -> None:
    """With ``raise`` it is an error that names the file; with ``skip`` the epoch has the others."""
    folder = save_folder(tmp_path / "in", {f"{k}.png": (50, 40) for k in range(4)})
    bad = folder / "9.png"
    if kind == "video":
        encode(tmp_path / "v.mp4", frames=4)
        shutil.move(tmp_path / "v.mp4", bad)
    elif kind == "large":
        too_large(bad)
    elif kind == "link":
        bad.symlink_to(save(tmp_path / "elsewhere.png", picture(50, 40)))
    else:
        bad.write_bytes(b"<html></html>" if kind == "html" else b"")
    with pytest.raises(ViewcacheError, match=r"9\.png"), viewcache.open(config(tmp_path / "one", folder)) as cache:
        read(cache)
    with viewcache.open(config(tmp_path / "two", folder, on_bad_image="skip")) as cache:
        batches = read(cache, epochs=1)
        assert sum(len(batch["index"]) for batch in batches.values()) == 4
        assert sql(cache, "select count(*) from images where status = 'bad'") == [(1,)]


def test_pictures_that_do_not_fit(tmp_path: Path) -> None:
    """Unequal sizes without a crop, and an image smaller than its crop: the message names the image and the sizes."""
    folder = save_folder(tmp_path / "in")
    with pytest.raises(BadInput, match="shape"), viewcache.open(config(tmp_path / "a", folder, augmentation=[])) as one:
        read(one)
    save(folder / "tiny.png", picture(1, 1))
    crop = [single({"center_crop": {"shape": [32, 32]}})]
    with (
        pytest.raises(BadInput, match=r"'tiny' at step .* of 1x1 .* is smaller .* leave the file out by `where`"),
        viewcache.open(config(tmp_path / "b", folder, augmentation=crop)) as two,
    ):
        read(two)


def test_messages_say_what_was_written(tmp_path: Path) -> None:
    """A task of images is told of images and of its own keys: at opening, for ranks, names and bad files."""
    folder = save_folder(tmp_path / "in")
    with pytest.raises(BadInput, match=r"there are 4 images to draw, .* images_per_batch, 5; add images"):
        viewcache.open(config(tmp_path / "a", folder, sampling={"images_per_batch": 5}, drop_last=True))
    with pytest.raises(BadInput, match=r"'frames > 9' selects none of 4 images"):
        viewcache.open(config(tmp_path / "b", folder, where="frames > 9"))
    with viewcache.open(config(tmp_path / "c", folder)) as cache:
        assert "3 epochs of batches of 2 images, 1 pictures of each" in repr(cache)
        with pytest.raises(BadInput, match=r"2 images cannot be shared by 3 ranks; use images_per_batch >= 3"):
            cache.loader("train", framework="numpy", rank=0, world=3)
        with pytest.raises(ViewNotFound, match="no image 'z'"):
            cache.task("train").video("z")
    (folder / "cats/a.png").write_bytes(b"no picture")
    with pytest.raises(BadVideo, match="on_bad_image: ") as told:
        viewcache.open(config(tmp_path / "c", folder))
    assert "on_bad_video" not in str(told.value)


def test_a_plan_and_a_replacement_speak_of_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How many images are in a batch, not frames of a clip; an image stands in for one whose file is gone."""
    folder = save_folder(tmp_path / "in")
    written = config(tmp_path / "store", folder, sampling={"samples_per_image": 2})
    (preview,) = previews(load(written), [0]).tasks
    assert preview.graph[0] == f"train: 2 images a batch, 2 pictures of each, 3 epochs, from {folder}"
    with viewcache.open(written) as cache:
        cache.read("train", 0, 0)
    gone = folder / "cats/a.png"
    gone.unlink()
    with viewcache.open(written) as cache:
        assert str(cache.changes("train")[0]).startswith("1 file was removed (cats.-a)")
        read(cache)
    assert "another image stands in" in caplog.text
    assert "another video" not in caplog.text


def test_a_folder_is_no_label_table(tmp_path: Path) -> None:
    """The message has words, and no number that only the process knows."""
    (tmp_path / "labels.csv").mkdir()
    with pytest.raises(DatasetNotFound, match=r"labels .*labels\.csv cannot be read \(\w+: Is a directory\)$"):
        viewcache.open(config(tmp_path / "store", save_folder(tmp_path / "in"), labels=str(tmp_path / "labels.csv")))


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """It is a bad image, and the others are read."""
    folder = save_folder(tmp_path / "in")
    shutil.copy(os.fsencode(folder / "cats/a.png"), os.fsencode(folder) + b"/\xff.png")
    with viewcache.open(config(tmp_path / "store", folder, on_bad_image="skip")) as cache:
        assert sum(len(batch["index"]) for batch in read(cache, epochs=1).values()) == 4


def test_damage_behind_the_header_is_an_error_at_its_batch(tmp_path: Path) -> None:
    """With ``raise`` the batches of the others are read, and that of the damaged image names it."""
    folder = save_folder(tmp_path / "in", {f"{k}.jpg": (64, 48) for k in range(6)})
    data = (folder / "3.jpg").read_bytes()
    (folder / "3.jpg").write_bytes(data[: len(data) // 2])
    with viewcache.open(config(tmp_path / "store", folder)) as cache:
        (number,) = sql(cache, "select image_id from images where image = '3'")[0]
        for iteration in range(3):
            if number in cache.task("train").describe(0, iteration).index:
                with pytest.raises(BadVideo, match=r"3\.jpg"):
                    cache.read("train", 0, iteration)
            else:
                assert len(cache.read("train", 0, iteration).keys) == 2


@pytest.mark.parametrize("gone", [True, False])
def test_an_image_that_goes_or_is_replaced_in_the_middle(tmp_path: Path, gone: bool) -> None:
    """What was read stays; at its next place, where nothing of it is kept, the policies decide."""
    folder = save_folder(tmp_path / "in", {f"{k}.png": (64, 48) for k in range(6)})
    settings = {"keep": "leaves", "epochs_per_generation": 1}
    policies: dict[str, Any] = {"on_bad_image": "replace", "on_missing_video": "replace"}
    with viewcache.open(config(tmp_path / "store", folder, cache=settings, epochs=4, **policies)) as cache:
        first = read(cache, epochs=1)
        if gone:
            (folder / "2.png").unlink()
        else:
            save(folder / "2.png", picture(64, 48, 99))
        later = read(cache)
        assert same({place: later[place] for place in first}, first)
        assert len(later) == 4 * 3
        others = [np.array(batch["index"]) for place, batch in later.items() if place[0] == 3]
        (number,) = sql(cache, "select image_id from images where image = '2'")[0]
        assert number not in np.concatenate(others)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, Read]:
    """Six images, all epochs of which were read; one was replaced after that, as if by another program."""
    folder = save_folder(tmp_path / "in", {f"{k}.png": (64, 48) for k in range(6)})
    with viewcache.open(config(tmp_path / "store", folder)) as cache:
        before = read(cache)
    save(folder / "2.png", picture(64, 48, 99))
    return folder, before


@pytest.mark.parametrize("wide", [{}, {"mix": 0}, {"keep": "leaves"}], ids=["auto", "mix 0", "leaves"])
def test_an_image_that_was_replaced_is_refused(
    tmp_path: Path, trained: tuple[Path, Read], wide: dict[str, object]
) -> None:
    """Opened again, what was read would have other bytes: that is an error, whatever is kept, until it is restored."""
    folder, before = trained
    with pytest.raises(BadInput, match=r"2\.png has another size or time than when task 'train' drew it"):
        viewcache.open(config(tmp_path / "store", folder, cache=wide))
    with viewcache.open(config(tmp_path / "store", folder, cache=wide, on_changed_video="warn")) as cache:
        assert len(cache.changes("train")) == 1
        after = read(cache)
        ((number,),) = sql(cache, "select image_id from images where image = '2'")
    assert after.keys() == before.keys()
    assert _changed(before, after) == sorted(place for place in before if number in before[place]["index"])


def test_another_image_behind_garbage_is_refused_too(tmp_path: Path) -> None:
    """A cache was opened while the file was broken; what was drawn is still known."""
    folder = save_folder(tmp_path / "in", {f"{k}.png": (64, 48) for k in range(6)})
    with viewcache.open(config(tmp_path / "store", folder)) as cache:
        read(cache)
    (folder / "2.png").write_bytes(bytes(3000))
    with pytest.raises(BadVideo, match=r"2\.png: "):
        viewcache.open(config(tmp_path / "store", folder))
    save(folder / "2.png", picture(64, 48, 99))
    with pytest.raises(BadInput, match=r"2\.png has another size or time than when task 'train' drew it"):
        viewcache.open(config(tmp_path / "store", folder))


def test_a_replaced_image_is_a_new_version(tmp_path: Path, trained: tuple[Path, Read]) -> None:
    """Under `version` the old one is gone, which is told and recorded, and the new one is drawn from then on."""
    folder, before = trained
    policies: dict[str, Any] = {"on_changed_video": "version", "epochs": 6}
    with viewcache.open(config(tmp_path / "store", folder, **policies)) as cache:
        after = read(cache)
        images = sql(cache, "select image, status from images order by all")
        assert images == [("0", "ok"), ("1", "ok"), ("2", "gone"), ("2.v2", "ok"), *((each, "ok") for each in "345")]
        places = sql(cache, "select epoch, position // 2 from substitutions where epoch < 3 order by all")
        assert sql(cache, "select count(*) from errors where message like 'changed_video: %'") == [(1,)]
    assert places == _changed(before, after)
    with viewcache.open(config(tmp_path / "store", folder, **policies)) as cache:
        assert same(read(cache), after)


def _changed(before: Read, after: Read) -> list[tuple[int, int]]:
    """Places that have other bytes."""
    return sorted(place for place in before if not same({place: before[place]}, {place: after[place]}))


def test_a_block_that_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: the reader is told so, no image is to blame, and with room again the same process goes on."""
    folder = save_folder(tmp_path / "in")
    settings = {"worker_kind": "threads", "keep": "leaves"}
    write, full = FolderTarget.write, True

    def written(self: FolderTarget, key: str, array: Any, meta: Any) -> Any:
        if full:
            raise Full("no space left on device; free disk space")
        return write(self, key, array, meta)

    monkeypatch.setattr(FolderTarget, "write", written)
    with viewcache.open(config(tmp_path / "store", folder, cache=settings)) as cache:
        with pytest.raises(Full, match="no space left"):
            cache.read("train", 0, 0)
        full = False
        assert len(read(cache)) == 3 * 2
        assert sql(cache, "select * from substitutions") == []


def test_several_bad_images_in_one_block(tmp_path: Path) -> None:
    """Each is another case: a damaged one and one that is gone, by its own policy and with its own reason."""
    folder = save_folder(tmp_path / "in", {f"{k}.jpg": (64, 48) for k in range(8)})
    data = (folder / "2.jpg").read_bytes()
    (folder / "2.jpg").write_bytes(data[: len(data) // 2])
    policies: dict[str, Any] = {"on_bad_image": "replace", "on_missing_video": "replace"}
    with viewcache.open(config(tmp_path / "s", folder, sampling={"images_per_batch": 8}, **policies)) as cache:
        (folder / "5.jpg").unlink()
        batches = read(cache, epochs=1)
        assert [len(batch["index"]) for batch in batches.values()] == [8]
        reasons = sql(cache, "select video, reason from substitutions where epoch = 0 order by video")
        assert [video for video, _ in reasons] == ["2", "5"]
        assert all(f"{video}.jpg" in str(reason) for video, reason in reasons)


def test_a_task_of_videos_beside_one_of_images_keeps_its_clips(tmp_path: Path) -> None:
    """What is kept of videos is what would be kept if there were no images."""
    folder = save_folder(tmp_path / "both", {f"{k}.png": (64, 48) for k in range(4)})
    encode(folder / "v.mp4", frames=20)
    encode(folder / "w.mp4", frames=20)
    of_images = config(tmp_path / "store", folder)
    video = {**of_videos(tmp_path / "store", folder)["dataset"], "tag": "clips"}  # type: ignore[dict-item]
    with viewcache.open(of_images | {"dataset": [of_images["dataset"], video]}) as cache:
        for task in ("clips", "train"):
            assert cache.read(task, 0, 0).keys
        cache.owner.look_ahead.wait_idle()
        assert sql(cache, "select count(*) from objects where kind = 'clip' and keep") != [(0,)]
