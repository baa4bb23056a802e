"""The remote tier keeps the one contract, over a real S3 server and over any other fsspec file system."""

import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.disk import counted
from tests.servers.seaweed import SECRET_KEY, Seaweed, connected
from tests.store.objects import pixels, stored_of
from viewcache import store
from viewcache.errors import BadInput, ChunkDamaged, Closed, StoreUnreachable
from viewcache.failpoints import VARIABLE, reload
from viewcache.testing import TierContract, put
from viewcache.testing.tier_contract import KEY

TOKEN = "canary-of-a-session"
SHARD = "c.0.0"
META = store.ArrayMeta((6, 50), (2, 50), "raw", {"kind": "clip"})


class TestRemoteTierOnS3(TierContract):
    """Over s3fs, a bucket of SeaweedFS."""

    @pytest.fixture(autouse=True)
    def server(self, seaweed: Seaweed, bucket: str) -> None:
        """The server and the test's own bucket."""
        self.seaweed, self.bucket = seaweed, bucket

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """Below a prefix of the bucket."""
        return store.open_tier("remote", f"s3://{self.bucket}/{folder.name}", budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """By putting the shard anew."""
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        path = _path(tier, _shard(stored))
        with connected(self.seaweed) as client:
            data = bytearray(client.get_object(Bucket=self.bucket, Key=path)["Body"].read())
            data[place] ^= 16
            client.put_object(Bucket=self.bucket, Key=path, Body=bytes(data))

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        with connected(self.seaweed) as client:
            for path in (_shard(stored), f"{stored.physical}/zarr.json"):
                client.delete_object(Bucket=self.bucket, Key=_path(tier, path))

    def abandon(self, tier: store.Tier) -> int:
        """A shard that its writer did not come to make an object of."""
        with connected(self.seaweed) as client:
            path = _path(tier, f"objects/aa/{'a' * 32}/{SHARD}")
            client.put_object(Bucket=self.bucket, Key=path, Body=bytes(70))
        return 70


class TestRemoteTierOnFiles(TierContract):
    """Over a file system that knows nothing of asyncio."""

    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """A folder, as if it were a bucket."""
        return store.RemoteTier(folder.as_uri(), budget_bytes)

    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """In the shard's file."""
        file = os.open(Path(tier.url.removeprefix("file://"), _shard(stored)), os.O_RDWR)
        place = stored.table.offsets[chunk] + stored.table.sizes[chunk] // 2
        os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 16]), place)
        os.close(file)

    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Both files go."""
        shard = Path(tier.url.removeprefix("file://"), _shard(stored))
        for path in (shard, shard.with_name("zarr.json")):
            path.unlink()

    def abandon(self, tier: store.Tier) -> int:
        """A shard that its writer did not come to make an object of."""
        dead = Path(tier.url.removeprefix("file://"), "objects", "aa", "a" * 32)
        dead.mkdir(parents=True)
        (dead / SHARD).write_bytes(bytes(70))
        return 70


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hunter2@bucket/store",
        "s3://hunter2@bucket/store",
        "s3://bucket/store?token=hunter2",
        "s3://bucket/store#hunter2",
        "s3://bucket/../hunter2",
        "s3://bucket/./hunter2",
        "s3://bucket//hunter2",
        "s3://bucket/hunter2%2F..",
        "s3://bucket/hunter2\\x",
        "s3://bucket/hunter2\0",
        "simplecache::s3://bucket/hunter2",
        "s3://",
        "bucket/hunter2",
    ],
)
def test_urls_hold_names_only(url: str) -> None:
    """A user, a password, a query, an escape or a way up is refused, and not repeated in the message."""
    with pytest.raises(BadInput, match="the URL of a store must") as refused:
        store.RemoteTier(url, 1 << 20)
    assert "hunter2" not in str(refused.value)


def test_unknown_schemes_are_bad_input() -> None:
    """A scheme that no file system has is named, with those that there are."""
    with pytest.raises(BadInput, match=r"begin with nothing://.*s3, gs and az"):
        store.RemoteTier("nothing://bucket/x", 1 << 20)


def test_secrets_stay_where_they_are(
    bucket: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The key of the environment is in no message, traceback, representation, log at DEBUG or file of the store."""
    caplog.set_level(logging.DEBUG)
    told = []
    tier = store.RemoteTier(f"s3://{bucket}/store", 1 << 20)
    try:
        put(tier, pixels((6, 50)), META)
        told += [repr(tier), str(vars(tier)), tier.url]
    finally:
        tier.close()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    with pytest.raises(StoreUnreachable) as refused:
        store.RemoteTier(f"s3://{bucket}/store", 1 << 20)
    told += [str(refused.value), repr(refused.value), "".join(traceback.format_exception(refused.value)), caplog.text]
    told += [text.decode("latin-1") for text in _all_files(seaweed, bucket).values()]
    assert len(told) >= 10
    assert not [text for text in told if SECRET_KEY in text or TOKEN in text]


def test_wrong_keys_and_buckets_are_told_at_once(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is no lost object and is not retried: the message says what to check."""
    with pytest.raises(StoreUnreachable, match=r"s3://no-such-bucket/x/.*check the bucket's name"):
        store.RemoteTier("s3://no-such-bucket/x", 1 << 20)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnreachable, match="credentials and permissions of this process"):
        store.RemoteTier(f"s3://{bucket}/x", 1 << 20)


def test_a_missing_package_is_named() -> None:
    """Without the file system's package the message has the line to install it."""
    code = "import sys; sys.modules['s3fs'] = None\nfrom viewcache import store; store.RemoteTier('s3://bucket/x', 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingExtra: a store at s3:// needs a further package: pip install 'viewcache[s3]'" in done.stderr


def test_a_foreign_prefix_is_refused(tmp_path: Path) -> None:
    """What holds objects or an array but no marker, another marker, or another format, is not ours to delete from."""
    foreign = ["objects/x", "objects/aa/x", f"objects/ab/{'a' * 32}/zarr.json", "objects/info/x", "tmp/x"]
    for name, text in [(each, b"") for each in foreign] + [
        ("zarr.json", b"{}"),
        (".zgroup", b"{}"),
        (store.MARKER, b"[]"),
        (store.MARKER, b"no"),
    ]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(text)
        with pytest.raises(BadInput, match="another prefix"):
            store.RemoteTier(folder.as_uri(), 1 << 20)
        assert (folder / name).read_bytes() == text
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / store.MARKER).write_text(json.dumps({"viewcache_store": 99}))
    with pytest.raises(BadInput, match="says format 99, this release reads 1"):
        store.RemoteTier(folder.as_uri(), 1 << 20)


def test_a_store_is_opened_again(bucket: str) -> None:
    """What was written is found by the next process, from the bucket alone."""
    with closing(store.RemoteTier(f"s3://{bucket}/store", 1 << 20)) as first:
        written = put(first, pixels((6, 50)), META, KEY)
    with closing(store.RemoteTier(f"s3://{bucket}/store/", 1 << 20)) as second:
        assert dict(second.iter_objects()) == {written.physical: written.bytes}
        assert second.verify(written.physical).stored == stored_of(written)
        out = np.empty((6, 50), np.uint8)
        second.read(stored_of(written), out)
        assert np.array_equal(out, pixels((6, 50)))
    with pytest.raises(Closed):
        second.read(stored_of(written), out)


@pytest.mark.parametrize("make", [True, False])
def test_a_store_without_its_marker_is_recognized(tmp_path: Path, make: bool) -> None:
    """Only a store's objects lie there: that the marker is gone is told, and it comes back unless one only looks."""
    url, marker = (tmp_path / "store").as_uri(), tmp_path / "store" / store.MARKER
    with closing(store.RemoteTier(url, 1 << 20)) as tier:
        written = put(tier, pixels((6, 50)), META, KEY)
    with closing(store.RemoteTier(url, 1 << 20)) as tier:
        assert not tier.unmarked
    marker.unlink()
    with closing(store.RemoteTier(url, 1 << 20, make=make)) as tier:
        assert tier.unmarked
        assert dict(tier.iter_objects()) == {written.physical: written.bytes}
    assert marker.exists() is make


def test_nothing_else_is_touched(bucket: str, seaweed: Seaweed) -> None:
    """Files beside the prefix, beside the objects and in their folders are neither counted nor removed."""
    foreign = {
        "store2/objects/aa/x": b"1",
        "store-objects": b"2",
        "store/notes.txt": b"3",
        "store/objects/readme": b"4",
        f"store/{store.physical_of(KEY)}/notes.txt": b"5",
        "store/objects/zz/c.0": b"6",
    }
    with closing(store.RemoteTier(f"s3://{bucket}/store", 1 << 20)) as tier, connected(seaweed) as client:
        for path, data in foreign.items():
            client.put_object(Bucket=bucket, Key=path, Body=data)
        written = put(tier, pixels((6, 50)), META, KEY)
        assert (tier.measure(), tier.sweep()) == (written.bytes, 0)
        assert tier.delete(written.physical) == written.bytes
        assert (tier.measure(), tier.sweep()) == (0, 0)
    marker = {f"store/{store.MARKER}": b'{"viewcache_store": 1}\n'}
    assert _all_files(seaweed, bucket) == foreign | marker


def test_a_writer_that_dies_between_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard without ``zarr.json`` is no object: the next writer of the key makes it one, or `sweep` removes it."""
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 20)) as tier:
        for again in (True, False):
            monkeypatch.setenv(VARIABLE, "store.shard-written:1:raise")
            reload()
            with pytest.raises(OSError, match=r"store\.shard-written"):
                put(tier, pixels((6, 50)), META, KEY)
            monkeypatch.delenv(VARIABLE)
            reload()
            assert list(tier.iter_objects()) == []
            with pytest.raises(ChunkDamaged):
                tier.scan(store.physical_of(KEY))
            if again:
                written = put(tier, pixels((6, 50)), META, KEY)
                assert not written.existed
                tier.verify(written.physical, stored_of(written).table)
                tier.delete(written.physical)
        assert tier.sweep() > 0
        assert not [path for path in (tmp_path / "store").rglob("*") if path.name == SHARD]


def test_a_leftover_of_another_codec_is_replaced(tmp_path: Path) -> None:
    """A dead writer's shard that is not the one to be written does not become part of the new object."""
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 20)) as tier:
        shard = tmp_path / "store" / store.physical_of(KEY) / SHARD
        shard.parent.mkdir(parents=True)
        shard.write_bytes(b"of somebody who died")
        written = put(tier, pixels((6, 50)), META, KEY)
        assert not written.existed
        tier.verify(written.physical, stored_of(written).table)


def test_sweeping_while_others_write(tmp_path: Path) -> None:
    """`sweep` never takes the shard of a writer that is about to publish."""
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 30)) as tier:
        with ThreadPoolExecutor(5) as pool:
            writes = [pool.submit(put, tier, pixels((6, 50), number), META) for number in range(60)]
            sweeps = [pool.submit(tier.sweep) for _ in range(20)]
            written = [write.result() for write in writes]
            assert [sweep.result() for sweep in sweeps] == [0] * 20
        for each in written:
            tier.verify(each.physical, stored_of(each).table)


def test_objects_are_the_same_in_a_folder_and_in_a_bucket(tmp_path: Path) -> None:
    """A bucket's objects, brought to a folder, are read by `LocalTier` and by Zarr, and a folder's in a bucket."""
    array = pixels((6, 50))
    with closing(store.RemoteTier((tmp_path / "remote").as_uri(), 1 << 20)) as remote:
        here = put(remote, array, META, KEY)
        folder = store.LocalTier(tmp_path / "remote", 1 << 20)
        assert folder.verify(here.physical, stored_of(here).table).meta == META
        assert folder.scan(here.physical).bytes == counted(tmp_path / "remote" / here.physical)
        assert np.array_equal(zarr.open_array(tmp_path / "remote" / here.physical, mode="r")[:], array)
    local = store.LocalTier(tmp_path / "local", 1 << 20)
    there = put(local, array, META, KEY)
    with closing(store.RemoteTier((tmp_path / "local").as_uri(), 1 << 20)) as remote:
        assert remote.scan(there.physical).stored == stored_of(there)
        files = (tmp_path / "local" / there.physical).iterdir()
        assert remote.verify(there.physical, stored_of(there).table).bytes == sum(each.stat().st_size for each in files)


def test_many_chunks_are_described_whole(tmp_path: Path) -> None:
    """A ``zarr.json`` longer than the first look is read to its end."""
    meta = store.ArrayMeta((4000, 7), (1, 7), "lz4")
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 30)) as tier:
        written = put(tier, pixels((4000, 7)), meta)
        assert (tmp_path / "store" / written.physical / "zarr.json").stat().st_size > 64 << 10
        assert tier.scan(written.physical).stored == stored_of(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"raw", b"war"),
        lambda text: text[:-1],
        lambda text: b"",
        lambda text: text.replace(b'"table":"', b'"table":"A'),
        lambda text: text.replace(b'"write":"', b'"write":"0'),
    ],
    ids=["codec", "cut", "empty", "table", "write"],
)
def test_a_changed_description_is_damage(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """Any other text of ``zarr.json`` than the one that was written is damage, and writing the key replaces it."""
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 20)) as tier:
        written = put(tier, pixels((6, 50)), store.ArrayMeta((6, 50), (2, 50), "raw", {"kind": "raw"}), KEY)
        path = tmp_path / "store" / written.physical / "zarr.json"
        path.write_bytes(change(path.read_bytes()))
        for look in (tier.scan, tier.verify):
            with pytest.raises(ChunkDamaged):
                look(written.physical)
        assert not put(tier, pixels((6, 50)), META, KEY).existed
        tier.verify(written.physical)


@pytest.mark.parametrize("cut", [1, 25, 100])
def test_a_cut_or_longer_shard_is_damage(tmp_path: Path, cut: int) -> None:
    """A shard that is not as long as it was written is damage for `scan` and `verify`."""
    with closing(store.RemoteTier((tmp_path / "store").as_uri(), 1 << 20)) as tier:
        written = put(tier, pixels((6, 50)), META, KEY)
        path = tmp_path / "store" / written.physical / SHARD
        whole = path.read_bytes()
        for data in (whole[:-cut], whole + bytes(cut)):
            path.write_bytes(data)
            for look in (tier.scan, tier.verify):
                with pytest.raises(ChunkDamaged):
                    look(written.physical)


def _all_files(seaweed: Seaweed, bucket: str) -> dict[str, bytes]:
    with connected(seaweed) as client:
        names = [each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]]
        return {
            name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names if not name.endswith("/")
        }


def _shard(stored: store.Stored) -> str:
    return f"{stored.physical}/c{'.0' * len(stored.shape)}"


def _path(tier: store.Tier, path: str) -> str:
    return f"{tier.url.split('/', 3)[3]}/{path}"
