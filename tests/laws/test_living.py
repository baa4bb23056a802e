"""Laws 1, 3 and 4 beside a dataset that lives: files are added, removed and replaced, and training goes on."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.tiny import config, drawn, encode_folder, open_cache, pixels, same, sql
from viewcache.api.cli.main import main
from viewcache.api.preview.lint import Level, lint
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo
from viewcache.materializer.dataset.changes import FileChange

DRAWS = "select epoch, position, video from draws order by epoch, position"
NAMES = [f"v{k}" for k in range(5)]
STAND_INS = "select epoch, position, video, policy, replacement, reason from substitutions order by all"


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def forget_clips(cache: Cache, video: str) -> None:
    """Let what is stored of a video leave the store, as an eviction would."""
    files = cache.task("train").task.dataset.files
    cache.catalog.flush()
    found = cache.catalog.copies_of_videos([int(files.ids[files.row_of_name[video]])])
    keys = set(found["key"].to_pylist())
    ledger = cache.owner.ledger
    copies = [copy for key in keys if (copy := ledger.find(key, "local")) is not None]
    assert copies
    cache.owner.dispatcher_now().evictor.give_up(copies)


def replaced(folder: Path, name: str, frames: int = 60) -> None:
    """Let a file have other content."""
    encode_folder(folder, {f"{name}.mp4": frames})
    os.utime(folder / f"{name}.mp4", ns=(1, frames))


# Removed -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["replace", "raise"])
def test_a_removed_clip_is_served_from_the_store(tmp_path: Path, folder: Path, policy: str) -> None:
    """What was made of a video whose file is gone shows what it showed, whatever the policy; nothing stands in."""
    with open_cache(tmp_path / "s", folder, labels="folders") as cache:
        before = pixels(cache)
        described = cache.task("train").describe(0, 0)
    (folder / "v3.mp4").unlink()
    for _ in range(2):
        with open_cache(tmp_path / "s", folder, labels="folders", on_missing_video=policy) as cache:
            assert same(pixels(cache), before)
            assert np.array_equal(cache.task("train").describe(0, 0).time_s, described.time_s)
            assert sql(cache, STAND_INS) == []
            assert [each.name for each in cache.task("train").videos()] == ["v0", "v1", "v2", "v4"]


def test_a_removed_clip_that_is_not_stored_is_replaced(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By default another video stands in where nothing is stored: on record, told, and for good."""
    with open_cache(tmp_path / "s", folder) as cache:
        before = pixels(cache)
        forget_clips(cache, "v3")
    (folder / "v3.mp4").rename(tmp_path / "v3.mp4")
    caplog.clear()
    with open_cache(tmp_path / "s", folder) as cache:
        after = pixels(cache)
        rows = sql(cache, STAND_INS)
        errors = sql(cache, "select message from errors where name = 'train'")
    assert [row[:1] + row[2:4] for row in rows] == [(epoch, "v3", "replace") for epoch in range(3)]
    assert all(drawn(after)[int(str(row[0]))][2 * int(str(row[1]))] == row[4] for row in rows)
    assert all("is not in" in str(row[5]) for row in rows)
    assert "missing_videos" in {getattr(each, "action", "") for each in caplog.records}
    assert any(str(each).startswith("missing_video: ") for (each,) in errors)
    for place, batch in before.items():
        for name, new in zip(batch.videos, after[place].videos, strict=True):
            assert new == name if name != "v3" else new != "v3"
    (tmp_path / "v3.mp4").rename(folder / "v3.mp4")
    with open_cache(tmp_path / "s", folder) as cache:
        assert same(pixels(cache), after), "a place shows what stood in, also when the file is back"


def test_a_removed_clip_is_an_error_where_that_is_asked_for(tmp_path: Path, folder: Path) -> None:
    """With ``raise`` opening says which file is gone, and the cure; with it training goes on."""
    with open_cache(tmp_path / "s", folder) as cache:
        pixels(cache)
        forget_clips(cache, "v3")
    (folder / "v3.mp4").unlink()
    told = (
        r"v3\.mp4 is not in .*videos any more; task 'train' has drawn it: restore the file.*on_missing_video: replace"
    )
    with pytest.raises(BadVideo, match=told):
        open_cache(tmp_path / "s", folder, on_missing_video="raise")
    with open_cache(tmp_path / "s", folder) as cache:
        assert len(pixels(cache)) == 9


def test_a_bad_video_is_still_an_error(tmp_path: Path, folder: Path) -> None:
    """A file that is there and cannot be decoded is the case of ``on_bad_video``, as before."""
    with open_cache(tmp_path / "s", folder) as cache:
        cache.task("train").task.generation(0)
    (folder / "v3.mp4").write_bytes(b"\0" * 2000)
    with pytest.raises(BadVideo, match=r"v3\.mp4: "):
        open_cache(tmp_path / "s", folder)


@pytest.mark.parametrize("policy", ["replace", "raise"])
def test_a_file_that_goes_while_the_cache_is_open(tmp_path: Path, folder: Path, policy: str) -> None:
    """Nothing of it was made yet: another video stands in, each time on record; or the reader gets an error."""
    with open_cache(tmp_path / "s", folder, on_missing_video=policy, epochs=2) as cache:
        cache.task("train").task.generation(0)
        (folder / "v1.mp4").unlink()
        if policy == "raise":
            with pytest.raises(BadVideo, match="restore the file, or set on_missing_video: replace"):
                pixels(cache)
            return
        first = pixels(cache)
        rows = sql(cache, "select distinct epoch, video from substitutions order by epoch")
        errors = sql(cache, "select distinct message from errors where name = 'train'")
        assert same(pixels(cache), first)
        assert sql(cache, "select status from videos where video = 'v1'") == [("gone",)], "so its clips stay"
    assert errors
    assert all(str(each).startswith("missing_video: ") for (each,) in errors)
    assert rows == [(0, "v1"), (1, "v1")]
    with open_cache(tmp_path / "s", folder, on_missing_video=policy, epochs=2) as cache:
        assert [(str(each.change), each.names) for each in cache.changes("train")] == [("removed", ("v1",))]
    assert all("v1" not in names and len(names) == 10 for names in drawn(first).values())


def test_classes_keep_their_numbers_when_the_last_video_of_one_goes(tmp_path: Path, videos: Path) -> None:
    """A label whose only video is gone stays a class as long as it was drawn: the others keep their numbers."""
    folder = tmp_path / "videos"
    for k in range(4):
        (folder / f"c{k}").mkdir(parents=True)
        shutil.copyfile(videos / f"v{k}.mp4", folder / f"c{k}" / "clip.mp4")
    with open_cache(tmp_path / "s", folder, labels="folders") as cache:
        before = pixels(cache)
        assert cache.classes("train") == ("c0", "c1", "c2", "c3")
    shutil.rmtree(folder / "c0")
    with open_cache(tmp_path / "s", folder, labels="folders") as cache:
        assert cache.classes("train") == ("c0", "c1", "c2", "c3")
        after = pixels(cache)
    assert same(after, before)
    assert all(np.array_equal(batch.label, after[place].label) for place, batch in before.items())


def test_segments_of_a_removed_clip_are_served_too(tmp_path: Path, folder: Path) -> None:
    """Each row of a table is an item; those of a file that is gone show what they showed, or have a stand-in each."""
    rows = [f"{name}.mp4,{at},{at + 0.6},{'early' if at == 0 else 'late'}" for name in NAMES for at in (0.0, 0.7)]
    (tmp_path / "rows.csv").write_text("\n".join(["video,start_s,end_s,label", *rows]))
    labels = str(tmp_path / "rows.csv")
    with open_cache(tmp_path / "s", folder, labels=labels, epochs=2) as cache:
        before = pixels(cache)
    (folder / "v3.mp4").unlink()
    with open_cache(tmp_path / "s", folder, labels=labels, epochs=2) as cache:
        after = pixels(cache)
        assert same(after, before)
        assert all(np.array_equal(batch.label, after[place].label) for place, batch in before.items())
        assert cache.changes("train")[0].names == ("v3",)
        forget_clips(cache, "v3")
    with open_cache(tmp_path / "s", folder, labels=labels, epochs=2) as cache:
        without = pixels(cache)
        assert sql(cache, "select count(*), count(distinct video) from substitutions") == [(4, 1)]
    assert all("v3" not in names and len(names) == 20 for names in drawn(without).values())


# Replaced ------------------------------------------------------------------------------------------------------------


def test_a_new_version_leaves_what_was_drawn(tmp_path: Path, folder: Path) -> None:
    """With ``version`` all drawn epochs keep pixels, names and keys; later ones have the new content, under a new name.

    It holds again when the version is replaced in its turn, and when the catalog is opened without a change.
    """
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
        frame = cache.frame("train", "v0", 3)
    replaced(folder, "v2")
    with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when .* drew it.*on_changed_video: version"):
        open_cache(tmp_path / "s", folder, epochs=4)
    for _ in range(2):
        with open_cache(tmp_path / "s", folder, epochs=4, on_changed_video="version") as cache:
            after = pixels(cache)
            assert np.array_equal(cache.frame("train", "v0", 3), frame)
            assert sql(cache, "select video, status, frames from videos where uri like '%v2.mp4%' order by video") == [
                ("v2", "gone", 46),
                ("v2.v2", "ok", 60),
            ]
            assert sql(cache, STAND_INS) == []
    assert same({place: after[place] for place in before}, before)
    assert all(batch.keys == after[place].keys for place, batch in before.items())
    names = drawn(after)
    assert ["v2" in names[epoch] for epoch in range(4)] == [True, True, False, False]
    assert ["v2.v2" in names[epoch] for epoch in range(4)] == [False, False, True, True]
    replaced(folder, "v2", 50)
    with open_cache(tmp_path / "s", folder, epochs=6, on_changed_video="version") as cache:
        last = pixels(cache)
    assert same({place: last[place] for place in after}, after)
    assert "v2.v3" in drawn(last)[5]
    assert all(len(names) == 2 * len(set(names)) == 10 for names in drawn(last).values()), "exactly once"


def test_what_cannot_be_had_of_an_old_version_is_replaced(tmp_path: Path, folder: Path) -> None:
    """Clips of the old content that are not stored have a recorded stand-in; reads of the others go on as before."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
        forget_clips(cache, "v2")
    replaced(folder, "v2")
    with open_cache(tmp_path / "s", folder, epochs=2, on_changed_video="version") as cache:
        after = pixels(cache)
        rows = sql(cache, STAND_INS)
        with pytest.raises(BadVideo, match=r"content of before.*no such file"):
            cache.frame("train", "v2", 5)
        assert cache.frame("train", "v2.v2", 59).shape == (3, 48, 64)
    assert [row[2] for row in rows] == ["v2", "v2"]
    assert all("has other content by now" in str(row[5]) for row in rows)
    for place, batch in before.items():
        for k, name in enumerate(batch.videos):
            if name != "v2":
                assert np.array_equal(batch.video[k], after[place].video[k])


def test_an_old_version_is_an_error_where_that_is_asked_for(tmp_path: Path, folder: Path) -> None:
    """``version`` with ``on_missing_video: raise`` goes on only as long as all that was drawn is stored."""
    options = {"epochs": 2, "on_changed_video": "version", "on_missing_video": "raise"}
    with open_cache(tmp_path / "s", folder, **options) as cache:  # type: ignore[arg-type]  # some of the keywords
        before = pixels(cache)
    replaced(folder, "v2")
    with open_cache(tmp_path / "s", folder, **options) as cache:  # type: ignore[arg-type]  # the same
        assert same(pixels(cache), before)
        forget_clips(cache, "v2")
    with pytest.raises(BadVideo, match=r"other content by now.*set on_missing_video: replace"):
        open_cache(tmp_path / "s", folder, **options)  # type: ignore[arg-type]  # the same


def test_a_file_that_is_replaced_by_garbage_is_a_version(tmp_path: Path, folder: Path) -> None:
    """What was drawn stays, and the new content is a bad video of later generations, as ``on_bad_video`` says."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
    (folder / "v2.mp4").write_bytes(b"\0" * 3000)
    with open_cache(tmp_path / "s", folder, epochs=2, on_changed_video="version") as cache:
        assert same(pixels(cache), before)


@pytest.mark.parametrize("policy", ["raise", "warn", "version"])
def test_another_file_behind_garbage_is_told_from_what_was_drawn(tmp_path: Path, folder: Path, policy: str) -> None:
    """A file was cut off while it was copied, and a cache was opened: what was drawn before is still known."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
    garbage = folder / "v2.mp4"
    for size in (3000, 4000):  # as it grew
        garbage.write_bytes(b"\0" * size)
        with pytest.raises(BadVideo, match=r"v2\.mp4: "):
            open_cache(tmp_path / "s", folder, epochs=2)
    replaced(folder, "v2")
    if policy == "raise":
        for _ in range(2):
            with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task 'train' drew it"):
                open_cache(tmp_path / "s", folder, epochs=2)
        return
    with open_cache(tmp_path / "s", folder, epochs=2, on_changed_video=policy) as cache:
        assert [each.change for each in cache.changes("train")] == [FileChange.REPLACED]
        assert same(pixels(cache), before) == (policy == "version")


def test_a_file_is_restored_behind_garbage(tmp_path: Path, folder: Path) -> None:
    """The bytes that were drawn, at another time: nothing is refused, and every view shows what it showed."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
    good = (folder / "v2.mp4").read_bytes()
    (folder / "v2.mp4").write_bytes(good[: len(good) // 2])
    with pytest.raises(BadVideo, match=r"v2\.mp4: "):
        open_cache(tmp_path / "s", folder, epochs=2)
    (folder / "v2.mp4").write_bytes(good)
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        assert same(pixels(cache), before)
        assert cache.changes("train") == ()


def test_a_bad_file_that_is_mended_was_never_seen(tmp_path: Path, folder: Path) -> None:
    """A video that was damaged from the beginning shows nothing that another content could contradict."""
    good = (folder / "v2.mp4").read_bytes()
    (folder / "v2.mp4").write_bytes(good[: len(good) * 2 // 3])
    with open_cache(tmp_path / "s", folder, epochs=2, on_bad_video="skip") as cache:
        before = pixels(cache)
    (folder / "v2.mp4").write_bytes(good)
    with open_cache(tmp_path / "s", folder, epochs=2, on_bad_video="skip") as cache:
        assert same(pixels(cache), before)


def test_a_bad_file_is_selected_alike_whatever_it_was(tmp_path: Path, folder: Path) -> None:
    """What nobody has drawn decides nothing: a cache that saw the file whole draws as one that did not."""
    options: dict[str, Any] = {"epochs": 2, "where": "frames > 5", "on_bad_video": "replace"}
    (config_file := tmp_path / "config.yaml").write_text(yaml.safe_dump(config(tmp_path / "s", folder, **options)))
    assert main(["scan", str(config_file)]) == 0
    (folder / "v2.mp4").write_bytes(bytes(3000))
    with open_cache(tmp_path / "s", folder, **options) as cache, open_cache(tmp_path / "t", folder, **options) as fresh:
        assert sql(cache, DRAWS) == sql(fresh, DRAWS)
        assert same(pixels(cache), pixels(fresh))


@pytest.mark.parametrize("cut", [0, 2], ids=["garbage", "damaged"])
def test_a_bad_file_that_goes_and_comes_mended_was_never_seen(tmp_path: Path, folder: Path, cut: int) -> None:
    """Nor does it matter that the cache was opened while it was away."""
    good = (folder / "v2.mp4").read_bytes()
    (folder / "v2.mp4").write_bytes(good[: len(good) * cut // 3] or bytes(3000))
    options: dict[str, Any] = {"epochs": 2, "on_bad_video": "replace"}
    with open_cache(tmp_path / "s", folder, **options) as cache:
        before = pixels(cache)
    (folder / "v2.mp4").unlink()
    with open_cache(tmp_path / "s", folder, **options) as cache:
        assert same(pixels(cache), before)
    (folder / "v2.mp4").write_bytes(good)
    with open_cache(tmp_path / "s", folder, **options) as cache:
        assert same(pixels(cache), before)


@pytest.mark.parametrize("policy", ["raise", "warn", "version"])
def test_what_stands_in_is_held_to_its_content_too(tmp_path: Path, folder: Path, policy: str) -> None:
    """A file that came later and was never drawn may stand in; its place shows its content from then on."""
    with open_cache(tmp_path / "s", folder, epochs=4) as cache:
        pixels(cache)
        forget_clips(cache, "v3")
    (folder / "v3.mp4").unlink()
    encode_folder(folder, {f"n{number}.mp4": 46 for number in range(9)})
    with open_cache(tmp_path / "s", folder, epochs=4) as cache:
        before = pixels(cache)
        new = [row for row in sql(cache, STAND_INS) if str(row[4]).startswith("n")]
    assert new, "most of those that may stand in are new"
    epoch, position, *_, name, _ = new[0]
    view = int(str(epoch)), int(str(position)) // 2
    replaced(folder, str(name))
    if policy == "raise":
        with pytest.raises(BadInput, match=rf"{name}\.mp4 has other content than when .* drew it"):
            open_cache(tmp_path / "s", folder, epochs=4)
        return
    with open_cache(tmp_path / "s", folder, epochs=4, on_changed_video=policy) as cache:
        (told,) = cache.changes("train")
        assert (told.change, told.first_views[:1]) == (FileChange.REPLACED, (view,))
        after = pixels(cache)
    if policy == "version":
        assert same(after, before)
    else:
        assert after[view].videos == before[view].videos
        assert after[view].keys != before[view].keys


# Epochs of another length --------------------------------------------------------------------------------------------


def test_shorter_epochs_are_still_to_come(tmp_path: Path, folder: Path) -> None:
    """Most videos were removed while an epoch of all of them was read: what `run` makes of those behind it is needed,
    and `gc` leaves it.
    """
    each: dict[str, Any] = {"cache": {"epochs_per_generation": 1}, "epochs": 4}
    with open_cache(tmp_path / "s", folder, **each) as cache:
        for iteration in range(3):
            cache.read("train", 0, iteration)
        cache.task("train").task.generation(1)
    for name in NAMES[2:]:
        (folder / f"{name}.mp4").unlink()
    with open_cache(tmp_path / "s", folder, **each) as cache:
        assert [cache.task("train").task.iterations(epoch) for epoch in range(4)] == [3, 3, 1, 1]
        for iteration in range(3):
            cache.read("train", 1, iteration)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config(tmp_path / "s", folder, **each)))
    assert main(["run", str(tmp_path / "train.yaml")]) == 0
    assert main(["gc", str(tmp_path / "train.yaml")]) == 0
    with open_cache(tmp_path / "s", folder, **each) as cache:
        ready = "count(distinct u.object_id), count(distinct k.object_id)"
        coming = f"select epoch, {ready} from deadlines u left join copies k using (object_id) group by 1 order by 1"
        assert sql(cache, coming) == [(2, 4, 4), (3, 4, 4)]
        assert sql(cache, "select distinct epoch, iterations_ahead from deadlines order by 1") == [(2, 0), (3, 1)]


@pytest.mark.parametrize("damaged", [False, True], ids=["gone", "damaged"])
def test_the_last_video_stands_in(tmp_path: Path, folder: Path, damaged: bool) -> None:
    """With one video left it stands in for all that are gone, also for clips that were stored and are damaged."""
    for name in NAMES[2:]:
        (folder / f"{name}.mp4").unlink()
    with open_cache(tmp_path / "s", folder, epochs=1) as cache:
        pixels(cache)
        if not damaged:
            forget_clips(cache, "v1")
    (folder / "v1.mp4").unlink()
    if damaged:
        for path in (tmp_path / "s" / "objects").rglob("*"):
            if path.is_file() and path.name != "zarr.json":
                data = bytearray(path.read_bytes())
                data[100] ^= 255
                path.write_bytes(data)
    with open_cache(tmp_path / "s", folder, epochs=1) as cache:
        assert drawn(pixels(cache)) == {0: ["v0"] * 4}


# Told ----------------------------------------------------------------------------------------------------------------


def test_changes_are_told_once(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Opening tells what came, went and was replaced, from which epoch it counts and which read batches show it."""
    caplog.set_level(logging.INFO, "viewcache.dataset")
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        assert cache.changes("train") == ()
        before = pixels(cache)
    encode_folder(folder, {"a-new.mp4": 44, "b-new.mp4": 45})
    (folder / "v3.mp4").rename(tmp_path / "v3.mp4")
    replaced(folder, "v2")
    with open_cache(tmp_path / "s", folder, epochs=6, on_changed_video="version") as cache:
        added, removed, changed = cache.changes("train")
        rows = sql(cache, "select kind, count, detail from events where kind like 'videos_%' order by event_id")
    shows = {name: [place for place, batch in before.items() if name in batch.videos] for name in NAMES}
    assert (added.change, added.names, added.from_epoch) == (FileChange.ADDED, ("a-new", "b-new"), 2)
    assert (removed.change, removed.names, list(removed.first_views)) == (FileChange.REMOVED, ("v3",), shows["v3"])
    assert (changed.change, changed.names, list(changed.first_views)) == (FileChange.REPLACED, ("v2",), shows["v2"])
    assert [row[:2] for row in rows] == [("videos_added", 2), ("videos_removed", 1), ("videos_replaced", 1)]
    assert "a-new, b-new" in str(rows[0][2])
    (line,) = [each.getMessage() for each in caplog.records if getattr(each, "action", "") == "files_changed"]
    assert "2 files were added (a-new, b-new), from epoch 2 on; 1 file was removed (v3), which 2 batches" in line
    (tmp_path / "v3.mp4").rename(folder / "v3.mp4")
    with open_cache(tmp_path / "s", folder, epochs=6, on_changed_video="version") as cache:
        (back,) = cache.changes("train")
        assert (back.change, back.names, back.from_epoch) == (FileChange.RETURNED, ("v3",), 2)
    with open_cache(tmp_path / "s", folder, epochs=6, on_changed_video="version") as cache:
        assert cache.changes("train") == ()


def test_an_opening_that_is_refused_leaves_the_news_to_the_next(tmp_path: Path, folder: Path) -> None:
    """A file is replaced, one is removed, one comes: the error is about the first, and all are told when it may."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        pixels(cache)
    (folder / "v3.mp4").unlink()
    encode_folder(folder, {"a-new.mp4": 44})
    replaced(folder, "v2")
    for _ in range(2):
        with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task 'train' drew it"):
            open_cache(tmp_path / "s", folder, epochs=2)
    with open_cache(tmp_path / "s", folder, epochs=2, on_changed_video="version") as cache:
        added, removed, changed = cache.changes("train")
        assert sql(cache, "select video from videos where status = 'gone' and video = 'v3'") == [("v3",)]
    assert (added.change, added.names) == (FileChange.ADDED, ("a-new",))
    assert (removed.change, removed.names) == (FileChange.REMOVED, ("v3",))
    assert (changed.change, changed.names) == (FileChange.REPLACED, ("v2",))
    with open_cache(tmp_path / "s", folder, epochs=2, on_changed_video="version") as cache:
        assert cache.changes("train") == ()


def test_a_task_is_told_of_what_it_selects(tmp_path: Path, folder: Path) -> None:
    """Files that its predicate leaves out were not added for it."""
    with open_cache(tmp_path / "s", folder, where="video like 'v%'") as cache:
        cache.read("train", 0, 0)
    encode_folder(folder, {"a-new.mp4": 44, "v-new.mp4": 45})
    with open_cache(tmp_path / "s", folder, where="video like 'v%'") as cache:
        (added,) = cache.changes("train")
    assert added.names == ("v-new",)


def with_classes(folder: Path, videos: Path, **of: int) -> None:
    """Folders by name, each with one video, v of a number."""
    for name, number in of.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(videos / f"v{number}.mp4", folder / name / "clip.mp4")


def test_classes_that_shift_are_told(tmp_path: Path, videos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A class folder that comes gives others another number: a warning, a change and an event say which, once."""
    folder = tmp_path / "videos"
    with_classes(folder, videos, cat=0, dog=1)
    for _ in range(2):
        with open_cache(tmp_path / "s", folder, labels="folders") as cache:
            before = cache.read("train", 0, 0)
            assert cache.warnings == ()
    with_classes(folder, videos, eel=2)  # behind the others: nothing shifts
    with open_cache(tmp_path / "s", folder, labels="folders") as cache:
        assert cache.warnings == ()
    with_classes(folder, videos, ant=3)
    caplog.clear()
    with open_cache(tmp_path / "s", folder, labels="folders") as cache:
        added, moved = cache.changes("train")
        (warning,) = cache.warnings
        rows = sql(cache, "select task, count, detail from events where kind = 'videos_renumbered'")
    assert (added.change, moved.change, moved.count) == (FileChange.ADDED, FileChange.RENUMBERED, 3)
    told = "class 'cat' was 0 and is 1, class 'dog' was 1 and is 2, class 'eel' was 2 and is 3"
    assert rows == [("train", 3, told)]
    assert warning == f"task 'train': {moved}"
    assert f"3 classes have other numbers than before ({told})" in warning
    assert "as classes" in warning
    (line,) = [each for each in caplog.records if getattr(each, "action", "") == "files_changed"]
    assert line.levelno == logging.WARNING
    assert str(moved) in line.getMessage()
    with_classes(folder, videos, bat=4)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config(tmp_path / "s", folder, labels="folders")))
    (problem,) = lint([str(tmp_path / "train.yaml")], scan=True)
    assert (problem.level, problem.kind) == (Level.WARNING, "renumbered_classes")
    shutil.rmtree(folder / "bat")
    names = ["cat", "dog", "eel", "ant"]  # what the warning says to do
    for told in ("class 'ant' was 0 and is 3, class 'cat' was 1 and is 0", ""):  # back again, which is told once, too
        with open_cache(tmp_path / "s", folder, labels="folders", classes=names) as cache:
            assert len(cache.warnings) == bool(told)
            assert told in "".join(cache.warnings)
            after = cache.read("train", 0, 0)
    assert np.array_equal(after.label, before.label)
    assert np.array_equal(after.video, before.video)
