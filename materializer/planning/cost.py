"""What work costs: core seconds for each stage, measured where the catalog has measurements, else guessed.

One table of measurements, `io_samples`, is the common currency of plans and of pruning.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.clock import BEGINNING
from viewcache.materializer.planning.devices import FREE, READ, Devices, known_devices
from viewcache.materializer.planning.ladder import Ladder
from viewcache.store import ENCODED, Written
from viewcache.store.tier import LOCAL, PASSING

__all__ = ["CostModel", "work_rows"]

LEAST_BYTES = 64 << 20
"""Measurements of fewer bytes than this say little; the guess stands until there are more."""

Pixels = TypeVar("Pixels", float, NDArray[np.float64])

LEAST_BATCHES = 16
"""Of fewer it says little what they took."""

BATCH_S = 0.05
"""Beside what is kept, a batch: a guess until one cache has read some, measured beside other work."""

BEGIN_S = 2.0
"""The same for the beginning of a training, with two workers that start."""

MOVED = 1.5
"""A rate that is so many times what it was, or as much less, is another one."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of one core for each kind of work; the defaults were measured on one virtual machine."""

    decode_s_per_pixel: float = 1.6e-9
    """Decoding one pixel of one fed packet."""
    convert_s_per_pixel: float = 1.2e-9
    """Converting and resizing, per source pixel of a wanted frame."""
    augment_s_per_byte: float = 0.8e-9
    """Cropping and copying, per byte of the clip."""
    store_s_per_byte: float = 1.5e-9
    """Writing an object, per raw byte."""
    load_s_per_byte: float = 0.3e-9
    """Reading an object, checksums and unpacking included, per raw byte."""
    pass_s_per_byte: float = 0.4e-9
    """A clip from the worker to its one reader through memory, instead of storing and loading it, per raw byte."""
    fetch_s_per_byte: float = 1.2e-8
    """Bringing a byte of a file that lies far away: waiting for a network, and the work that this takes."""
    ladder: Ladder = field(default_factory=Ladder)
    """What each way of writing pictures down takes beside that."""
    devices: Devices = field(default_factory=Devices)
    """What disks give; those that were not measured are free."""
    batch_s: float = 0.0
    """Beside all that, whatever is kept: what the cache takes of cores for a batch that is read; 0 = not known."""
    begin_s: float = 0.0
    """The same from opening a cache until its first `BEGINNING` batches were read, with the start of workers."""

    @property
    def make_s_per_byte(self) -> float:
        """A clip, or pictures that lie side by side: cropping, copying and storing, per byte."""
        return self.augment_s_per_byte + self.store_s_per_byte

    def decode_s(self, decoded: Pixels, converted: Pixels) -> Pixels:
        """Decoding packets of so many pixels, and converting so many of the frames in them."""
        return decoded * self.decode_s_per_pixel + converted * self.convert_s_per_pixel

    def beside_s(self, batches: float, *, begins: bool) -> float:
        """Core seconds for so many batches whatever is kept, measured or guessed; the first ones, or later ones."""
        batch_s = self.batch_s or BATCH_S
        return (self.begin_s or BEGIN_S) + max(0.0, batches - BEGINNING) * batch_s if begins else batches * batch_s

    @classmethod
    def known(cls, catalog: Catalog, codec: str, host: str) -> "CostModel":
        """What a catalog knows of work, and of the devices of a machine, see `devices.host_of`."""
        samples = catalog.load_io_samples()
        measured = any(row.op == READ for row in samples)  # else there is nothing to ask for
        return cls.measured(samples, codec, known_devices(catalog, host) if measured else FREE)

    @classmethod
    def measured(cls, samples: Iterable[IoSampleRow], codec: str = "auto", devices: Devices = FREE) -> "CostModel":
        """The rates of all measurements so far; guesses where there are too few.

        Args:
            samples: of all work.
            codec: of the objects, whose loading and storing alone count then; ``auto`` = those that are not packed,
                since packing and unpacking are counted by the ladder, or as they are mixed where most are.
            devices: what is known of them.
        """
        samples = list(samples)
        seconds, size = _added_up(samples, "raw" if codec == "auto" else codec)
        if codec == "auto":
            mixed_s, mixed = _added_up(samples, "")
            for op in ("store", "load"):
                if size.get(op, 0) < LEAST_BYTES <= mixed.get(op, 0):
                    seconds[op], size[op] = mixed_s[op], mixed[op]
        found: dict[str, float] = {}
        for name in _rates():
            op, unit = name.split("_")[0], name.split("_")[-1]
            if size.get(op, 0) >= LEAST_BYTES:
                # Frames are measured in bytes of 4:2:0, one and a half a pixel.
                found[name] = seconds[op] / size[op] * (1.5 if unit == "pixel" else 1.0)
        if began := sum(row.n for row in samples if row.op == "begin"):
            found["begin_s"] = seconds["begin"] / began
        if late := _late([row for row in samples if row.op == "batch"]):
            found["batch_s"] = sum(row.seconds for row in late) / sum(row.n for row in late)
        return cls(**found, ladder=Ladder.measured(samples, codec), devices=devices)

    def moved(self, before: "CostModel") -> bool:
        """Whether any rate is so far from what it was that plans should be made again."""
        pairs = [(getattr(self, name), getattr(before, name)) for name in _rates()]
        rates_moved = any(not 1 / MOVED <= now / then <= MOVED for now, then in pairs)
        return rates_moved or self.devices.moved(before.devices, MOVED)


def work_rows(
    seconds: Mapping[str, float],
    cpu_s: Mapping[str, float],
    frames: Mapping[str, int],
    made: Sequence[Written],
    loaded_codec: str,
    passed: Set[str] = frozenset(),
) -> list[IoSampleRow]:
    """What a job's stages cost, in the common currency of estimates.

    Args:
        seconds: busy seconds by stage.
        cpu_s: core seconds by stage, the least that it was busy: what is waited for a core is shared among stages.
        frames: `Report.frames`.
        made: its objects.
        loaded_codec: of the intermediates that it read.
        passed: keys of those of its objects that are not stored.
    """
    seconds = {op: max(each, cpu_s.get(op, 0.0)) for op, each in seconds.items()}
    frame_bytes, clip_bytes = frames.get("frame_bytes", 0), sum(each.raw_bytes for each in made)
    copied = [each.raw_bytes for each in made if each.codec not in ENCODED]  # others are packed as they come
    loaded = frames.get("loaded", 0)
    work = {
        "decode": (frames.get("packets", 0), frame_bytes),  # a skipped frame takes decoding too
        "convert": (frames.get("converted", 0), frame_bytes),
        "load": (loaded, frames.get("loaded_bytes", 0) // max(1, loaded)),
        "augment": (len(copied), sum(copied) // max(1, len(copied))),
    }
    rows = [
        IoSampleRow(op, max(by, 1).bit_length() - 1, loaded_codec, LOCAL, n, seconds[op], n * by, cpu_s.get(op, 0))
        for op, (n, by) in work.items()
        if n and seconds.get(op)
    ]
    wall_s = sum(each.seconds for each in made)
    where = [(PASSING if each.key in passed else LOCAL, each.codec) for each in made]
    for place in sorted(set(where)):
        mine = [each for each, its in zip(made, where, strict=True) if its == place]
        size = sum(each.raw_bytes for each in mine)
        # By size where all go to one tier: what one writer waited for another says nothing of its codec.
        part = size / max(1, clip_bytes) if not passed else sum(each.seconds for each in mine) / (wall_s or 1.0)
        bucket, store_s = (size // len(mine)).bit_length() - 1, seconds.get("store", 0.0) * part
        core_s = cpu_s.get("store", 0.0) * part
        rows.append(IoSampleRow("store", bucket, place[1], place[0], len(mine), store_s, size, core_s))
    return rows


_APART = ("ladder", "devices", "batch_s", "begin_s")
"""Fields of a `CostModel` that are no rates of work on pixels and bytes."""


def _added_up(samples: Iterable[IoSampleRow], codec: str) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and bytes by kind of work; of loading and storing those of one codec, or of all if that is empty."""
    seconds: dict[str, float] = {}
    size: dict[str, int] = {}
    for row in samples:
        if row.op not in ("store", "load") or (row.tier == LOCAL and codec in ("", row.codec)):
            seconds[row.op] = seconds.get(row.op, 0.0) + _core_s(row)
            size[row.op] = size.get(row.op, 0) + row.bytes
        elif row.tier == PASSING:
            seconds["pass"] = seconds.get("pass", 0.0) + _core_s(row)
            size["pass"] = size.get("pass", 0) + (row.bytes if row.op == "load" else 0)
    return seconds, size


def _late(batches: Sequence[IoSampleRow]) -> list[IoSampleRow]:
    """Of the batches those that came latest in their runs, as many as say something."""
    found: list[IoSampleRow] = []
    for row in sorted(batches, key=lambda row: -row.size_bucket):
        found.append(row)
        if sum(each.n for each in found) >= LEAST_BATCHES:
            break
    return found


def _core_s(row: IoSampleRow) -> float:
    """What work took of cores; of a network what it made wait too, and all of what was not told apart."""
    return row.seconds if row.op == "fetch" else row.cpu_s or row.seconds


def _rates() -> list[str]:
    """Names of the fields that are seconds of something."""
    return [each.name for each in fields(CostModel) if each.name not in _APART]
