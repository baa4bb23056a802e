"""What the catalog remembers of a task's order: draws, how far they are settled, and what stood in for bad videos.

Functions between the catalog's rows and the arrays of a plan; what is new is recorded before anybody may read it.
"""

from collections.abc import Callable, Container, Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import SubstitutionRow
from viewcache.materializer.dataset.dataset import Dataset
from viewcache.materializer.dataset.stand_ins import substitute_place
from viewcache.materializer.dataset.weights import epoch_length
from viewcache.materializer.planning.digests import computed_orders, draws_by_digest, record_orders
from viewcache.materializer.planning.order import Order, draw_epoch
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.recorded_weights import record_shares
from viewcache.materializer.planning.weighted_order import draw_weighted, shares_of
from viewcache.materializer.spec import TaskSpec

__all__ = [
    "clip_stand_ins",
    "known_substitutions",
    "recorded_order",
    "settled_rows",
    "short_uses",
    "stand_ins",
    "uncovered",
    "with_substitutes",
]


def recorded_order(
    catalog: Catalog,
    dataset: Dataset,
    candidates: Callable[[], NDArray[np.int64]],
    spec: TaskSpec,
    task_id: int,
    seed: int,
    epochs: range,
    *,
    together: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of some epochs as it stands; what is new is recorded now.

    Args:
        catalog: where draws are recorded.
        dataset: of the task.
        candidates: ids of the videos, by name, of which a generation is drawn that has none yet.
        spec: of the task.
        task_id: of the task.
        seed: of the task.
        epochs: of one generation.
        together: whether the order is drawn with others.

    Returns:
        (epochs, videos) ids, and (epochs,) how many positions are settled. What is drawn together with others begins
        as a permutation too, of which nothing is settled; alone, a permutation is the order.
    """
    by_digest = computed_orders(catalog, spec.name, task_id, epochs)
    # An order is recorded either way, and as rows only by an earlier release where it is recorded by digest now.
    rows_end = min(by_digest, default=epochs.stop) - 1
    recorded = catalog.load_draw_rows(task_id, epochs.start, rows_end)
    by_rows = len(np.unique(recorded["epoch"].to_numpy()))
    drawn: NDArray[np.int64] = recorded["video_id"].to_numpy()
    known = list(drawn.reshape(by_rows, -1)) if by_rows else []
    known += [by_digest[epoch] for epoch in sorted(by_digest)]
    done = len(known)
    # A generation has one set of videos: epochs that are added to it later draw from those that it began with.
    if spec.dataset.weighted is not None:
        length = len(known[0]) if done else None
        fresh = _weighted(catalog, dataset, candidates(), spec, task_id, seed, epochs[done:], length)
    elif draws_by_digest(spec, together=together):
        fresh = []
        if epochs[done:]:
            named = dataset.by_name(known[0]) if done else candidates()
            fresh = record_orders(catalog, spec.name, task_id, seed if spec.shuffle else None, epochs[done:], named)
    else:
        named = dataset.by_name(known[0]) if done else candidates()
        fresh = [
            named[draw_epoch(seed, spec.name, epoch, len(named))] if spec.shuffle else named for epoch in epochs[done:]
        ]
    order = np.stack([*known, *fresh])
    partly = catalog.load_settled(task_id)
    settled = np.array([partly.get(epoch, order.shape[1]) for epoch in epochs[:done]] + [0] * len(fresh), np.int64)
    if not together:
        settled[:] = order.shape[1]
    if fresh and not draws_by_digest(spec, together=together):
        rows = settled_rows(task_id, epochs[done:], settled[done:]) if together else None
        catalog.record_draws(_draw_rows(task_id, epochs, order), rows)
    if not together and any(epoch in partly for epoch in epochs):  # what others had a part in holds as it stands
        nothing = schemas.empty(schemas.DRAW), schemas.empty(schemas.MOVE)
        catalog.settle_draws(*nothing, settled_rows(task_id, epochs, settled))
    return order, settled


def _weighted(
    catalog: Catalog,
    dataset: Dataset,
    named: NDArray[np.int64],
    spec: TaskSpec,
    task_id: int,
    seed: int,
    epochs: range,
    length: int | None,
) -> list[NDArray[np.int64]]:
    """Epochs in which videos come by weight; of one length with those of the generation that are drawn."""
    weights = dataset.weights(named)
    assert weights is not None  # the task has some
    shares = shares_of(weights, epoch_length(weights) if length is None else length)
    strata = dataset.strata(named)
    record_shares(catalog, task_id, epochs, named, shares)
    return [named[draw_weighted(seed, spec.name, epoch, shares, strata)] for epoch in epochs]


def _draw_rows(task_id: int, epochs: range, order: NDArray[np.int64]) -> pa.Table:
    at, position = (axis.reshape(-1).astype(np.int32) for axis in np.indices(order.shape))
    columns = {
        "task_id": np.full(order.size, task_id),
        "epoch": at + np.int32(epochs.start),
        "position": position,
        "video_id": order.reshape(-1),
    }
    return pa.table(columns)


def settled_rows(task_id: int, epochs: range, settled: NDArray[np.int64]) -> pa.Table:
    """How far some epochs are settled, as the catalog records it."""
    columns = {"task_id": np.full(len(epochs), task_id), "epoch": np.array(epochs, np.int32), "positions": settled}
    return pa.table(columns)


def known_substitutions(
    catalog: Catalog, task_id: int, epochs: range, settled: NDArray[np.int64]
) -> list[SubstitutionRow]:
    """What is recorded of places that are settled, oldest first: a later one replaces an earlier."""
    rows = catalog.query("read_substitutions", task_id=task_id).to_pylist()
    known = [SubstitutionRow(**row) for row in rows if row["epoch"] in epochs]
    certain = [row for row in known if row.position < settled[row.epoch - epochs.start]]
    return sorted(certain, key=lambda row: row.at_s)


def stand_ins(known: Iterable[SubstitutionRow]) -> dict[tuple[int, int], int]:
    """(epoch, position) → the video that stands there by record, instead of the drawn one; the last record holds."""
    whole = [each for each in known if each.policy == "replace" and each.sample < 0]
    return {(each.epoch, each.position): each.replacement_id for each in whole if each.replacement_id is not None}


def clip_stand_ins(
    known: Iterable[SubstitutionRow],
    drawn: Callable[[tuple[int, int, int]], int | None],
    dataset: Dataset,
    spec: TaskSpec,
    seed: int,
    task_id: int,
    among: NDArray[np.int64],
    *,
    by_video: bool,
) -> tuple[dict[tuple[int, int, int], int], list[SubstitutionRow]]:
    """Which videos stand in for single clips by record; where such a video is gone, another one is chosen now.

    Args:
        known: what is recorded, oldest first.
        drawn: (epoch, position, sample) → the drawn video; None for clips that are not asked for.
        dataset: of the task.
        spec: of the task.
        seed: of the task.
        task_id: of the task.
        among: ids of the videos that may stand in.
        by_video: positions may still change.

    Returns:
        (epoch, position, sample) → the video that gives the clip, and a record of each new choice.
    """
    last: dict[tuple[int, int, int], SubstitutionRow] = {}
    tried: dict[tuple[int, int, int], set[int]] = {}
    for each in known:
        clip = each.epoch, each.position, each.sample
        if each.sample >= 0 and each.replacement_id is not None and drawn(clip) is not None:
            last[clip] = each
            tried.setdefault(clip, set()).update((each.video_id, each.replacement_id))
    found, records = {}, []
    may = dataset.may_stand_in(among, spec.sampling.span) if last else np.zeros(0, bool)
    there = set(dataset.base[may].tolist())
    for clip, each in last.items():
        (epoch, position, sample), video_id, usual = clip, drawn(clip), each.replacement_id
        assert video_id is not None  # by the choice above
        assert usual is not None
        stays = usual in there or dataset.is_past(usual)
        if not stays or not dataset.gives(usual, spec.sampling.span):
            place = substitute_place(position, video_id, by_video=by_video)
            other = dataset.stand_in(spec, seed, epoch, place, may, tried[clip] | {video_id})
            if other is None:
                continue  # the clip is tried as it was drawn, and its reader gets what comes of it
            gone = f"{dataset.spec.media} {usual}, which stood in before, is bad or gone"
            records.append(SubstitutionRow(task_id, epoch, position, sample, each.video_id, "replace", gone, other))
            usual = other
        found[clip] = usual
    return found, records


def uncovered(
    whole: Iterable[SubstitutionRow], of_clips: Container[tuple[int, int, int]], samples: int
) -> list[SubstitutionRow]:
    """Records of whole videos, but for stand-ins of which nothing is read: each clip there has one of its own."""

    def has_clips(row: SubstitutionRow) -> bool:
        return not all((row.epoch, row.position, sample) in of_clips for sample in range(samples))

    return [row for row in whole if row.policy != "replace" or has_clips(row)]


def with_substitutes(
    plan: GenerationPlan,
    known: Iterable[SubstitutionRow],
    whole: Iterable[SubstitutionRow],
    order: Order,
    dataset: Dataset,
    seed: int,
    task_id: int,
    *,
    by_video: bool,
) -> tuple[GenerationPlan, list[SubstitutionRow]]:
    """Replace again the clips that earlier runs had to replace; where such a stand-in is gone, choose another now.

    Args:
        plan: of a generation, in which no clip has a stand-in of its own.
        known: what is recorded, oldest first.
        whole: what was chosen for whole videos to make the plan.
        order: of the generation.
        dataset: of the task.
        seed: of the task.
        task_id: of the task.
        by_video: positions may still change.

    Returns:
        The plan, and a record of each new choice, ``whole`` included.
    """
    samples = plan.task.sampling.samples_per_video

    def drawn(clip: tuple[int, int, int]) -> int | None:
        return int(order.ids[plan.row(*clip) // samples]) if clip[1] < order.positions else None

    task = plan.task
    found, records = clip_stand_ins(known, drawn, dataset, task, seed, task_id, plan.items.ids, by_video=by_video)
    records = [*uncovered(whole, found, samples), *records]
    if not found:
        return plan, records
    rows = np.array([plan.row(*clip) for clip in found])
    return plan.substituted(rows, np.array([plan.items.row_of[each] for each in found.values()])), records


def short_uses(plan: GenerationPlan, task_id: int) -> list[SubstitutionRow]:
    """A row for each time a short video is clamped or looped."""
    sampling = plan.task.sampling
    span = sampling.span
    lengths = plan.items.length
    short = np.flatnonzero((lengths[plan.item] < span) & (plan.sample == 0))
    return [
        SubstitutionRow(
            task_id=task_id,
            epoch=int(plan.epoch[row]),
            position=int(plan.position[row]),
            sample=-1,
            video_id=int(plan.items.ids[plan.item[row]]),
            policy=str(plan.task.dataset.on_short_video),
            reason=f"{sampling.in_words(int(lengths[plan.item[row]]))}, a clip spans {sampling.in_words(span)}",
        )
        for row in short.tolist()
    ]
