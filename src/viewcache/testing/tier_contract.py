"""What every tier must do, as a class of tests that a new tier inherits.

A tier's own test module subclasses `TierContract`, says how to open one, how to damage an object in it, and what a
killed writer leaves behind. Nothing here knows where the bytes are.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from viewcache import store
from viewcache.errors import ChunkDamaged, Misuse, WrongProcess
from viewcache.store.format import ALIGNMENT
from viewcache.testing.leaks import nothing_left
from viewcache.testing.objects import Bytes, pixels, put, stored_of

__all__ = ["TierContract"]

KEY = "5a" * 16
SHAPES = [((8, 3, 20, 24), 1), ((7, 3, 5, 11), 3), ((4, 3, 16, 16), 4), ((5, 97), 2), ((300, 7), 1), ((1,), 1)]
CODECS = list(store.CODECS)
BUDGET = 64 << 20


class TierContract(ABC):
    """The promises of `viewcache.store.Tier`."""

    @abstractmethod
    def open(self, folder: Path, budget_bytes: int) -> store.Tier:
        """An empty tier; ``folder`` is new and is the test's own."""

    @abstractmethod
    def damage(self, tier: store.Tier, stored: store.Stored, chunk: int) -> None:
        """Flip one stored bit of an inner chunk."""

    @abstractmethod
    def lose(self, tier: store.Tier, stored: store.Stored) -> None:
        """Take an object's bytes away behind the tier's back."""

    @abstractmethod
    def abandon(self, tier: store.Tier) -> int:
        """Leave behind what a killed writer of one object leaves; the bytes of it, 0 where nothing can be left."""

    @pytest.fixture
    def tier(self, tmp_path: Path) -> Iterator[store.Tier]:
        """An empty tier with room for every test."""
        opened = self.open(tmp_path / "tier", BUDGET)
        yield opened
        opened.close()

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize(("shape", "rows"), SHAPES)
    def test_every_codec_and_shape_comes_back(
        self, tier: store.Tier, codec: str, shape: tuple[int, ...], rows: int
    ) -> None:
        """Any array in any codec reads back equal, describes itself, and takes what was counted for it."""
        array = pixels(shape)
        meta = store.ArrayMeta(shape, (rows, *shape[1:]), codec, {"kind": "clip", "frames": [1, 2]})
        written = put(tier, array, meta, KEY)
        stored = stored_of(written)
        out = store.aligned_empty(shape)
        tier.read(stored, out)
        assert np.array_equal(out, array)
        assert (written.key, written.physical, written.existed) == (KEY, store.physical_of(KEY), False)
        assert (written.codec, written.shape, written.chunk_rows) == (codec, shape, rows)
        assert written.raw_bytes == array.size
        for found in (tier.scan(written.physical), tier.verify(written.physical, stored.table)):
            assert (found.stored, found.meta, found.bytes, found.key) == (stored, meta, written.bytes, KEY)
            assert found.table.digest() == written.crc
        assert list(tier.iter_objects()) == [(written.physical, written.bytes)]
        assert tier.used_bytes == tier.measure() == written.bytes
        assert all(offset % ALIGNMENT == 0 for offset in stored.table.offsets)

    @pytest.mark.parametrize("codec", CODECS)
    def test_chunks_are_read_in_any_order(self, tier: store.Tier, codec: str) -> None:
        """Some chunks, in any order and more than once, by list and by slice, are the rows of those chunks."""
        array, rows = pixels((11, 3, 9, 8)), 2
        stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (rows, *array.shape[1:]), codec)))
        picks: list[list[int] | slice] = [[5, 0, 3, 3, 1], [], [4], slice(1, None), slice(None, None, 2), slice(4, 1)]
        for pick in picks:
            chosen = range(6)[pick] if isinstance(pick, slice) else pick
            expected = np.concatenate([array[:0], *(array[each * rows : (each + 1) * rows] for each in chosen)])
            out = np.empty_like(expected)
            tier.read(stored, out, pick)
            assert np.array_equal(out, expected)

    def test_wrong_buffers_are_refused(self, tier: store.Tier) -> None:
        """A buffer of another shape, or a chunk that is not there, is the caller's error."""
        stored = stored_of(put(tier, pixels((4, 6)), store.ArrayMeta((4, 6), (2, 6), "raw")))
        with pytest.raises(Misuse, match="out must be"):
            tier.read(stored, np.empty((4, 5), np.uint8))
        with pytest.raises(Misuse, match="it has 2"):
            tier.read(stored, np.empty((2, 6), np.uint8), [2])
        with pytest.raises(Misuse, match=r"1 objects .* 2 slots"):
            tier.read_slots([stored], np.empty((2, 4, 6), np.uint8))

    def test_slots_of_a_batch(self, tier: store.Tier) -> None:
        """Objects land in consecutive slots; each damaged or lost one is named by position, the others are right."""
        clips = pixels((5, 6, 3, 8, 8))
        stored = [
            stored_of(put(tier, clip, store.ArrayMeta(clip.shape, (6, *clip.shape[1:]), codec)))
            for clip, codec in zip(clips, ("raw", "lz4", "raw", "zstd1", "raw"), strict=True)
        ]
        out = store.aligned_empty(clips.shape)
        assert tier.read_slots(stored, out) == {}
        assert np.array_equal(out, clips)
        tier.delete(stored[2].physical)
        self.damage(tier, stored[3], 0)
        out[:] = 0
        damaged = tier.read_slots(stored, out)
        assert sorted(damaged) == [2, 3]
        assert all(stored[place].physical in str(error) for place, error in damaged.items())
        assert np.array_equal(out[[0, 1, 4]], clips[[0, 1, 4]])

    @pytest.mark.parametrize("codec", CODECS)
    def test_damage_is_noticed(self, tier: store.Tier, codec: str) -> None:
        """One flipped bit is never served: the read and `verify` name it, and chunks beside it are still right."""
        array = pixels((6, 3, 12, 10))
        stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (2, *array.shape[1:]), codec)))
        self.damage(tier, stored, 1)
        out = np.empty_like(array)
        with pytest.raises(ChunkDamaged):
            tier.read(stored, out)
        with pytest.raises(ChunkDamaged):
            tier.verify(stored.physical, stored.table)
        tier.read(stored, out[:4], [2, 0])
        assert np.array_equal(out[:4], array[[4, 5, 0, 1]])

    def test_a_lost_object_is_damage(self, tier: store.Tier) -> None:
        """An object whose bytes are gone is ChunkDamaged for every way of looking at it, never zeros."""
        array = pixels((6, 50))
        written = put(tier, array, store.ArrayMeta(array.shape, (2, 50), "raw"))
        stored = stored_of(written)
        self.lose(tier, stored)
        with pytest.raises(ChunkDamaged):
            tier.read(stored, np.empty_like(array))
        with pytest.raises(ChunkDamaged):
            tier.scan(stored.physical)
        with pytest.raises(ChunkDamaged):
            tier.verify(stored.physical)
        assert tier.delete(stored.physical, written.bytes) == written.bytes
        assert tier.used_bytes == 0

    def test_another_object_of_the_key_is_damage(self, tier: store.Tier) -> None:
        """A record of what lay under a key before does not read what lies there now."""
        meta = store.ArrayMeta((6, 50), (2, 50), "raw")
        old = stored_of(put(tier, pixels((6, 50)), meta, KEY))
        tier.delete(old.physical)
        put(tier, pixels((6, 50), seed=1), meta, KEY)
        with pytest.raises(ChunkDamaged):
            tier.read(old, np.empty((6, 50), np.uint8))
        with pytest.raises(ChunkDamaged):
            tier.verify(old.physical, old.table)

    def test_an_equal_object_is_kept(self, tier: store.Tier) -> None:
        """Writing a key twice keeps the first object, says so, and returns the record of what lies there."""
        array = pixels((5, 300))
        first = put(tier, array, store.ArrayMeta(array.shape, (2, 300), "lz4"), KEY)
        second = put(tier, array, store.ArrayMeta(array.shape, (2, 300), "raw"), KEY)
        assert (first.existed, second.existed) == (False, True)
        assert (second.codec, second.table, second.bytes, second.crc) == ("lz4", first.table, first.bytes, first.crc)
        assert tier.used_bytes == tier.measure() == first.bytes

    def test_a_damaged_object_is_replaced(self, tier: store.Tier) -> None:
        """Writing a key whose object is damaged replaces it."""
        array = pixels((5, 300))
        meta = store.ArrayMeta(array.shape, (2, 300), "raw")
        first = put(tier, array, meta, KEY)
        self.damage(tier, stored_of(first), 1)
        tier.settle(0)  # the catalog has dropped the damaged copy
        second = put(tier, array, meta, KEY)
        assert not second.existed
        tier.verify(second.physical, stored_of(second).table)
        assert tier.used_bytes == tier.measure()

    def test_writers_of_one_key_race(self, tier: store.Tier) -> None:
        """Of two writers at once one publishes; both report the same object, which is whole and there once."""
        array = pixels((5, 3, 30, 40))
        meta = store.ArrayMeta(array.shape, (2, *array.shape[1:]), "lz4")
        results: list[store.Written] = []
        start = threading.Barrier(2)

        def write() -> None:
            start.wait()
            results.append(put(tier, array, meta, KEY))

        threads = [threading.Thread(target=write) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(result.existed for result in results) == [False, True]
        assert results[0].table == results[1].table
        assert list(tier.iter_objects()) == [(store.physical_of(KEY), results[0].bytes)]
        assert tier.used_bytes == results[0].bytes
        tier.verify(store.physical_of(KEY), stored_of(results[0]).table)

    def test_an_unfinished_object_leaves_nothing(self, tier: store.Tier) -> None:
        """What fails while its chunks come is not there afterwards, and takes no byte."""
        array = pixels((4, 500))
        meta = store.ArrayMeta(array.shape, (1, 500), "raw")

        def dying() -> Iterator[Bytes]:
            yield array[:1]
            raise OSError("the decoder died")

        with pytest.raises(OSError, match="the decoder died"):
            put(tier, dying(), meta, KEY)
        with pytest.raises(Misuse, match="1 of 4"):
            put(tier, iter([array[:1]]), meta, KEY)
        with pytest.raises(Misuse, match="shape"):
            put(tier, array[:3], meta, KEY)
        with pytest.raises(Misuse, match="hexadecimal"):
            tier.write("../../../../tmp/x", array, meta)
        assert list(tier.iter_objects()) == []
        assert (tier.sweep(), tier.used_bytes, tier.reserved_bytes) == (0, 0, 0)
        with pytest.raises(ChunkDamaged):
            tier.scan(store.physical_of(KEY))

    def test_chunks_are_consumed_one_by_one(self, tier: store.Tier) -> None:
        """An iterable's chunk is used before the next is asked for, so one buffer can serve for all."""
        array, buffer = pixels((5, 40)), np.empty((2, 40), np.uint8)

        def parts() -> Iterator[Bytes]:
            for start in range(0, 5, 2):
                rows = array[start : start + 2]
                buffer[: len(rows)] = rows
                yield buffer[: len(rows)]

        for codec in CODECS:
            stored = stored_of(put(tier, parts(), store.ArrayMeta(array.shape, (2, 40), codec)))
            out = np.empty_like(array)
            tier.read(stored, out)
            assert np.array_equal(out, array)

    def test_deleting_gives_bytes_back(self, tier: store.Tier) -> None:
        """What is deleted is gone for every way of looking, and the count is what still lies there."""
        written = [
            put(tier, pixels((3, 500 + k)), store.ArrayMeta((3, 500 + k), (1, 500 + k), "raw")) for k in range(3)
        ]
        assert tier.used_bytes == sum(each.bytes for each in written)
        gone = written[1]
        assert tier.delete(gone.physical) == gone.bytes
        assert tier.used_bytes == tier.measure() == written[0].bytes + written[2].bytes
        assert tier.delete(gone.physical) == 0
        with pytest.raises(ChunkDamaged):
            tier.read(stored_of(gone), np.empty(gone.shape, np.uint8))
        with pytest.raises(ChunkDamaged):
            tier.verify(gone.physical)
        assert {place for place, _ in tier.iter_objects()} == {written[0].physical, written[2].physical}
        for physical in ("objects", "../x", f"{gone.physical}/.."):
            with pytest.raises(Misuse):
                tier.delete(physical)

    def test_each_does_it_to_all_in_order(self, tier: store.Tier) -> None:
        """Results come in the order asked for; the first that raises ends it, and what was deleted is counted once."""
        written = [
            put(tier, pixels((1, 300 + k)), store.ArrayMeta((1, 300 + k), (1, 300 + k), "raw")) for k in range(40)
        ]
        places = [each.physical for each in written]
        assert [found.physical for found in tier.each(tier.scan, places)] == places
        with pytest.raises(Misuse):
            tier.each(tier.delete, ["objects", *places[20:]])
        begun: list[str] = []

        def note(place: str) -> None:
            begun.append(place)
            if not place:
                raise Misuse("no place")

        with pytest.raises(Misuse, match="no place"):
            tier.each(note, ["", *map(str, range(10_000))])
        assert len(begun) < 10_000
        tier.each(tier.delete, places[:20])
        left = dict(tier.iter_objects())
        assert tier.used_bytes == sum(left.values())
        # Of the others those that had begun are gone.
        assert len(left.keys() & set(places[20:])) == len(left) >= (20 if tier.at_once == 1 else 20 - tier.at_once)

    def test_reserving_never_exceeds_the_budget(self, tmp_path: Path) -> None:
        """A reservation is granted exactly where `free_bytes` says so, and the budget is never exceeded (law 7)."""
        tier = self.open(tmp_path / "small", 100_000)
        try:
            open_ones = []
            for size in (30_000, 1, 50_000, 30_000, 4096, 5000, 1):
                free = tier.free_bytes
                one = tier.reserve(size)
                assert (one is not None) == (size <= free)
                open_ones += [one] if one is not None else []
                assert tier.used_bytes + tier.reserved_bytes <= tier.budget_bytes
            assert tier.reserve(tier.free_bytes + 1) is None
            with pytest.raises(Misuse, match="makes no sense"):
                tier.reserve(0)
            for one in open_ones:
                one.release()
            assert tier.reserved_bytes == 0
        finally:
            tier.close()

    def test_what_dead_writers_left_is_swept(self, tier: store.Tier) -> None:
        """Leftovers of a killed writer are no object, and `sweep` removes them and says how much it was."""
        kept = put(tier, pixels((3, 50)), store.ArrayMeta((3, 50), (1, 50), "raw"))
        left = self.abandon(tier)
        assert [place for place, _ in tier.iter_objects()] == [kept.physical]
        assert tier.sweep() == left
        assert tier.sweep() == 0
        tier.verify(kept.physical)

    @pytest.mark.parametrize("codec", CODECS)
    def test_copies_are_the_same_object(self, tier: store.Tier, tmp_path: Path, codec: str) -> None:
        """An object that goes to another tier, in another codec, and comes back has the same pixels and attributes."""
        array = pixels((9, 3, 70, 80))
        meta = store.ArrayMeta(array.shape, (2, *array.shape[1:]), codec, {"kind": "frames", "frames": [3, 1]})
        there = stored_of(put(tier, array, meta, KEY))
        folder = store.LocalTier(tmp_path / "other", BUDGET)
        copied = stored_of(copy(tier, there, folder, "lz4"))
        tier.delete(there.physical)
        back = stored_of(copy(folder, copied, tier, codec))
        out = np.empty_like(array)
        tier.read(back, out)
        assert np.array_equal(out, array)
        assert (tier.scan(back.physical).meta, copied.codec) == (meta, "lz4")
        assert (back.shape, back.chunk_rows, back.table.crcs) == (there.shape, there.chunk_rows, there.table.crcs)

    def test_a_damaged_object_is_not_copied(self, tier: store.Tier, tmp_path: Path) -> None:
        """Copying checks what it reads: damage stays where it is, and nothing is left in the target."""
        array = pixels((6, 3, 70, 80))
        stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (1, *array.shape[1:]), "raw"), KEY))
        self.damage(tier, stored, 5)
        folder = store.LocalTier(tmp_path / "other", BUDGET)
        with pytest.raises(ChunkDamaged):
            copy(tier, stored, folder, "raw")
        assert (list(folder.iter_objects()), folder.used_bytes, folder.sweep()) == ([], 0, 0)

    def test_a_forked_child_is_refused(self, tier: store.Tier, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tier belongs to the process that opened it: counts, connections and memory do not survive a fork."""
        array = pixels((1, 9))
        meta = store.ArrayMeta((1, 9), (1, 9), "raw")
        stored = stored_of(put(tier, array, meta, KEY))
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            for use in (
                lambda: tier.reserve(1),
                lambda: tier.settle(1),
                lambda: tier.read(stored, array),
                lambda: tier.read_slots([stored], [array]),
                lambda: tier.write(KEY, array, meta),
                lambda: tier.scan(stored.physical),
                lambda: tier.verify(stored.physical),
                lambda: tier.delete(stored.physical),
                lambda: list(tier.iter_objects()),
                lambda: tier.sweep(),
            ):
                with pytest.raises(WrongProcess):
                    use()
        tier.verify(stored.physical)

    def test_closing_twice_is_harmless(self, tmp_path: Path) -> None:
        """A closed tier holds no file, process or thread, and can be closed again."""
        with nothing_left():
            tier = self.open(tmp_path / "closed", BUDGET)
            put(tier, pixels((3, 50)), store.ArrayMeta((3, 50), (1, 50), "raw"))
            tier.close()
            tier.close()


def copy(source: store.Tier, stored: store.Stored, target: store.Tier, codec: str) -> store.Written:
    """Copy as an owner does."""
    found = source.scan(stored.physical)
    meta = store.ArrayMeta(found.meta.shape, found.meta.chunk, codec, found.meta.attributes)
    reservation = target.reserve(store.bound_bytes(meta, found.key))
    assert reservation is not None
    with reservation:
        written = store.copy_object(source, stored, target, codec, found.key)
        reservation.commit(written.bytes)
    return written
