"""The power is cut, on real file systems: `durable` keeps what was acknowledged, `cache` never serves wrong bytes."""

import multiprocessing
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from tests.faults.power import DRAWN, SHAPE, Disk, content, key_of, opened, recovering, writing
from viewcache.catalog import Catalog
from viewcache.catalog.files import CatalogFiles
from viewcache.errors import ChunkDamaged
from viewcache.store import read_into

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system"),
    pytest.mark.skipif(not shutil.which("xfs_io"), reason="xfs_io cuts the power: install the package xfsprogs"),
]

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.faults.power"])


@dataclass
class Tally:
    """What happened on one disk."""

    dice: random.Random
    durable: bool
    acknowledged: list[int] = field(default_factory=list)
    cuts: int = 0
    damaged: set[int] = field(default_factory=set)
    """Objects that were acknowledged and are gone or damaged; noticed, each."""
    next: int = 1


@contextmanager
def _victim(work: object, *arguments: object) -> Iterator[Connection]:
    """A process on the disk; killed when the block ends, since its files are gone anyway."""
    ours, theirs = _server.Pipe(duplex=False)
    process = _server.Process(target=work, args=(*arguments, theirs), daemon=True)  # type: ignore[arg-type]
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()
        ours.close()


def cut_while_writing(disk: Disk, tally: Tally) -> None:
    """Cut the power after some objects were acknowledged, in the middle of the next ones."""
    more = tally.dice.randint(1, 25)
    with disk.on(), _victim(writing, disk.store, tally.next, tally.durable) as said:
        for _ in range(more):
            tally.acknowledged.append(said.recv())
        said.poll(tally.dice.uniform(0, 0.01))
        disk.cut()
        tally.cuts += 1
        with suppress(EOFError, OSError):  # it ends by itself when it finds its disk gone
            while said.poll(0.02):
                tally.acknowledged.append(said.recv())
    tally.next = tally.acknowledged[-1] + 2


def cut_while_recovering(disk: Disk, tally: Tally) -> None:
    """Cut it again while the cache is opened after the last cut."""
    with disk.on(), _victim(recovering, disk.store) as said:
        said.recv()
        said.poll(tally.dice.uniform(0, 0.2))
        disk.cut()
        tally.cuts += 1


def assert_kept(disk: Disk, tally: Tally, scratch: Path) -> None:
    """Objects, draws and journal are as they were acknowledged, as far as the level promises."""
    out = np.empty(SHAPE, np.uint8)
    with disk.on():
        with opened(disk.store) as (catalog, tier, ledger):
            assert not catalog.quarantined
            copies = ledger.copies()
            for number in tally.acknowledged:
                copy = copies.get(key_of(number))
                try:
                    if copy is not None:
                        read_into(tier.root, copy.stored, out)
                except ChunkDamaged:
                    copy = None
                if copy is None:
                    tally.damaged.add(number)
                else:
                    assert np.array_equal(out, content(number)), number
            assert _drawn(catalog) >= set(tally.acknowledged)
            assert tier.used_bytes == sum(copy.bytes for copy in copies.values())
        copied = scratch / f"{disk.kind}{tally.cuts}"
        copied.mkdir()
        shutil.copy(CatalogFiles(disk.store).journal, copied)
    with Catalog.open(copied) as catalog:  # from the journal alone
        assert _drawn(catalog) >= set(tally.acknowledged)
    if tally.durable:
        assert not tally.damaged, f"{len(tally.damaged)} of {len(tally.acknowledged)} acknowledged objects are lost"


def _drawn(catalog: Catalog) -> set[int]:
    """Epochs that are drawn whole."""
    drawn = Counter(catalog.load_draws(1, 0, 2**31 - 1)["epoch"].to_pylist())
    return {epoch for epoch, positions in drawn.items() if positions == DRAWN}


def _cut_again_and_again(folder: Path, kind: str, rounds: int, *, durable: bool, seed: int) -> Tally:
    disk = Disk.make(folder, kind)
    tally = Tally(random.Random(seed), durable)
    with disk.on(), opened(disk.store):
        pass
    for _ in range(rounds):
        cut_while_writing(disk, tally)
        cut_while_recovering(disk, tally)
        assert_kept(disk, tally, folder)
    assert tally.cuts == 2 * rounds
    return tally


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_durable_loses_nothing(tmp_path: Path, kind: str) -> None:
    """Cut while writing, and again while recovering from that: every acknowledged object and draw is there."""
    tally = _cut_again_and_again(tmp_path, kind, 2, durable=True, seed=1)
    assert len(tally.acknowledged) > 4


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_cache_serves_nothing_wrong(tmp_path: Path, kind: str) -> None:
    """Objects that were not flushed are lost or damaged, and each is noticed; draws are kept at this level too."""
    tally = _cut_again_and_again(tmp_path, kind, 1, durable=False, seed=2)
    assert tally.damaged


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "cache"])
def test_a_hundred_cuts(tmp_path: Path, kind: str, durable: bool) -> None:
    """The same, 26 times on each file system and level."""
    tally = _cut_again_and_again(tmp_path, kind, 13, durable=durable, seed=3)
    made, lost = len(tally.acknowledged), len(tally.damaged)
    print(f"{kind}, durable={durable}: {tally.cuts} cuts, {made} acknowledged, {lost} lost")
    assert bool(tally.damaged) != durable
