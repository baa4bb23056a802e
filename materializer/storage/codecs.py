"""Which codec an object gets in a tier: a decision by measured costs, not a constant (docs/design/0019).

A codec costs its packing once and its loading at each use, and gives back bytes, which are worth what making again
costs per byte while the budget is short, and nothing while it is not. The trade-off: what a codec does to an object is
learned from small trials on others of the same chunk size, so a video that packs much better than the rest is not seen.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from viewcache.catalog.records import IoSampleRow, ObjectKind
from viewcache.materializer.planning.ladder import trials_of
from viewcache.materializer.planning.recipe import Recipe
from viewcache.store import CODECS
from viewcache.store.codec_trial import Trial
from viewcache.store.tier import LOCAL, MEMORY, REMOTE

__all__ = ["CodecChooser", "Rates", "cheapest_codec", "has_trial", "rates", "trial_rows"]

LEAST_BYTES = 4 << 20
"""Measurements of fewer raw bytes than this say little."""

PICTURE_USES = 3.0
"""How often intermediates are read, about: once in each epoch of a generation that is still to come."""

AGAIN_S = 5.0
"""How often the measurements are asked for at most."""

GUESSED_LOAD = {MEMORY: 0.12e-9, LOCAL: 0.3e-9, REMOTE: 10e-9}
"""Seconds per raw byte, until there are measurements: memory, a disk's cache, a hundred megabytes a second."""


TRIAL_EVERY = 16
"""Of so many jobs one tries all codecs on an object, which takes as long as to make three clips of kept pictures."""

TRIALS = 16
"""After so many, most is known: one job in `LATER_EVERY` goes on."""

LATER_EVERY = 256


def has_trial(job: int) -> bool:
    """Whether the job of a number, counted from 1, tries all codecs."""
    return job % (TRIAL_EVERY if job < TRIALS * TRIAL_EVERY else LATER_EVERY) == 1


def trial_rows(trials: Iterable[Trial]) -> list[IoSampleRow]:
    """Trials as measured work: ``pack`` and ``unpack`` count raw bytes, ``packed`` what came out."""
    rows = []
    for each in trials:
        bucket = each.chunk_bytes.bit_length() - 1
        rows += [
            IoSampleRow("pack", bucket, each.codec, LOCAL, 1, each.pack_s, each.raw_bytes, each.pack_s),
            IoSampleRow("packed", bucket, each.codec, LOCAL, 1, 0.0, each.packed_bytes),
            IoSampleRow("unpack", bucket, each.codec, LOCAL, 1, each.unpack_s, each.raw_bytes, each.unpack_s),
        ]
    return rows


_READ_ONCE = (ObjectKind.CLIP, ObjectKind.BLOCK)
"""By each use of them in an epoch."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a codec does to chunks of one size in one tier, per raw byte."""

    pack_s: float
    load_s: float
    packed: float
    """Bytes that one raw byte takes."""


def rates(samples: Iterable[IoSampleRow], tier: str, chunk_bytes: int) -> dict[str, Rates]:
    """What is known of each codec, for chunks of about this size in a tier; codecs that were not tried are left out."""
    samples, bucket = list(samples), chunk_bytes.bit_length() - 1
    seconds: dict[str, float] = defaultdict(float)
    size: dict[str, int] = defaultdict(int)
    for row in samples:
        if row.op == "load" and row.tier == tier:
            seconds[row.codec] += row.seconds
            size[row.codec] += row.bytes
    loads = {name: seconds[name] / size[name] for name in size if size[name] >= LEAST_BYTES}
    raw_s = loads.get("raw", GUESSED_LOAD[tier])
    found, trials = {"raw": Rates(0.0, raw_s, 1.0)}, trials_of(samples)
    for name in CODECS:
        tried = trials.get((name, bucket))
        if name != "raw" and tried is not None and tried.was_tried:
            packed = tried.packed_bytes / tried.raw_bytes
            load_s = loads.get(name, raw_s * packed + tried.unpack_s / tried.unpacked_bytes)
            found[name] = Rates(tried.pack_s / tried.raw_bytes, load_s, packed)
    return found


def cheapest_codec(known: Mapping[str, Rates], *, uses: float, byte_s: float) -> str:
    """The codec that costs least over an object's life.

    Args:
        known: by codec.
        uses: how often an object is read.
        byte_s: what a byte of the tier is worth, in seconds of work that it saves elsewhere.
    """
    return min(known, key=lambda name: known[name].pack_s + uses * known[name].load_s + byte_s * known[name].packed)


class CodecChooser:
    """Chooses codecs for new objects and for copies in other tiers. Thread-safe."""

    def __init__(
        self,
        fixed: Mapping[str, str],
        samples: Callable[[], Iterable[IoSampleRow]],
        byte_s: Callable[[], float],
    ) -> None:
        """Choose for some tiers.

        Args:
            fixed: tier → codec as configured, ``auto`` to choose.
            samples: gives all measurements so far.
            byte_s: says what a byte of the local tier is worth now, in seconds of work.
        """
        self._fixed = dict(fixed)
        self._samples = samples
        self._byte_s = byte_s
        self._lock = threading.Lock()
        self._asked = -AGAIN_S
        self._known: list[IoSampleRow] = []

    def is_open(self, tier: str) -> bool:
        """Whether the choice is ours, so that trials are worth their time."""
        return self._fixed.get(tier) == "auto"

    def for_recipe(self, recipe: Recipe) -> str:
        """The codec of a new object.

        Samples of audio hardly get smaller, and they are few beside pixels; silence is packed, see `AudioMaker.codec`.
        """
        if recipe.kind == ObjectKind.AUDIO:
            return "raw"
        if recipe.codec_is_chosen:
            return recipe.codec
        # A clip is read by its own epoch; pictures are read for each clip that is made of them.
        return self.pick(LOCAL, math.prod(recipe.chunk_shape), 1.0 if recipe.kind in _READ_ONCE else PICTURE_USES)

    def pick(self, tier: str, chunk_bytes: int, uses: float) -> str:
        """The codec of an object in a tier.

        Args:
            tier: where it shall lie.
            chunk_bytes: raw bytes of one inner chunk.
            uses: how often it will be read, about.
        """
        fixed = self._fixed.get(tier, "auto")
        if fixed != "auto":
            return fixed
        # A second copy in memory saves nothing by being small: what it has no room for lies below.
        worth = 0.0 if tier == MEMORY else self._byte_s()
        return cheapest_codec(rates(self._measured(), tier, chunk_bytes), uses=uses, byte_s=worth)

    def _measured(self) -> list[IoSampleRow]:
        with self._lock:
            now = time.monotonic()
            if now - self._asked >= AGAIN_S:
                self._asked, self._known = now, list(self._samples())
            return self._known
