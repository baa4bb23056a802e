"""Some images of a task, drawn by its own plan, with all that workers need to make their pictures.

The first images of the first epoch are a uniform sample, since their order is a keyed permutation; the same
configuration gives the same ones. The trade-off: what only rare images have (a huge one, say) may be missed.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from viewcache.catalog.kinds import ObjectKind
from viewcache.errors import BadInput
from viewcache.materializer.media.source import is_local, local_path, shown
from viewcache.materializer.planning.packs import MOST_BYTES, pieces
from viewcache.materializer.planning.recipe import Part, Recipe, pack_recipe
from viewcache.materializer.retention.intermediates import intermediate_recipe
from viewcache.materializer.retention.ways import kinds_of
from viewcache.materializer.tasks.task import Task

__all__ = ["Sample", "pack_of", "sample_of"]

MOST_BESIDE = 16
"""So many times the images of a sample are looked at, at most, for files beside them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Images of one task."""

    task: str
    parts: tuple[Part, ...]
    """One of each image: where it lies, and how its picture is made."""
    kept: Mapping[str, Recipe]
    """How the picture is made that may be kept of an image, by the image's content key."""
    together: int
    """Pictures that are made as one block."""
    images: int
    """In an epoch of the task."""
    pixels: Mapping[str, int] = field(default_factory=dict)
    """Of each image's own picture, by its content key."""
    beside: tuple[str, ...] = ()
    """Files of other images, which are only read: so many that all files have as many bytes as the pictures.

    A disk that gives more for a moment (from its own memory, or within the slice of a limit) is not known by less.
    """

    @property
    def packs(self) -> list[Recipe]:
        """How kept pictures are made and lie together: those of a block, as the block's job makes them in training."""
        parts = [Part(part.source, self.kept[part.source.key]) for part in self.parts]
        blocks = (parts[at : at + self.together] for at in range(0, len(parts), self.together))
        return [pack_of(block[at.start : at.stop]) for block in blocks for at in pieces(_sizes(block), MOST_BYTES)]


def _sizes(parts: Sequence[Part]) -> list[int]:
    return [math.prod(part.recipe.shape) for part in parts]


def pack_of(parts: Sequence[Part]) -> Recipe:
    """How a pack of some kept pictures is made."""
    return replace(pack_recipe([part.recipe for part in parts]), parts=tuple(parts))


def sample_of(task: Task, most: int) -> Sample:
    """The first images of a task's first epoch.

    Args:
        task: of images; on a catalog that is thrown away, since its first epoch is drawn.
        most: images.

    Raises:
        BadInput: its files lie far away, or no picture smaller than the image can be kept.
    """
    active = task.generation(0)
    plan, name = active.plan, task.spec.name
    assert plan.blocks is not None  # it is of images
    first = np.flatnonzero(plan.epoch == plan.first_epoch)
    rows = first[np.sort(np.unique(plan.video[first], return_index=True)[1])]
    images = len(rows)
    (kind,) = kinds_of([plan])
    if kind.resize is None or kind.draws_its_size:
        raise BadInput(
            f"task {name!r}: nothing smaller than the images can be kept, since its augmentation begins with no "
            "resize to one size; begin with `resize`, as docs/images.md says"
        )
    some = rows[:most].tolist()
    index_of = task.index_of(plan)
    parts: list[Part] = []
    kept: dict[str, Recipe] = {}
    pixels: dict[str, int] = {}
    for row, recipe, source in zip(some, plan.recipes(some), active.sources_of(plan, some), strict=True):
        if not is_local(source.uri):
            raise BadInput(
                f"task {name!r}: {shown(source.uri)} lies far away; mixes are measured of files of this machine"
            )
        how = kind.how(plan, row, ObjectKind.AUG)
        parts.append(Part(source, recipe))
        index = index_of(int(plan.video[row]))
        kept[source.key] = intermediate_recipe(source.key, how, np.zeros(1, np.int32), index)
        pixels[source.key] = index.frame_pixels
    uris = (source.uri for source in active.sources_of(plan, rows[most : MOST_BESIDE * most].tolist()))
    wanted = sum(math.prod(recipe.shape) for recipe in kept.values())
    wanted -= sum(size for _, size in _found(part.source.uri for part in parts))
    beside = tuple(_until(_found(uris), wanted))
    return Sample(name, tuple(parts), kept, plan.blocks.most, images, pixels, beside)


def _found(uris: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The files of this machine that are there, with their bytes."""
    for path in (local_path(uri) for uri in uris if is_local(uri)):
        with suppress(OSError):
            yield path, os.stat(path).st_size


def _until(found: Iterable[tuple[str, int]], wanted: int) -> Iterator[str]:
    """Files until they have so many bytes, or all."""
    for path, size in found:
        if wanted <= 0:
            return
        wanted -= size
        yield path
