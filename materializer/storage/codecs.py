"""Which codec an object gets in a tier: a decision by measured costs, not a constant (docs/design/0019, 0060).

A codec costs its packing once and its loading at each use, and gives back bytes, which are worth what making again
costs per byte while the budget is short, and nothing while it is not. How fast a codec is is learned from small trials
on objects of the same chunk size. Where bytes cost something, who writes an object looks how well that one packs. The
trade-off: a table of costs goes with each such object, and where none is sampled the mean of the others is taken.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.ladder import trial_rows, trials_of
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.planning.recipe import Recipe
from viewcache.materializer.storage.ratios import Ratios
from viewcache.store import CODECS, Stored
from viewcache.store.codec_choice import RAW, CodecCost, CodecTable
from viewcache.store.codec_trial import Trial
from viewcache.store.tier import LOCAL, MEMORY, REMOTE

__all__ = ["CodecChooser", "Rates", "cheapest_codec", "costs_of", "has_trial", "rates"]

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


_READ_ONCE = (ObjectKind.CLIP, ObjectKind.BLOCK)
"""By each use of them in an epoch."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a codec does to chunks of one size in one tier, per raw byte."""

    pack_s: float
    load_s: float
    packed: float
    """Bytes that one raw byte takes."""


def rates(samples: Iterable[IoSampleRow], tier: str, chunk_bytes: int, *, any_size: bool = False) -> dict[str, Rates]:
    """What is known of each codec, for chunks of about this size in a tier; codecs that were not tried are left out.

    Of ``any_size``, a codec that was not tried on such chunks is as fast as on those whose size is nearest. How well
    these packed says nothing then.
    """
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
    sizes = sorted({at for _, at in trials if any_size or at == bucket}, key=lambda at: (abs(at - bucket), at))
    for name in CODECS:
        tried = next((trials[name, at] for at in sizes if (name, at) in trials and trials[name, at].was_tried), None)
        if name != "raw" and tried is not None:
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


def costs_of(
    known: Mapping[str, Rates], *, uses: float, byte_s: float, read_s: float = 0.0, generations: float = 1.0
) -> dict[str, CodecCost]:
    """What each codec costs per raw byte, by how much it leaves of that; at its mean ratio as `cheapest_codec` says.

    Args:
        known: by codec, ``raw`` among them.
        uses: how often an object is read in a generation.
        byte_s: what a byte of the tier is worth, in seconds of work that it saves elsewhere in a generation.
        read_s: core seconds that reading a byte of the device is worth, beside those of the read itself.
        generations: that read the object.
    """
    raw_s = known[RAW].load_s
    return {
        name: CodecCost(
            name,
            each.pack_s / generations + uses * max(0.0, each.load_s - raw_s * each.packed),
            uses * (raw_s + read_s) + byte_s,
        )
        for name, each in known.items()
    }


class CodecChooser:
    """Chooses codecs for new objects and for copies in other tiers. Thread-safe."""

    def __init__(
        self,
        fixed: Mapping[str, str],
        samples: Callable[[], Iterable[IoSampleRow]],
        prices: Callable[[], Prices],
        record: Callable[[list[IoSampleRow]], None] = lambda _: None,
    ) -> None:
        """Choose for some tiers.

        Args:
            fixed: tier → codec as configured, ``auto`` to choose.
            samples: gives all measurements so far.
            prices: says what bytes of the local tier are worth now.
            record: takes what samples of copies have told; those of new objects are told by the jobs that make them.
        """
        self._fixed = dict(fixed)
        self._samples = samples
        self._prices = prices
        self._record = record
        self._lock = threading.Lock()
        self._asked = -AGAIN_S
        self._known: list[IoSampleRow] = []
        self._rates_of: dict[tuple[str, int, bool], dict[str, Rates]] = {}
        """What these say, as far as it was asked: tier, bits of a chunk's bytes, of any size."""
        self._ratios = {LOCAL: Ratios(), REMOTE: Ratios()}

    def is_open(self, tier: str) -> bool:
        """Whether the choice is ours, so that trials are worth their time."""
        return self._fixed.get(tier) == "auto"

    def note(self, video: str, trials: Iterable[Trial]) -> None:
        """Take in what packing some of a video, by its content key, has told."""
        mine = [each for each in trials if each.codec in CODECS and each.raw_bytes]
        self._ratios[LOCAL].note(video, mine)
        self._ratios[REMOTE].note("", mine)  # where an object is copied it is not known of which video it is

    def for_recipe(self, recipe: Recipe, video: str) -> Recipe:
        """A new object with its codec, and where that can matter what each codec would cost.

        Samples of audio hardly get smaller, and they are few beside pixels; silence is packed, see `AudioMaker.codec`.
        What is kept in groups of pictures, or is the bytes of a file, stays as it was decided.

        Args:
            recipe: of the object.
            video: content key of what it is made of.
        """
        if recipe.kind == ObjectKind.AUDIO:
            return replace(recipe, codec=RAW)
        chunk, prices = math.prod(recipe.chunk_shape), self._prices()
        # A clip is read by its own epoch; pictures are read for each clip that is made of them.
        uses = 1.0 if recipe.kind in _READ_ONCE else PICTURE_USES
        codec = recipe.codec if recipe.codec_is_chosen else self.pick(LOCAL, chunk, uses)
        if recipe.kind == ObjectKind.SOURCE or codec not in CODECS or not self.is_open(LOCAL):
            return replace(recipe, codec=codec)
        if not prices.byte_s and not prices.read_s:
            return replace(recipe, codec=codec)
        known = self._rates(LOCAL, chunk, any_size=True)
        at_most = codec if recipe.codec_is_chosen else RAW
        if at_most not in known:
            return replace(recipe, codec=codec)
        generations = prices.generations if recipe.codec_is_chosen else 1.0
        paid = {"byte_s": prices.byte_s, "read_s": prices.read_s, "generations": generations}
        table = CodecTable(tuple(costs_of(known, uses=uses, **paid).values()), at_most)
        of = "" if recipe.parts else video  # a pack or a block has no others like it
        codec, asked = self._decide(LOCAL, of, math.prod(recipe.shape), chunk, table)
        return replace(recipe, codec=codec, codecs=asked)

    def for_copy(self, tier: str, stored: Stored) -> tuple[str, Callable[[NDArray[np.uint8]], str] | None]:
        """The codec of a copy in a tier; where a sample is to say it, with what takes rows of the object and does so.

        Args:
            tier: where it shall lie.
            stored: the object, where it lies now.
        """
        chunk = math.prod(stored.shape[1:]) * stored.chunk_rows
        if tier != REMOTE or not self.is_open(tier):  # what comes up has been packed as it was worth to
            return self.pick(tier, chunk, uses=1.0), None
        known, size = self._rates(tier, chunk, any_size=True), math.prod(stored.shape)
        costs = costs_of(known, uses=1.0, byte_s=self._prices().byte_s)
        if stored.codec in costs:  # as it lies there says how well it packs
            ratio = sum(stored.table.sizes) / size
            costs[stored.codec] = replace(costs[stored.codec], ratio=ratio)
        codec, table = self._decide(tier, "", size, chunk, CodecTable(tuple(costs.values())))
        if table is None:
            return codec, None

        def choose(rows: NDArray[np.uint8]) -> str:
            chosen = table.choose(rows, chunk)
            self._ratios[tier].note("", chosen.samples)
            self._record(trial_rows(chosen.samples))
            return chosen.codec

        return codec, choose

    def pick(self, tier: str, chunk_bytes: int, uses: float) -> str:
        """The codec of an object in a tier that is like the others.

        Args:
            tier: where it shall lie.
            chunk_bytes: raw bytes of one inner chunk.
            uses: how often it will be read, about.
        """
        fixed = self._fixed.get(tier, "auto")
        if fixed != "auto":
            return fixed
        # A second copy in memory saves nothing by being small: what it has no room for lies below.
        worth = 0.0 if tier == MEMORY else self._prices().byte_s
        return cheapest_codec(self._rates(tier, chunk_bytes), uses=uses, byte_s=worth)

    def _decide(
        self, tier: str, video: str, size: int, chunk_bytes: int, table: CodecTable
    ) -> tuple[str, CodecTable | None]:
        """The codec of an object; with the table if it is to be asked of a sample, which is counted."""
        ratios, bucket = self._ratios[tier], chunk_bytes.bit_length() - 1
        ratios.stores(size)
        rows = {each.codec: replace(each, least=ratios.least(each.codec, bucket)) for each in table.costs}
        rows[RAW] = replace(rows[RAW], ratio=1.0)
        table = replace(table, costs=tuple(rows.values()))
        asked = table.unknown()
        seen = {name: ratio for name in asked if (ratio := ratios.find(video, name, bucket)) is not None}
        awaited = ratios.is_awaited(video, bucket)
        if asked and ratios.may_sample(size, seen=awaited or len(seen) == len(asked)):
            ratios.wait_for(video, bucket)
            return RAW, table
        if asked and awaited and len(seen) < len(asked):  # another object of its job is sampled
            return RAW, replace(table, is_own=False)
        usual = {name: each.packed for name, each in self._rates(tier, chunk_bytes).items()}
        return table.cheapest({name: (usual | seen)[name] for name in asked if name in usual | seen}), None

    def _rates(self, tier: str, chunk_bytes: int, *, any_size: bool = False) -> Mapping[str, Rates]:
        """See `rates`; worked out once for all objects with such chunks, until the measurements are asked for again."""
        with self._lock:
            now = time.monotonic()
            if now - self._asked >= AGAIN_S:
                self._asked, self._known, self._rates_of = now, list(self._samples()), {}
            known, found = self._known, self._rates_of
        place = tier, chunk_bytes.bit_length(), any_size
        if place not in found:
            found[place] = rates(known, tier, chunk_bytes, any_size=any_size)
        return found[place]
