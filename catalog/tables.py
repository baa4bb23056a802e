"""The declared schema: physical tables in the singular; people query the plural views of ``sql/views``.

Migrations build databases and a test compares them with this module. On DuckDB a key or index on a big table doubles
its load time and has corrupted updates, so big tables carry none there: their order of
insertion is their index (zone maps), and the indexes of ``POSTGRESQL_INDEXES`` exist on PostgreSQL only.
Every instant is a double: seconds since 1970-01-01 UTC. That type is bit-identical on both databases, whereas
timestamptz comes back in the session's time zone on one and in the process's on the other.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

__all__ = ["POSTGRESQL_INDEXES", "metadata"]

metadata = MetaData()


def _need(name: str, kind: type[TypeEngine[Any]] = BigInteger) -> Column[Any]:
    return Column(name, kind, nullable=False, autoincrement=False)


def _may(name: str, kind: type[TypeEngine[Any]] = BigInteger) -> Column[Any]:
    return Column(name, kind, nullable=True, autoincrement=False)


def _key(*columns: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint(*columns)


Table("counter", metadata, _need("name", Text), _need("next_id"), _key("name"))
Table("setting", metadata, _need("name", Text), _need("value", Text), _key("name"))
Table("tier", metadata, _need("tier", Text), _need("url", Text), _need("budget_bytes"), _key("tier"))

Table(
    "dataset",
    metadata,
    _need("dataset_id"),
    _need("uri", Text),
    _may("scanned_at", Double),
    _key("dataset_id"),
)
Table(
    "video",
    metadata,
    _need("video_id"),
    _need("dataset_id"),
    _need("name", Text),
    _need("uri", Text),
    _may("size_bytes"),
    _may("mtime_ns"),
    _may("etag", Text),
    _need("key", Text),
    _may("frames"),
    _may("fps", Double),
    _may("duration_s", Double),
    _may("width", Integer),
    _may("height", Integer),
    _may("rotation", Integer),
    _may("codec", Text),
    _may("pix_fmt", Text),
    _may("color_space", Text),
    _may("color_range", Text),
    _may("keyframes", Integer),
    _may("gop_max", Integer),
    _need("status", Text),
    _may("error_kind", Text),
    _may("error", Text),
    _may("label", Text),
    _may("index_at"),
    _may("time_first"),
    _may("time_step"),
    _may("time_numerator"),
    _may("time_denominator"),
    _key("video_id"),
)
Table(
    "video_column",
    metadata,
    _need("video_id"),
    _need("name", Text),
    _may("text_value", Text),
    _may("number_value", Double),
)

Table(
    "item",
    metadata,
    _need("item_id"),
    _need("dataset_id"),
    _need("video_id"),
    _may("start_s", Double),
    _may("end_s", Double),
    _need("ordinal", Integer),
    _may("label", Text),
)

Table("task_group", metadata, _need("group_id"), _need("dataset_id"), _key("group_id"))
Table(
    "task",
    metadata,
    _need("task_id"),
    _need("name", Text),
    _need("group_id"),
    _need("dataset_id"),
    _need("definition_key", Text),
    _need("definition", Text),
    _need("epochs", Integer),
    _need("videos_per_batch", Integer),
    _need("samples_per_video", Integer),
    _need("frames_per_clip", Integer),
    _need("frame_stride", Integer),
    _need("seed"),
    _need("drop_last", Boolean),
    _key("task_id"),
)
Table(
    "generation",
    metadata,
    _need("generation_id"),
    _need("group_id"),
    _need("task_id"),
    _need("number", Integer),
    _need("first_epoch", Integer),
    _need("last_epoch", Integer),
    _need("objects"),
    _need("bytes"),
    _need("decode_s", Double),
    _need("planned_at", Double),
    _may("group_epoch", Integer),
    _may("grid", Integer),
    _key("generation_id"),
)
Table(
    "object",
    metadata,
    _need("object_id"),
    _need("key", Text),
    _need("kind", Text),
    _may("video_id"),
    _need("generation_id"),
    _need("depth", Integer),
    _need("est_bytes"),
    _need("cost_s", Double),
    _need("keep", Boolean),
    _need("shape", Text),
    _may("frame_start", Integer),
    _may("frame_stride", Integer),
    _may("frame_count", Integer),
    Column("frame_list", ARRAY(Integer), nullable=True),
)
Table(
    "pack_part",
    metadata,
    _need("object_id"),
    _need("place", Integer),
    _need("key", Text),
    _need("video_key", Text),
    _need("first_byte"),
    _key("object_id", "place"),
)
Table("edge", metadata, _need("parent_id"), _need("child_id"), _need("op", Text), _need("cost_s", Double))
Table(
    "object_use",
    metadata,
    _need("task_id"),
    _need("seq"),
    _need("epoch", Integer),
    _need("iteration", Integer),
    _need("position", Integer),
    _need("sample", Integer),
    _need("object_id"),
)
Table("expected_use", metadata, _need("object_id"), _need("refs"), _key("object_id"))
Table("draw", metadata, _need("task_id"), _need("epoch", Integer), _need("position", Integer), _need("video_id"))
Table(
    "epoch_order",
    metadata,
    _need("task_id"),
    _need("epoch", Integer),
    _need("items"),
    _need("version", Text),
    _may("word"),
    _need("digest", Text),
    _key("task_id", "epoch"),
)
Table(
    "version_run",
    metadata,
    _need("version", Text),
    _need("first_place"),
    _need("first_id"),
    _need("items"),
)
Table("settled", metadata, _need("task_id"), _need("epoch", Integer), _need("positions"), _key("task_id", "epoch"))
Table(
    "substitution",
    metadata,
    _need("task_id"),
    _need("epoch", Integer),
    _need("position", Integer),
    _need("sample", Integer),
    _need("video_id"),
    _need("policy", Text),
    _may("replacement_id"),
    _need("reason", Text),
    _need("at_s", Double),
)

Table(
    "object_copy",
    metadata,
    _need("object_id"),
    _need("tier", Text),
    _need("physical", Text),
    _need("bytes"),
    _need("codec", Text),
    _need("chunk_rows", Integer),
    _need("table_blob", LargeBinary),
    _need("crc"),
    _need("created_tick"),
    _need("access_tick"),
    _key("object_id", "tier"),
)
Table(
    "eviction",
    metadata,
    _need("object_id"),
    _need("tier", Text),
    _need("bytes"),
    _need("reason", Text),
    _need("at_s", Double),
    _may("policy", Text),
    _may("detail", Text),
)
Table(
    "policy",
    metadata,
    _need("name", Text),
    _need("source", Text),
    _need("purpose", Text),
    _need("text", Text),
    _need("active", Boolean),
    _may("problem", Text),
    _key("name"),
)
Table(
    "task_progress",
    metadata,
    _need("task_id"),
    _need("rank", Integer),
    _need("part", Integer),
    _need("epoch", Integer),
    _need("iteration", Integer),
    _need("seq"),
    _need("seconds_per_iteration", Double),
    _need("seen_at", Double),
    _key("task_id", "rank", "part"),
)
Table(
    "lease",
    metadata,
    _need("object_id"),
    _need("holder", Text),
    _need("expires_at", Double),
    _key("object_id", "holder"),
)
Table(
    "io_sample",
    metadata,
    _need("op", Text),
    _need("size_bucket", Integer),
    _need("codec", Text),
    _need("tier", Text),
    _need("n"),
    _need("seconds", Double),
    _need("bytes"),
    _need("cpu_s", Double),
    _key("op", "size_bucket", "codec", "tier"),
)
Table(
    "used",
    metadata,
    _need("kind", Text),
    _need("stage", Text),
    _may("cpu_s", Double),
    _may("wall_s", Double),
    _need("joules", Double),
    _need("source", Text),
    _need("since_s", Double),
    _key("kind", "stage"),
)
Table(
    "event",
    metadata,
    _need("event_id"),
    _need("at_s", Double),
    _need("kind", Text),
    _may("task_id"),
    _may("object_id"),
    _need("count"),
    _need("bytes"),
    _need("seconds", Double),
    _need("detail", Text),
)


def _index(name: str, table: str, *columns: str, unique: bool = False) -> Index:
    chosen = [metadata.tables[table].c[column] for column in columns]
    return Index(name, *chosen, unique=unique).ddl_if(dialect="postgresql")


POSTGRESQL_INDEXES = tuple(
    index.name
    for index in (
        _index("dataset_by_uri", "dataset", "uri", unique=True),
        _index("video_by_uri", "video", "dataset_id", "uri", unique=True),
        _index("video_column_by_video", "video_column", "video_id", "name", unique=True),
        _index("item_by_id", "item", "item_id", unique=True),
        _index("item_by_dataset", "item", "dataset_id"),
        _index("task_by_name", "task", "name", unique=True),
        _index("generation_by_number", "generation", "task_id", "number", unique=True),
        _index("object_by_id", "object", "object_id", unique=True),
        _index("object_by_key", "object", "key"),
        _index("object_by_video", "object", "video_id"),
        _index("edge_by_child", "edge", "child_id"),
        _index("edge_by_parent", "edge", "parent_id"),
        _index("use_by_place", "object_use", "task_id", "epoch", "iteration"),
        _index("use_by_object", "object_use", "object_id"),
        _index("draw_by_position", "draw", "task_id", "epoch", "position", unique=True),
        _index("version_run_by_place", "version_run", "version", "first_place", unique=True),
        _index("substitution_by_position", "substitution", "task_id", "epoch", "position"),
        _index("eviction_by_object", "eviction", "object_id"),
        _index("event_by_kind", "event", "kind", "at_s"),
    )
)
"""Names of the indexes that exist on PostgreSQL only; Alembic's comparison must leave them out on DuckDB."""
