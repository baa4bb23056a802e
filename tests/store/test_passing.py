"""Memory for clips that pass: other processes write there, every bit is checked, and places come round unseen."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.store.objects import Bytes, pixels, stored_of
from viewcache import store
from viewcache.errors import Broken, ChunkDamaged, Closed, Misuse
from viewcache.store import passing
from viewcache.store.passing import Passage, PassingMemory, Place
from viewcache.store.shard_writer import ShardWriter, shard_bound
from viewcache.testing.leaks import nothing_left

MIB = 1 << 20
SHAPE = (8, 3, 64, 64)
META = store.ArrayMeta(SHAPE, SHAPE, "raw", {"kind": "clip"})
SIZE = -(-shard_bound(META) // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")

WRITER = """
import pickle, sys
place, handle, key, array, meta = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(place.write(handle, key, array, meta)))
"""

MAKER = """
import pickle, sys
place, handle, key, array, meta = pickle.load(sys.stdin.buffer)
room = place.room(handle, key, meta.shape, meta.chunk)
room.chunks[:] = array.reshape(room.chunks.shape)
again = place.room(handle, key, meta.shape, meta.chunk)  # it is the same memory
again.chunks[0] ^= 255
room.chunks[0] = array[:meta.chunk[0]]
sys.stdout.buffer.write(pickle.dumps(room.seal(meta)))
"""

STUCK = """
import pickle, sys, time
place, handle, key, array, meta = pickle.load(sys.stdin.buffer)
def parts():
    yield array[:4]
    print("half", flush=True)
    time.sleep(600)
place.write(handle, key, parts(), meta)
"""


@pytest.fixture
def memory() -> Iterator[PassingMemory]:
    """With room for eight clips."""
    opened = PassingMemory(8 * SIZE)
    yield opened
    opened.close()


def claimed(memory: PassingMemory) -> Passage:
    """A place for one clip."""
    found = memory.claim(SIZE)
    assert found is not None
    return found


def passed(memory: PassingMemory, array: Bytes, key: str) -> store.Stored:
    """A clip that has arrived."""
    passage = claimed(memory)
    written = passage.place.write(memory.handle, key, array, META)
    passage.arrived(written.physical)
    return stored_of(written)


def read(memory: PassingMemory, stored: store.Stored) -> Bytes:
    """Its pixels."""
    out = store.aligned_empty(SHAPE)
    memory.read(stored, out)
    return out


def pages(memory: PassingMemory) -> int:
    """Bytes that the kernel gives for it."""
    return os.stat(memory.handle.path).st_blocks * 512


def test_another_process_writes_and_nobody_copies() -> None:
    """What a process writes into the place that it was given is read here, whole and checked; so is a client's read."""
    memory, array, key = PassingMemory(8 * SIZE), pixels(SHAPE), "5a" * 16
    with nothing_left():
        passage = claimed(memory)
        asked = pickle.dumps((passage.place, memory.handle, key, array, META))
        said = subprocess.run([sys.executable, "-c", WRITER], input=asked, capture_output=True, check=True)
        written = pickle.loads(said.stdout)
        with pytest.raises(ChunkDamaged, match="it has passed"):
            read(memory, stored_of(written))
        passage.arrived(written.physical)
        assert np.array_equal(read(memory, stored_of(written)), array)
        with memory.handle.attach(memory.descriptor()) as client:
            out = store.aligned_empty(SHAPE)
            client.read(stored_of(written), out)
        assert np.array_equal(out, array)
        assert (written.key, written.bytes, written.raw_bytes, written.codec) == (key, SIZE, array.size, "raw")
    memory.close()


@pytest.mark.parametrize("rows", [8, 4, 1])
def test_an_object_is_made_in_its_place(rows: int) -> None:
    """What another process makes in the place is what `Place.write` would have put there, to the last byte."""
    meta = store.ArrayMeta(SHAPE, (rows, *SHAPE[1:]), "raw", {"kind": "clip"})
    page = os.sysconf("SC_PAGE_SIZE")
    size = -(-shard_bound(meta) // page) * page
    memory, array, key = PassingMemory(4 * size), pixels(SHAPE), "5b" * 16
    with nothing_left():
        before, passage, other = (memory.claim(size) for _ in range(3))
        assert before is not None
        assert passage is not None
        assert other is not None
        before.place.write(memory.handle, "5c" * 16, pixels(SHAPE, 7), meta)
        before.release()
        again = memory.claim(size)  # places come round, with what they had
        assert again is not None
        for place in (again, passage):
            asked = pickle.dumps((place.place, memory.handle, key, array, meta))
            said = subprocess.run([sys.executable, "-c", MAKER], input=asked, capture_output=True, check=True)
            made = pickle.loads(said.stdout)
            written = other.place.write(memory.handle, key, array, meta)
            assert (made.crc, made.bytes, made.codec, made.shape) == (written.crc, written.bytes, "raw", SHAPE)
            file = os.open(memory.handle.path, os.O_RDONLY)
            shards = [os.pread(file, size, each.place.start) for each in (place, other)]
            os.close(file)
            assert shards[0][: shard_bound(meta)] == shards[1][: shard_bound(meta)]
            place.arrived(made.physical)
            assert np.array_equal(read(memory, stored_of(made)), array)
    memory.close()


def test_who_has_the_memory_needs_no_mapping(memory: PassingMemory) -> None:
    """Workers that are threads of the owner write; a mapping of theirs would outlive the cache."""
    assert claimed(memory).place.room(memory.handle, "5d" * 16, SHAPE, SHAPE) is None


LIMITED = """
import pickle, resource, sys
place, handle, key, meta = pickle.load(sys.stdin.buffer)
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
assert place.room(handle, key, meta.shape, meta.chunk) is None
"""


def test_where_addresses_are_limited_none_are_taken(memory: PassingMemory) -> None:
    """A mapping of a gibibyte would leave a decoder under ``ulimit -v`` too few, and its video would be called bad."""
    asked = pickle.dumps((claimed(memory).place, memory.handle, "5d" * 16, META))
    subprocess.run([sys.executable, "-c", LIMITED], input=asked, check=True)


@pytest.mark.parametrize(("shape", "chunk"), [((9, *SHAPE[1:]), (9, *SHAPE[1:])), (SHAPE, (3, *SHAPE[1:]))])
def test_there_is_no_room_for_what_does_not_fit(
    memory: PassingMemory, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    """Neither for more than was claimed nor for a short chunk, behind which `write` puts zeros."""
    with pytest.raises(Misuse, match="has no room"):
        claimed(memory).place.room(memory.handle, "5d" * 16, shape, chunk)


def test_what_is_there_is_a_whole_raw_chunk(memory: PassingMemory) -> None:
    """Bytes that would have to be packed or padded are not taken for those in the file."""
    place, array = claimed(memory).place, pixels(SHAPE)
    two = store.ArrayMeta(SHAPE, (SHAPE[0] // 2, *SHAPE[1:]), "lz4", {})
    with memory.handle.writable() as file, pytest.raises(Misuse, match="cannot be there already"):
        ShardWriter(file, place.start, "5e" * 16, two).put(0, array[: SHAPE[0] // 2], is_there=True)


def test_what_counts_is_what_the_kernel_gives(memory: PassingMemory) -> None:
    """After each step the bytes that are used or promised are the kernel's, and never more than the budget."""

    def check(used: int, reserved: int) -> None:
        assert (memory.used_bytes, memory.reserved_bytes) == (used * SIZE, reserved * SIZE)
        assert pages(memory) == memory.counted_bytes <= memory.budget_bytes

    check(0, 0)
    passages = [claimed(memory) for _ in range(8)]
    check(0, 8)
    assert memory.claim(SIZE) is None
    passages.pop().release()
    check(1, 7)  # the place waits for another clip
    passages.pop().release(certain=False)
    check(1, 6)  # nobody knows whether somebody still writes there
    stored = []
    for k, passage in enumerate(passages):
        written = passage.place.write(memory.handle, f"{k:032x}", pixels(SHAPE, k), META)
        passage.arrived(written.physical)
        stored.append(stored_of(written))
    check(7, 0)
    for k, each in enumerate(stored):
        assert np.array_equal(read(memory, each), pixels(SHAPE, k))
        memory.delete(each)
        memory.delete(each)  # harmless
        check(7, 0)
    assert memory.idle_bytes == 7 * SIZE
    memory.trim()
    check(0, 0)


def test_places_come_round_and_a_late_reader_notices(memory: PassingMemory) -> None:
    """A second clip takes the pages of the first; who still has the first's place finds damage, not other pixels."""
    first = passed(memory, pixels(SHAPE, 1), "11" * 16)
    with memory.handle.attach(memory.descriptor()) as client:
        memory.delete(first)
        second = passed(memory, pixels(SHAPE, 2), "22" * 16)
        assert second.table.offsets == first.table.offsets, "the place came round"
        assert pages(memory) == SIZE
        out = store.aligned_empty(SHAPE)
        with pytest.raises(ChunkDamaged, match="crc32c"):
            client.read(first, out)
        client.read(second, out)
        assert np.array_equal(out, pixels(SHAPE, 2))
    with pytest.raises(ChunkDamaged, match="it has passed"):
        read(memory, first)
    again = passed(memory, pixels(SHAPE, 2), "22" * 16)  # another place, the same name
    memory.delete(second)
    assert np.array_equal(read(memory, again), pixels(SHAPE, 2)), "the later one stays"


def test_every_flipped_bit_is_noticed(memory: PassingMemory) -> None:
    """Damage anywhere in a clip's pixels or their checksum is ChunkDamaged, and the other clips are whole."""
    one, other = passed(memory, pixels(SHAPE, 1), "11" * 16), passed(memory, pixels(SHAPE, 2), "22" * 16)
    start, size = one.table.offsets[0], one.table.sizes[0]
    for at in (start, start + size // 2, start + size - 1):
        with memory.handle.writable() as file:
            byte = os.pread(file, 1, at)[0]
            os.pwrite(file, bytes([byte ^ 4]), at)
            with pytest.raises(ChunkDamaged, match="crc32c"):
                read(memory, one)
            os.pwrite(file, bytes([byte]), at)
        assert np.array_equal(read(memory, one), pixels(SHAPE, 1))
    assert np.array_equal(read(memory, other), pixels(SHAPE, 2))


def test_other_sizes_get_the_room_of_places_that_wait(memory: PassingMemory) -> None:
    """Places of one size that wait for a clip do not stand in the way of another size."""
    for each in [claimed(memory) for _ in range(8)]:
        each.release()
    assert memory.idle_bytes == 8 * SIZE
    large = memory.claim(3 * SIZE)
    assert large is not None
    assert memory.idle_bytes == 5 * SIZE
    assert pages(memory) == memory.counted_bytes == 8 * SIZE
    assert memory.claim(9 * SIZE) is None  # more than there ever is; nothing was given up for it
    assert memory.idle_bytes == 5 * SIZE


def test_a_killed_writer_leaves_its_place_only(memory: PassingMemory) -> None:
    """A kill -9 in the middle of a clip: the owner gives the place back, and the machine has the memory."""
    array = pixels(SHAPE)
    meta = store.ArrayMeta(SHAPE, (4, *SHAPE[1:]), "raw", {})
    passage = memory.claim(2 * SIZE)
    assert passage is not None
    with subprocess.Popen([sys.executable, "-c", STUCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(pickle.dumps((passage.place, memory.handle, "5a" * 16, array, meta)))
        writer.stdin.close()
        assert writer.stdout.readline() == b"half\n"
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    passage.release(certain=False)
    assert (memory.counted_bytes, pages(memory)) == (0, 0)


def test_places_that_wait_too_long_are_given_back(memory: PassingMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no clip has come for a while the machine gets the memory; clips that lie there stay."""
    stays = passed(memory, pixels(SHAPE), "11" * 16)
    claimed(memory).release()
    memory.trim_unused()
    assert memory.idle_bytes == SIZE
    monkeypatch.setattr(passing, "UNUSED_S", 0.0)
    memory.trim_unused()
    assert (memory.idle_bytes, pages(memory)) == (0, SIZE)
    assert np.array_equal(read(memory, stays), pixels(SHAPE))


def test_what_does_not_fit_or_cannot_be_written_is_an_error(memory: PassingMemory) -> None:
    """A clip larger than its place is refused before a byte is written; a memory that is gone is an error in words."""
    place, handle = Place(0, os.sysconf("SC_PAGE_SIZE")), memory.handle
    with pytest.raises(Misuse, match="its place in memory has 4096"):
        place.write(handle, "11" * 16, pixels(SHAPE), META)
    memory.close()
    with pytest.raises(Broken, match="is its cache still open"):
        place.write(handle, "11" * 16, pixels((1, 16)), store.ArrayMeta((1, 16), (1, 16), "raw", {}))


def test_closing_gives_all_back() -> None:
    """A closed memory has no pages, whoever is attached, and says so; nothing stays open."""
    with nothing_left():
        memory = PassingMemory(64 * MIB)
        stored = passed(memory, pixels(SHAPE), "11" * 16)
        claimed(memory)
        client = memory.handle.attach(memory.descriptor())
        memory.close()
        with client, pytest.raises(ChunkDamaged):
            client.read(stored, store.aligned_empty(SHAPE))
        with pytest.raises(Closed):
            read(memory, stored)
