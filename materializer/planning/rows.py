"""A generation's plan as rows for the catalog: its objects, what is made from what, and who needs which (SAND §5.2).

Clips are the leaves; above them stand, per video, the frames that any of its clips needs (`frames`). Rows are built as
Arrow columns: a million uses are NumPy work.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import GenerationRow, PlanTables
from viewcache.materializer.arrays import distinct
from viewcache.materializer.keys import as_text
from viewcache.materializer.media.media_index import DecodeCost, MediaIndex
from viewcache.materializer.planning.audio import audio_cost_s, stored_shape
from viewcache.materializer.planning.blocks import Blocks
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.needs import FrameNeeds
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.randomness import permutation

__all__ = [
    "Summary",
    "audio_sample",
    "ids_of",
    "plan_objects",
    "plan_tables",
    "summarize",
    "twin_tables",
]


MOST_COUNTED = 10_000
"""Clips of which it is counted what each takes alone; it takes about half a second."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A generation in numbers, before anything runs."""

    clips: int
    """Distinct clips."""
    uses: int
    clip_bytes: int
    """Raw bytes of all distinct clips."""
    videos: int
    frames: int
    """Distinct source frames."""
    frame_uses: int
    """Frames over all clips: what decoding on demand would ask for."""
    packets: int
    """Packets to decode when each video is decoded once."""
    packets_on_demand: int
    """Packets to decode when each clip is decoded alone."""
    decode_s: float
    """Estimated core seconds to make everything once."""
    decode_on_demand_s: float
    """Estimated core seconds to make every clip alone."""
    counted: int
    """Clips that were looked at one by one; what is said of all clips alone is scaled up from these."""


def plan_tables(
    plan: GenerationPlan,
    needs: FrameNeeds,
    frames_keys: NDArray[np.void],
    object_ids: NDArray[np.int64],
    known: NDArray[np.bool_],
    frames_ids: NDArray[np.int64],
    frames_known: NDArray[np.bool_],
    *,
    task_id: int,
    cost: CostModel,
) -> PlanTables:
    """Build the rows.

    Args:
        plan: the generation.
        needs: from `frame_needs`.
        frames_keys: (videos,) content keys of the frames of each of ``needs``.
        object_ids: id of each row's object, see `GenerationPlan.object_rows`.
        known: whether the catalog has each of them already.
        frames_ids: id of the frames of each of ``needs``.
        frames_known: whether the catalog has them already.
        task_id: of the plan's task.
        cost: for the estimates.
    """
    clips = len(plan)
    fresh = _fresh(object_ids[:clips], known[:clips])
    parent_of = np.zeros(len(plan.videos), np.int64)
    parent_of[needs.video] = frames_ids
    clip_cost = plan.clip_bytes * cost.make_s_per_byte
    made = _clip_rows(plan, fresh, object_ids, clip_cost)
    audio = _audio_rows(plan, _fresh(object_ids[clips:], known[clips:]), object_ids)
    frames = _frames_rows(plan, needs, frames_keys, frames_ids, cost).filter(pa.array(~frames_known))
    new = fresh
    if plan.blocks is not None:  # each image of a block once
        new = np.flatnonzero(np.isin(object_ids[:clips], object_ids[fresh]))
        new = new[np.unique(np.stack([plan.video[new], object_ids[new]]), axis=1, return_index=True)[1]]
    edges = pa.table(
        {
            "parent_id": parent_of[plan.video[new]],
            "child_id": object_ids[new],
            "op": pa.array(["augment"] * len(new), pa.string()),
            "cost_s": np.full(len(new), clip_cost),
        }
    )
    decode_s = float(needs.decode_s(cost).sum()) + clip_cost * len(new)
    generation = _generation_row(plan, object_ids, task_id, decode_s)
    objects = pa.concat_tables([frames, made, audio])
    return PlanTables(generation, objects, edges, _use_rows(plan, object_ids, task_id))


def twin_tables(plan: GenerationPlan, object_ids: NDArray[np.int64], *, task_id: int) -> PlanTables:
    """The rows of a plan whose objects the catalog has from another plan: who needs them, and nothing else.

    Args:
        plan: the generation.
        object_ids: id of each row's object, see `GenerationPlan.object_rows`.
        task_id: of the plan's task.
    """
    generation = _generation_row(plan, object_ids, task_id, 0.0)  # what the other plan takes makes this one's, too
    nothing = schemas.empty(schemas.OBJECT), schemas.empty(schemas.EDGE)
    return PlanTables(generation, *nothing, _use_rows(plan, object_ids, task_id))


def _generation_row(
    plan: GenerationPlan, object_ids: NDArray[np.int64], task_id: int, decode_s: float
) -> GenerationRow:
    return GenerationRow(
        task_id=task_id,
        number=plan.number,
        first_epoch=plan.first_epoch,
        last_epoch=plan.last_epoch,
        bytes=_clips_bytes(plan, object_ids) + _audio_bytes(plan, object_ids),
        decode_s=decode_s,
        group_epoch=plan.first_epoch + plan.context.joined,
        grid=plan.context.grid,
    )


def _clips_bytes(plan: GenerationPlan, object_ids: NDArray[np.int64]) -> int:
    clips = len(plan) if plan.blocks is not None else len(distinct(object_ids[: len(plan)]))
    return plan.clip_bytes * clips


def _audio_bytes(plan: GenerationPlan, object_ids: NDArray[np.int64]) -> int:
    if plan.audio is None:
        return 0
    return math.prod(stored_shape(plan.audio)) * len(distinct(object_ids[len(plan) :]))


def audio_sample(sample: NDArray[np.int32]) -> NDArray[np.int32]:
    """What the catalog has as ``sample`` where the use is of the audio of such a sample's clip: -1 - sample."""
    return -1 - sample


def _use_rows(plan: GenerationPlan, object_ids: NDArray[np.int64], task_id: int) -> pa.Table:
    read = np.flatnonzero(plan.iteration < plan.iterations)  # what drop_last leaves out is in no batch
    sample = plan.sample[read].astype(np.int32)
    columns = {
        "task_id": np.full(len(read), task_id),
        "seq": plan.seq[read],
        "epoch": plan.epoch[read].astype(np.int32),
        "iteration": plan.iteration[read].astype(np.int32),
        "position": plan.position[read].astype(np.int32),
    }
    clips = pa.table(columns | {"sample": sample, "object_id": object_ids[read]})
    if plan.audio is None:
        return clips
    audio = columns | {"sample": audio_sample(sample), "object_id": object_ids[len(plan) + read]}
    return pa.concat_tables([clips, pa.table(audio)])


def ids_of(catalog: Catalog, keys: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each key's object id, a new one where the catalog does not know the object, and whether it knows it.

    Of what was only adopted from the store the catalog knows the id, and is to be told the rest.
    """
    unique, inverse = np.unique(keys, return_inverse=True)
    known = np.ones(len(unique), bool)
    found = catalog.objects_by_key(as_text(unique))
    ids = np.full(len(unique), -1, np.int64)
    if found.num_rows:
        there = np.frombuffer(bytes.fromhex("".join(found["key"].to_pylist())), "V16")
        places = np.searchsorted(unique, there)
        ids[places] = found["object_id"].to_numpy()
        known[places] = ~found["adopted"].to_numpy(zero_copy_only=False)
    fresh = np.flatnonzero(ids < 0)
    if len(fresh):
        ids[fresh] = catalog.next_object_id(len(fresh)) + np.arange(len(fresh))
    known[fresh] = False
    return ids[inverse.reshape(-1)], known[inverse.reshape(-1)]


def plan_objects(
    plan: GenerationPlan,
    rows: NDArray[np.int64],
    object_ids: NDArray[np.int64],
    known: NDArray[np.bool_],
    cost: CostModel,
) -> pa.Table:
    """Rows of the clips that the catalog does not know yet, for a plan of which some clips were replaced.

    Args:
        plan: the plan as it is now.
        rows: of the clips that were replaced.
        object_ids: of all its objects.
        known: whether the catalog has those of ``plan.object_rows(rows)`` already.
        cost: for the estimates.
    """
    count = len(rows)
    fresh = rows[_fresh(object_ids[rows], known[:count])]
    clips = _clip_rows(plan, fresh, object_ids, plan.clip_bytes * cost.make_s_per_byte)
    if plan.audio is None:
        return clips
    fresh = rows[_fresh(object_ids[len(plan) + rows], known[count:])]
    return pa.concat_tables([clips, _audio_rows(plan, fresh, object_ids)])


def _fresh(object_ids: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first row of each object that is new."""
    first = np.unique(object_ids, return_index=True)[1]
    return np.sort(first[~known[first]])


def _clip_rows(plan: GenerationPlan, rows: NDArray[np.int64], ids: NDArray[np.int64], cost_s: float) -> pa.Table:
    if plan.blocks is not None:
        return _block_rows(plan, plan.blocks, rows, ids, cost_s)
    sampling = plan.task.sampling
    regular = np.zeros(len(rows), bool)
    if not sampling.by_time:
        items, item = plan.items, plan.item[rows]
        regular = plan.start[rows] + sampling.span <= items.begin[item] + items.frames[item]
    lists: list[NDArray[np.int32] | None] = [None] * len(rows)
    for k, frames in zip(np.flatnonzero(~regular).tolist(), plan.frames(rows[~regular]), strict=True):
        lists[k] = frames

    def unless_listed(values: NDArray[np.int64]) -> pa.Array:
        return pa.array(values.astype(np.int32), mask=~regular)

    count = len(rows)
    return pa.table(
        {
            "object_id": ids[rows],
            "key": as_text(plan.keys[rows]),
            "kind": pa.array([ObjectKind.CLIP.value] * count, pa.string()),
            "video_id": plan.videos.ids[plan.video[rows]],
            "depth": np.full(count, len(plan.context.graph.steps), np.int32),
            "est_bytes": np.full(count, plan.clip_bytes, np.int64),
            "cost_s": np.full(count, cost_s),
            "keep": np.ones(count, bool),  # until the budget says otherwise: see `Keeper`
            "shape": pa.array(["x".join(map(str, plan.shape))] * count, pa.string()),
            "frame_start": unless_listed(plan.start[rows]),
            "frame_stride": unless_listed(np.full(count, sampling.frame_stride)),
            "frame_count": unless_listed(np.full(count, sampling.frames_per_video)),
            "frame_list": pa.array(lists, pa.list_(pa.int32())),
        },
        schema=schemas.OBJECT,
    )


def _block_rows(
    plan: GenerationPlan, blocks: Blocks, rows: NDArray[np.int64], ids: NDArray[np.int64], cost_s: float
) -> pa.Table:
    """Rows of the blocks that begin with some rows; they are of several images, so no video and no frame is named."""
    count, number = len(rows), blocks.number[rows]
    pictures = blocks.first[number + 1] - blocks.first[number]
    first, *rest = plan.shape
    return pa.table(
        {
            "object_id": ids[rows],
            "key": as_text(plan.keys[rows]),
            "kind": pa.array([ObjectKind.BLOCK.value] * count, pa.string()),
            "video_id": pa.nulls(count, pa.int64()),
            "depth": np.full(count, len(plan.context.graph.steps), np.int32),
            "est_bytes": pictures * plan.clip_bytes,
            "cost_s": pictures * cost_s,
            "keep": np.ones(count, bool),
            "shape": pa.array(["x".join(map(str, (each * first, *rest))) for each in pictures.tolist()], pa.string()),
            **_no_frames(count),
        },
        schema=schemas.OBJECT,
    )


def _no_frames(count: int) -> dict[str, pa.Array]:
    """The columns of frames, of objects that name none."""
    nothing = pa.nulls(count, pa.int32())
    numbers = dict.fromkeys(("frame_start", "frame_stride", "frame_count"), nothing)
    return numbers | {"frame_list": pa.nulls(count, pa.list_(pa.int32()))}


def _audio_rows(plan: GenerationPlan, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> pa.Table:
    """Rows of the audio of some clips; ``ids`` are of all objects."""
    audio, count = plan.audio, len(rows)
    if audio is None or not count:
        return schemas.empty(schemas.OBJECT)
    size = math.prod(stored_shape(audio))
    return pa.table(
        {
            "object_id": ids[len(plan) + rows],
            "key": as_text(plan.audio_keys[rows]),
            "kind": pa.array([ObjectKind.AUDIO.value] * count, pa.string()),
            "video_id": plan.videos.ids[plan.video[rows]],
            "depth": np.zeros(count, np.int32),
            "est_bytes": np.full(count, size, np.int64),
            "cost_s": np.full(count, audio_cost_s(audio)),
            "keep": np.ones(count, bool),
            "shape": pa.array(["x".join(map(str, audio.shape))] * count, pa.string()),
            **_no_frames(count),
        },
        schema=schemas.OBJECT,
    )


def _frames_rows(
    plan: GenerationPlan, needs: FrameNeeds, keys: NDArray[np.void], ids: NDArray[np.int64], cost: CostModel
) -> pa.Table:
    videos, count = plan.videos, len(needs)
    nothing = pa.nulls(count, pa.int32())
    sizes = zip(
        needs.counts.tolist(), videos.height[needs.video].tolist(), videos.width[needs.video].tolist(), strict=True
    )
    return pa.table(
        {
            "object_id": ids,
            "key": as_text(keys),
            "kind": pa.array([ObjectKind.FRAMES.value] * count, pa.string()),
            "video_id": videos.ids[needs.video],
            "depth": np.zeros(count, np.int32),
            # Native planes at 4:2:0: one and a half bytes a pixel.
            "est_bytes": needs.counts * needs.pixels * 3 // 2,
            "cost_s": needs.decode_s(cost),
            "keep": np.zeros(count, bool),
            "shape": [f"{frames}x3x{height}x{width}" for frames, height, width in sizes],
            "frame_start": nothing,
            "frame_stride": nothing,
            "frame_count": nothing,
            "frame_list": needs.lists(),
        },
        schema=schemas.OBJECT,
    )


def summarize(
    plan: GenerationPlan, needs: FrameNeeds, index_of: Callable[[int], MediaIndex], cost: CostModel
) -> Summary:
    """Say what a generation is and costs, with decoding on demand beside it."""
    first = np.unique(plan.clip_keys, return_index=True)[1]
    counted = permutation(0, "summary/sample", len(plan))[:MOST_COUNTED]
    alone = [
        (cost_of.packets, cost.decode_s(float(cost_of.pixels), float(count * pixels)))
        for cost_of, count, pixels in _alone(plan, counted, index_of)
    ]
    packets, seconds = (sum(each) for each in zip(*alone, strict=True))
    scale = len(plan) / len(counted)
    making = plan.clip_bytes * cost.make_s_per_byte
    return Summary(
        clips=len(first),
        uses=len(plan),
        clip_bytes=plan.clip_bytes * len(first),
        videos=len(needs),
        frames=len(needs.frames),
        frame_uses=len(plan) * plan.task.sampling.frames_per_video,
        packets=int(needs.packets.sum()),
        packets_on_demand=round(packets * scale),
        decode_s=float(needs.decode_s(cost).sum()) + making * len(first),
        decode_on_demand_s=seconds * scale + making * len(plan),
        counted=len(counted),
    )


def _alone(
    plan: GenerationPlan, rows: NDArray[np.int64], index_of: Callable[[int], MediaIndex]
) -> Iterator[tuple[DecodeCost, int, int]]:
    """Of each clip what its frames take alone, how many these are, and the pixels of one."""
    for video, frames in zip(plan.video[rows].tolist(), plan.frames(rows), strict=True):
        wanted, index = np.unique(frames), index_of(video)
        yield index.cost(wanted), len(wanted), index.frame_pixels
