"""Which codec one object gets, by what its own bytes do: a pure choice, and the small samples that it asks for.

A codec's seconds per raw byte are ``fixed_s + byte_s * ratio``: packing and unpacking cost the same whatever comes out,
moving and keeping bytes costs by what is left of them. Where no codec can be cheaper than raw nothing is packed to find
out, which is the common case. The trade-off: a few small pieces say how well an object packs to some hundredths, so of
two codecs that cost about the same the dearer one may be taken.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from viewcache.store.codec_trial import Trial, pieces_of, sample_codec

__all__ = ["RAW", "Chosen", "CodecCost", "CodecTable"]

RAW = "raw"

AS_MUCH = 1.02
"""Up to so many times as many bytes are as many, as far as samples can tell."""


@dataclass(frozen=True, slots=True)
class CodecCost:
    """What one codec costs per raw byte of an object, in seconds of a core."""

    codec: str
    """A name of `viewcache.store.CODECS`."""
    fixed_s: float
    """Packing once and unpacking at each use."""
    byte_s: float
    """What a byte that is left costs: to read it at each use, and to have it."""
    least: float = 0.0
    """The smallest part of a raw byte that it leaves of anything."""
    ratio: float | None = None
    """The part that it leaves of this object, as far as that is known; None: a sample says it."""

    def at(self, ratio: float) -> float:
        """Seconds per raw byte, if so much is left of it."""
        return self.fixed_s + self.byte_s * ratio


class Chosen(NamedTuple):
    """What became of an object."""

    codec: str
    samples: tuple[Trial, ...]
    """What was packed to find out."""


@dataclass(frozen=True, slots=True)
class CodecTable:
    """The codecs that an object may get. A value that pickles: an owner makes it, who writes the object asks it."""

    costs: tuple[CodecCost, ...]
    """``raw`` among them, whose ratio is 1."""
    at_most: str = RAW
    """The object takes no more bytes than by this one of them: so many were reckoned with."""
    is_own: bool = True
    """Whether the object is to be sampled itself, though others like it were."""

    def unknown(self) -> tuple[str, ...]:
        """The codecs of which a sample is needed: those that may cost less than all of which it is known."""
        known = {each.codec: each.ratio for each in self.costs if each.ratio is not None}
        asked = [each for each in self.costs if each.codec not in known]
        if self.at_most in known:  # else nothing can be ruled out
            most = known[self.at_most] * AS_MUCH
            least = min(each.at(known[each.codec]) for each in self.costs if known.get(each.codec, np.inf) <= most)
            asked = [each for each in asked if each.at(each.least) < least]
        return tuple(each.codec for each in asked)

    def cheapest(self, ratios: Mapping[str, float]) -> str:
        """The codec that costs least.

        Args:
            ratios: what is left of a byte, by codec, of those of which the table does not say it; a codec of which
                nobody says it is not taken, unless it is ``at_most``.
        """
        known = {each.codec: each.ratio for each in self.costs if each.ratio is not None} | dict(ratios)
        if self.at_most not in known:
            return self.at_most
        most = known[self.at_most] * AS_MUCH
        allowed = [each for each in self.costs if each.codec in known and known[each.codec] <= most]
        return min(allowed, key=lambda each: each.at(known[each.codec])).codec

    def choose(
        self,
        array: NDArray[np.uint8],
        chunk_bytes: int,
        others: Iterable[Trial] = (),
        loaded: Callable[[], object] = lambda: None,
    ) -> Chosen:
        """The codec of an object, for which samples of it are packed where that can matter.

        Args:
            array: contiguous, of any shape: the object, or a part of it.
            chunk_bytes: of one inner chunk.
            others: trials of what is like it, of which those of chunks of this size may do as well, the last ones.
            loaded: called when the codecs' libraries are there, before the first piece is packed.
        """
        unknown = self.unknown()
        if not unknown:
            return Chosen(self.cheapest({}), ())
        known = _ratios([] if self.is_own else [each for each in others if each.chunk_bytes == chunk_bytes])
        if known.keys() >= set(unknown):
            return Chosen(self.cheapest({name: known[name] for name in unknown}), ())
        pieces = pieces_of(array, chunk_bytes)
        samples = tuple(sample_codec(name, pieces, chunk_bytes, loaded) for name in unknown)
        return Chosen(self.cheapest(_ratios(samples)), samples)


def _ratios(samples: Iterable[Trial]) -> dict[str, float]:
    return {each.codec: each.packed_bytes / each.raw_bytes for each in samples}
