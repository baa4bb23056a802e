"""Law 1's exception: what cannot be decoded or is too short is an error or a recorded substitute, never a gap."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.clips import encode_family
from tests.decode.test_exact import damaged_copy
from tests.tiny import drawn, encode_folder, open_cache, pixels, places, same, sql
from viewcache.errors import BadInput, BadVideo

ROWS = "select epoch, position, sample, video, policy, replacement, reason from substitutions order by all"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four good videos."""
    return encode_folder(tmp_path / "videos", {f"v{k}.mp4": 40 + k for k in range(4)})


@pytest.fixture
def unreadable(folder: Path) -> Path:
    """The same with a file that the scan finds bad."""
    shutil.copyfile(folder / "v0.mp4", folder / "bad.mp4")
    (folder / "bad.mp4").write_bytes((folder / "bad.mp4").read_bytes()[:1500])
    return folder


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos of one size, one with a damaged packet in its middle: only decoding shows it."""
    folder = tmp_path_factory.mktemp("damaged")
    good = encode_family(folder, "h264_bframes.mp4")
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        shutil.copyfile(good, folder / name)
    damaged_copy(good, 40, folder / "torn.mp4")
    good.unlink()
    return folder


def test_a_bad_video_is_an_error_unless_a_policy_says_otherwise(unreadable: Path, tmp_path: Path) -> None:
    """The default names the file and what to do."""
    with pytest.raises(BadVideo, match=r"bad\.mp4: .* repair or remove it, or set on_bad_video"):
        open_cache(tmp_path / "store", unreadable)


def test_skip_leaves_a_bad_video_out(unreadable: Path, tmp_path: Path) -> None:
    """Every epoch has each good video once, the bad one not at all, and a row says why."""
    with open_cache(tmp_path / "store", unreadable, on_bad_video="skip") as cache:
        names = drawn(pixels(cache))
        rows = sql(cache, ROWS)
    assert all(sorted(set(epoch)) == ["v0", "v1", "v2", "v3"] and len(epoch) == 8 for epoch in names.values())
    assert [(row[0], row[1], *row[3:6]) for row in rows] == [(0, -1, "bad", "skip", None), (2, -1, "bad", "skip", None)]
    assert all("bad.mp4" in str(row[6]) for row in rows)


def test_replace_keeps_the_place_of_a_bad_video(unreadable: Path, tmp_path: Path) -> None:
    """Epochs are as long as with five good videos, and each use of the substitute is a row that names it."""
    with open_cache(tmp_path / "store", unreadable, on_bad_video="replace") as cache:
        names = drawn(pixels(cache))
        rows = sql(cache, ROWS)
    assert {len(epoch) for epoch in names.values()} == {10}
    assert {row[0] for row in rows} == {0, 1, 2}
    for epoch, position, _, video, policy, replacement, _ in rows:
        assert (video, policy) == ("bad", "replace")
        assert names[int(str(epoch))][2 * int(str(position))] == replacement


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_damage_that_only_decoding_shows(damaged: Path, tmp_path: Path, policy: str) -> None:
    """Clips that need a damaged frame are given by another video, one row each, with ``skip`` too: places are drawn."""
    with open_cache(tmp_path / "store", damaged, on_bad_video=policy, epochs=6) as cache:
        first = pixels(cache)
        rows = sql(cache, ROWS)
    with open_cache(tmp_path / "again", damaged, on_bad_video=policy, epochs=6) as cache:
        backwards = {place: cache.read("train", *place) for place in reversed(list(first))}
    assert rows
    assert {(row[3], row[4]) for row in rows} == {("torn", "replace")}
    assert all(row[5] in {"a", "b", "c"} for row in rows)
    assert same(first, dict(sorted(backwards.items()))), "the order of reading decides what stands in"
    torn = sum(epoch.count("torn") for epoch in drawn(first).values())
    assert torn + len(rows) == 6 * 2


def test_a_clip_whose_stand_in_goes_gets_another_for_good(damaged: Path, tmp_path: Path) -> None:
    """Where a damaged clip's stand-in is gone yet another is chosen, once; it stays when the first is back."""
    folder, store = Path(shutil.copytree(damaged, tmp_path / "videos")), tmp_path / "store"
    with open_cache(store, folder, on_bad_video="replace", epochs=6) as cache:
        pixels(cache)
        rows = sql(cache, "select epoch, position, sample, replacement from substitutions order by at_s")
    epoch, position, sample, gone = rows[0]
    shutil.move(folder / f"{gone}.mp4", tmp_path)
    with open_cache(store, folder, on_bad_video="replace", epochs=6) as cache:
        without = pixels(cache)
    shutil.move(tmp_path / f"{gone}.mp4", folder)
    with open_cache(store, folder, on_bad_video="replace", epochs=6) as cache:
        assert same(pixels(cache), without)
    assert drawn(without)[int(str(epoch))][2 * int(str(position)) + int(str(sample))] not in {gone, "torn"}


def test_damage_is_an_error_by_default(damaged: Path, tmp_path: Path) -> None:
    """The read that needs the damaged frame names the file and the frame; reads of other videos go on."""
    with open_cache(tmp_path / "store", damaged, epochs=6) as cache:
        good, said = 0, []
        for place in places(cache):
            try:
                cache.read("train", *place)
                good += 1
            except BadVideo as error:
                said.append(str(error))
    assert good
    assert said
    assert all("torn.mp4: frame " in text for text in said)


@pytest.mark.parametrize(("policy", "frames"), [("clamp", [0, 2, 4, 4]), ("loop", [0, 2, 4, 1])])
def test_short_videos_are_filled(folder: Path, tmp_path: Path, policy: str, frames: list[int]) -> None:
    """A video of five frames gives a clip that spans seven: the last frame again, or from the start; a row says so."""
    encode_folder(folder, {"short.mp4": 5})
    with open_cache(tmp_path / "store", folder, on_short_video=policy) as cache:
        batches = pixels(cache)
        rows = sql(cache, ROWS)
    clips = [
        batch.frame[k].tolist() for batch in batches.values() for k, name in enumerate(batch.videos) if name == "short"
    ]
    assert clips == [frames] * 6
    assert {(row[3], row[4]) for row in rows} == {("short", policy)}


def test_short_videos_are_left_out(folder: Path, tmp_path: Path) -> None:
    """With ``skip`` a short video gives no sample, and a row says so."""
    encode_folder(folder, {"short.mp4": 5})
    with open_cache(tmp_path / "store", folder, on_short_video="skip") as cache:
        names = drawn(pixels(cache))
        rows = sql(cache, ROWS)
    assert all(sorted(set(epoch)) == ["v0", "v1", "v2", "v3"] for epoch in names.values())
    assert {(row[3], row[4]) for row in rows} == {("short", "skip")}


def test_nothing_left_to_draw(folder: Path, tmp_path: Path) -> None:
    """When the policies leave no video, opening says which they left out."""
    for path in folder.iterdir():
        path.write_bytes(np.random.default_rng(1).bytes(2000))
    with pytest.raises(BadInput, match="no video"):
        open_cache(tmp_path / "store", folder, on_bad_video="skip")


def test_labels_of_another_task_stay(folder: Path, tmp_path: Path) -> None:
    """A task without labels on the same files leaves recorded labels alone."""
    (tmp_path / "labels.csv").write_text("video,label\n" + "".join(f"v{k},kind{k}\n" for k in range(4)))
    with open_cache(tmp_path / "store", folder, labels=str(tmp_path / "labels.csv")):
        pass
    with open_cache(tmp_path / "store", folder, tag="other") as cache:
        assert sql(cache, "select video, label from videos order by video") == [(f"v{k}", f"kind{k}") for k in range(4)]
