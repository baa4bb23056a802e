"""The memory tier: shared between processes, counted in pages, and nothing left whoever dies."""

import base64
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.objects import Bytes, pixels, stored_of
from tests.store.test_tiers import memory_of
from viewcache import store
from viewcache.errors import BadInput, Broken, ChunkDamaged, Closed, Full, WrongProcess
from viewcache.store import arena
from viewcache.store.shard_reader import read_chunks
from viewcache.testing import put

MIB = 1 << 20

READER = """
import base64, pickle, sys
from viewcache import errors, store

def take():
    return pickle.loads(base64.b64decode(sys.stdin.readline()))

handle, descriptor = take()
with handle.attach(descriptor) as reader:
    for stored in iter(take, None):
        out = store.aligned_empty(stored.shape)
        try:
            reader.read(stored, out)
            print(out.sum(dtype="u8"), flush=True)
        except errors.ChunkDamaged:
            print("damaged", flush=True)
"""

OWNER = """
import base64, pickle, sys, numpy as np
from viewcache import store

tier = store.MemoryTier(1 << 30)
array = np.full((256, 1 << 20), 7, np.uint8)
meta = store.ArrayMeta(array.shape, (1, 1 << 20), "raw")
written = tier.write("5a" * 16, array, meta)
table = store.ChunkTable.from_bytes(written.table)
stored = store.Stored(written.physical, written.shape, written.chunk_rows, written.codec, table)
print(base64.b64encode(pickle.dumps((tier.handle, stored))).decode(), flush=True)
sys.stdin.read()
"""


class Child:
    """A Python process that is talked to in lines."""

    def __init__(self, code: str, pass_fds: tuple[int, ...] = ()):
        """Start it."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )

    def tell(self, value: object) -> None:
        """Send a value."""
        assert self.process.stdin is not None
        self.process.stdin.write(base64.b64encode(pickle.dumps(value)).decode() + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """Wait until it is gone."""
        self.process.communicate()


@pytest.fixture
def tier() -> Iterator[store.MemoryTier]:
    """A memory tier of 64 MiB."""
    opened = store.MemoryTier(64 * MIB)
    yield opened
    opened.close()


def _pages(tier: store.MemoryTier) -> int:
    """Bytes that the kernel has given to the arena."""
    return os.stat(tier.handle.path).st_blocks * 512


def _shared_memory() -> int:
    """Bytes of all shared memory of the machine."""
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:"))
    return int(line.split()[1]) << 10


def _holders(handle: store.MemoryHandle) -> list[str]:
    """Descriptors of all processes that are the arena."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            status = entry.stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == (handle.device, handle.inode):
            found.append(str(entry))
    return found


@pytest.mark.parametrize("passed", [False, True])
def test_another_process_reads_what_the_owner_writes(tier: store.MemoryTier, no_leaks: None, passed: bool) -> None:
    """By its handle alone, or by a descriptor that it was given, a process reads objects written before and after."""
    arrays = [pixels((9, 3, 40, 50), seed) for seed in range(4)]
    stored: list[store.Stored] = []
    for array, codec in zip(arrays, ("raw", "lz4", "zstd1", "raw"), strict=True):
        if len(stored) == 2:
            descriptor = tier.descriptor() if passed else None
            child = Child(READER, () if descriptor is None else (descriptor,))
            child.tell((tier.handle, descriptor))
            if descriptor is not None:
                os.close(descriptor)
        stored.append(stored_of(put(tier, array, store.ArrayMeta(array.shape, (2, *array.shape[1:]), codec))))
    for array, each in zip(arrays, stored, strict=True):
        child.tell(each)
        assert child.answer() == str(array.sum())
    tier.delete(stored[3].physical)
    child.tell(stored[3])
    assert child.answer() == "damaged"
    child.tell(None)
    child.end()


def test_a_killed_owner_leaves_nothing() -> None:
    """After kill -9 of the owner an attached process reads on; when that ends too, the machine has its memory back."""
    owner, reader = Child(OWNER), Child(READER)
    handle, stored = pickle.loads(base64.b64decode(owner.answer()))
    reader.tell((handle, None))
    reader.tell(stored)
    assert reader.answer() == str(7 * 256 * MIB)
    places = [os.readlink(entry) for child in (owner, reader) for entry in _descriptors(child.process.pid)]
    assert not [place for place in places if place.startswith("/dev/shm")]
    owner.process.send_signal(signal.SIGKILL)
    owner.end()
    reader.tell(stored)
    assert reader.answer() == str(7 * 256 * MIB)
    (holder,) = _holders(handle)
    assert os.stat(holder).st_blocks * 512 > 256 * MIB
    held = _shared_memory()
    reader.tell(None)
    reader.end()
    assert _holders(handle) == []
    assert held - _shared_memory() > 128 * MIB
    with pytest.raises(Broken, match="cannot read the memory tier"):
        handle.attach()


def _descriptors(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


def test_closing_gives_memory_back_under_attached_readers(tier: store.MemoryTier, no_leaks: None) -> None:
    """A cache that ends frees its memory at once; who is still attached finds damage, never zeros."""
    array = pixels((4, MIB))
    stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (1, MIB), "raw")))
    handle = tier.handle
    with handle.attach() as reader:
        out = np.empty_like(array)
        assert reader.read_slots([stored], [out]) == {}
        assert np.array_equal(out, array)
        with reader.use() as file:
            tier.close()
            assert os.fstat(file).st_blocks == 0
        assert list(reader.read_slots([stored], [out])) == [0]
    with pytest.raises(Closed):
        reader.read(stored, out)
    with pytest.raises(Broken, match="memory tier of process"):
        handle.attach()


def test_a_forgotten_tier_is_freed() -> None:
    """A tier that nobody closed goes with its last reference, memory and mapping too, and Python says so."""
    tier = store.MemoryTier(MIB)
    put(tier, pixels((1, 9)), store.ArrayMeta((1, 9), (1, 9), "raw"))
    handle = tier.handle
    with pytest.warns(ResourceWarning, match="unclosed file"):
        del tier
    assert (_holders(handle), _mappings(handle.inode)) == ([], [])


def test_another_file_is_never_taken_for_the_memory(tier: store.MemoryTier, tmp_path: Path, no_leaks: None) -> None:
    """Numbers come round: what has the owner's pid and descriptor, but is another file, is refused."""
    stale = replace(tier.handle, inode=tier.handle.inode + 1)
    with pytest.raises(Broken, match="another file has its number"):
        stale.attach()
    (tmp_path / "file").write_bytes(b"x")
    file = os.open(tmp_path / "file", os.O_RDONLY)
    with pytest.raises(Broken, match="another file has its number"):
        tier.handle.attach(file)
    os.close(file)


def test_readers_cannot_change_the_memory(tier: store.MemoryTier) -> None:
    """An attached process can neither write nor cut the memory under the others."""
    with tier.handle.attach() as reader, reader.use() as file:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(file, b"x", 0)
        with pytest.raises(OSError, match="Invalid argument"):
            os.ftruncate(file, 0)
    with memory_of(tier) as file, pytest.raises(PermissionError):
        os.ftruncate(file, 0)


def test_a_forked_child_lets_go_of_the_memory(tier: store.MemoryTier) -> None:
    """A real fork: the child has no descriptor of the memory left, so it cannot keep it alive, and is refused."""
    handle = tier.handle
    reader, memory = handle.attach(), arena.Arena()
    put(tier, pixels((1, 9)), store.ArrayMeta((1, 9), (1, 9), "raw"))
    assert (len(_holders(handle)), len(_mappings(handle.inode))) == (2, 1)
    child = os.fork()
    if not child:
        try:
            mine = [place for place in _holders(handle) if place.startswith(f"/proc/{os.getpid()}/")]
            for use in (lambda: tier.reserve(1), lambda: memory.claim(1), lambda: reader.use().__enter__()):
                with pytest.raises(WrongProcess):
                    use()
            tier.close()
            reader.close()
            os._exit(len(mine) + len(_mappings(handle.inode)))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(_holders(handle)) == 2
    reader.close()
    memory.close()


def test_pages_are_counted(tier: store.MemoryTier) -> None:
    """Used bytes are the pages that the kernel gave, whatever the sizes, and after failed and repeated writes too."""
    for size, codec in ((1, "raw"), (mmap.PAGESIZE, "raw"), (300_000, "lz4"), (300_000, "zstd1")):
        array = pixels((3, size))
        meta = store.ArrayMeta(array.shape, (1, size), codec)
        key = os.urandom(16).hex()
        written = put(tier, array, meta, key)
        assert written.bytes % mmap.PAGESIZE == 0
        assert put(tier, array, meta, key).existed
        with pytest.raises(ChunkDamaged, match="the source"):
            put(tier, _broken_off(array), meta)
        assert tier.used_bytes == _pages(tier)
    for physical, _ in list(tier.iter_objects()):
        tier.delete(physical)
    assert tier.used_bytes == _pages(tier) == 0


def _broken_off(array: Bytes) -> Iterator[Bytes]:
    yield array[:1]
    raise ChunkDamaged("the source is damaged")


def test_a_deletion_waits_for_those_who_read(tier: store.MemoryTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a range is read it stays as it is; then it goes, and who comes later is told so."""
    array = pixels((1, MIB))
    stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (1, MIB), "raw")))
    out, reads, go_on = np.empty_like(array), threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> None:
        reads.set()
        go_on.wait(20)
        read_chunks(*arguments)

    monkeypatch.setattr(arena, "read_chunks", slowly)
    read = threading.Thread(target=tier.read, args=(stored, out))
    delete = threading.Thread(target=tier.delete, args=(stored.physical,))
    read.start()
    assert reads.wait(20)
    delete.start()
    delete.join(0.3)
    assert delete.is_alive()
    assert _pages(tier) > MIB
    go_on.set()
    read.join()
    delete.join()
    assert np.array_equal(out, array)
    assert _pages(tier) == tier.used_bytes == 0
    with pytest.raises(ChunkDamaged, match="is missing"):
        tier.read(stored, out)


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """Fifty times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("threads_take_turns")
def test_reads_beside_deletions(tier: store.MemoryTier) -> None:
    """While objects are deleted and written anew under their readers, each read is right or damaged."""
    array = pixels((2, 200_000))
    meta = store.ArrayMeta(array.shape, (1, 200_000), "raw")
    current = [stored_of(put(tier, array, meta))]
    seen: list[str] = []

    def read() -> None:
        out = np.empty_like(array)
        while current:
            stored = current[-1]
            try:
                tier.read(stored, out)
            except ChunkDamaged:
                seen.append("damaged")
                continue
            except IndexError:
                return
            seen.append("right" if np.array_equal(out, array) else "wrong")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        tier.delete(current[-1].physical)
        current.append(stored_of(put(tier, array, meta)))
    while "right" not in seen:
        assert reader.is_alive()
    last = current[-1]
    current.clear()
    reader.join()
    assert set(seen) <= {"right", "damaged"}
    # A reader that touched what was given back would have taken pages that nobody counts.
    assert [place for place, _ in tier.iter_objects()] == [last.physical]
    assert tier.used_bytes == _pages(tier)


def test_the_mappings_go_with_what_lies_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that fill many regions, one larger than a region among them, are read; emptied regions are unmapped."""
    monkeypatch.setattr(arena, "REGION_BYTES", MIB)
    tier = store.MemoryTier(64 * MIB)
    inode, there = tier.handle.inode, []
    for number in range(12):
        array = pixels((3 if number == 5 else 1, 700_000), number)
        there.append((array, stored_of(put(tier, array, store.ArrayMeta(array.shape, (1, 700_000), "raw")))))
    assert len(_mappings(inode)) == 12
    for array, stored in there:
        out = np.empty_like(array)
        tier.read(stored, out)
        assert np.array_equal(out, array)
        tier.delete(stored.physical)
    assert len(_mappings(inode)) == 1
    tier.close()
    assert _mappings(inode) == []


def _mappings(inode: int) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "memfd:viewcache" in line and line.split()[4] == str(inode)]


def test_without_address_space_it_is_read_by_calls() -> None:
    """A process that may not map the memory (ulimit -v) reads the same pixels from it."""
    code = (
        "import os, resource, numpy as np\nfrom viewcache import store\n"
        "from tests.store.objects import pixels, stored_of\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGESIZE')\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)\n"
        "tier = store.MemoryTier(64 << 20)\n"
        "array = pixels((3, 50_000))\n"
        "stored = stored_of(tier.write('ab' * 16, array, store.ArrayMeta(array.shape, (1, 50_000), 'lz4')))\n"
        "out = np.empty_like(array)\n"
        "tier.read(stored, out)\n"
        "print(np.array_equal(out, array), 'memfd' in open('/proc/self/maps').read())\n"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert run.stdout.split() == ["True", "False"]


def test_closing_beside_reads(no_leaks: None) -> None:
    """A close waits for the reads that are under way, and the descriptor with it; the next ones are told."""
    memory = arena.Arena()
    handle = memory.handle
    with memory.use() as file:
        memory.close()
        assert os.fstat(file).st_ino == handle.inode
    assert _holders(handle) == []
    array = pixels((2, 200_000))
    for _ in range(20):
        tier = store.MemoryTier(4 * MIB)
        stored = stored_of(put(tier, array, store.ArrayMeta(array.shape, (1, 200_000), "raw")))
        first, ends = threading.Event(), list[type[BaseException]]()
        reader = threading.Thread(target=_read_until_refused, args=(tier, stored, first, ends))
        reader.start()
        assert first.wait(60)
        tier.close()
        reader.join()
        assert ends == [Closed]


def _read_until_refused(
    tier: store.Tier, stored: store.Stored, first: threading.Event, ends: list[type[BaseException]]
) -> None:
    out = np.empty(stored.shape, np.uint8)
    try:
        while True:
            tier.read(stored, out)
            first.set()
    except BaseException as error:
        ends.append(type(error))


def test_too_little_memory_is_told_before_anything_is_taken(tier: store.MemoryTier) -> None:
    """An object that the machine has no room for is refused before its first chunk is asked for."""
    rows = int(next(iter(Path("/proc/meminfo").read_text().split("\n"))).split()[1]) // 1024 + 1
    meta = store.ArrayMeta((rows, MIB), (1, MIB), "raw")
    asked = iter([pixels((1, MIB))])
    with pytest.raises(Full, match="give the memory tier a smaller budget"):
        tier.write("ab" * 16, asked, meta)
    assert next(asked, None) is not None
    assert _pages(tier) == 0
    with pytest.raises(BadInput, match="more than the"):
        store.MemoryTier(1 << 50)


def test_limits_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on files show as Full with their names; a system without memfd is told which tiers it can have."""
    code = (
        "import os, sys, resource\nfrom viewcache import store, errors\n"
        "resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)\n"
        "try: store.MemoryTier(1 << 20)\n"
        "except errors.Full as error: print(error)\n"
    )
    for limit, value in (("RLIMIT_FSIZE", 1 << 30), ("RLIMIT_NOFILE", 3)):
        run = subprocess.run(
            [sys.executable, "-c", code, limit, str(value)], capture_output=True, text=True, check=True
        )
        assert "ulimit -n, ulimit -f" in run.stdout
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(BadInput, match="needs Linux"):
        store.MemoryTier(1 << 20)


def test_the_memory_has_no_name() -> None:
    """Two caches cannot share one memory by a URL, so a name in it is a mistake."""
    with pytest.raises(BadInput, match="has no name"):
        store.open_tier("memory", "memory://mine", 1 << 20)
