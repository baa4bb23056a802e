"""A generation's plan as rows for the catalog: its objects, what is made from what, and who needs which (SAND §5.2).

Clips are the leaves; above them stand, per video, the frames that any of its clips needs (`frames`). Rows are built as
Arrow columns: a million uses are NumPy work.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import GenerationRow, ObjectKind, PlanTables
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.plan import GenerationPlan, content_key
from viewcache.materializer.randomness import permutation

__all__ = [
    "Summary",
    "VideoNeed",
    "decode_cost",
    "frames_keys",
    "ids_of",
    "plan_objects",
    "plan_tables",
    "summarize",
    "video_needs",
]


MOST_COUNTED = 2000
"""Videos whose packets are counted; it takes about half a second."""


@dataclass(frozen=True, slots=True)
class VideoNeed:
    """What one generation needs of one video."""

    video: int
    """Row of ``plan.videos``."""
    frames: NDArray[np.int32]
    """Distinct source frames, sorted."""
    packets: int
    """Fewest packets that a decoder must be fed for them; an estimate if the plan has very many videos."""
    pixels: int
    """Of one frame."""


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


def video_needs(plan: GenerationPlan, index_of: Callable[[int], MediaIndex]) -> list[VideoNeed]:
    """Work out the distinct frames and the packets of every video that the plan uses.

    Reading a packet index is most of the time that planning takes: of many videos the packets of a sample are counted,
    and those of the others estimated from how far apart their frames are.
    """
    order = np.argsort(plan.video, kind="stable")
    bounds = np.searchsorted(plan.video[order], np.arange(len(plan.videos) + 1))
    videos = np.unique(plan.video)
    frames = [np.unique(plan.frames(order[bounds[video] : bounds[video + 1]])) for video in videos.tolist()]
    spans = np.array([int(each[-1] - each[0]) + 1 for each in frames])
    counted = permutation(0, "needs/sample", len(videos))[:MOST_COUNTED]
    exact = np.array([index_of(int(videos[k])).cost(frames[k]).packets for k in counted.tolist()])
    packets = np.ceil(spans * (exact.sum() / spans[counted].sum())).astype(np.int64)
    packets[counted] = exact
    pixels = (plan.videos.height * plan.videos.width)[videos]
    columns = zip(videos.tolist(), frames, packets.tolist(), pixels.tolist(), strict=True)
    return [VideoNeed(*each) for each in columns]


def plan_tables(
    plan: GenerationPlan,
    needs: list[VideoNeed],
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
        needs: from `video_needs`.
        object_ids: (n,) id of each row's clip.
        known: (n,) whether the catalog has that object already.
        frames_ids: id of the frames of each of ``needs``.
        frames_known: whether the catalog has them already.
        task_id: of the plan's task.
        cost: for the estimates.
    """
    fresh = _fresh(object_ids, known)
    parent_of = np.zeros(len(plan.videos), np.int64)
    parent_of[[need.video for need in needs]] = frames_ids
    clip_cost = plan.clip_bytes * cost.make_s_per_byte
    clips = _clip_rows(plan, fresh, object_ids, clip_cost)
    frames = _frames_rows(plan, needs, frames_ids, cost).filter(pa.array(~frames_known))
    count = len(fresh)
    edges = pa.table(
        {
            "parent_id": parent_of[plan.video[fresh]],
            "child_id": object_ids[fresh],
            "op": pa.array(["augment"] * count, pa.string()),
            "cost_s": np.full(count, clip_cost),
        }
    )
    read = np.flatnonzero(plan.iteration < plan.iterations)  # what drop_last leaves out is in no batch
    uses = pa.table(
        {
            "task_id": np.full(len(read), task_id),
            "seq": plan.seq[read],
            "epoch": plan.epoch[read].astype(np.int32),
            "iteration": plan.iteration[read].astype(np.int32),
            "position": plan.position[read].astype(np.int32),
            "sample": plan.sample[read].astype(np.int32),
            "object_id": object_ids[read],
        }
    )
    decode_s = sum(decode_cost(need, cost) for need in needs) + clip_cost * count
    generation = GenerationRow(
        task_id=task_id,
        number=plan.number,
        first_epoch=plan.first_epoch,
        last_epoch=plan.last_epoch,
        bytes=plan.clip_bytes * len(np.unique(object_ids)),
        decode_s=decode_s,
        group_epoch=plan.first_epoch + plan.context.joined,
        grid=plan.context.grid,
    )
    objects = pa.concat_tables([frames, clips])
    return PlanTables(generation, objects, edges, uses)


def ids_of(catalog: Catalog, keys: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each key's object id, a new one where the catalog does not know the object, and whether it knows it.

    Of what was only adopted from the store the catalog knows the id, and is to be told the rest.
    """
    unique, inverse = np.unique(keys, return_inverse=True)
    text = unique.tobytes().hex()
    known = np.ones(len(unique), bool)
    found = catalog.objects_by_key([text[k : k + 32] for k in range(0, len(text), 32)])
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
        rows: what was replaced.
        object_ids: of all its rows.
        known: (len(rows),) whether the catalog has those objects already.
        cost: for the estimates.
    """
    fresh = rows[_fresh(object_ids[rows], known)]
    return _clip_rows(plan, fresh, object_ids, plan.clip_bytes * cost.make_s_per_byte)


def _fresh(object_ids: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first row of each object that is new."""
    first = np.unique(object_ids, return_index=True)[1]
    return np.sort(first[~known[first]])


def _clip_rows(plan: GenerationPlan, rows: NDArray[np.int64], ids: NDArray[np.int64], cost_s: float) -> pa.Table:
    sampling = plan.task.sampling
    last = plan.start[rows] + (sampling.frames_per_video - 1) * sampling.frame_stride
    regular = last < plan.videos.frames[plan.video[rows]]
    lists: list[list[int] | None] = [None] * len(rows)
    for k in np.flatnonzero(~regular).tolist():
        lists[k] = plan.frames(rows[k : k + 1])[0].tolist()

    def unless_listed(values: NDArray[np.int64]) -> pa.Array:
        return pa.array(values.astype(np.int32), mask=~regular)

    count = len(rows)
    hex_keys = plan.hex_keys
    return pa.table(
        {
            "object_id": ids[rows],
            "key": pa.array([hex_keys[row] for row in rows.tolist()], pa.string()),
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


def frames_keys(plan: GenerationPlan, needs: list[VideoNeed]) -> list[str]:
    """Content keys of the frames that a generation needs of each video."""
    keys = plan.videos.keys
    return [content_key("frames", bytes.fromhex(keys[need.video]), need.frames.tobytes()) for need in needs]


def _frames_rows(plan: GenerationPlan, needs: list[VideoNeed], ids: NDArray[np.int64], cost: CostModel) -> pa.Table:
    videos, count = plan.videos, len(needs)
    nothing = pa.nulls(count, pa.int32())
    return pa.table(
        {
            "object_id": ids,
            "key": frames_keys(plan, needs),
            "kind": pa.array([ObjectKind.FRAMES.value] * count, pa.string()),
            "video_id": videos.ids[[need.video for need in needs]],
            "depth": np.zeros(count, np.int32),
            # Native planes at 4:2:0: one and a half bytes a pixel.
            "est_bytes": np.array([len(need.frames) * need.pixels * 3 // 2 for need in needs], np.int64),
            "cost_s": np.array([decode_cost(need, cost) for need in needs]),
            "keep": np.zeros(count, bool),
            "shape": [f"{len(n.frames)}x3x{videos.height[n.video]}x{videos.width[n.video]}" for n in needs],
            "frame_start": nothing,
            "frame_stride": nothing,
            "frame_count": nothing,
            "frame_list": pa.array([need.frames for need in needs], pa.list_(pa.int32())),
        },
        schema=schemas.OBJECT,
    )


def decode_cost(need: VideoNeed, cost: CostModel) -> float:
    """Estimated core seconds to decode and convert what is needed of a video."""
    return _seconds(need.packets * need.pixels, len(need.frames) * need.pixels, cost)


def _seconds(decoded: int, converted: int, cost: CostModel) -> float:
    """Of so many pixels in the packets that are fed, and in the frames that are wanted."""
    return decoded * cost.decode_s_per_pixel + converted * cost.convert_s_per_pixel


def summarize(
    plan: GenerationPlan, needs: list[VideoNeed], index_of: Callable[[int], MediaIndex], cost: CostModel
) -> Summary:
    """Say what a generation is and costs, with decoding on demand beside it."""
    first = np.unique(plan.keys, return_index=True)[1]
    alone, alone_s = 0, 0.0
    for row in range(len(plan)):
        frames = np.unique(plan.frames(np.array([row])))
        index = index_of(int(plan.video[row]))
        packets, pixels = index.cost(frames)
        alone += packets
        alone_s += _seconds(pixels, len(frames) * index.frame_pixels, cost)
    making = plan.clip_bytes * cost.make_s_per_byte
    return Summary(
        clips=len(first),
        uses=len(plan),
        clip_bytes=plan.clip_bytes * len(first),
        videos=len(needs),
        frames=sum(len(need.frames) for need in needs),
        frame_uses=len(plan) * plan.task.sampling.frames_per_video,
        packets=sum(need.packets for need in needs),
        packets_on_demand=alone,
        decode_s=sum(decode_cost(need, cost) for need in needs) + making * len(first),
        decode_on_demand_s=alone_s + making * len(plan),
    )
