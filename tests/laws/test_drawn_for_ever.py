"""Law 4: reading a path forces its draw, the draw is recorded, and the path never changes meaning."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import drawn, encode_folder, open_cache, pixels, same, sql
from viewcache.errors import BadInput, BudgetTooSmall

DRAWS = "select epoch, position, video from draws order by epoch, position"


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def test_draws_are_recorded_and_a_restart_goes_by_them(tmp_path: Path, videos: Path) -> None:
    """What was read is what ``draws`` says; opened again, nothing is drawn anew and every view is the same."""
    with open_cache(tmp_path, videos) as cache:
        first = pixels(cache)
        rows = sql(cache, DRAWS)
    for epoch, names in drawn(first).items():
        assert names[::2] == [video for at, _, video in rows if at == epoch]
    with open_cache(tmp_path, videos) as cache:
        assert same(pixels(cache), first)
        assert sql(cache, DRAWS) == rows


@pytest.mark.parametrize("epochs", [4, 7])
def test_more_epochs_later_change_nothing_that_was_drawn(tmp_path: Path, videos: Path, epochs: int) -> None:
    """Raising ``epochs``, also in the middle of a generation, keeps all views and adds what would have come anyway."""
    with open_cache(tmp_path / "grown", videos) as cache:
        before = pixels(cache)
    with open_cache(tmp_path / "grown", videos, epochs=epochs) as cache:
        after = pixels(cache)
        assert sql(cache, "select count(*), max(epoch) from draws") == [(5 * epochs, epochs - 1)]
        assert sql(cache, "select count(*) from uses") == [(10 * epochs,)]
    assert same({place: after[place] for place in before}, before)
    with open_cache(tmp_path / "at once", videos, epochs=epochs) as cache:
        assert same(pixels(cache), after)


def test_fewer_epochs_later_keep_what_is_left(tmp_path: Path, videos: Path) -> None:
    """Lowering ``epochs`` ends the task earlier; what remains is the same."""
    with open_cache(tmp_path, videos, epochs=4) as cache:
        before = pixels(cache)
    with open_cache(tmp_path, videos, epochs=3) as cache:
        after = pixels(cache)
    assert same(after, {place: before[place] for place in after})


def test_added_files_join_in_generations_not_yet_drawn(tmp_path: Path, folder: Path) -> None:
    """New videos leave drawn epochs as they are and come in the next generation, exactly once per epoch."""
    with open_cache(tmp_path / "s", folder, epochs=6) as cache:
        before = {(epoch, i): cache.read("train", epoch, i) for epoch in range(2) for i in range(3)}
        cache.task("train").task.generation(1)  # the planner does it in the background too; now for certain
        rows = sql(cache, DRAWS)
        assert [epoch for epoch, *_ in rows] == [k // 5 for k in range(20)]
    encode_folder(folder, {"a-new.mp4": 44})
    with open_cache(tmp_path / "s", folder, epochs=6) as cache:
        after = pixels(cache)
        assert sql(cache, DRAWS + " limit 20") == rows
    assert same({place: after[place] for place in before}, before)
    assert ["a-new" in names for names in drawn(after).values()] == [False] * 4 + [True] * 2
    assert all(len(names) == 2 * len(set(names)) for names in drawn(after).values())


def test_a_started_generation_keeps_its_videos(tmp_path: Path, folder: Path) -> None:
    """Epochs added to a generation that is drawn in part draw from the videos that it began with."""
    with open_cache(tmp_path / "s", folder) as cache:
        before = pixels(cache)
    encode_folder(folder, {"a-new.mp4": 44})
    with open_cache(tmp_path / "s", folder, epochs=6) as cache:
        after = pixels(cache)
    assert same({place: after[place] for place in before}, before)
    assert ["a-new" in names for names in drawn(after).values()] == [False] * 4 + [True] * 2


def test_a_replaced_file_is_an_error(tmp_path: Path, folder: Path) -> None:
    """Other content under the name of a drawn video would change what paths show; opening says so, every time.

    The same content written again is no change, and neither is a replaced file that nobody has drawn.
    """
    with open_cache(tmp_path / "s", folder) as cache:
        before = pixels(cache)
    with open_cache(tmp_path / "fresh", folder):
        pass
    shutil.copyfile(folder / "v2.mp4", tmp_path / "v2.mp4")
    encode_folder(folder, {"v2.mp4": 60})
    for _ in range(2):
        with pytest.raises(BadInput, match=r"v2\.mp4 has other content than when task 'train' drew it, .* restore"):
            open_cache(tmp_path / "s", folder)
    with open_cache(tmp_path / "fresh", folder) as cache:
        assert cache.read("train", 0, 0).videos
    shutil.copyfile(tmp_path / "v2.mp4", folder / "v2.mp4")
    with open_cache(tmp_path / "s", folder) as cache:
        after = pixels(cache)
    assert drawn(after) == drawn(before)
    assert all(np.array_equal(batch.video, after[place].video) for place, batch in before.items())


def test_a_replaced_file_that_was_away_is_an_error(tmp_path: Path, folder: Path) -> None:
    """A file that was gone in between is recognized too: by its content, not by having been there all the time."""
    with open_cache(tmp_path / "s", folder, on_bad_video="replace") as cache:
        pixels(cache)
    shutil.move(folder / "v2.mp4", tmp_path / "v2.mp4")
    with open_cache(tmp_path / "s", folder, on_bad_video="replace"):
        pass
    shutil.copyfile(tmp_path / "v2.mp4", folder / "v2.mp4")
    with open_cache(tmp_path / "s", folder, on_bad_video="replace"):
        pass
    encode_folder(folder, {"v2.mp4": 60})
    with pytest.raises(BadInput, match="has other content than when task"):
        open_cache(tmp_path / "s", folder, on_bad_video="replace")


def test_a_file_of_the_same_stem_renames_nothing(tmp_path: Path, folder: Path) -> None:
    """A twin that is added, or removed again, changes neither the name nor a byte of what was read."""
    (tmp_path / "labels.csv").write_text("video,label\n" + "".join(f"v{k},{k}\n" for k in range(5)))
    labels = str(tmp_path / "labels.csv")
    with open_cache(tmp_path / "s", folder, labels=labels) as cache:
        before = pixels(cache)
        frame = cache.frame("train", "v0", 3)
    encode_folder(folder, {"v0.mkv": 50})
    with open_cache(tmp_path / "s", folder, labels=labels, epochs=6) as cache:
        with_twin = pixels(cache)
        assert np.array_equal(cache.frame("train", "v0", 3), frame)
        assert cache.frame("train", "v0..mkv", 3).shape == frame.shape
        named = sql(cache, "select video, label from videos where uri like '%/v0.%' order by uri")
    assert named == [("v0..mkv", None), ("v0", "0")]
    assert same({place: with_twin[place] for place in before}, before)
    assert all(np.array_equal(batch.label, with_twin[place].label) for place, batch in before.items())
    assert "v0..mkv" in drawn(with_twin)[5]
    (folder / "v0.mp4").rename(tmp_path / "v0.mp4")
    with open_cache(tmp_path / "t", folder) as cache:
        assert "v0" in drawn(pixels(cache))[0], "another cache has given no name yet"
    with open_cache(tmp_path / "s", folder, tag="later") as cache:
        assert "v0..mkv" in drawn(pixels(cache, "later"))[0]
    (tmp_path / "v0.mp4").rename(folder / "v0.mp4")
    (folder / "v0.mkv").unlink()
    with open_cache(tmp_path / "s", folder, labels=labels) as cache:
        assert same(pixels(cache), before)


def test_a_changed_file_gives_new_objects_for_itself_alone(tmp_path: Path, folder: Path) -> None:
    """With ``warn`` a replaced file keeps its place in drawn epochs; its clips are made anew, all other copies stay."""
    with open_cache(tmp_path / "s", folder) as cache:
        before = pixels(cache)
        rows = sql(cache, DRAWS)
    encode_folder(folder, {"v2.mp4": 60})
    os.utime(folder / "v2.mp4", ns=(1, 1))
    with open_cache(tmp_path / "s", folder, on_changed_video="warn") as cache:
        ((about, name, message),) = sql(cache, "select about, name, message from errors")
        assert (about, name) == ("task", "train")
        assert "v2.mp4 has other content than when task 'train' drew it" in str(message)
        after = pixels(cache)
        assert sql(cache, DRAWS) == rows
        assert drawn(after) == drawn(before)
        assert sql(cache, "select count(*) from copies") == [(36,)], "two clips in each of three epochs"
    for place, batch in before.items():
        for name, old, new in zip(batch.videos, batch.keys, after[place].keys, strict=True):
            assert (old == new) == (name != "v2")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cache": {"epochs_per_generation": 3}}, r"cache\.epochs_per_generation \(2 before, 3 now\)$"),
        ({"cache": {"seed": 8}}, r"seed \(7 before, 8 now\)$"),
        ({"sampling": {"frames_per_video": 5}}, r"sampling\.frames_per_video \(4 before, 5 now\)$"),
        ({"sampling": {"spread": 0.5}}, r"sampling\.spread \(0\.4 before, 0\.5 now\)$"),
        ({"augmentation": []}, r"augmentation \(\[{.*… before, \[\] now\)$"),
    ],
    ids=["k", "seed", "frames", "spread", "steps"],
)
def test_a_drawn_task_cannot_be_redefined(
    drawn_store: Path, videos: Path, changed: dict[str, object], told: str
) -> None:
    """Whatever decides a view's meaning is fixed once it is drawn; the message says how to go on, and what differs."""
    with pytest.raises(
        BadInput, match=rf"task 'train' has another definition now, .* another tag, restore.*What differs: {told}"
    ):
        open_cache(drawn_store, videos, **changed)  # type: ignore[arg-type]  # one of the keywords


@pytest.fixture(scope="module")
def drawn_store(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Path:
    """A store whose first generation is drawn."""
    store = tmp_path_factory.mktemp("drawn")
    with open_cache(store, videos) as cache:
        cache.read("train", 0, 0)
    return store


def test_what_decides_no_view_may_change(drawn_store: Path, videos: Path) -> None:
    """Layout, epochs, workers, budget, memory, durability and another tag are no redefinition."""
    settings = {"workers": 2, "budget": "40MB", "memory": "1GB", "durability": "durable"}
    with open_cache(drawn_store, videos, cache=settings, layout="THWC", epochs=9) as cache:
        assert cache.task("train").task.generation(0).plan.iterations == 3


def test_opening_draws_nothing(tmp_path: Path, videos: Path) -> None:
    """Only reading draws: a task that was opened, or refused for its budget, can still be corrected under its name."""
    with open_cache(tmp_path, videos) as cache:
        assert sql(cache, "select count(*) from draws") == [(0,)]
    with pytest.raises(BudgetTooSmall):
        open_cache(tmp_path, videos, cache={"budget": 50_000}, sampling={"frames_per_video": 8})
    with open_cache(tmp_path, videos, sampling={"frames_per_video": 3}) as cache:
        assert cache.read("train", 0, 0).video.shape == (4, 3, 3, 32, 32)
