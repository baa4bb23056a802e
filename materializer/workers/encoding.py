"""An object's pictures packed in groups while they are being decoded, and checked before anything is published.

A group is packed when its last picture is there, and its pixels are let go of, so that a worker holds the packed groups
and those that are not whole. The trade-off: every group is unpacked again at once and compared, which costs what
reading it once will cost; where that or the encoder fails, the object is stored as pixels instead.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import Broken
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.lossless import RGB, Pictures, decoder, encoder, takes
from viewcache.materializer.planning.recipe import GROUP, Recipe
from viewcache.materializer.planning.size import clip_bound
from viewcache.store import ArrayMeta, groups_bound, join_packets
from viewcache.store.codec import ENCODED
from viewcache.store.codec_trial import Trial

__all__ = ["INSTEAD", "Encoding", "Packed", "as_pixels", "pictures_of", "try_pictures"]

Bytes = NDArray[np.uint8]

INSTEAD = "zstd1"
"""The codec of pictures that cannot be packed in groups, or get no smaller by it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What is to be written."""

    recipe: Recipe
    """With the codec that it became."""
    parts: Bytes | list[Bytes]
    """The pictures, or the bytes of each group."""
    width: int
    """Of the longest group; 0 for pictures."""
    about: dict[str, object]
    """What the object says of how it was packed."""

    def meta(self, attributes: dict[str, object]) -> ArrayMeta:
        """What ``zarr.json`` will say."""
        recipe = self.recipe
        return ArrayMeta(recipe.shape, recipe.chunk_shape, recipe.codec, attributes | self.about, width=self.width)

    def fits(self, attributes: dict[str, object]) -> bool:
        """Whether groups take no more than was promised, nor than pixels: those of noise, or of stamps, may."""
        recipe = self.recipe
        bound = groups_bound(self.meta(attributes), recipe.key, [part.size for part in self.parts])
        return self.width <= math.prod(recipe.chunk_shape) and bound <= recipe.bound


def pictures_of(shape: Sequence[int], index: VideoIndex, *, native: bool) -> Pictures:
    """What the pictures of an object of some shape are: (n, bytes) as decoded, or (n,3,H,W)."""
    return Pictures(index.pix_fmt, index.width, index.height) if native else Pictures(RGB, shape[-1], shape[-2])


class Encoding:
    """The pictures of one object, packed as they come, in any order."""

    def __init__(self, recipe: Recipe, index: VideoIndex) -> None:
        """Take nothing yet.

        Args:
            recipe: its codec is one of `viewcache.store.ENCODED`.
            index: of the video.
        """
        self._recipe = recipe
        self._rows = recipe.chunk_shape[0]
        self._pictures = pictures_of(recipe.shape, index, native=recipe.native)
        self._size = int(np.prod(recipe.shape[1:]))
        self._pending: dict[int, tuple[Bytes, set[int]]] = {}
        """Group → its pictures and those still to come."""
        self._groups: dict[int, list[bytes]] = {}
        self._raw: Bytes | None = None
        """All pictures, once it is clear that they are not packed."""
        self._pack_s = self._unpack_s = 0.0
        self._trials: tuple[Trial, ...] = ()
        self.failure = ""
        """Why the encoder was given up."""
        try:
            self._encoder = encoder(recipe.codec, self._pictures)
            self._decoder = decoder(recipe.codec, self._pictures)
        except Broken as error:
            self._give_up(str(error))

    def put(self, place: int, picture: Bytes) -> None:
        """Take the picture of one place in the object, uint8 of any shape with as many bytes as each has."""
        if self._raw is not None:
            self._raw[place] = picture.reshape(-1)
            return
        group = place // self._rows
        if group not in self._pending:
            first, end = group * self._rows, min((group + 1) * self._rows, self._recipe.shape[0])
            self._pending[group] = np.empty((end - first, self._size), np.uint8), set(range(end - first))
        array, missing = self._pending[group]
        array[place - group * self._rows] = picture.reshape(-1)
        missing.discard(place - group * self._rows)
        if not missing:
            self._pack(group, array)

    def finished(self, attributes: dict[str, object]) -> Packed | None:
        """What to write, once all pictures were put; None if that takes more than was promised.

        Args:
            attributes: of the object, whose length counts.
        """
        if self._raw is None:
            packed = self._packed()
            self._trials = (self._trial(),)
            if packed.fits(attributes):
                return packed
            self._unpack_all()
        assert self._raw is not None  # since `_unpack_all`
        return as_pixels(self._recipe, self._raw)

    def measured(self) -> tuple[Trial, ...]:
        """What packing all of it and checking that took, whether or not it fits; empty where it was given up."""
        return self._trials

    def _trial(self) -> Trial:
        packed = sum(len(packet) for packets in self._groups.values() for packet in packets)
        raw = self._recipe.shape[0] * self._size
        return Trial(self._recipe.codec, self._size, raw, packed, self._pack_s + self._unpack_s, self._unpack_s)

    def _pack(self, group: int, array: Bytes) -> None:
        try:
            begun = time.thread_time()
            packets = self._encoder.group(array)
            if len(packets) != len(array):
                raise Broken(f"{self._recipe.codec} gave {len(packets)} packets for {len(array)} pictures")
            halfway = time.thread_time()
            unpacked = self._decoder.group(packets)
            same = all(np.array_equal(mine, given) for mine, given in zip(unpacked, array, strict=True))
            self._pack_s += halfway - begun
            self._unpack_s += time.thread_time() - halfway
        except Broken as error:
            self._give_up(str(error))
            return
        if not same:
            self._give_up(f"{self._recipe.codec} gives other pixels than it was given ({self._pictures})")
            return
        self._groups[group] = packets
        del self._pending[group]

    def _packed(self) -> Packed:
        about = {"codec": self._recipe.codec, "group": self._rows, **self._encoder.about}
        parts = [join_packets(self._groups[group]) for group in sorted(self._groups)]
        return Packed(self._recipe, parts, max(part.size for part in parts), {"encoded": about})

    def _give_up(self, why: str) -> None:
        self.failure = why
        self._unpack_all()

    def _unpack_all(self) -> None:
        """Go on with pixels: the groups so far were checked."""
        raw = np.empty((self._recipe.shape[0], self._size), np.uint8)
        for group, packets in self._groups.items():
            for place, picture in enumerate(self._decoder.group(packets), group * self._rows):
                raw[place] = picture
        for group, (array, _) in self._pending.items():
            raw[group * self._rows :][: len(array)] = array
        self._groups, self._pending, self._raw = {}, {}, raw


def as_pixels(recipe: Recipe, pictures: Bytes) -> Packed | None:
    """Pictures that were to be packed in groups, as pixels, where so much was promised."""
    if recipe.bound < clip_bound(pictures.size, recipe.shape[0]):
        return None
    return Packed(replace(recipe, codec=INSTEAD), pictures.reshape(recipe.shape), 0, {})


def try_pictures(pictures: Pictures, run: Bytes) -> tuple[Trial, ...]:
    """Pack, check and unpack a run of pictures in every way that takes them.

    Args:
        pictures: what they are.
        run: one group of them, (n, ...): a single one would say nothing of what changes between them.
    """
    run = np.ascontiguousarray(run[:GROUP]).reshape(min(len(run), GROUP), -1)
    trials = []
    for codec in ENCODED if len(run) > 1 else ():
        if not takes(codec, pictures):
            continue
        try:
            packer, unpacker = encoder(codec, pictures), decoder(codec, pictures)
            for _ in unpacker.group(packer.group(run[:1])):  # the first one loads the library
                pass
            begun = time.thread_time()
            packets = packer.group(run)
            halfway = time.thread_time()
            for _ in unpacker.group(packets):
                pass
            ended = time.thread_time()
        except Broken:  # whoever packs by it will say why
            continue
        packed = sum(map(len, packets))
        trials.append(Trial(codec, run[0].size, run.size, packed, ended - begun, ended - halfway))
    return tuple(trials)
