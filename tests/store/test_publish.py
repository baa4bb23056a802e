"""Writing: whole or nothing, once per key, whatever fails or dies."""

import errno
import os
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import forked
from tests.store.objects import Bytes, Put, pixels, stored_of
from viewcache import failpoints, store
from viewcache.errors import Broken, Full, Misuse
from viewcache.store import writer

KEY = "5a" * 16
ARRAY = pixels((5, 3, 30, 40))
META = store.ArrayMeta(ARRAY.shape, (2, *ARRAY.shape[1:]), "lz4", {"kind": "clip"})


def _leftovers(tier: store.LocalTier) -> list[str]:
    return os.listdir(Path(tier.root, "tmp"))


def test_an_equal_object_is_kept(tier: store.LocalTier) -> None:
    """Writing a key twice keeps the first object, says so, and returns the table of what is on disk."""
    first = store.write_object(tier.root, KEY, ARRAY, META)
    inode = Path(tier.root, first.physical).stat().st_ino
    raw = store.ArrayMeta(ARRAY.shape, META.chunk, "raw")
    second = store.write_object(tier.root, KEY, ARRAY, raw, durable=True)
    assert (first.existed, second.existed) == (False, True)
    assert (second.codec, second.table, second.bytes, second.crc) == ("lz4", first.table, first.bytes, first.crc)
    assert Path(tier.root, first.physical).stat().st_ino == inode
    assert _leftovers(tier) == []


@pytest.mark.parametrize("what", ["shard cut", "metadata gone", "file in its place", "empty folder"])
def test_a_damaged_object_is_replaced(tier: store.LocalTier, what: str) -> None:
    """Writing a key whose object is damaged replaces it."""
    place = Path(tier.root, store.write_object(tier.root, KEY, ARRAY, META).physical)
    if what == "shard cut":
        os.truncate(place / META.shard_name, 100)
    elif what == "metadata gone":
        (place / "zarr.json").unlink()
    else:
        tier.delete(f"objects/5a/{KEY}")
        if what == "empty folder":
            place.mkdir()
        else:
            place.write_text("x")
    written = store.write_object(tier.root, KEY, ARRAY, META)
    assert not written.existed
    store.verify_object(tier.root, written.physical, stored_of(written).table)
    assert _leftovers(tier) == []


def test_writers_of_one_key_race(tier: store.LocalTier) -> None:
    """Of many writers at once exactly one publishes; all report the same object."""
    results: list[store.Written] = []
    start = threading.Barrier(4)

    def write() -> None:
        start.wait()
        results.append(store.write_object(tier.root, KEY, ARRAY, META))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.existed for result in results) == [False, True, True, True]
    assert len({result.table for result in results}) == 1
    assert _leftovers(tier) == []


def test_chunks_are_consumed_one_by_one(tier: store.LocalTier) -> None:
    """An iterable's chunk is written before the next is asked for, so one buffer can serve for all."""
    buffer = np.empty((2, *ARRAY.shape[1:]), np.uint8)

    def parts() -> Iterator[Bytes]:
        for start in range(0, 5, 2):
            rows = ARRAY[start : start + 2]
            buffer[: len(rows)] = rows
            yield buffer[: len(rows)]

    written = store.write_object(tier.root, KEY, parts(), META)
    out = np.empty_like(ARRAY)
    store.read_into(tier.root, stored_of(written), out)
    assert np.array_equal(out, ARRAY)


def test_an_unfinished_object_leaves_nothing(tier: store.LocalTier, no_leaks: None) -> None:
    """Missing, repeated or misshapen chunks are the caller's error, and the temporary folder goes."""
    with store.ObjectWriter(tier.root, KEY, META) as writing:
        writing.put(1, ARRAY[2:4])
        with pytest.raises(Misuse, match="not awaited"):
            writing.put(1, ARRAY[2:4])
        with pytest.raises(Misuse, match="must be uint8"):
            writing.put(2, ARRAY[2:4])
        with pytest.raises(Misuse, match="1 of 3 chunks"):
            writing.commit()
    with pytest.raises(Misuse, match="shape"):
        store.write_object(tier.root, KEY, ARRAY[:4], META)
    with pytest.raises(Misuse, match="hexadecimal"):
        store.write_object(tier.root, "../../../../tmp/x", ARRAY, META)
    assert _leftovers(tier) == []
    assert list(tier.iter_objects()) == []


@pytest.mark.parametrize("place", ["posix_fallocate", "pwritev", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EIO, errno.EROFS])
def test_failing_disks(
    tier: store.LocalTier, monkeypatch: pytest.MonkeyPatch, no_leaks: None, place: str, number: int
) -> None:
    """Every failure of the system becomes Full or Broken with the cause in words, and leaves nothing behind."""

    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, place, fail)
    full = number not in {errno.EIO, errno.EROFS}
    with pytest.raises(Full if full else Broken, match=os.strerror(number)) as caught:
        store.write_object(tier.root, KEY, ARRAY, META)
    assert isinstance(caught.value, Full) == full
    assert _leftovers(tier) == []


def test_a_real_size_limit(tier: store.LocalTier) -> None:
    """RLIMIT_FSIZE, as a worker process has it, shows as Full before anything is written."""
    code = (
        "import sys, resource, numpy as np\nfrom viewcache import store, errors\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (4096, {resource.RLIM_INFINITY}))\n"
        "meta = store.ArrayMeta((1, 99999), (1, 99999), 'raw')\n"
        f"try: store.write_object(sys.argv[1], '{KEY}', np.zeros((1, 99999), np.uint8), meta)\n"
        "except errors.Full as error: print('Full')\n"
    )
    run = forked.run([sys.executable, "-c", code, tier.root], capture_output=True, text=True, check=True)
    assert run.stdout == "Full\n"
    assert _leftovers(tier) == []


@pytest.mark.parametrize("point", ["store.temp-made", "store.shard-written", "store.before-rename"])
def test_a_store_that_is_emptied_while_an_object_is_written(
    tier: store.LocalTier, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """After ``rm -rf store/*`` at any step the object is written anew, and it is whole."""
    emptied: list[str] = []

    def empty_once(name: str) -> None:
        if name == point and not emptied:
            emptied.append(name)
            for path in list(Path(tier.root).iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    monkeypatch.setattr(writer, "failpoint", empty_once)
    written = store.write_object(tier.root, KEY, ARRAY, META)
    assert emptied
    store.verify_object(tier.root, written.physical, stored_of(written).table)
    assert _leftovers(tier) == []


def test_what_cannot_be_written_anew(tier: store.LocalTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that were used up, and a store that is emptied again and again, are an error that names the store."""
    visits: list[str] = []

    def empty_always(name: str) -> None:
        if name == "store.temp-made":
            visits.append(name)
            shutil.rmtree(Path(tier.root, "tmp"))

    monkeypatch.setattr(writer, "failpoint", empty_always)
    with pytest.raises(Broken, match=f"{tier.root}.*No such file"):
        store.write_object(tier.root, KEY, iter([ARRAY[:2], ARRAY[2:4], ARRAY[4:]]), META)
    assert len(visits) == 1
    with pytest.raises(Broken, match=f"{tier.root}.*No such file"):
        store.write_object(tier.root, KEY, ARRAY, META)
    assert 1 < len(visits) < 20


def test_two_writers_make_the_folder_of_an_emptied_store(
    tier: store.LocalTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that comes second goes on as the first."""
    temporary = Path(tier.root, "tmp")
    temporary.rmdir()
    make = os.mkdir

    def slower(path: str, mode: int = 0o777) -> None:
        if Path(path) == temporary:
            make(path, mode)  # the other writer
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", slower)
    assert not store.write_object(tier.root, KEY, ARRAY, META).existed


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    """A store whose folder is gone gives an error that names it."""
    with pytest.raises(Broken, match=str(tmp_path / "gone")):
        store.write_object(tmp_path / "gone", KEY, ARRAY, META)


CHILD = """
import sys, numpy as np
from viewcache import store
root, key, delete = sys.argv[1:]
array = np.arange(6000, dtype=np.uint8).reshape(6, 1000)
if delete == "yes":
    store.LocalTier(root, 1 << 30).delete(store.physical_of(key))
store.write_object(root, key, array, store.ArrayMeta((6, 1000), (1, 1000), "raw"), durable=True)
"""


@pytest.mark.parametrize(
    ("point", "visible"),
    [
        ("store.temp-made", False),
        ("store.shard-written", False),
        ("store.before-rename", False),
        ("store.after-rename", True),
        ("store.mid-delete", False),
    ],
)
def test_kill_at_every_step(tier: store.LocalTier, point: str, visible: bool) -> None:
    """A kill -9 at any step leaves the object whole or absent, never partial; the next start sweeps the rest."""
    delete = "no"
    array = np.arange(6000, dtype=np.uint8).reshape(6, 1000)
    if point == "store.mid-delete":
        store.write_object(tier.root, KEY, array, store.ArrayMeta((6, 1000), (1, 1000), "raw"))
        delete = "yes"
    run = forked.run(
        [sys.executable, "-c", CHILD, tier.root, KEY, delete],
        env={**os.environ, failpoints.VARIABLE: f"{point}:1:kill"},
        check=False,
    )
    assert run.returncode == -signal.SIGKILL
    physical = store.physical_of(KEY)
    assert [place for place, _ in tier.iter_objects()] == ([physical] if visible else [])
    if visible:
        store.verify_object(tier.root, physical)
    swept = store.LocalTier(tier.root, 1 << 30).sweep()
    assert (swept > 0) == (point != "store.after-rename")
    assert _leftovers(tier) == []


def test_failing_at_a_place(tier: store.LocalTier, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action ``raise`` fails the N-th visit as a disk would, once, and only there."""
    monkeypatch.setenv(failpoints.VARIABLE, "store.before-rename:2:raise")
    failpoints.reload()
    try:
        put(pixels((1, 9)), key=KEY)
        with pytest.raises(Broken, match="failpoint"):
            put(pixels((1, 9)))
        put(pixels((1, 9)))
    finally:
        monkeypatch.undo()
        failpoints.reload()
    assert len(list(tier.iter_objects())) == 2
    assert _leftovers(tier) == []


@pytest.mark.parametrize("text", ["x", "x:0:kill", "x:1:explode", ":1:kill", "x:one:raise"])
def test_a_misspelt_failpoint_is_not_silent(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A wrong VIEWCACHE_FAILPOINT fails the run: a crash test must not pass because nothing crashed."""
    monkeypatch.setenv(failpoints.VARIABLE, text)
    failpoints.reload()
    try:
        with pytest.raises(ValueError, match="NAME:N:kill"):
            failpoints.failpoint("x")
    finally:
        monkeypatch.undo()
        failpoints.reload()
