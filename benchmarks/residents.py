"""How evenly rules of memory spread the reads of a device over an epoch, and what that costs (Liquid §4.2).

Counted, for uniform orders that are known ahead, with memory for a share of the items: loads of each epoch but the
first, how much they vary from batch to batch, and how long it takes where the consumer is exactly as fast as the device
is at constant loads. Residents are chosen by the code of the product; the other rules are written down here. Then real
reads of stored pictures, where the control group lets a process limit its device.
"""

import heapq
import os
import shutil
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.groups import group, refusal
from benchmarks.harness import Aim, Figure, Note, Result, Table, main
from viewcache.materializer.keys import content_key
from viewcache.materializer.planning.order import draw_epoch
from viewcache.materializer.scheduling.residents import Residents
from viewcache.store import ArrayMeta, ChunkTable, LocalTier, MemoryTier, Stored, Tier, Written, bound_bytes
from viewcache.store.format import shard_name

Numbers = NDArray[np.int64]
Rule = Callable[[Numbers, int, int], Numbers]
"""Items by epoch and position, items that have room, items of a batch → loads by batch, of all epochs but the first and
the last."""

PREFETCH = (2, 8)
"""Batches that are read ahead."""


def bench(args: Namespace) -> Iterator[Result]:
    """The table of each share, then the real reads."""
    epochs = args.epochs + 2
    order = np.array([draw_epoch(args.seed, "t", epoch, args.items) for epoch in range(epochs)])
    for share in args.shares:
        room = args.items * share // 100
        constant = args.batch * (1 - room / args.items)
        rows = {}
        for name, rule in RULES.items():
            loads = rule(order, room, args.batch)
            times = (took(loads.ravel(), ahead, constant) for ahead in PREFETCH)
            rows[name] = (round(loads.sum() / args.epochs), round(float(loads.std()), 1), *(round(t, 3) for t in times))
        columns = ("loads an epoch", "sd a batch", *(f"time, {ahead} ahead" for ahead in PREFETCH))
        yield Table(f"memory for {share} % of {args.items:,} items, batches of {args.batch}", columns, rows)
    yield from _real(args)


def took(loads: Numbers, ahead: int, constant: float) -> float:
    """How long it takes to read and consume batches, one after the other, at most some ahead; 1 = the consumer alone.

    Args:
        loads: of each batch, each a unit of the device's time.
        ahead: batches that are read or ready and not consumed.
        constant: what the consumer takes for a batch.
    """
    consumed, device = [0.0] * ahead, 0.0
    for each in loads.tolist():
        device = max(device, consumed[-ahead]) + each
        consumed.append(max(device, consumed[-1]) + constant)
    return consumed[-1] / (constant * len(loads))


def by_batch(is_load: NDArray[np.bool_], order: Numbers, batch: int) -> Numbers:
    """Loads by batch, of all epochs but the first and the last, given whether each access is one."""
    inner = is_load.reshape(order.shape)[1:-1]
    return np.asarray(inner.reshape(len(inner), -1, batch).sum(axis=2), np.int64)


def page_cache(order: Numbers, room: int, batch: int) -> Numbers:
    """What was read last stays."""
    cache: OrderedDict[int, None] = OrderedDict()
    loads = []
    for item in order.ravel().tolist():
        loads.append(item not in cache)
        cache[item] = None
        cache.move_to_end(item)
        if len(cache) > room:
            cache.popitem(last=False)
    return by_batch(np.array(loads), order, batch)


def window(order: Numbers, room: int, batch: int) -> Numbers:
    """What comes next is brought up, as the memory tier does with clips: what was read stays if it comes that soon."""
    flat = order.ravel()
    loads = np.zeros(flat.size, bool)
    last: dict[int, int] = {}
    for place, item in enumerate(flat.tolist()):
        if place - last.get(item, -flat.size) > room:
            loads[max(0, place - room)] = True
        last[item] = place
    return by_batch(loads, order, batch)


def belady(order: Numbers, room: int, batch: int) -> Numbers:
    """What comes last leaves: the fewest loads that there can be."""
    flat = order.ravel().tolist()
    next_use = [len(flat)] * len(flat)
    seen: dict[int, int] = {}
    for place in range(len(flat) - 1, -1, -1):
        next_use[place] = seen.get(flat[place], len(flat) + place)
        seen[flat[place]] = place
    due: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    loads = []
    for place, item in enumerate(flat):
        loads.append(item not in due)
        due[item] = next_use[place]
        heapq.heappush(heap, (-due[item], item))
        while len(due) > room:
            when, last = heapq.heappop(heap)
            if due.get(last) == -when:
                del due[last]
    return by_batch(np.array(loads), order, batch)


def residents(order: Numbers, room: int, batch: int) -> Numbers:
    """What `viewcache` does: keys decide, for good."""
    names = [content_key("aug", item.to_bytes(8, "little")) for item in range(order.shape[1])]
    chosen = Residents(lambda _: None)
    chosen.choose([[(name, 1) for name in names]], room)
    inside = np.array([name in chosen.keys for name in names])
    return by_batch(~inside[order].ravel(), order, batch)


def two_regions(order: Numbers, room: int, batch: int) -> Numbers:
    """Liquid's: of each batch a share moves to the next epoch's region, and the buffer draws the order to fit."""
    kept = np.floor(np.arange(order.size // batch + 1) * batch * room / order.shape[1]).astype(np.int64)
    loads: Numbers = (batch - np.diff(kept)).reshape(len(order), -1)[1:-1]
    return loads


def quota(order: Numbers, room: int, batch: int) -> Numbers:
    """Of each batch a share stays, chosen so that each batch of the next epoch finds as many; the order is uniform."""
    epochs, items = order.shape
    batches = items // batch
    batch_of = np.argsort(order, axis=1) // batch
    found = np.zeros((epochs, batches), np.int64)
    for epoch in range(epochs - 1):
        stays = 0.0
        for at in range(batches):
            mine = order[epoch, at * batch : (at + 1) * batch]
            stays += batch * room / items
            for _ in range(int(stays)):
                nearest = int(np.argmin(found[epoch + 1, batch_of[epoch + 1, mine]]))
                found[epoch + 1, batch_of[epoch + 1, mine[nearest]]] += 1
                mine = np.delete(mine, nearest)
            stays -= int(stays)
    return batch - found[1:-1]


def spread(order: Numbers, room: int, batch: int) -> Numbers:
    """A fixed set, of items whose batches have fewer of it than their share so far, in all epochs together."""
    epochs, items = order.shape
    share = room / items
    batch_of = np.argsort(order, axis=1) // batch
    over = np.zeros((epochs, items // batch))
    inside, every = np.zeros(items, bool), np.arange(epochs)
    for item in range(items):  # numbers are drawn, so their order is that of no epoch
        mine = over[every, batch_of[:, item]]
        inside[item] = ((mine + 1 - share) ** 2).sum() <= ((mine - share) ** 2).sum()
        over[every, batch_of[:, item]] += inside[item] - share
    return by_batch(~inside[order].ravel(), order, batch)


RULES: dict[str, Rule] = {
    "page cache (LRU)": page_cache,
    "window on what comes next": window,
    "Belady": belady,
    "two regions (Liquid), its own order": two_regions,
    "a quota of each batch": quota,
    "a fixed set by `spread`": spread,
    "residents": residents,
}


# Real reads -----------------------------------------------------------------------------------------------------------


def _real(args: Namespace) -> Iterator[Result]:
    """Epochs of stored pictures from a device with a limit: what the page cache keeps beside residents of as many."""
    folder = Path(tempfile.mkdtemp(prefix="viewcache-residents-", dir=args.dir))
    try:
        if why := refusal(folder, args.limit):
            yield Note(f"no real reads: this process cannot limit its device ({why})")
            return
        room = args.pictures * args.real_share // 100
        local, memory = LocalTier(folder / "store", 1 << 40), MemoryTier((room + 8) * (args.picture_bytes + (1 << 16)))
        try:
            yield from _compared(local, memory, room, args)
        finally:
            local.close()
            memory.close()
    finally:
        shutil.rmtree(folder)


def _compared(local: LocalTier, memory: MemoryTier, room: int, args: Namespace) -> Iterator[Result]:
    random = np.random.default_rng(args.seed)
    pictures = random.integers(0, 256, (args.pictures, 1, args.picture_bytes), np.uint8)
    keys = [content_key("aug", number.to_bytes(8, "little")) for number in range(args.pictures)]
    below = [_put(local, key, each) for key, each in zip(keys, pictures, strict=True)]
    chosen = Residents(lambda _: None)
    chosen.choose([[(key, 1) for key in keys]], room)
    above = {k: _put(memory, keys[k], pictures[k]) for k in range(args.pictures) if keys[k] in chosen.keys}
    os.sync()
    order = np.array([draw_epoch(args.seed, "t", epoch, args.pictures) for epoch in range(args.real_epochs)])
    seconds: dict[str, list[float]] = {"page cache": [], "residents": []}
    reads: Counter[str] = Counter()
    for _ in range(args.repeats):
        for name, held in (("page cache", {}), ("residents", above)):
            with group("residents", Path(local.root), args.limit) as limited:
                limited.join()
                try:
                    begun = time.perf_counter()
                    reads[name] = _epochs(local, memory, below, held, order, room if name == "page cache" else 0)
                    seconds[name].append(time.perf_counter() - begun)
                finally:
                    limited.leave()
    ratios = tuple(mine / theirs for mine, theirs in zip(seconds["residents"], seconds["page cache"], strict=True))
    words = f"{args.pictures:,} pictures of {args.picture_bytes:,} bytes, memory for {args.real_share} %"
    yield Note(
        f"{words}, device at {args.limit / 1e6:.0f} MB/s; reads of it in {args.real_epochs} epochs: {dict(reads)}"
    )
    yield Figure("wall time, residents ÷ page cache", float(np.median(ratios)), "", Aim(at_most=0.80), ratios)


def _epochs(
    local: LocalTier,
    memory: MemoryTier,
    below: list[Stored],
    above: dict[int, Stored],
    order: Numbers,
    cached: int,
) -> int:
    """Read all epochs; so many pictures that were read last stay in the page cache. Returns the reads of the device."""
    out = np.empty(below[0].shape, np.uint8)
    cache: OrderedDict[int, None] = OrderedDict()
    for number in range(len(below)):
        _forget(local, below[number])
    reads = 0
    for number in order.ravel().tolist():
        if number in above:
            memory.read(above[number], out)
            continue
        reads += number not in cache
        local.read(below[number], out)
        cache[number] = None
        cache.move_to_end(number)
        if len(cache) > cached:
            _forget(local, below[cache.popitem(last=False)[0]])
    return reads


def _put(tier: Tier, key: str, picture: NDArray[np.uint8]) -> Stored:
    meta = ArrayMeta(picture.shape, picture.shape, "raw", {})
    reservation = tier.reserve(bound_bytes(meta, key))
    assert reservation is not None  # the tiers are large enough
    with reservation:
        written: Written = tier.write(key, picture, meta)
        reservation.commit(written.bytes)
    return Stored(written.physical, written.shape, 1, "raw", ChunkTable.from_bytes(written.table))


def _forget(local: LocalTier, stored: Stored) -> None:
    """Drop a picture from the page cache."""
    file = os.open(f"{local.root}/{stored.physical}/{shard_name(len(stored.shape))}", os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--items", type=int, default=9984, help="of an epoch in the model (default 9984)")
    parser.add_argument("--batch", type=int, default=64, help="items of a batch (default 64)")
    parser.add_argument("--epochs", type=int, default=4, help="that are counted in the model (default 4)")
    parser.add_argument(
        "--shares", nargs="+", type=int, default=(10, 30, 60), help="memory in percent of all (default 10 30 60)"
    )
    parser.add_argument("--pictures", type=int, default=1056, help="of the real reads (default 1056)")
    parser.add_argument("--picture-bytes", type=int, default=261_888, help="of each (default 261888: 341x256 RGB)")
    parser.add_argument("--real-share", type=int, default=30, help="memory in percent of these (default 30)")
    parser.add_argument("--real-epochs", type=int, default=3, help="of the real reads (default 3)")
    parser.add_argument("--limit", type=int, default=200_000_000, help="of the device in bytes a second (default 2e8)")
    parser.add_argument("--dir", type=Path, help="where pictures are stored (default: the folder for temporary files)")


if __name__ == "__main__":
    main(__doc__, bench, _arguments)
