"""The first schema.

Revision 0001, after nothing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "counter",
    "dataset",
    "draw",
    "edge",
    "event",
    "eviction",
    "generation",
    "io_sample",
    "lease",
    "object",
    "object_copy",
    "object_use",
    "setting",
    "substitution",
    "task",
    "task_group",
    "task_progress",
    "tier",
    "video",
    "video_column",
)


def upgrade() -> None:
    op.create_table(
        "counter",
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("next_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "dataset",
        sa.Column("dataset_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uri", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("scanned_at", sa.Double(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("dataset_id"),
    )
    op.create_table(
        "draw",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "edge",
        sa.Column("parent_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("child_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("op", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("cost_s", sa.Double(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("event_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("count", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("detail", sa.Text(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "eviction",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tier", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "generation",
        sa.Column("generation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("group_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last_epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("objects", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("decode_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("planned_at", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("generation_id"),
    )
    op.create_table(
        "io_sample",
        sa.Column("op", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("size_bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("codec", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("tier", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("op", "size_bucket", "codec", "tier"),
    )
    op.create_table(
        "lease",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("expires_at", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("object_id", "holder"),
    )
    op.create_table(
        "object",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("generation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("depth", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("est_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cost_s", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("keep", sa.Boolean(), autoincrement=False, nullable=False),
        sa.Column("shape", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("frame_start", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("frame_stride", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("frame_count", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("frame_list", sa.ARRAY(sa.Integer()), nullable=True),
    )
    op.create_table(
        "object_copy",
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tier", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("physical", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("codec", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("chunk_rows", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("table_blob", sa.LargeBinary(), autoincrement=False, nullable=False),
        sa.Column("crc", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("created_tick", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("access_tick", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("object_id", "tier"),
    )
    op.create_table(
        "object_use",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sample", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("object_id", sa.BigInteger(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "setting",
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Text(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "substitution",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sample", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("policy", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("replacement_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("reason", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.Double(), autoincrement=False, nullable=False),
    )
    op.create_table(
        "task",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("group_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("definition_key", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("definition", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("epochs", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("videos_per_batch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("samples_per_video", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("frames_per_clip", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("frame_stride", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("drop_last", sa.Boolean(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_table(
        "task_group",
        sa.Column("group_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("group_id"),
    )
    op.create_table(
        "task_progress",
        sa.Column("task_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("iteration", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seconds_per_iteration", sa.Double(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "rank"),
    )
    op.create_table(
        "tier",
        sa.Column("tier", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("url", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("budget_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("tier"),
    )
    op.create_table(
        "video",
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dataset_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("uri", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("mtime_ns", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("etag", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("key", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("frames", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("fps", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("duration_s", sa.Double(), autoincrement=False, nullable=True),
        sa.Column("width", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("height", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("rotation", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("codec", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("pix_fmt", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("color_space", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("color_range", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("keyframes", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("gop_max", sa.Integer(), autoincrement=False, nullable=True),
        sa.Column("index_blob", sa.LargeBinary(), autoincrement=False, nullable=True),
        sa.Column("status", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("error_kind", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("error", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("label", sa.Text(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("video_id"),
    )
    op.create_table(
        "video_column",
        sa.Column("video_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), autoincrement=False, nullable=False),
        sa.Column("text_value", sa.Text(), autoincrement=False, nullable=True),
        sa.Column("number_value", sa.Double(), autoincrement=False, nullable=True),
    )
    if op.get_bind().dialect.name == "postgresql":
        _create_indexes()


def _create_indexes() -> None:
    op.create_index("dataset_by_uri", "dataset", ["uri"], unique=True)
    op.create_index("draw_by_position", "draw", ["task_id", "epoch", "position"], unique=True)
    op.create_index("edge_by_child", "edge", ["child_id"], unique=False)
    op.create_index("edge_by_parent", "edge", ["parent_id"], unique=False)
    op.create_index("event_by_kind", "event", ["kind", "at_s"], unique=False)
    op.create_index("eviction_by_object", "eviction", ["object_id"], unique=False)
    op.create_index("generation_by_number", "generation", ["task_id", "number"], unique=True)
    op.create_index("object_by_id", "object", ["object_id"], unique=True)
    op.create_index("object_by_key", "object", ["key"], unique=False)
    op.create_index("object_by_video", "object", ["video_id"], unique=False)
    op.create_index("use_by_object", "object_use", ["object_id"], unique=False)
    op.create_index("use_by_seq", "object_use", ["task_id", "seq"], unique=False)
    op.create_index("substitution_by_position", "substitution", ["task_id", "epoch", "position"], unique=False)
    op.create_index("task_by_name", "task", ["name"], unique=True)
    op.create_index("video_by_uri", "video", ["dataset_id", "uri"], unique=True)
    op.create_index("video_column_by_video", "video_column", ["video_id", "name"], unique=True)


def downgrade() -> None:
    for table in TABLES:
        op.drop_table(table)
