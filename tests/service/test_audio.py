"""Audio through a service: the client reads it where it lies, and it is what a cache of one's own gives."""

from pathlib import Path

import fsspec
import numpy as np
import pytest

import viewcache
from tests.service.served import Opener
from tests.sounds import Track, encode_with_audio
from tests.tiny import config
from viewcache.api.session.reads import CacheReads
from viewcache.errors import ViewNotFound

AUDIO = {"audio": {"rate": 16_000, "mono": False, "seconds": 0.3}}


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos with audio of their own."""
    folder = tmp_path_factory.mktemp("heard")
    for number in range(3):
        encode_with_audio(folder / f"v{number}.mp4", [Track(pitch=300 + 200 * number)], frames=50)
    return folder


def heard_in(cache: CacheReads, epoch: int, iteration: int) -> np.ndarray:
    """The audio of a batch."""
    audio = cache.read("train", epoch, iteration).audio
    assert audio is not None
    return audio


def test_a_client_reads_what_an_owner_reads(tmp_path: Path, heard: Path, store: Path) -> None:
    """Batches, shares, loops, descriptions, paths, and what was damaged in between."""
    with viewcache.open(config(tmp_path / "own", heard, **AUDIO), service="off") as owned:
        truth = {place: heard_in(owned, *place) for place in ((0, 0), (0, 1), (1, 0))}
    with viewcache.open(config(store, heard, **AUDIO)) as cache:
        for place, audio in truth.items():
            read = heard_in(cache, *place)
            assert np.array_equal(read, audio)
            read[:] = 0  # it belongs to who read it
            described = cache.task("train").describe(*place).audio
            assert described is not None
            assert described.shape == audio.shape
            assert np.array_equal(cache.task("train").audio(*place, range(1, 2)), audio[1:2])
        with fsspec.open("view://train/0/0/audio?rank=1&world=2", cache=str(store)) as file:
            assert np.array_equal(np.load(file), truth[0, 0][2:])
        for batch, audio in zip(cache.loader("train", framework="numpy"), truth.values(), strict=False):
            assert np.array_equal(batch["audio"], audio)
        for shard in store.glob("objects/*/*/c.0.0"):  # audio has two axes
            shard.write_bytes(shard.read_bytes()[:-5])
        assert np.array_equal(heard_in(cache, 0, 0), truth[0, 0])


def test_a_task_without_has_none(attach: Opener) -> None:
    """Neither in its batches nor at its paths."""
    cache = attach()
    assert cache.read("train", 0, 0).audio is None
    assert cache.task("train").audio_shape is None
    with pytest.raises(ViewNotFound, match="has no audio"):
        cache.task("train").audio(0, 0, range(1))
