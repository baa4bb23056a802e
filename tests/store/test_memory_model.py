"""The memory tier under any sequence of steps, beside a model: a dictionary of arrays, and pages counted by hand."""

import mmap
import os
from unittest.mock import patch

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.store.objects import Bytes, pixels, stored_of
from viewcache import store
from viewcache.errors import ChunkDamaged, Misuse
from viewcache.store import arena

PAGES = 24
"""Of the budget: a few objects, so that room is short."""

KEYS = [f"{number:032x}" for number in range(6)]


class MemoryMachine(RuleBasedStateMachine):
    """Reserve, write, delete and read; the count is the kernel's, and the budget holds at every step (law 7)."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = patch.object(arena, "REGION_BYTES", 6 * mmap.PAGESIZE)  # so that many come and go
        self.regions.start()
        self.tier = store.MemoryTier(PAGES * mmap.PAGESIZE + 17)
        self.there: dict[str, tuple[store.Stored, Bytes, int]] = {}
        self.gone: list[store.Stored] = []
        self.held: list[store.Reservation] = []
        self.seed = 0

    @rule(size=st.integers(1, 8 * mmap.PAGESIZE))
    def reserve(self, size: int) -> None:
        """A promise for a write that is still to come."""
        free = self.tier.free_bytes
        one = self.tier.reserve(size)
        assert (one is not None) == (size <= free)
        if one is not None:
            assert size <= one.bytes < size + mmap.PAGESIZE
            self.held.append(one)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        """The write does not come."""
        self.held.pop(which % len(self.held)).release()

    @rule(
        key=st.sampled_from(KEYS),
        rows=st.integers(1, 5),
        row_bytes=st.integers(1, 2 * mmap.PAGESIZE),
        codec=st.sampled_from(list(store.CODECS)),
        dies=st.booleans(),
    )
    def write(self, key: str, rows: int, row_bytes: int, codec: str, dies: bool) -> None:
        """Where there is room; a key that is there keeps its object, and a write that dies leaves nothing."""
        self.seed += 1
        array = pixels((rows, row_bytes), self.seed)
        meta = store.ArrayMeta(array.shape, (1, row_bytes), codec)
        reservation = self.tier.reserve(store.bound_bytes(meta, key))
        if reservation is None:
            return
        with reservation:
            if dies:
                try:
                    self.tier.write(key, iter(array[:-1, None]), meta)
                except Misuse:
                    return
                raise AssertionError("an unfinished object was published")
            written = self.tier.write(key, array, meta)
            reservation.commit(0 if written.existed else written.bytes)
        assert written.existed == (key in self.there)
        if not written.existed:
            self.there[key] = stored_of(written), array, written.bytes
        assert stored_of(written) == self.there[key][0]

    @precondition(lambda self: self.there)
    @rule(which=st.integers(0, 99))
    def delete(self, which: int) -> None:
        """Its bytes come back."""
        key = sorted(self.there)[which % len(self.there)]
        stored, _, size = self.there.pop(key)
        assert self.tier.delete(stored.physical) == size
        self.gone.append(stored)

    @precondition(lambda self: self.there)
    @rule(which=st.integers(0, 99), chunk=st.integers(0, 99))
    def read(self, which: int, chunk: int) -> None:
        """What is there is what was written, whole and by chunk."""
        stored, array, _ = self.there[sorted(self.there)[which % len(self.there)]]
        out = np.empty_like(array)
        self.tier.read(stored, out)
        assert np.array_equal(out, array)
        chunk %= len(array)
        self.tier.read(stored, out[:1], [chunk])
        assert np.array_equal(out[:1], array[chunk : chunk + 1])

    @precondition(lambda self: self.gone)
    @rule(which=st.integers(0, 99))
    def read_what_is_gone(self, which: int) -> None:
        """Damage, whatever was written since, under the same key too."""
        stored = self.gone[which % len(self.gone)]
        try:
            self.tier.read(stored, np.empty(stored.shape, np.uint8))
        except ChunkDamaged:
            return
        raise AssertionError("a deleted object was read")

    @invariant()
    def counted_as_the_kernel_counts(self) -> None:
        """Used bytes are the arena's pages, and with what is promised they are within the budget."""
        used = sum(size for _, _, size in self.there.values())
        assert self.tier.used_bytes == self.tier.measure() == used
        assert os.stat(self.tier.handle.path).st_blocks * 512 == used
        assert self.tier.reserved_bytes == sum(one.bytes for one in self.held)
        assert used + self.tier.reserved_bytes + self.tier.free_bytes <= PAGES * mmap.PAGESIZE
        assert dict(self.tier.iter_objects()) == {each.physical: size for each, _, size in self.there.values()}

    def teardown(self) -> None:
        """The next sequence has memory of its own."""
        self.tier.close()
        self.regions.stop()


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(stateful_step_count=40)
