"""What each way of keeping a video's clips takes and costs, for all tasks of one generation of a group (SAND §5.3).

A way keeps the clips of some tasks, the small ones first, and for the others nothing, the frames as decoded, or the
frames after their resize, from which those clips are made shortly before they are read. The frames are those of one
generation, or all that clips can ever have: these pay over all epochs to come. Numbers are arrays over videos.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.media.sketch import Sketches
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.devices import SOURCE
from viewcache.materializer.retention.choice import Options
from viewcache.materializer.retention.columns import Block, Columns, Limits, Once
from viewcache.materializer.retention.density import Densities, DensityOf
from viewcache.materializer.retention.horizon import Reach, Reached, generations_later, may_last
from viewcache.materializer.retention.lasting import Lasting
from viewcache.materializer.retention.needs import Floats, VideoRows
from viewcache.materializer.retention.sources import Indexes, sketches_of
from viewcache.materializer.retention.spread import NOWHERE, shuffled
from viewcache.materializer.retention.ways import ClipKind, Kept, ToCome, Way, Where, are_images, kinds_of, ways_of
from viewcache.store.codec import ENCODED
from viewcache.store.tier import LOCAL

__all__ = ["Weighed", "weigh"]

MOST_INDEXES = 2000
"""Videos whose packet indexes are looked at. Of more, key frames are taken to be evenly spaced: reading so many indexes
would take longer than it can save."""

BLOCK = 1024
"""Videos that are looked at together: their frames are some million numbers."""

IMAGES = 1 << 14
"""The same of images."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Options for V videos."""

    options: Options
    ways: tuple[Way, ...]
    """Its columns."""
    kinds: tuple[ClipKind, ...]
    where: Where
    """The videos, in the order in which they are needed."""
    once: Once
    """What making everything takes of each video."""
    lasting: Lasting | None = None
    """What may last behind the generation; None where nothing does."""
    lying: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    """What of it lies in the store, by the content key of the video."""
    again_s: Floats | None = None
    """(V, ways) of the seconds those of one generation like this behind it; None where there is none."""
    plain: int = 0
    """From this column on the ways come once more, with the encoded file kept besides; 0 = they do not."""

    @property
    def videos(self) -> tuple[str, ...]:
        """Content keys of the videos."""
        return self.where.videos


def weigh(
    plans: Sequence[ToCome],
    cost: CostModel,
    *,
    most_bytes: int,
    before: Mapping[str, Sequence[Kept]] = MappingProxyType({}),
    lying: Callable[[Lasting], Mapping[str, Sequence[Kept]]] | None = None,
    part_bytes: int = 0,
    whole_bytes: int = 1 << 62,
    densities: Densities | None = None,
    average: Callable[[tuple[str, ...], tuple[Way, ...], Floats], Floats] = lambda *given: given[-1],
    others: Sequence[Reached] = (),
) -> Weighed:
    """Work out bytes and seconds of every way for every video, over all epochs that its tasks have left.

    Args:
        plans: one generation of each task.
        cost: seconds of each kind of work.
        most_bytes: raw bytes of the largest object that a worker can hold in memory.
        before: intermediates that were chosen before, by the content key of the video.
        lying: tells which of what lasts lies in the store already, in the same way.
        part_bytes: most bytes that are promised to an object of what lasts behind its generation; 0 = nothing does.
        whole_bytes: the same for all of it of one video.
        densities: what packed pictures of each video took; None = of none is anything known.
        average: gives the mean of the seconds that a generation costs, (V, ways), and those before it.
        others: of tasks that are open and have nothing to come of this generation; pictures that last are theirs, too.
    """
    kinds = kinds_of([each.plan for each in plans])
    lasts = part_bytes > 0 and may_last([each.plan for each in plans])
    later = generations_later([each.plan for each in plans]) if lasts else 0.0
    where = Where.of(plans)
    names = where.videos
    of_images = bool(are_images(plans, names).all())
    ways = ways_of(kinds, _codecs(cost, of_images=of_images) if lasts else ())
    of_plans = [*zip(plans, where.places, strict=True)]
    uses = [VideoRows(each, places) for each, places in of_plans]
    fresh = [VideoRows(each.anew(), places) for each, places in of_plans] if later else []
    densities = densities or Densities()
    density: DensityOf = cache(partial(densities.of, cost.ladder))
    lasting = None
    if lasts:
        mine, theirs = [Reached.by(each.plan) for each in plans], [] if of_images else others
        places = [*where.places, *where.places_of([each.keys for each in theirs])]
        reach = Reach([*mine, *theirs], places, len(names))
        lasting = Lasting(plans, kinds, ways, where, reach, part_bytes, cost.ladder, density)
    there = lying(lasting) if lying is not None and lasting is not None else {}
    by_columns = len(names) > MOST_INDEXES or of_images
    sketched = _sketched(plans, where) if by_columns else None
    together = IMAGES if of_images else BLOCK
    found, once, anew = list[Columns](), list[Once](), list[Columns]()
    for start in range(0, len(names), together):
        block = names[start : start + together]
        end = start + len(block)
        sources = sketched[start:end] if sketched else _indexes(plans, map(where.first, range(start, end)))
        rows_of = [[uses[k].rows(start, end) for k in kind.plans] for kind in kinds]
        reached = None if lasting is None else lasting.reach.counts[start:end]
        limits = Limits(most_bytes, part_bytes, whole_bytes, density, densities.known(block))
        weighing = Block(kinds, rows_of, sources, cost, limits, reached)
        columns = weighing.columns(ways, [(*before.get(name, ()), *there.get(name, ())) for name in block])
        once.append(weighing.once)
        if later:
            again = [[fresh[k].rows(start, end) for k in kind.plans] for kind in kinds]
            anew.append(Block(kinds, again, sources, cost, limits, reached).columns(ways))
        found.append(columns)
    size, cost_s, work_s, source_bytes, kept_bytes = _joined(found)
    again_s = None
    if anew:
        behind = _joined(anew)
        # Of an image all epochs need the same, so each generation costs what the others do.
        again_s = behind.cost_s if of_images else average(names, ways, behind.cost_s)
        cost_s += later * again_s
        work_s += later * behind.work_s
        source_bytes += later * behind.source_bytes
        kept_bytes += later * behind.kept_bytes
    if SOURCE in cost.devices.bytes_per_s:  # what a network takes is in core seconds, see `near`
        far = [each.far or (lambda _: None) for each in plans]
        on_disk = [far[number](row) is None for number, row in map(where.first, range(len(names)))]
        source_bytes *= np.array(on_disk, np.float64)[:, None]
    device_s = cost.devices.seconds({SOURCE: source_bytes, LOCAL: kept_bytes})
    leaf, nothing = ways.index(Way(len(kinds), None)), ways.index(Way(0, None))
    taken = size, cost_s, work_s
    options = Options(*taken, leaf, nothing, device_s, ties=shuffled(names), batches=_batches(plans, where))
    whole = Once(*(np.concatenate([getattr(each, name) for each in once]) for name in Once.__slots__))
    return Weighed(options, ways, kinds, where, whole, lasting, there, again_s)


def _joined(parts: list[Columns]) -> Columns:
    """Columns of all videos; the parts are given up one field after the other, so that nothing is held twice."""
    fields = [*map(list, zip(*parts, strict=True))]
    parts.clear()
    return Columns(*(np.concatenate(fields.pop(0)) for _ in Columns._fields))


def _codecs(cost: CostModel, *, of_images: bool) -> list[str]:
    """In which pictures may last; those that pack several of one video are none for images."""
    return [codec for codec in cost.ladder.offered if not (of_images and codec in ENCODED)]


def _batches(plans: Sequence[ToCome], where: Where) -> NDArray[np.int32]:
    """(epochs, V) the batch of each video in each epoch of each plan that is still to be read; see `spread`."""
    found = [np.zeros((0, len(where.videos)), np.int32)]
    for each, of_video in zip(plans, where.places, strict=True):
        plan, rows = each.plan, np.flatnonzero(each.rows)
        epochs = np.full((plan.context.epochs, len(where.videos)), NOWHERE, np.int32)
        # Of a video that comes several times in an epoch the first batch counts: later rows are written before.
        rows = rows[::-1]
        epochs[plan.epoch[rows] - plan.first_epoch, of_video[plan.video[rows]]] = plan.iteration[rows]
        found.append(epochs[(epochs != NOWHERE).any(axis=1)])
    return np.concatenate(found)


def _indexes(plans: Sequence[ToCome], places: Iterable[tuple[int, int]]) -> Indexes:
    """Videos by (number of the plan, row of its videos)."""
    return Indexes([plans[number].index_of(row) for number, row in places])


def _sketched(plans: Sequence[ToCome], where: Where) -> Sketches:
    parts = [sketches_of(each.plan, where.row[where.plan == k]) for k, each in enumerate(plans)]
    order = np.argsort(np.argsort(where.plan, kind="stable"))  # the parts stand one behind the other
    names = [each.name for each in fields(Sketches)]
    columns = ([getattr(part, name) for part in parts] for name in names)
    return Sketches(*(np.concatenate(column)[order] for column in columns))
