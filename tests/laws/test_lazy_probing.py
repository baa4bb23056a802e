"""Videos are drawn by what their headers say: what the packets say later changes no batch that was read (laws 1, 3, 4).

In a folder of truthful, lying and damaged files, of containers with and without a table of packets.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import viewcache
from tests.clips import encode, fill_last_packet
from tests.faults.caches import FRAMES, config, digest_of, encode_one, encode_videos, read_all
from tests.tiny import config as tiny_config
from tests.tiny import make_decoding_dear, places, same, sql
from viewcache.api.session.cache import Cache
from viewcache.catalog import Catalog
from viewcache.errors import BadVideo, Full
from viewcache.failpoints import VARIABLE
from viewcache.materializer.dataset.scan import look_at
from viewcache.materializer.reading.batch import Batch
from viewcache.materializer.reading.learning import Learning
from viewcache.materializer.telemetry.observer import DISPATCHER_THREAD

ROOT = Path(__file__).resolve().parents[2]
COUNT = 6


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips: one whose header counts a frame too many, and one in a container without a table of packets."""
    folder = encode_videos(tmp_path_factory.mktemp("mixed"), COUNT - 1)
    encode(folder / "v2.mp4", "libx265", frames=FRAMES, gop=10)  # which does not take pictures as small as the others
    fill_last_packet(folder / "v2.mp4")
    encode_one(folder / "v9.mkv", 9)
    return folder


def opened(store: Path, videos: Path, *, probe: str = "lazy", **more: Any) -> Cache:
    """A cache over a folder."""
    return viewcache.open(config(store, videos, probe=probe, **more))


def digests(store: Path, videos: Path, **more: Any) -> dict[tuple[int, int], str]:
    """All batches of two epochs."""
    with opened(store, videos, **more) as cache:
        return dict(read_all(cache))


def statuses(cache: Cache) -> dict[str, tuple[object, ...]]:
    """Name → status, frames, and whether its packets were looked at."""
    rows = sql(cache, "select video, status, frames, indexed from videos")
    return {str(video): tuple(rest) for video, *rest in rows}


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_how_files_are_looked_into_changes_no_byte(tmp_path: Path, mixed: Path, workers: str) -> None:
    """By headers or by every packet: the same batches, also where a header lies, and after reading them again."""
    full = digests(tmp_path / "full", mixed, probe="full")
    assert digests(tmp_path / "lazy", mixed, worker_kind=workers) == full
    assert digests(tmp_path / "lazy", mixed) == full
    assert digests(tmp_path / "lazy", mixed, probe="full") == full


def test_a_header_that_lies_is_told(tmp_path: Path, mixed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file, what it claimed and what is there; from then on the truth is known, and nothing is told twice."""
    with opened(tmp_path / "s", mixed) as cache:
        before = statuses(cache)
        assert before["v2"] == ("ok", 30, False)
        assert before["v9"] == ("ok", 30, True), "a container without a table is read whole"
        list(read_all(cache))
        after = statuses(cache)
        assert after == {f"v{k}": ("ok", 29 if k == 2 else 30, True) for k in (0, 1, 2, 3, 4, 9)}
        told = [str(message) for (message,) in sql(cache, "select message from errors")]
    said = "v2.mp4: its header says 30 frames of 128x96 in yuv420p; its packets give 29 frames of 128x96 in yuv420p"
    assert [said in each for each in told] == [True]
    assert sum(said in each.message for each in caplog.records) == 1
    with opened(tmp_path / "s", mixed) as cache:
        assert statuses(cache) == after


@pytest.mark.parametrize("order", ["tu", "ut"])
def test_a_liar_among_tasks_that_draw_together(tmp_path: Path, mixed: Path, order: str) -> None:
    """Both tasks' clips are planned again, whoever reads first: of frames that are there, each video once an epoch."""
    whole = config(tmp_path / "s", mixed, frames_per_video=15)
    whole["dataset"] = [whole["dataset"], {**whole["dataset"], "tag": "u"}]
    names = Counter[tuple[str, str]]()
    with viewcache.open(whole) as cache:
        for tag in order:
            for i in range(cache.task(tag).iterations(0)):
                batch = cache.read(tag, 0, i)
                names.update((tag, name) for name in batch.videos)
                for video, frames in zip(batch.videos, batch.frame, strict=True):
                    # A clip spans 29 frames: all of the liar's, and either end of the others'.
                    assert frames.tolist() == list(range(frames[0], frames[0] + 29, 2))
                    assert frames[0] in ((0,) if video == "v2" else (0, 1))
        assert statuses(cache)["v2"] == ("ok", 29, True)
    assert set(names.values()) == {2}
    assert len(names) == 2 * COUNT


def spoil(path: Path) -> None:
    """Leave the header and the first pictures, and put noise where the others were."""
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + 4
    end = at - 8 + int.from_bytes(data[at - 8 : at - 4], "big")
    at = (at + end) // 2
    data[at:end] = os.urandom(end - at)
    path.write_bytes(data)


@pytest.fixture
def spoiled(tmp_path: Path, mixed: Path) -> Path:
    """The folder with one file that has a header and no pictures."""
    folder = Path(shutil.copytree(mixed, tmp_path / "spoiled"))
    spoil(folder / "v3.mp4")
    return folder


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_file_that_turns_out_bad_is_the_policys_case(tmp_path: Path, spoiled: Path, policy: str) -> None:
    """Its places are filled and recorded, every other video comes as ever, and what was read stays when it is known."""
    how: dict[str, Any] = {"on_bad_video": policy}
    with opened(tmp_path / "s", spoiled, **how) as cache:
        assert statuses(cache)["v3"][0] == "ok"
        before = {(e, i): cache.read("t", e, i) for e in range(2) for i in range(3)}
        assert statuses(cache)["v3"][0] == "bad"
        replaced = sql(cache, "select epoch, sample, reason from substitutions order by epoch, sample")
    for epoch in range(2):
        names = Counter(name for i in range(3) for name in before[epoch, i].videos)
        assert "v3" not in names
        assert sum(names.values()) == 2 * COUNT
        assert all(names[f"v{k}"] >= 2 for k in (0, 1, 2, 4, 9))
    assert [place for *place, _ in replaced] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert all("v3.mp4" in str(reason) for *_, reason in replaced)
    with opened(tmp_path / "s", spoiled, **how) as cache:
        assert {place: digest_of(cache.read("t", *place)) for place in before} == {
            place: digest_of(batch) for place, batch in before.items()
        }


def test_a_file_that_turns_out_bad_is_an_error(tmp_path: Path, spoiled: Path) -> None:
    """With ``raise`` the reader that meets it gets the error; other batches are read, and the next opening says it."""
    with opened(tmp_path / "s", spoiled) as cache:
        assert cache.task("t").iterations(0) == 3
        where = [
            int(str(at)) // 2 for (at,) in sql(cache, "select position from draws where video = 'v3' and epoch = 0")
        ]
        for i in range(3):
            if i in where:
                with pytest.raises(BadVideo, match=r"v3\.mp4"):
                    cache.read("t", 0, i)
            else:
                cache.read("t", 0, i)
    with pytest.raises(BadVideo, match=r"v3\.mp4"):
        opened(tmp_path / "s", spoiled).read("t", 0, 0)


@pytest.mark.parametrize("policy", ["raise", "replace"])
def test_a_liar_that_is_too_short_in_truth(tmp_path: Path, mixed: Path, policy: str) -> None:
    """A clip spans the 30 frames that its header counts: with 29 it is left to the policy for bad videos."""
    how: dict[str, Any] = {"on_bad_video": policy, "on_short_video": "skip", "frame_stride": 1, "frames_per_video": 30}
    with opened(tmp_path / "s", mixed, **how) as cache:
        if policy == "raise":
            with pytest.raises(BadVideo, match=r"v2\.mp4: has 29 frames; a clip was planned up to frame 29"):
                list(read_all(cache))
            return
        before = {(e, i): cache.read("t", e, i) for e in range(2) for i in range(3)}
        assert "v2" not in {name for batch in before.values() for name in batch.videos}
    with opened(tmp_path / "s", mixed, **how) as cache:
        assert dict(read_all(cache)) == {place: digest_of(batch) for place, batch in before.items()}


@pytest.mark.parametrize("loss", [None, {"quality": "40dB"}], ids=["exact", "lossy"])
def test_pictures_that_were_to_be_kept_of_a_liar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: dict[str, str] | None
) -> None:
    """They are of frames that it does not have: its clips are those that a cache with room for all of them makes."""
    make_decoding_dear(monkeypatch)
    videos = tmp_path / "videos"
    videos.mkdir()
    for k in range(4):
        encode(
            videos / f"v{k}.mp4",
            "libx265",
            frames=60,
            size=(64, 48),
            options={"x265-params": "bframes=0:log-level=none"},
        )
    fill_last_packet(videos / "v1.mp4", packets=20)
    more: dict[str, Any] = {"epochs": 8, "on_bad_video": "replace"} | ({"intermediate": loss} if loss else {})

    def read(name: str, **cache: Any) -> tuple[dict[tuple[int, int], Batch], set[object]]:
        given = tiny_config(tmp_path / name, videos, cache={"worker_kind": "threads", **cache}, **more)
        with viewcache.open(given) as opened:
            found = {}
            for place in places(opened):
                found[place] = opened.read("train", *place)
                opened.owner.look_ahead.wait_idle()
                assert opened.owner.dispatcher is not None
                assert opened.owner.dispatcher.wait_idle(60)
            assert sql(opened, "select * from substitutions") == []
            kinds = {kind for (kind,) in sql(opened, "select kind from objects join copies using (object_id)")}
        return found, kinds

    expected, kinds = read("plenty", keep="leaves")
    assert kinds == {"clip"}
    for budget in ("1MB", "2MB"):
        found, kinds = read(budget, budget=budget)
        assert kinds > {"clip"}
        assert same(found, expected)


def test_what_is_found_while_the_disk_is_full(tmp_path: Path, mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be kept of what is found: the batches are the same, a liar's too, and the next run looks again."""

    def full(*_: object) -> None:
        raise Full("no space")

    expected = digests(tmp_path / "whole", mixed)
    with opened(tmp_path / "s", mixed) as cache:
        monkeypatch.setattr(type(cache.catalog), "write_indexes", full)
        assert dict(read_all(cache)) == expected
        assert not any(indexed for name, (*_, indexed) in statuses(cache).items() if name != "v9")
        monkeypatch.undo()
    assert digests(tmp_path / "s", mixed) == expected


def test_a_liar_is_found_while_the_catalog_cannot_write(
    tmp_path: Path, mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clips cannot be planned again: who waits for them is told, and whoever reads then has the right ones."""
    expected, left, record = digests(tmp_path / "whole", mixed), [1, 2], Catalog.record_objects

    def full(self: Catalog, objects: pa.Table) -> None:
        if left and threading.current_thread().name == DISPATCHER_THREAD:
            left.pop()
            raise Full("no space")
        record(self, objects)

    monkeypatch.setattr(Catalog, "record_objects", full)
    got, told = dict[tuple[int, int], str](), list[str]()
    with opened(tmp_path / "s", mixed) as cache:
        while expected.keys() - got.keys():
            for place in expected.keys() - got.keys():
                try:
                    got[place] = digest_of(cache.read("t", *place))
                except Full as error:
                    told.append(str(error))
        assert cache.owner.dispatcher_now().wait_idle(60)
    assert not left, "the liar was found at another time"
    assert got == expected
    assert set(told) <= {"no space"}


def test_a_file_that_is_replaced_before_it_is_decoded(tmp_path: Path, mixed: Path) -> None:
    """The listed file was another one: that is told as a bad video, never other frames; the next opening lists anew."""
    folder = Path(shutil.copytree(mixed, tmp_path / "v"))
    with opened(tmp_path / "s", folder) as cache:
        encode_one(folder / "v0.mp4", 77)
        with pytest.raises(BadVideo, match=r"v0\.mp4: the file has changed since it was scanned"):
            list(read_all(cache))
    assert digests(tmp_path / "s", folder) == digests(tmp_path / "t", folder)


def test_what_is_found_of_a_file_that_went_meanwhile_is_not_recorded(tmp_path: Path, mixed: Path) -> None:
    """It is on record that it went, so that its clips stay; what was decoded of it just before says otherwise."""
    folder = Path(shutil.copytree(mixed, tmp_path / "v"))
    with opened(tmp_path / "s", folder) as cache:
        files = cache.task("t").task.dataset.files
        row = files.row_of_name["v0"]
        ((_, found),) = look_at([files.found(row)], 1 << 20)
        (folder / "v0.mp4").unlink()
        cache.catalog.mark_missing([int(files.ids[row])])
        Learning(cache.catalog, lambda: cache.owner.opened).learn(files.keys[row], found)
        assert sql(cache, "select status from videos where video = 'v0'") == [("gone",)]


@pytest.mark.parametrize("place", ["dataset.listed:1", "dataset.found:1"])
def test_killed_while_a_dataset_is_opened(tmp_path: Path, mixed: Path, place: str) -> None:
    """The next opening goes on from there: the same ids, the same batches."""
    code = f"import viewcache\nviewcache.open({config(tmp_path / 's', mixed)!r})"
    environment = os.environ | {VARIABLE: f"{place}:kill", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=60)
    assert killed.returncode == -9
    with opened(tmp_path / "s", mixed) as cache:
        names = [str(name) for (name,) in sql(cache, "select video from videos order by video_id")]
        assert names == sorted(names)
        after = dict(read_all(cache))
    assert after == digests(tmp_path / "whole", mixed)


def test_a_lost_file_of_indexes_costs_time_alone(tmp_path: Path, mixed: Path) -> None:
    """Emptied, cut or scribbled over between two runs: videos are looked at again, and the batches are the same."""
    before = digests(tmp_path / "s", mixed)
    indexes = tmp_path / "s" / "catalog.indexes"
    whole = indexes.read_bytes()
    for damage in (b"", whole[: len(whole) // 2], whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2)):
        indexes.write_bytes(damage)
        shutil.rmtree(tmp_path / "s" / "objects")
        assert digests(tmp_path / "s", mixed) == before
