"""What the catalog says of a batch is what was read, also where a video turns out bad or its header lied on the way."""

import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.clips import encode, encode_family, fill_last_packet
from tests.decode.test_exact import damaged_copy
from tests.faults.caches import FRAMES, encode_videos
from tests.faults.caches import config as faulty
from tests.tiny import config, encode_folder, open_cache, pixels, places, same, sql
from viewcache.api.config.find import locate
from viewcache.api.page.stored_clips import Batches
from viewcache.api.session.cache import Cache
from viewcache.failpoints import VARIABLE

ROOT = Path(__file__).resolve().parents[2]

USES = """
select u.epoch, u.iteration, o.key from uses u join objects o using (object_id) where u.task = '{task}'
order by u.seq, u.position, u.sample
"""

CRASH = """
import sys
from pathlib import Path
from tests.laws.test_uses import READ
from tests.tiny import open_cache, pixels
with open_cache(Path(sys.argv[1]), Path(sys.argv[2]), **READ) as cache:
    pixels(cache)
"""

READ: dict[str, Any] = {"on_bad_video": "replace", "epochs": 4}
"""How the task of most of these tests differs from `tests.tiny.config`."""


def told(cache: Cache, task: str = "train") -> dict[tuple[object, object], list[object]]:
    """(epoch, iteration) → the keys of the objects that its clips are, in order, as the catalog has them."""
    found: dict[tuple[object, object], list[object]] = defaultdict(list)
    for epoch, iteration, key in sql(cache, USES.format(task=task)):
        found[epoch, iteration].append(key)
    return dict(found)


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Three good videos, and one of which no frame can be decoded; its header and its packets' sizes are good."""
    folder = encode_folder(tmp_path / "videos", {"a.mp4": 40, "b.mp4": 41, "c.mp4": 42})
    whole = encode(tmp_path / "whole.mp4", frames=40, gop=40)
    return damaged_copy(whole, 0, folder / "torn.mp4").parent


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_uses_name_what_stands_in(tmp_path: Path, policy: str) -> None:
    """With no reopening: the objects are those that were read, all of them are ready, and a page shows their videos."""
    folder = tmp_path / "videos"
    folder.mkdir()
    good = encode_family(folder, "h264_bframes.mp4")
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        shutil.copyfile(good, folder / name)
    damaged_copy(good, 40, folder / "torn.mp4")
    good.unlink()
    with open_cache(tmp_path / "store", folder, on_bad_video=policy, epochs=4) as cache:
        read = pixels(cache)
        assert sql(cache, "select * from substitutions")
        assert told(cache) == {place: list(batch.keys) for place, batch in read.items()}
        assert sql(cache, "select epoch, iteration, clips, ready from views where ready <> clips") == []
    page = Batches(locate(str(tmp_path / "store")))
    for place, batch in read.items():
        assert [clip.video for clip in page.clips("train", *place)] == list(batch.videos)


def test_uses_name_what_is_there_where_a_header_lied(tmp_path: Path) -> None:
    """Clips of a video that were planned again by its packets are on record as they were read."""
    folder = encode_videos(tmp_path / "videos", 3)
    encode(folder / "liar.mp4", "libx265", frames=FRAMES, gop=10)
    fill_last_packet(folder / "liar.mp4")
    with viewcache.open(faulty(tmp_path / "store", folder, probe="lazy", frames_per_video=15)) as cache:
        cache.task(*cache.tasks).task.generation(0)  # planned by the header, before anybody looks at packets
        read = pixels(cache, *cache.tasks)
        assert sql(cache, "select message from errors"), "the header lied"
        assert told(cache, *cache.tasks) == {place: list(batch.keys) for place, batch in read.items()}


@pytest.mark.parametrize("samples", [1, 2])
def test_opening_again_records_no_stand_in_twice(tmp_path: Path, torn: Path, samples: int) -> None:
    """Where each clip of a video has a stand-in of its own, none is chosen for the video, be it gone since then."""
    how = READ | {"sampling": {"samples_per_video": samples}}
    recorded = "select epoch, position, sample, video_id, replacement_id from substitutions order by all"
    with open_cache(tmp_path / "store", torn, **how) as cache:
        read = {place: batch.keys for place, batch in pixels(cache).items()}
        before = sql(cache, recorded)
    assert len(before) == 4 * samples
    (torn / "torn.mp4").unlink()
    for _ in range(2):
        with open_cache(tmp_path / "store", torn, **how) as cache:
            assert {place: batch.keys for place, batch in pixels(cache).items()} == read
            assert sql(cache, recorded) == before
            assert told(cache) == {place: list(keys) for place, keys in read.items()}


def test_a_crash_between_a_stand_in_and_its_uses(tmp_path: Path, torn: Path) -> None:
    """Killed when the stand-in is on record and the uses are not: the next opening says what is read."""
    given = [sys.executable, "-c", CRASH, str(tmp_path / "store"), str(torn)]
    killed = subprocess.run(given, cwd=ROOT, env={**os.environ, VARIABLE: "uses.before-move:1:kill"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    with open_cache(tmp_path / "store", torn, **READ) as cache:
        assert sql(cache, "select policy from substitutions"), "it came so far"
        read = pixels(cache)
        assert told(cache) == {place: list(batch.keys) for place, batch in read.items()}
        assert sql(cache, "select epoch, iteration, clips, ready from views where ready <> clips") == []
    with open_cache(tmp_path / "other", torn, **READ) as cache:
        assert same(pixels(cache), read)


def test_uses_of_tasks_that_draw_together(tmp_path: Path, torn: Path) -> None:
    """A stand-in for a video that several tasks have drawn is on record as a use of each."""
    tasks = [config(tmp_path / "store", torn, tag=tag, **READ)["dataset"] for tag in ("one", "two")]
    whole = config(tmp_path / "store", torn, cache={"draw_ahead": 1})
    with viewcache.open({"cache": whole["cache"], "dataset": tasks}) as cache:
        read: dict[str, dict[tuple[int, int], list[str]]] = {"one": {}, "two": {}}
        for place in places(cache, "one"):
            for task, found in read.items():
                found[place] = list(cache.read(task, *place).keys)
        assert sql(cache, "select * from substitutions")
        assert {task: told(cache, task) for task in read} == read
