"""Encoded files of videos that lie far away, kept near: fetched once, the same bytes, the file itself if need be."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import s3fs
import zarr

import viewcache
from tests.clips import encode
from tests.servers.fault_proxy import FaultProxy, proxied
from tests.servers.seaweed import connected, make_bucket, serve
from tests.tiny import SIZE, config, pixels, same, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo
from viewcache.failpoints import VARIABLE
from viewcache.materializer.media.source import LocalSource
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.workers.near import PIECE_BYTES

EPOCHS, VIDEOS = 8, 4
BUDGET = 1_200_000
"""Not enough for the pixels of a video of which half the budget is to hold all, so that each generation decodes."""
KEPT = "select video, key, state from objects where kind = 'source' and state = 'ready' order by video"
PLACES = "select physical from copies join objects using (object_id) where kind = 'source'"
FETCHED = "select coalesce(sum(bytes), 0) from io_samples where op = 'fetch'"


def video(path: Path, frames: int) -> Path:
    """A video of a few thousand bytes, whose pixels are many times as much."""
    encode(path, frames=frames, size=SIZE, gop=8, options={"bf": "2", "preset": "ultrafast", "crf": "45"})
    return path


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos."""
    folder = tmp_path_factory.mktemp("near")
    for k in range(VIDEOS):
        video(folder / f"v{k}.mp4", 160 + k)
    return folder


@pytest.fixture
def mine(tmp_path: Path, videos: Path) -> Path:
    """The same, for who changes them."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


@pytest.fixture(autouse=True)
def fetching_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files decide by their metadata otherwise."""
    cost = CostModel(fetch_s_per_byte=1e-3)
    monkeypatch.setattr(CostModel, "measured", classmethod(lambda *_: cost))


def opened(store: Path, videos: Path | str, budget: int = BUDGET, epochs: int = EPOCHS, **dataset: Any) -> Cache:
    """A task of eight epochs, of which two are planned at once."""
    settings = {"budget": budget, "epochs_per_generation": 2}
    described = config(store, Path("/"), cache=settings, epochs=epochs, **{"remote": True, **dataset})
    described["dataset"]["video_dataset_path"] = str(videos)  # type: ignore[index]
    return viewcache.open(described)


def read_epochs(cache: Cache, epochs: range) -> dict[tuple[int, int], Any]:
    """Every batch of some epochs, each made ahead as far as there is room."""
    found = {}
    for epoch in epochs:
        for iteration in range(cache.task("train").iterations(epoch)):
            found[epoch, iteration] = cache.read("train", epoch, iteration)
            assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
        cache.owner.look_ahead.wait_idle()
        assert cache.owner.dispatcher is not None
        assert cache.owner.dispatcher.wait_idle(60)
        assert cache.tier.used_bytes + cache.tier.reserved_bytes <= cache.tier.budget_bytes
    return found


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[Any, FaultProxy]]:
    """A client that puts objects into a bucket, and the proxy that everybody else reads it through."""
    with serve(tmp_path) as server:
        make_bucket(server, "far")
        with connected(server) as client, proxied(server.host, server.port) as proxy:
            s3fs.S3FileSystem.clear_instance_cache()  # of another test's server
            with patch.dict(os.environ, server.environment(proxy.endpoint)):
                yield client, proxy
            s3fs.S3FileSystem.clear_instance_cache()


def size_of(videos: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in videos.iterdir())


@pytest.fixture(scope="module")
def plenty(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Any:
    """Every batch of a task whose files lie near, and whose clips are all kept."""
    whole = {"budget": 10**8, "epochs_per_generation": 2, "keep": "leaves"}
    with viewcache.open(config(tmp_path_factory.mktemp("plenty"), videos, cache=whole, epochs=EPOCHS)) as cache:
        return pixels(cache)


def test_each_file_is_fetched_once(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """In the first generation; all others decode the copy, and the batches have the same bytes (law 3)."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(2))
        assert [row[0] for row in sql(cache, KEPT)] == [f"v{k}" for k in range(VIDEOS)]
        fetched = sql(cache, FETCHED)
        assert fetched == [(size_of(videos),)]
        got |= read_epochs(cache, range(2, EPOCHS))
        assert sql(cache, FETCHED) == fetched
        assert same(got, plenty)


def test_what_lies_near_is_not_kept_again(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """A local folder is no far one, and the task's word goes before what is found."""
    for remote in ("auto", False):
        with opened(tmp_path / str(remote), videos, remote=remote) as cache:
            assert same(read_epochs(cache, range(EPOCHS)), plenty)
            assert not sql(cache, "select * from objects where kind = 'source'")


def test_a_copy_is_bytes_for_any_zarr_client(tmp_path: Path, videos: Path) -> None:
    """The array is the file, byte by byte, and says what it is."""
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(2))
        places = sql(cache, "select video, physical from copies join objects using (object_id) where kind = 'source'")
        assert len(places) == VIDEOS
        for video, physical in places:
            array = zarr.open_array(tmp_path / str(physical), mode="r")
            whole = (videos / f"{video}.mp4").read_bytes()
            assert np.asarray(array[:]).tobytes() == whole
            assert array.attrs["kind"] == "source"
            assert array.attrs["video"] == video
            assert array.attrs["size"] == len(whole)


def test_a_restart_finds_the_copies(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Closed and opened in the middle of a training, nothing is fetched again."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(3))
        kept = sql(cache, KEPT)
    with opened(tmp_path, videos) as cache:
        got |= read_epochs(cache, range(3, EPOCHS))
        assert sql(cache, FETCHED) == [(size_of(videos),)]
        assert kept
        assert same(got, plenty)


def test_a_block_that_cannot_be_read_fails_nobody(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """A copy is given up where the file cannot be read whole; clips that need other parts of it are made."""

    def read(source: LocalSource, start: int, size: int) -> bytes:
        if size == PIECE_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        return real(source, start, size)

    real = LocalSource.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalSource, "read", read)
        threads = {"budget": BUDGET, "epochs_per_generation": 2, "worker_kind": "threads"}
        with viewcache.open(config(tmp_path, videos, cache=threads, epochs=EPOCHS, remote=True)) as cache:
            assert same(read_epochs(cache, range(EPOCHS)), plenty)
            assert not sql(cache, "select 1 from objects where kind = 'source' and state = 'ready'")


def test_reading_goes_on_when_the_files_are_out_of_reach(tmp_path: Path, mine: Path, plenty: Any) -> None:
    """The files go away while the cache is open: their copies are decoded."""
    with opened(tmp_path / "store", mine) as cache:
        got = read_epochs(cache, range(2))
        mine.rename(tmp_path / "elsewhere")
        got |= read_epochs(cache, range(2, EPOCHS))
        assert same(got, plenty)


@pytest.mark.parametrize("harm", ["flip", "cut", "delete"])
def test_damage_is_noticed_and_made_again(tmp_path: Path, videos: Path, plenty: Any, harm: str) -> None:
    """A copy that is not as it was written is never decoded: the file is, and the copy is made again (law 5)."""
    with opened(tmp_path, videos, epochs=3 * EPOCHS) as cache:
        got = read_epochs(cache, range(2))
        for (physical,) in sql(cache, PLACES):
            (shard,) = Path(tmp_path, str(physical)).glob("c*")
            if harm == "delete":
                shard.unlink()
            elif harm == "cut":
                os.truncate(shard, shard.stat().st_size // 2)
            else:
                data = bytearray(shard.read_bytes())
                data[len(data) // 3] ^= 4
                shard.write_bytes(data)
        got |= read_epochs(cache, range(2, 6))
        assert [row[0] for row in sql(cache, KEPT)] == [f"v{k}" for k in range(VIDEOS)]
        for (physical,) in sql(cache, PLACES):
            zarr.open_array(tmp_path / str(physical), mode="r")[:]  # its checksums hold
        assert same(got, {place: batch for place, batch in plenty.items() if place in got})


def test_a_replaced_file_is_never_decoded_as_the_old_one(tmp_path: Path, mine: Path, videos: Path) -> None:
    """Between two runs a file gets other content: its new views are those of the new content, and it is kept anew."""
    truth = tmp_path / "truth"
    with opened(tmp_path / "store", mine, on_changed_video="warn") as cache:
        read_epochs(cache, range(2))
        before = {row[0]: row[1] for row in sql(cache, KEPT)}
    os.replace(video(tmp_path / "v0.mp4", 175), mine / "v0.mp4")
    with opened(tmp_path / "store", mine, on_changed_video="warn") as cache:
        got = read_epochs(cache, range(2, EPOCHS))
        after = {row[0]: row[1] for row in sql(cache, KEPT)}
    with opened(truth, mine, remote=False, budget=10**8) as cache:
        assert same(got, {place: cache.read("train", *place) for place in got})
    assert {video for video in before if before[video] != after.get(video)} == {"v0"}


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path, mine: Path) -> None:
    """Of another version than the one that was listed no copy is made, and no clip."""
    with opened(tmp_path / "store", mine) as cache:
        (mine / "v0.mp4").write_bytes((mine / "v1.mp4").read_bytes())
        with pytest.raises(BadVideo, match="changed"):
            read_epochs(cache, range(2))
        assert "v0" not in [row[0] for row in sql(cache, KEPT)]


def test_workers_that_die_over_a_copy_leave_none(
    tmp_path: Path, videos: Path, plenty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of a file, a worker leaves no half copy and no byte uncounted; the next one makes it."""
    monkeypatch.setenv(VARIABLE, "worker.source-piece:3:kill")
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(2))
        assert len(sql(cache, KEPT)) == VIDEOS
        assert sql(cache, "select count(*) from errors") == [(0,)]
        got |= read_epochs(cache, range(2, EPOCHS))
        assert same(got, plenty)
        cache.tier.sweep()
        assert cache.tier.used_bytes == sum(dict(cache.tier.iter_objects()).values())


def test_policies_know_that_copies_are_wanted(tmp_path: Path, videos: Path) -> None:
    """As long as epochs come behind, copies are wanted; when the training is over they are not."""
    wanted = (
        "select count(*) from object_demand d join objects o using (object_id) "
        "where o.kind = 'source' and o.state = 'ready' and d.refs > 0"
    )
    with opened(tmp_path, videos) as cache:
        read_epochs(cache, range(3))
        cache.catalog.flush()
        assert sql(cache, wanted) == [(VIDEOS,)]
        read_epochs(cache, range(3, EPOCHS))
        cache.catalog.flush()
        assert sql(cache, wanted) == [(0,)]


def test_a_budget_that_shrinks_gives_up_copies(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Copies leave like all else; what is decoded then is the file."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(3))
    with opened(tmp_path, videos, budget=300_000) as cache:
        got |= read_epochs(cache, range(3, EPOCHS))
        assert same(got, plenty)


def test_of_a_bucket_each_byte_comes_once(
    tmp_path: Path, videos: Path, plenty: Any, bucket: tuple[Any, FaultProxy]
) -> None:
    """From opening to the last epoch: headers, and each file once; then the bucket may go away."""
    client, proxy = bucket
    for path in videos.iterdir():
        client.put_object(Bucket="far", Key=f"videos/{path.name}", Body=path.read_bytes())
    with opened(tmp_path / "store", "s3://far/videos", remote="auto") as cache:
        scanned = proxy.object_bytes
        got = read_epochs(cache, range(2))
        assert proxy.object_bytes - scanned == size_of(videos)
        proxy.rates = {"reset": 1.0}
        got |= read_epochs(cache, range(2, EPOCHS))
        assert proxy.object_bytes - scanned == size_of(videos)
        # What is drawn goes by the names of videos, and these are the same.
        assert same(got, plenty)


def test_what_a_scan_reads_whole_is_kept(tmp_path: Path, bucket: tuple[Any, FaultProxy]) -> None:
    """Of a WebM only its packets tell how many frames it has: it is read whole when it is listed, and never again."""
    client, proxy = bucket
    encode(tmp_path / "v.webm", frames=60, size=SIZE, gop=8, codec="libvpx", options={"crf": "50", "b": "20000"})
    for k in range(VIDEOS):
        client.put_object(Bucket="far", Key=f"videos/v{k}.webm", Body=(tmp_path / "v.webm").read_bytes())
    with opened(tmp_path / "store", "s3://far/videos", remote="auto") as cache:
        assert len(sql(cache, KEPT)) == VIDEOS
        assert cache.tier.used_bytes == sum(dict(cache.tier.iter_objects()).values())
        scanned = proxy.object_bytes
        got = read_epochs(cache, range(4))
        assert proxy.object_bytes == scanned
    with opened(tmp_path / "near", "s3://far/videos", remote=False) as cache:
        assert not sql(cache, KEPT)
        assert same(got, {place: cache.read("train", *place) for place in got})


def test_a_lost_catalog_knows_the_copies_again(tmp_path: Path, videos: Path, plenty: Any) -> None:
    """Copies describe themselves: when the database is lost, nothing is fetched again."""
    with opened(tmp_path, videos) as cache:
        got = read_epochs(cache, range(3))
        kept = sql(cache, KEPT)
    for path in tmp_path.glob("catalog.duckdb*"):
        path.unlink()
    with opened(tmp_path, videos) as cache:
        assert sql(cache, KEPT) == kept
        got |= read_epochs(cache, range(3, EPOCHS))
        assert sql(cache, FETCHED) == [(0,)]
        assert same(got, plenty)
