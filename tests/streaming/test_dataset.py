"""What grows with the videos: labels, classes and batches; and what does not go with those that were drawn."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import viewcache
from tests.clips import encode
from tests.streaming.arriving import arrive, epoch_of, streaming
from tests.tiny import sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo


def labels_of(cache: Cache, epoch: int) -> dict[str, int]:
    """Video → its label in the batches of an epoch."""
    found: dict[str, int] = {}
    for each in range(cache.task("train").iterations(epoch)):
        batch = cache.read("train", epoch, each)
        found.update(zip(batch.videos, batch.label.tolist(), strict=True))
    return found


def settled(cache: Cache, epoch: int) -> list[str]:
    """The videos of an epoch, when all that is planned ahead is planned."""
    names = epoch_of(cache, epoch)
    cache.owner.look_ahead.wait_idle(60)
    return sorted(names)


def test_a_class_keeps_its_number_when_others_come(tmp_path: Path, clips: list[Path]) -> None:
    """Law 3: labels of drawn batches stay, while a folder sorts between those there are; also after a restart."""
    folder = tmp_path / "videos"
    for name, clip in (("bird", clips[0]), ("dog", clips[1])):
        arrive(folder / name, clip)
    given = streaming(tmp_path / "s", folder, labels="folders", join="epoch", on_bad_video="replace")
    with viewcache.open(given) as cache:
        first = labels_of(cache, 0)
        cache.owner.look_ahead.wait_idle(60)
        assert cache.classes("train") == ("bird", "dog")
        arrive(folder / "cat", clips[2])
        arrive(folder / "ant", clips[3])
        labels_of(cache, 1)
        assert labels_of(cache, 2) == {"bird.-v0": 0, "dog.-v1": 1, "ant.-v3": 2, "cat.-v2": 3}
        assert cache.classes("train") == ("bird", "dog", "ant", "cat")
    shutil.rmtree(folder / "ant")
    arrive(folder / "aardvark", clips[4])
    with viewcache.open(given) as cache:
        assert cache.classes("train")[:4] == ("bird", "dog", "ant", "cat")
    arrive(folder / "ant", clips[3])
    with viewcache.open(given) as cache:
        assert labels_of(cache, 0) == first
        assert labels_of(cache, 5)["aardvark.-v4"] == 4


def test_a_video_waits_for_its_row_of_the_label_table(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """The table is read again; what it does not name yet is in no batch, so that no batch changes its labels."""
    table = tmp_path / "labels.csv"
    table.write_text("video,label\nv0,a\nv1,b\n")
    given = streaming(tmp_path / "s", folder, labels=str(table), join="epoch")
    with viewcache.open(given) as cache:
        assert settled(cache, 0) == ["v0", "v1"]
        arrive(folder, clips[3])
        table.write_text("video,label\nv0,a\nv1,b\nv3,b\n")
        settled(cache, 1)
        assert labels_of(cache, 2) == {"v0": 0, "v1": 1, "v3": 1}
        cache.owner.look_ahead.wait_idle(60)
        table.write_text("video,label\n")  # as it is while somebody writes it anew: nothing new joins
        arrive(folder, clips[4])
        assert settled(cache, 3) == settled(cache, 4) == ["v0", "v1", "v3"]
        table.write_text("video,label\nv0,a\nv1,b\nv2,c\nv3,b\nv4,c\n")
        settled(cache, 5)
        assert labels_of(cache, 6) == {"v0": 0, "v1": 1, "v2": 2, "v3": 1, "v4": 2}


@pytest.mark.parametrize("fields", [[], ["score"]], ids=["labels", "fields"])
@pytest.mark.parametrize(
    ("names", "more"),
    [(["x", "y", "z"], {}), ([5, 7, 9], {}), ([["x"], ["y", "x"], ["z"]], {"classes": ["x", "y", "z"]})],
    ids=["one", "numbers", "several"],
)
def test_a_row_that_leaves_while_the_cache_is_open(
    tmp_path: Path, folder: Path, names: list[object], more: dict[str, object], fields: list[str]
) -> None:
    """Drawn epochs keep the label and the fields of a video that has no row any more, now and after a restart."""
    table = tmp_path / "labels.jsonl"
    rows = [json.dumps({"video": f"v{k}", "label": name, "score": k / 2}) for k, name in enumerate(names)]
    table.write_text("\n".join(rows))
    more = {"labels": str(table), "fields": fields, "join": "epoch", "on_bad_video": "replace", **more}
    given = streaming(tmp_path / "s", folder, **more)
    with viewcache.open(given) as cache:
        assert settled(cache, 0) == ["v0", "v1", "v2"]
        first, classes = labels_of(cache, 0), cache.classes("train")
        assert len({str(label) for label in first.values()}) == 3
        table.write_text("\n".join(rows[:2]))
        assert settled(cache, 1) == ["v0", "v1", "v2"]
        assert settled(cache, 2) == ["v0", "v1"]
        assert labels_of(cache, 0) == labels_of(cache, 1) == first
        assert cache.classes("train") == classes
    with viewcache.open(given) as cache:
        assert labels_of(cache, 0) == labels_of(cache, 1) == first
        assert cache.classes("train") == classes


def test_a_label_that_was_corrected_twice(tmp_path: Path, folder: Path) -> None:
    """The catalog has what the table said last, also where that is what it said when the cache was opened."""
    table = tmp_path / "labels.csv"
    table.write_text("video,label\nv0,a\nv1,b\nv2,c\n")
    given = streaming(tmp_path / "s", folder, labels=str(table), join="epoch", on_bad_video="replace")
    with viewcache.open(given) as cache:
        settled(cache, 0)
    with viewcache.open(given) as cache:
        for epoch, label in enumerate(["b", "c"], 1):
            table.write_text(f"video,label\nv0,a\nv1,b\nv2,{label}\n")
            settled(cache, epoch)
            assert sql(cache, "select label from videos where video = 'v2'") == [(label,)]


def test_a_video_of_another_shape_does_not_stop_training(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """Where clips have the size of their video, one of another size is left out, or is an error: before it is drawn."""
    wide = tmp_path / "wide.mp4"
    encode(wide, frames=20, size=(96, 48))
    steps = [{"branch_type": "single", "inputs": ["frame"], "outputs": ["a"], "config": [{"flip": {"flip_prob": 0.5}}]}]
    usual = {"augmentation": steps, "join": "epoch"}
    with viewcache.open(streaming(tmp_path / "skip", folder, on_bad_video="replace", **usual)) as cache:
        settled(cache, 0)
        arrive(folder, wide, clips[3])
        settled(cache, 1)
        assert settled(cache, 2) == settled(cache, 4) == ["v0", "v1", "v2", "v3"]
        told = str(sql(cache, "select distinct message from errors"))
        assert "wide.mp4: it gives clips of (4, 3, 48, 96), those drawn before are (4, 3, 48, 64)" in told
    with viewcache.open(streaming(tmp_path / "skip", folder, on_bad_video="replace", **usual)) as cache:
        assert settled(cache, 7) == ["v0", "v1", "v2", "v3"]
    (folder / "wide.mp4").unlink()
    with viewcache.open(streaming(tmp_path / "raise", folder, **usual)) as cache:
        settled(cache, 0)
        arrive(folder, wide)
        settled(cache, 1)
        with pytest.raises(BadVideo, match="a resize to a shape; or remove it"):
            epoch_of(cache, 2)
        (folder / "wide.mp4").unlink()
        assert settled(cache, 2) == ["v0", "v1", "v2", "v3"]


def test_files_that_go_or_are_replaced_meet_their_policies(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """Who is gone is not drawn again, and in drawn epochs another stands in; other content never takes a drawn name."""
    arrive(folder, *clips[3:6])
    given = streaming(tmp_path / "s", folder, join="epoch", on_bad_video="replace", cache={"budget": "200KB"})
    with viewcache.open(given) as cache:
        assert settled(cache, 0) == [f"v{k}" for k in range(6)]
        before = {each: cache.read("train", 1, each) for each in range(3)}
        cache.owner.look_ahead.wait_idle(60)
        (folder / "v1.mp4").rename(tmp_path / "v1.mp4")
        arrive(folder, clips[9], name="v2.mp4")  # replaced while the cache is open
        settled(cache, 2)
        assert settled(cache, 3) == ["v0", "v3", "v4", "v5"]
        (tmp_path / "v1.mp4").rename(folder / "v1.mp4")
        settled(cache, 4)
        assert settled(cache, 6) == ["v0", "v1", "v3", "v4", "v5"]
        for each, batch in before.items():
            again = cache.read("train", 1, each)
            assert "v2" in batch.videos or (again.videos == batch.videos and np.array_equal(again.video, batch.video))
    with pytest.raises(BadInput, match=r"v2\.mp4 has other content"):
        viewcache.open(given)


def test_batches_of_an_epoch_are_those_of_its_videos(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """A loader goes through epochs of different lengths, and its length is that of the epoch that comes next."""
    given = streaming(tmp_path / "s", folder, join="epoch", epochs=4)
    with viewcache.open(given) as cache:
        loader = cache.loader("train")
        arrive(folder, *clips[3:5])
        counts: dict[int, int] = {}
        sizes = []
        for batch in loader.all_epochs():
            epoch = loader.state_dict()["epoch"]
            sizes.append(len(batch["index"]))
            counts[epoch] = counts.get(epoch, 0) + 1
        assert sizes == [2, 2, 1] * 4, "what had come before the first batch was drawn is in it"
        assert len(loader) == 3
        with pytest.raises(BadInput, match=r"grows, so 2 ranks .* let a service own the cache"):
            cache.loader("train", rank=0, world=2)


def test_fewer_videos_than_a_batch_are_told_before_they_are_drawn(
    tmp_path: Path, clips: list[Path], folder: Path
) -> None:
    """With drop_last an epoch that would have no batch is not drawn; when more videos are there it is."""
    with viewcache.open(streaming(tmp_path / "s", folder, join="epoch", drop_last=True)) as cache:
        epoch_of(cache, 0)
        cache.owner.look_ahead.wait_idle(60)
        for each in clips[:2]:
            (folder / each.name).unlink()
        with pytest.raises(BadInput, match="1 videos are there for epoch 2, and drop_last"):
            cache.task("train").iterations(2)
        arrive(folder, *clips[4:6])
        assert cache.task("train").iterations(2) == 1


def test_a_folder_that_cannot_be_listed_stops_nobody(
    tmp_path: Path, clips: list[Path], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file server that is away for a moment: epochs are drawn of what was there, and a warning says so."""
    with viewcache.open(streaming(tmp_path / "s", folder, join="epoch", epochs=4)) as cache:
        task = cache.task("train")
        assert task.iterations(0) == 2
        folder.rename(tmp_path / "away")
        assert task.iterations(1) == 2
        (tmp_path / "away").rename(folder)
        arrive(folder, *clips[3:6])
        assert task.iterations(3) == 3
    assert "nothing new joins" in caplog.text


def test_a_look_far_ahead_draws_all_that_is_before(tmp_path: Path, clips: list[Path], folder: Path) -> None:
    """Epochs are drawn in order, so that what has joined stays; whoever asks how long an epoch is draws it."""
    given = streaming(tmp_path / "s", folder, epochs=6)
    with viewcache.open(given) as cache:
        task = cache.task("train")
        assert task.iterations(5) == 2
        arrive(folder, *clips[3:6])
        assert [task.iterations(epoch) for epoch in range(6)] == [2] * 6
        assert sorted(epoch_of(cache, 3)) == ["v0", "v1", "v2"]
