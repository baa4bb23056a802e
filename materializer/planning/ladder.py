"""The ladder between decoded pictures and the original: what each way of writing pictures down takes (docs/keeping.md).

All rungs give the same bytes back. A rung with fewer bytes takes longer to read. What each takes is learned from small
trials on this cache's own pictures; until there are some, what was measured on real clips stands in.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.media.lossless import H264, available
from viewcache.store.codec_trial import Trial
from viewcache.store.tier import LOCAL

__all__ = ["GUESSED", "Ladder", "Rung", "Trials", "trial_rows", "trials_of"]

PRIOR_BYTES = 32 << 20
"""The guess counts like so many raw bytes that were measured: one small trial on a busy machine says little."""

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
    margin: float = 1.6
    """So many times these bytes are promised."""

    @property
    def promised(self) -> float:
        """Bytes that are promised to one raw byte: more than groups of pictures take, but for odd ones.

        Other objects are promised what they take as pixels.
        """
        return min(1.0, self.margin * self.packed + 0.02) if self.lead else 1.0


GUESSED: Mapping[str, Rung] = MappingProxyType(
    {
        "raw": Rung(0.0, 0.0, 1.0),
        "lz4": Rung(1.2e-9, 0.2e-9, 0.65),
        "zstd1": Rung(2.5e-9, 0.75e-9, 0.53),
        "delta-lz4": Rung(1.7e-9, 0.45e-9, 0.31, 3.5),
        "delta-zstd1": Rung(3.2e-9, 0.85e-9, 0.20, 3.5),
        "h264": Rung(7.0e-9, 3.5e-9, 0.15, 3.5),
        LOSSY: Rung(5.0e-9, 1.3e-9, 0.028, 3.5),
    }
)
"""Resized pictures of real clips, before anything was tried here (`python -m benchmarks.rungs`)."""

LADDER = tuple(name for name in GUESSED if name not in ("zstd1", LOSSY))
"""What is chosen among: ``zstd1`` takes three times the bytes of ``delta-zstd1`` for the same time, and what loses
something is for those tasks that allow it."""


@dataclass(slots=True)
class Trials:
    """All trials of one codec on chunks of about one size, added up."""

    raw_bytes: int = 0
    """That were packed."""
    pack_s: float = 0.0
    packed_bytes: int = 0
    """That they took then."""
    unpacked_bytes: int = 0
    """Raw bytes that were unpacked."""
    unpack_s: float = 0.0

    @property
    def was_tried(self) -> bool:
        """Whether something was packed and unpacked."""
        return bool(self.raw_bytes and self.unpacked_bytes)


def trial_rows(trials: Iterable[Trial]) -> list[IoSampleRow]:
    """Trials as measured work: ``pack`` and ``unpack`` count raw bytes, ``packed`` what came out."""
    rows: list[IoSampleRow] = []
    for each in trials:
        bucket, unpack_s = each.chunk_bytes.bit_length() - 1, each.unpack_s
        rows += [
            IoSampleRow("pack", bucket, each.codec, LOCAL, 1, each.pack_s, each.raw_bytes, each.pack_s),
            IoSampleRow("packed", bucket, each.codec, LOCAL, 1, 0.0, each.packed_bytes),
        ]
        if unpack_s is not None:
            rows.append(IoSampleRow("unpack", bucket, each.codec, LOCAL, 1, unpack_s, each.raw_bytes, unpack_s))
    return rows


def trials_of(samples: Iterable[IoSampleRow]) -> dict[tuple[str, int], Trials]:
    """The trials among samples of all work, by codec and the logarithm to base 2 of a chunk's bytes, rounded down."""
    found: defaultdict[tuple[str, int], Trials] = defaultdict(Trials)
    for row in samples:
        if row.op == "pack":
            found[row.codec, row.size_bucket].raw_bytes += row.bytes
            found[row.codec, row.size_bucket].pack_s += row.seconds
        elif row.op == "packed":
            found[row.codec, row.size_bucket].packed_bytes += row.bytes
        elif row.op == "unpack":
            found[row.codec, row.size_bucket].unpacked_bytes += row.bytes
            found[row.codec, row.size_bucket].unpack_s += row.seconds
    return found


@dataclass(frozen=True, slots=True)
class Ladder:
    """What is known of the rungs that this cache may use."""

    offered: tuple[str, ...] = LADDER
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
        tried: dict[tuple[str, int], Rung] = {}
        for (name, bucket), each in trials_of(samples).items():
            if name in GUESSED and each.was_tried:
                guess = GUESSED[name]
                pack_s = _mean(guess.pack_s, each.pack_s, each.raw_bytes)
                unpack_s = _mean(guess.unpack_s, each.unpack_s, each.unpacked_bytes)
                tried[name, bucket] = Rung(
                    pack_s, unpack_s, _mean(guess.packed, each.packed_bytes, each.raw_bytes), guess.lead
                )
        offered = tuple(name for name in LADDER if name != H264 or available())
        return cls(offered if codec == "auto" else (codec,), tried)

    def rung(self, codec: str, picture_bytes: int) -> Rung:
        """What a codec does to pictures of a size, as far as is known."""
        bucket = max(1, picture_bytes).bit_length() - 1
        near = sorted((abs(at - bucket), at) for name, at in self.tried if name == codec)
        if near and near[0][0] <= _NEAR:
            return self.tried[codec, near[0][1]]
        return GUESSED[codec]


def _mean(guess: float, total: float, raw_bytes: int) -> float:
    """Of something per raw byte: measured in all, and guessed before."""
    return (guess * PRIOR_BYTES + total) / (PRIOR_BYTES + raw_bytes)
