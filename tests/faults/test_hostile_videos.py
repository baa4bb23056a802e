"""Damaged and hostile files among the videos: an error that names the file or a substitute, and work goes on.

Of a new file nobody can know what damage did to pixels that are decoded without complaint; of a
known one a changed size or time tells.
"""

import logging
import os
import shutil
from pathlib import Path

import pytest

import viewcache
from tests.clips import encode_family, real_clips
from tests.faults.caches import assert_at_rest, config, digest_of, encode_one, encode_videos
from tests.faults.mutants import CODECS, mutate, write_impostors
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo

GOOD = 3


def read_everything(cache: Cache) -> dict[int, str]:
    """Iteration → digest of the batches of the first epoch; None fails."""
    return {k: digest_of(cache.read("t", 0, k)) for k in range(cache.task("t").iterations(0))}


def assert_survives(
    tmp_path: Path, originals: list[Path], many: int, caplog: pytest.LogCaptureFixture, times: int = 2
) -> int:
    """Damage files so many times, put all among good ones, and read a whole epoch, each time in a new store.

    Returns:
        How many of them gave no frames, or were found out to be damaged.
    """
    folder = encode_videos(tmp_path / "videos", GOOD)
    for number in range(many):
        original = originals[number % len(originals)]
        (folder / f"m{number}{original.suffix}").write_bytes(mutate(original.read_bytes(), number))
    caplog.set_level(logging.WARNING, "viewcache")
    runs = []
    for store in (tmp_path / f"store{number}" for number in range(times)):
        with viewcache.open(config(store, folder, epochs=1, on_bad_video="replace", samples_per_video=1)) as cache:
            dataset = cache.task("t").task.dataset
            assert len(dataset) == many + GOOD
            for bad in dataset.bad:
                assert bad.path in bad.error, "an error names its file"
            found = len(dataset.bad)
            runs.append(read_everything(cache))
            assert cache.read("t", 0, 0).video.any(), "the dispatcher lives"
        assert_at_rest(store)
    assert runs.count(runs[0]) == times, "what a damaged file gives is the same each time"
    died = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "worker_died"]
    assert not died, died
    return found


def test_damaged_videos(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fifteen damaged versions of a clip of each codec: each gives frames or another video's, no process dies of it."""
    clips = [encode_family(tmp_path, name) for name in CODECS]
    assert assert_survives(tmp_path, clips, 15 * len(clips), caplog, times=1) > len(clips)


@pytest.mark.long
@pytest.mark.parametrize("name", CODECS)
def test_many_damaged_videos(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """The same of 500."""
    found = assert_survives(tmp_path, [encode_family(tmp_path, name)], 500, caplog)
    print(f"\n{name}: {found} of 500 found out by the scan")


@pytest.mark.long
def test_damaged_real_videos(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same of 100 versions of real clips."""
    clips = [path for path in real_clips("train", "edge") if path.stat().st_size < 1 << 20]
    if not clips:
        pytest.skip("no real clips; set VIEWCACHE_TEST_VIDEOS")
    assert assert_survives(tmp_path, clips, 100, caplog) > 0


def test_impostors(tmp_path: Path) -> None:
    """A bomb, playlists and things that are no videos: each is named when policy is to raise, else another is shown."""
    mjpeg = encode_family(tmp_path, "mjpeg.avi")
    for impostor in write_impostors(tmp_path, mjpeg):
        folder = encode_videos(tmp_path / impostor.stem, GOOD)
        shutil.copy(impostor, folder / impostor.name)
        with (
            pytest.raises(BadVideo, match=impostor.name),
            viewcache.open(config(tmp_path / "store", folder, epochs=1)),
        ):
            pass
    folder = encode_videos(tmp_path / "all", GOOD)
    names = {path.name for path in write_impostors(folder, mjpeg)}
    with viewcache.open(config(tmp_path / "all_store", folder, epochs=1, on_bad_video="replace")) as cache:
        assert {bad.path for bad in cache.task("t").task.dataset.bad} == names
        assert set(read_everything(cache)) == set(range(5))


def test_a_source_that_changes_is_noticed(tmp_path: Path) -> None:
    """A file that is replaced, lengthened or rewritten after the scan: its name is told, no frame of it is shown."""
    for number, change in enumerate(("replaced", "longer", "rewritten")):
        folder = encode_videos(tmp_path / change, 4)
        with viewcache.open(config(tmp_path / f"store{number}", folder)) as cache:
            for k in range(4):
                path = folder / f"v{k}.mp4"
                if change == "replaced":
                    path.unlink()
                    encode_one(path, 100 + k)
                elif change == "longer":
                    with path.open("ab") as file:
                        file.write(b"x")
                else:
                    data = bytearray(path.read_bytes())
                    data[len(data) // 2] ^= 1
                    before = path.stat().st_mtime_ns
                    path.write_bytes(data)
                    os.utime(path, ns=(before + 1, before + 1))
            for epoch, iteration in ((0, 0), (0, 1), (1, 0), (1, 1)):
                with pytest.raises(BadVideo, match=r"v\d\.mp4.*has changed"):
                    cache.read("t", epoch, iteration)
