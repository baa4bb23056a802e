"""What devices give: bytes a second of the disks and buckets where sources and kept objects lie, read cold.

Only `viewcache profile` measures it, because a read of a running job does not say whether the disk or the system's
memory had the bytes. The trade-off: what was never profiled, or on another machine, counts as free, so that decoding
is all that plans reckon with there.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.errors import Broken
from viewcache.materializer.planning.mounts import mount_of
from viewcache.store.tier import LOCAL, REMOTE

__all__ = ["FREE", "READ", "SOURCE", "TIERS", "Devices", "devices_of", "host_of", "known_devices", "record_devices"]

READ = "read"
"""The ``op`` of such rows: ``n`` objects of ``bytes`` in ``seconds`` of the wall, read together by as many readers as a
run has; ``codec`` is empty."""

SOURCE = "source"
"""What stands for the tier of a dataset's files."""

TIERS = (SOURCE, LOCAL, REMOTE)
"""What such a row may be about."""

LEAST_BYTES = 4 << 20
"""Measurements of fewer bytes say little."""

_SETTING = "device profile"


@dataclass(frozen=True, slots=True)
class Devices:
    """Bytes a second by tier; a tier that is missing is free."""

    bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    at_s: float = 0.0
    """When that was measured, in seconds since 1970; 0 = never."""
    is_one: bool = False
    """Whether the files and the local tier lie on one disk, which they share."""
    other_host: bool = False
    """Whether it was measured, but on another machine: then nothing is known of this one."""

    def s_per_byte(self, tier: str) -> float:
        """Seconds of its device that a byte of a tier takes; 0 where that was not measured."""
        rate = self.bytes_per_s.get(tier, 0.0)
        return 1 / rate if rate > 0 else 0.0

    def seconds(self, read: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Seconds of each device that reading some bytes of tiers takes; of those that are free nothing."""
        found = {tier: size * self.s_per_byte(tier) for tier, size in read.items() if self.s_per_byte(tier)}
        if self.is_one and SOURCE in found and LOCAL in found:
            found[LOCAL] = found[LOCAL] + found.pop(SOURCE)
        return found

    def moved(self, before: "Devices", times: float) -> bool:
        """Whether something is known of other tiers than before, or one gives so many times as much, or as little."""
        if (self.bytes_per_s.keys(), self.is_one) != (before.bytes_per_s.keys(), before.is_one):
            return True
        rates = ((rate, before.bytes_per_s[tier]) for tier, rate in self.bytes_per_s.items())
        return any(not 1 / times <= now / then <= times for now, then in rates)


FREE = Devices()
"""Nothing is known."""


def devices_of(samples: Iterable[IoSampleRow]) -> dict[str, float]:
    """Bytes a second by tier, of all rows about it; tiers of which too few bytes were read are left out."""
    seconds: dict[str, float] = {}
    size: dict[str, int] = {}
    for row in samples:
        if row.op == READ:
            seconds[row.tier] = seconds.get(row.tier, 0.0) + row.seconds
            size[row.tier] = size.get(row.tier, 0) + row.bytes
    return {tier: size[tier] / s for tier, s in seconds.items() if s > 0 and size[tier] >= LEAST_BYTES}


def record_devices(
    catalog: Catalog, rows: Iterable[IoSampleRow], host: str, at_s: float, *, is_one: bool = False
) -> None:
    """Record what was measured of some tiers, instead of all that was known of devices.

    Args:
        catalog: what we know.
        rows: of the op `READ`, of tiers in `TIERS`.
        host: the machine, see `host_of`.
        at_s: when, in seconds since 1970.
        is_one: whether the files and the local tier lie on one disk, so that reads of both take turns.
    """
    catalog.record_reads(list(rows), _SETTING, json.dumps({"host": host, "at_s": at_s, "is_one": is_one}))


def known_devices(catalog: Catalog, host: str) -> Devices:
    """What is known of the devices of a machine."""
    text = catalog.setting(_SETTING)
    if text is None:
        return Devices()
    profile = json.loads(text)
    if profile["host"] != host:
        return Devices(at_s=profile["at_s"], other_host=True)
    return Devices(devices_of(catalog.load_io_samples()), profile["at_s"], profile["is_one"])


def host_of(folder: str | Path, *, table: str = "/proc/self/mountinfo") -> str:
    """A digest of what makes a profile valid: the cores, and the mount that a folder lies on.

    Args:
        folder: of the local tier.
        table: the system's list of mounts. Where it has none, cores alone count.
    """
    text = f"{os.cpu_count()} "
    with suppress(Broken):
        mount = mount_of(str(folder), table)
        text += f"{mount.point} {mount.options} {mount.system}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
