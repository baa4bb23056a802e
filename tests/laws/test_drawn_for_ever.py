"""Law 4: reading a path forces its draw, the draw is recorded, and the path never changes meaning."""

import os
import shutil
from pathlib import Path

import pytest

from tests.tiny import drawn, encode_folder, open_cache, pixels, same, sql
from viewcache.errors import BadInput, BadVideo, BudgetTooSmall

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


def test_a_changed_file_gives_new_objects_for_itself_alone(tmp_path: Path, folder: Path) -> None:
    """A replaced file keeps its place in drawn epochs; its clips are made anew, all other copies stay."""
    with open_cache(tmp_path / "s", folder) as cache:
        before = pixels(cache)
        rows = sql(cache, DRAWS)
    encode_folder(folder, {"v2.mp4": 60})
    os.utime(folder / "v2.mp4", ns=(1, 1))
    with open_cache(tmp_path / "s", folder) as cache:
        after = pixels(cache)
        assert sql(cache, DRAWS) == rows
        assert drawn(after) == drawn(before)
        assert sql(cache, "select count(*) from copies") == [(36,)], "two clips in each of three epochs"
    for place, batch in before.items():
        for name, old, new in zip(batch.videos, batch.keys, after[place].keys, strict=True):
            assert (old == new) == (name != "v2")


def test_a_removed_file_is_an_error_or_a_recorded_substitute(tmp_path: Path, folder: Path) -> None:
    """A drawn video that is gone: by policy the read says which, or another takes its place in all epochs, as a row."""
    with open_cache(tmp_path / "raise", folder) as cache:
        pixels(cache)
    with open_cache(tmp_path / "replace", folder, on_bad_video="replace") as cache:
        before = pixels(cache)
    (folder / "v3.mp4").unlink()
    with pytest.raises(BadVideo, match=r"is not in .*videos any more; task 'train' has drawn it: restore the file"):
        open_cache(tmp_path / "raise", folder)
    with open_cache(tmp_path / "replace", folder, on_bad_video="replace") as cache:
        after = pixels(cache)
        again = pixels(cache)
        rows = sql(cache, "select epoch, video, policy, replacement, reason from substitutions order by epoch")
    assert same(after, again)
    for place, batch in before.items():
        for name, new in zip(batch.videos, after[place].videos, strict=True):
            assert new == name if name != "v3" else new != "v3"
    assert [row[:3] for row in rows] == [(epoch, "v3", "replace") for epoch in range(3)]
    for epoch, _, _, replacement, reason in rows:
        at = drawn(before)[int(str(epoch))].index("v3")
        assert drawn(after)[int(str(epoch))][at] == replacement
        assert "not in" in str(reason)


@pytest.mark.parametrize(
    "changed",
    [
        {"cache": {"epochs_per_generation": 3}},
        {"cache": {"seed": 8}},
        {"sampling": {"frames_per_video": 5}},
        {"sampling": {"spread": 0.5}},
        {"augmentation": []},
        {"drop_last": True},
    ],
    ids=["k", "seed", "frames", "spread", "steps", "drop_last"],
)
def test_a_drawn_task_cannot_be_redefined(drawn_store: Path, videos: Path, changed: dict[str, object]) -> None:
    """Whatever decides a view's meaning is fixed once it is drawn; the message says how to go on."""
    with pytest.raises(BadInput, match=r"task 'train' has another definition now, .* another tag, restore"):
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
