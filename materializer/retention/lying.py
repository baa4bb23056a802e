"""What lasts behind its generation and lies in the store, whichever generation it was made for.

It is looked for by content keys, since nothing else tells it from pictures of one generation. The trade-off: keys that
were found are remembered while they lie there, and those that were chosen while their generation is made, so that it is
known of an object whether it lasts.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import numpy as np

from viewcache.catalog import Catalog
from viewcache.materializer.retention.intermediates import picture_keys
from viewcache.materializer.retention.lasting import Lasting
from viewcache.materializer.retention.packs import Lies, Packs
from viewcache.materializer.retention.ways import Kept, Way
from viewcache.store import CODECS

__all__ = ["Lying"]

OF_SEVERAL = 0
"""What stands for the number of a video where pictures are of several images."""


class Lying:
    """Looks for it each time when it is decided what is kept."""

    def __init__(self, catalog: Catalog, size_of: Callable[[str], int | None], packs: Packs) -> None:
        """Nothing was looked for yet.

        Args:
            catalog: what we know.
            size_of: tells how many bytes an object takes in the store, by its content key; None if it is not there.
            packs: where kept pictures of images lie.
        """
        self._catalog = catalog
        self._size_of = size_of
        self._packs = packs
        self._found: set[str] = set()
        """Content keys of what lay there."""
        self._chosen: dict[int, set[str]] = {}
        """Generation of a group → content keys of what is to last."""
        self._looked: set[int] = set()
        """The catalog's numbers of the videos that were looked for."""

    def __len__(self) -> int:
        """How many objects are known to last."""
        return len(self._found.union(*self._chosen.values()))

    def find(self, group_generation: int, lasting: Lasting) -> dict[str, tuple[Kept, ...]]:
        """What lies there, whole or in part, by the content key of the video; of images what will by then, too.

        A generation is decided when the one before it has hardly begun to make its pictures.
        """
        self._found = self._lying(self._found)
        found = self._find_packed(group_generation, lasting) if lasting.is_image.any() else {}
        # Working out the keys of all ways of all videos would take long.
        written: dict[int, set[tuple[str, str]]] = {}
        for row in self._catalog.query("read_intermediates").to_pylist():
            written.setdefault(row["video_id"], set()).add((row["kind"], row["codec"]))
        places = np.flatnonzero(~lasting.is_image).tolist()
        self._looked.update(map(lasting.video_id, places))
        for place in places if written else ():
            mine = written.get(lasting.video_id(place), set())
            for way in lasting.ways if mine else ():
                if mine.isdisjoint((way.intermediate, codec) for codec in {way.codec, *CODECS}):
                    continue  # what was to be packed may lie as pixels, and those in any codec of pixels
                whole = lasting.recipes(place, way)
                there = [(size, each) for each in whole if (size := self._size_of(each.key)) is not None]
                self._found.update(each.key for _, each in there)
                if there:
                    share = sum(len(each.frames) for _, each in there) / sum(len(each.frames) for each in whole)
                    size = round(sum(size for size, _ in there) / share)
                    kept = Kept(way, size, len(there) == len(whole), share)
                    video = lasting.videos[place]
                    found[video] = (*found.get(video, ()), kept)
        return found

    def _find_packed(self, group_generation: int, lasting: Lasting) -> dict[str, tuple[Kept, ...]]:
        """The same of images, of which each way keeps one picture, in a pack."""
        found: dict[str, tuple[Kept, ...]] = {}
        self._packs.look()
        self._looked.add(OF_SEVERAL)
        ways = [way for way in lasting.ways if way.codec in CODECS]  # they may lie in any of these
        find = self._packs.finder(group_generation)
        for way in ways:
            if self._packs.may_have(way.intermediate, way.codec):
                for video, kept in self._packed_in(way, find, lasting):
                    found[video] = (*found[video], *kept) if video in found else kept
        return found

    def _packed_in(
        self, way: Way, find: Callable[[str], Lies | None], lasting: Lasting
    ) -> Iterator[tuple[str, tuple[Kept, ...]]]:
        """Images of which pictures lie there in one way: tasks of other sizes have several of each image."""
        wanted, raw, size, now = (np.zeros(len(lasting.videos), np.int64) for _ in range(4))
        # Of one that is coming the most that it may take is known, and what its codec leaves of that.
        packed = cache(partial(lasting.packed, way.codec))
        for how, places in lasting.pictures(way):
            keys = picture_keys([*map(lasting.videos.__getitem__, places.tolist())], how, way.codec)
            there = [*map(find, keys)]
            found = [each for each in there if each is not None]
            lies = np.fromiter((each is not None for each in there), np.bool_, len(there))
            bytes_of = lasting.raw_bytes(how, places)
            wanted[places] += bytes_of
            raw[places[lies]] += bytes_of[lies]
            size[places[lies]] += np.array([packed(e.bytes) if e.is_coming else e.bytes for e in found], np.int64)
            now[places[lies]] += np.array([not each.is_coming for each in found], np.int64)
            self._found.update(each.pack for each in found)
        kept_of = cache(partial(_kept, way))  # which images share
        places = np.flatnonzero(raw)
        of_images = (each[places].tolist() for each in (wanted, raw, size, now))
        yield from zip(map(lasting.videos.__getitem__, places.tolist()), map(kept_of, *of_images), strict=True)

    def will_last(self, group_generation: int, keys: Iterable[str]) -> None:
        """Take note of objects that are chosen to last, and may be made later than it is looked for them."""
        self._chosen.setdefault(group_generation, set()).update(keys)

    def forget(self, group_generation: int) -> None:
        """A generation is over: what was chosen for it and does not lie there is not made any more."""
        self._found |= self._lying(self._chosen.pop(group_generation, ()))

    def _lying(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._size_of(key) is not None}

    def may_last(self, key: str, video_id: int) -> bool:
        """Whether pictures of a video last, or may: nobody has looked at the video in this run.

        ``video_id`` is 0 for a pack.
        """
        chosen = list(self._chosen.values())  # the mover asks while the keeper decides
        return key in self._found or video_id not in self._looked or any(key in each for each in chosen)


def _kept(way: Way, wanted: int, raw: int, size: int, now: int) -> tuple[Kept, ...]:
    """What is known of the pictures of an image that a way keeps.

    Args:
        way: in which they are kept.
        wanted: raw bytes of all of them.
        raw: those of the ones that lie there, or will.
        size: what these take in the store.
        now: how many of these lie there.
    """
    share = raw / wanted
    return (Kept(way, round(size / share), made=raw == wanted, share=share, is_coming=not now),)
