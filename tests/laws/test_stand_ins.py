"""Law 4 under ``on_bad_video``: a stand-in, once chosen, stays, whichever videos come and go between runs."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import config, drawn, encode_folder, open_cache, pixels, same, sql
from viewcache import open as open_config
from viewcache.api.session.cache import Cache
from viewcache.catalog.files import CatalogFiles

NAMES = [f"v{k}" for k in range(5)]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos of different lengths, to be linked into each test's folder."""
    return encode_folder(tmp_path_factory.mktemp("originals"), {f"{name}.mp4": 30 + k for k, name in enumerate(NAMES)})


@pytest.fixture
def folder(tmp_path: Path, originals: Path) -> Path:
    """The five videos, in a folder of the test's own."""
    (tmp_path / "videos").mkdir()
    for name in NAMES:
        put_back(tmp_path / "videos", originals, name)
    return tmp_path / "videos"


def put_back(folder: Path, originals: Path, name: str) -> None:
    """Let a video be there again, as it was."""
    if not (folder / f"{name}.mp4").exists():
        (folder / f"{name}.mp4").hardlink_to(originals / f"{name}.mp4")


def take_away(folder: Path, name: str) -> None:
    """Let a video be gone."""
    (folder / f"{name}.mp4").unlink(missing_ok=True)


def shown(cache: Cache, task: str = "train") -> dict[tuple[int, int, int], tuple[str, int]]:
    """(epoch, position, sample) → the video and the first frame of every clip that can be read."""
    of = cache.task(task).task
    clips: dict[tuple[int, int, int], tuple[str, int]] = {}
    for epoch in range(of.spec.epochs):
        for iteration in range(of.iterations(epoch)):
            active = of.generation(of.generation_of(epoch))
            if of.draws_together:
                active = of.settled(epoch, iteration)
            for row in active.rows(epoch, iteration):
                plan, place = active.plan, active.place(row)
                clips[place] = plan.videos.names[int(plan.video[row])], int(plan.start[row])
    return clips


def lose_catalog(store: Path) -> None:
    """Leave of the catalog only its journal."""
    layout = CatalogFiles(store)
    layout.database.unlink()
    layout.log.unlink(missing_ok=True)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_video_gone_from_a_place_that_is_dropped(tmp_path: Path, folder: Path, originals: Path, policy: str) -> None:
    """With ``drop_last`` the cache opens without a drawn video, also where an epoch drops that very video."""
    options: dict[str, Any] = {"on_bad_video": policy, "drop_last": True}
    for epoch in range(3):
        store = tmp_path / f"store{epoch}"
        with open_cache(store, folder, **options) as cache:
            before = drawn(pixels(cache))[epoch]
        dropped = next(name for name in NAMES if name not in before)
        take_away(folder, dropped)
        with open_cache(store, folder, **options) as cache:
            assert drawn(pixels(cache))[epoch] == before
            rows = sql(cache, "select epoch, position from substitutions")
        assert epoch not in {each for each, position in rows if position != -1}
        put_back(folder, originals, dropped)


def test_a_stand_in_stays_when_the_drawn_video_is_back(tmp_path: Path, folder: Path, originals: Path) -> None:
    """Batches that were read with a stand-in are the same afterwards, and epochs that were not drawn have the video."""
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", epochs=2) as cache:
        cache.task("train").task.generation(0)  # drawn, and nothing is made
    take_away(folder, "v2")
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", epochs=2) as cache:
        replaced = pixels(cache)
    put_back(folder, originals, "v2")
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", epochs=4) as cache:
        after = pixels(cache)
        rows = sql(cache, "select distinct video, policy from substitutions")
    assert same({place: after[place] for place in replaced}, replaced)
    assert ["v2" in names for names in drawn(after).values()] == [False, False, True, True]
    assert rows == [("v2", "replace")]


def test_a_short_stand_in_stays(tmp_path: Path, folder: Path, originals: Path) -> None:
    """A stand-in that is too short itself is two rows; that it was filled up does not let the choice be forgotten."""
    sampling = {"frames_per_video": 4, "frame_stride": 12}  # every video is too short
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", sampling=sampling) as cache:
        cache.read("train", 0, 0)
    take_away(folder, "v2")
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", sampling=sampling) as cache:
        before = shown(cache)
    encode_folder(folder, {"a-new.mp4": 33})
    with open_cache(tmp_path / "store", folder, on_bad_video="replace", sampling=sampling) as cache:
        after = shown(cache)
    assert {place: after[place] for place in before if place[0] < 2} == {
        place: clip for place, clip in before.items() if place[0] < 2
    }


def _stories(seed: int) -> Iterator[tuple[list[str], int]]:
    """Run by run: which videos are there, at least three, and how many epochs the task has by then."""
    chance, there, epochs = random.Random(seed), set(NAMES), 2
    for _ in range(5):
        for name in chance.sample(NAMES, 2):
            there.symmetric_difference_update({name})
        there |= set(chance.sample(NAMES, 2)) if len(there) < 3 else set()
        epochs = min(epochs + chance.choice([0, 1]), 4)
        yield sorted(there), epochs


@pytest.mark.parametrize(
    ("seed", "drop_last", "together"),
    [
        *((1, True, False), (2, False, True)),
        *(pytest.param(*each, marks=pytest.mark.long) for each in [(0, False, False), (3, True, True)]),
    ],
)
def test_stand_ins_are_the_same_after_a_loss_of_the_catalog(
    tmp_path: Path, folder: Path, originals: Path, seed: int, drop_last: bool, together: bool
) -> None:
    """Videos come and go: a cache that loses its catalog between runs shows the same clips as one that does not.

    And in both a clip changes only when the video that it was of is gone.
    """
    whole, lossy = tmp_path / "whole", tmp_path / "lossy"
    before: dict[tuple[str, int, int, int], tuple[str, int]] = {}
    for there, epochs in [(NAMES, 2), *_stories(seed)]:
        for name in NAMES:
            put_back(folder, originals, name) if name in there else take_away(folder, name)
        seen = []
        for store in (whole, lossy):
            described = config(store, folder, on_bad_video="replace", drop_last=drop_last, epochs=epochs)
            if together:
                one = dict(described["dataset"])  # type: ignore[call-overload]  # it is a mapping
                described["dataset"] = [one, one | {"tag": "other", "sampling": one["sampling"] | {"frame_stride": 3}}]
            with open_config(described) as cache:
                clips = ((task, place, clip) for task in cache.tasks for place, clip in shown(cache, task).items())
                seen.append({(task, *place): clip for task, place, clip in clips})
        lose_catalog(lossy)
        assert seen[0] == seen[1]
        for place, (name, start) in before.items():
            assert seen[0][place] == (name, start) or name not in there
        before = seen[0]
