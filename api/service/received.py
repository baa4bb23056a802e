"""What the service says, as the values that an owner's task gives, and a client's questions of such values."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewcache.api.service import answers, asks
from viewcache.catalog.records import VideoStatus
from viewcache.materializer.dataset.changes import DatasetChange, FileChange
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.reading.values import FrameRequest, VideoInfo
from viewcache.store.client_tiers import Placed, TierRead
from viewcache.store.format import ChunkTable
from viewcache.store.shard_reader import Stored

__all__ = ["array_of", "change_of", "frame_asked", "loads", "placed", "video_info"]


def placed(place: answers.PlaceOf) -> Placed:
    """Where an object lies, as tiers read it."""
    table = ChunkTable.from_bytes(place.table)
    return Placed(place.tier, Stored(place.physical, place.shape, place.chunk_rows, place.codec, table))


def array_of(data: bytes, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array that came as bytes, to be written to."""
    return np.frombuffer(data, kind).reshape(shape).copy()


def change_of(told: answers.ChangeOf) -> DatasetChange:
    """What happened to some of a task's files."""
    return DatasetChange(FileChange(told.change), told.count, told.names, told.from_epoch, told.views, told.first_views)


def frame_asked(request: FrameRequest) -> asks.FrameAsked:
    """How the service is asked for a frame."""
    clip = request.epoch, request.sample, request.output
    return asks.FrameAsked(request.video, request.frame, request.depth, *clip, request.at_s, request.item)


def video_info(facts: answers.VideoFacts) -> VideoInfo:
    """What is known of a video."""
    return VideoInfo(
        video_id=facts.video_id,
        name=facts.name,
        uri=facts.uri,
        extension=facts.extension,
        key=facts.key,
        label=facts.label,
        status=VideoStatus(facts.status),
        error=facts.error,
        stamp=Stamp(facts.size, facts.mtime_ns, facts.etag),
        frames=facts.frames,
        height=facts.height,
        width=facts.width,
        fps=facts.fps,
        duration_s=facts.duration_s,
        codec=facts.codec,
    )


def loads(took: TierRead) -> Iterator[asks.Loaded]:
    """What reading took, by size, as the planner's estimates have it."""
    total = sum(took.sizes) or 1
    for bits in {size.bit_length() - 1 for size in took.sizes}:
        mine = [size for size in took.sizes if size.bit_length() - 1 == bits]
        yield asks.Loaded(took.tier, took.codec, bits, len(mine), sum(mine), took.seconds * sum(mine) / total)
