"""A video's file out of its copy in the store: the same bytes and frames, and the file itself where that is damaged."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clips import digest, encode, sequential
from viewcache.errors import BadVideo
from viewcache.materializer.media.decode import decode_from
from viewcache.materializer.media.kept import CHUNK_BYTES, KeptSource, about, kept_key
from viewcache.materializer.media.probe import probe, probe_source
from viewcache.materializer.media.source import Source, Stamp, open_source
from viewcache.store import ArrayMeta, read_into, write_object
from viewcache.store.format import ChunkTable
from viewcache.store.shard_reader import Stored

VIDEO = "ab" * 16


def stored(root: Path, content: bytes, stamp: Stamp) -> Stored:
    """A copy of a file."""
    root.mkdir(exist_ok=True)
    meta = ArrayMeta((len(content),), (min(CHUNK_BYTES, len(content)),), "raw", about("v", VIDEO, stamp))
    written = write_object(root, kept_key(VIDEO, stamp), np.frombuffer(content, np.uint8), meta)
    table = ChunkTable.from_bytes(written.table)
    return Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)


def refuse() -> Source:
    """The file itself must not be opened."""
    raise AssertionError("the file was opened")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, Stored]:
    """A store with a copy of two chunks and a half."""
    root = tmp_path_factory.mktemp("kept")
    content = np.random.default_rng(1).integers(0, 256, CHUNK_BYTES * 5 // 2, np.uint8).tobytes()
    return root, content, stored(root, content, Stamp(len(content), 1))


Ranges = st.lists(st.tuples(st.integers(0, 3 * CHUNK_BYTES), st.integers(0, 2 * CHUNK_BYTES)), max_size=4)


@given(Ranges)
def test_any_ranges(large: tuple[Path, bytes, Stored], ranges: list[tuple[int, int]]) -> None:
    """Whatever is asked for comes as from the file, shorter at its end, and the file is not touched."""
    root, content, copy = large
    source = KeptSource("/nowhere.mp4", Stamp(len(content), 1), copy, partial(read_into, root), refuse)
    assert source.read_many(ranges) == [content[start : start + size] for start, size in ranges]
    for start, size in ranges:
        assert source.read(start, size) == source.read_near(start, size) == content[start : start + size]
    assert (source.bytes_read, source.waited_s, source.is_damaged) == (0, 0.0, False)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts"])
def test_frames_are_those_of_the_file(tmp_path: Path, name: str) -> None:
    """By ranges and through a container, with the index of the copy or of the file, which are the same."""
    path = encode(tmp_path / name, frames=40, size=(64, 48), gop=8)
    content, index = path.read_bytes(), probe(str(path))
    copy = stored(tmp_path / "store", content, index.stamp)
    with KeptSource(str(path), index.stamp, copy, partial(read_into, tmp_path / "store"), refuse) as source:
        assert probe_source(source, 10**6).to_bytes() == index.to_bytes()
        got = {number: digest(frame) for number, frame in decode_from(source, index, np.arange(index.frames))}
    assert got == {number: found for number, (found, *_) in enumerate(sequential(path))}


@pytest.mark.parametrize("harm", ["flip", "cut", "shape"])
def test_damage_gives_up_the_copy(tmp_path: Path, harm: str) -> None:
    """From the first damaged chunk on the file is read; what was read before was right (law 5)."""
    path = tmp_path / "file.mp4"
    content = np.random.default_rng(2).integers(0, 256, CHUNK_BYTES * 3, np.uint8).tobytes()
    path.write_bytes(content)
    with open_source(str(path)) as file:
        stamp = file.stamp
    copy, root = stored(tmp_path / "store", content, stamp), tmp_path / "store"
    (shard,) = (root / copy.physical).glob("c*")
    data = bytearray(shard.read_bytes())
    if harm == "flip":
        data[CHUNK_BYTES * 3 // 2] ^= 1
    shard.write_bytes(data[: CHUNK_BYTES + 99] if harm == "cut" else data)
    if harm == "shape":
        copy = stored(tmp_path / "store", content[:-1], Stamp(len(content) - 1, 7))
    source = KeptSource(str(path), stamp, copy, partial(read_into, root), partial(open_source, str(path)))
    with source:
        assert source.read(5, 1000) == content[5:1005]
        assert source.is_damaged == (harm == "shape")
        assert source.read(0, len(content)) == content
        assert source.is_damaged
        assert source.read_many([(CHUNK_BYTES, 10), (7, 3)]) == [content[CHUNK_BYTES : CHUNK_BYTES + 10], content[7:10]]
        assert source.bytes_read > 0


def test_without_the_file_damage_is_an_error(tmp_path: Path) -> None:
    """A damaged copy of a file that is gone gives no bytes."""
    stamp = Stamp(100, 1)
    copy = stored(tmp_path, bytes(100), stamp)

    def damaged(*_: object) -> None:
        read_into(tmp_path / "elsewhere", copy, np.empty(100, np.uint8), [0])

    read: Callable[[Stored, np.ndarray, Sequence[int]], None] = damaged
    source = KeptSource("/nowhere.mp4", stamp, copy, read, partial(open_source, "/nowhere.mp4"))
    with pytest.raises(BadVideo, match="no such file"):
        source.read(0, 100)


def test_versions_have_other_names() -> None:
    """Size, etag and, without one, time tell copies apart; with an etag the time does not count: listings round it."""
    stamps = [Stamp(10, 5), Stamp(10, 6), Stamp(11, 5), Stamp(10, 5, "a"), Stamp(10, 5, "b"), Stamp(11, 5, "a")]
    assert len({kept_key(VIDEO, stamp) for stamp in stamps}) == len(stamps)
    assert kept_key(VIDEO, Stamp(10, 5, "a")) == kept_key(VIDEO, Stamp(10, 9, "a"))
    assert kept_key("cd" * 16, stamps[0]) != kept_key(VIDEO, stamps[0])
