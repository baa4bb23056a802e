"""The ladder between decoded pictures and the original: what each way of writing pictures down takes (docs/keeping.md).

All rungs give the same bytes back. A rung with fewer bytes takes longer to read. What each takes is learned from small
trials on this cache's own pictures; until there are some, what was measured on real clips stands in.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from viewcache.catalog.records import IoSampleRow

__all__ = ["GUESSED", "Ladder", "Rung"]

_NEAR = 2
"""Trials on pictures of up to so many powers of two more or fewer bytes say something about others."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What one codec does to pictures, per raw byte."""

    pack_s: float
    """Core seconds to pack, and to check where that is done."""
    unpack_s: float
    packed: float
    """Bytes that one raw byte takes."""
    lead: float = 0.0
    """Pictures that must be unpacked before the first that is wanted, on average."""


GUESSED: Mapping[str, Rung] = MappingProxyType(
    {
        "raw": Rung(0.0, 0.0, 1.0),
        "lz4": Rung(1.2e-9, 0.4e-9, 0.70),
        "zstd1": Rung(2.5e-9, 0.9e-9, 0.57),
    }
)
"""Resized pictures of the clips of SAND's kind of task, before anything was tried."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """What is known of the rungs that this cache may use."""

    offered: tuple[str, ...] = tuple(GUESSED)
    """Names of codecs."""
    tried: Mapping[tuple[str, int], Rung] = field(default_factory=dict)
    """By codec and the logarithm to base 2 of a picture's bytes, rounded down."""

    @classmethod
    def measured(cls, samples: Iterable[IoSampleRow], codec: str) -> "Ladder":
        """By the trials so far.

        Args:
            samples: of all work.
            codec: as configured: the only one that is used; ``auto`` = any.
        """
        seconds: dict[tuple[str, str, int], float] = defaultdict(float)
        size: dict[tuple[str, str, int], int] = defaultdict(int)
        for row in samples:
            if row.op in ("pack", "packed", "unpack"):
                place = row.op, row.codec, row.size_bucket
                seconds[place] += row.seconds
                size[place] += row.bytes
        tried: dict[tuple[str, int], Rung] = {}
        for (op, name, bucket), raw in size.items():
            unpacked = size["unpack", name, bucket] if op == "pack" and name in GUESSED else 0
            if raw and unpacked:
                pack_s, unpack_s = seconds["pack", name, bucket] / raw, seconds["unpack", name, bucket] / unpacked
                packed = size["packed", name, bucket] / raw
                tried[name, bucket] = Rung(pack_s, unpack_s, packed, GUESSED[name].lead)
        return cls(tuple(GUESSED) if codec == "auto" else (codec,), tried)

    def rung(self, codec: str, picture_bytes: int) -> Rung:
        """What a codec does to pictures of a size, as far as is known."""
        bucket = max(1, picture_bytes).bit_length() - 1
        near = sorted((abs(at - bucket), at) for name, at in self.tried if name == codec)
        if near and near[0][0] <= _NEAR:
            return self.tried[codec, near[0][1]]
        return GUESSED[codec]
