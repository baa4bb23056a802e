"""Small values and plans for catalog tests."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import CopyRow, GenerationRow, PlanTables, TaskRow, VideoRow
from viewcache.catalog.snapshot import lock_or_snapshot

SAMPLES = 2
"""Clips of one video in one epoch."""


def video(i: int, **changes: object) -> VideoRow:
    """The i-th video of a dataset."""
    fields: dict[str, object] = {"uri": f"/videos/{i}.mp4", "name": str(i), "key": f"{i:032x}", "frames": 100 + i}
    return VideoRow(**(fields | changes))  # type: ignore[arg-type]


def task(dataset_id: int, name: str = "train", **changes: object) -> TaskRow:
    """A task over a dataset."""
    fields: dict[str, object] = {
        "name": name,
        "dataset_id": dataset_id,
        "definition_key": "k",
        "definition": "text",
        "epochs": 4,
        "videos_per_batch": 2,
        "samples_per_video": SAMPLES,
        "frames_per_clip": 8,
        "frame_stride": 2,
        "seed": 7,
    }
    return TaskRow(**(fields | changes))  # type: ignore[arg-type]


def copy(object_id: int, **changes: object) -> CopyRow:
    """A copy of an object in the local tier."""
    fields: dict[str, object] = {
        "object_id": object_id,
        "tier": "local",
        "physical": f"objects/{object_id}",
        "bytes": 100,
        "codec": "raw",
        "chunk_rows": 1,
        "table_blob": bytes([object_id % 256, 0, 255]),
        "crc": 2**32 - 1,
    }
    return CopyRow(**(fields | changes))  # type: ignore[arg-type]


def registered(catalog: Catalog, videos: int = 4, name: str = "train") -> tuple[TaskRow, list[int]]:
    """A task over a dataset of so many videos, and their ids."""
    dataset = catalog.register_dataset("/videos")
    ids = catalog.upsert_videos(dataset, [video(i) for i in range(videos)])
    return catalog.ensure_task(task(dataset, name)), ids


def plan(catalog: Catalog, row: TaskRow, video_ids: Sequence[int], number: int = 0, epochs: int = 2) -> PlanTables:
    """A plan in which each video has one ``frames`` object, each use its own ``clip`` made from it.

    Two videos are a batch; the order is that of ``video_ids`` in each epoch.
    """
    first = catalog.next_object_id(len(video_ids) * (1 + epochs * SAMPLES))
    objects, edges, uses = [], [], []
    for i, video_id in enumerate(video_ids):
        objects.append(_object(first + i, "frames", video_id, 0, frame_list=[0, 5, 9]))
    clip = first + len(video_ids)
    per_epoch = -(-len(video_ids) // 2)
    for epoch in range(number * epochs, (number + 1) * epochs):
        for position, video_id in enumerate(video_ids):
            for sample in range(SAMPLES):
                objects.append(_object(clip, "clip", video_id, 1, frame_start=sample, frame_stride=2, frame_count=3))
                edges.append({"parent_id": first + position, "child_id": clip, "op": "crop", "cost_s": 0.25})
                iteration = position // 2
                uses.append(
                    {
                        "task_id": row.task_id,
                        "seq": epoch * per_epoch + iteration,
                        "epoch": epoch,
                        "iteration": iteration,
                        "position": position,
                        "sample": sample,
                        "object_id": clip,
                    }
                )
                clip += 1
    generation = GenerationRow(row.task_id, number, number * epochs, (number + 1) * epochs - 1, 1000, 2.5)
    return PlanTables(
        generation,
        pa.Table.from_pylist(objects, schemas.OBJECT),
        pa.Table.from_pylist(edges, schemas.EDGE),
        pa.Table.from_pylist(uses, schemas.USE),
    )


def select(catalog: Catalog, sql: str) -> list[tuple[object, ...]]:
    """What a person's query over the public relations gives now."""
    if catalog.dialect == "postgresql":
        return execute(catalog.where, sql)
    snapshot = catalog.publish_snapshot()
    with duckdb.connect(str(snapshot), read_only=True, config={"threads": "1"}) as connection:
        return connection.execute(sql).fetchall()


def read_snapshot(folder: Path, wait_s: float = 10.0) -> Path:
    """What the owner of a catalog publishes for somebody who asks now."""
    found = lock_or_snapshot(folder, wait_s)
    assert isinstance(found, Path), "nobody owns it"
    return found


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    """Run one statement on PostgreSQL, as its superuser."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def draws(row: TaskRow, epoch: int, video_ids: Sequence[int], first: int = 0) -> pa.Table:
    """An epoch's order from position ``first`` on."""
    return pa.table(
        {
            "task_id": pa.array([row.task_id] * len(video_ids), pa.int64()),
            "epoch": pa.array([epoch] * len(video_ids), pa.int32()),
            "position": pa.array(range(first, first + len(video_ids)), pa.int32()),
            "video_id": pa.array(video_ids, pa.int64()),
        }
    )


def _object(object_id: int, kind: str, video_id: int, depth: int, **frames: object) -> dict[str, object]:
    return {
        "object_id": object_id,
        "key": f"{object_id:032x}",
        "kind": kind,
        "video_id": video_id,
        "depth": depth,
        "est_bytes": 500,
        "cost_s": 0.5,
        "keep": True,
        "shape": "3x3x8x8",
        **frames,
    }
