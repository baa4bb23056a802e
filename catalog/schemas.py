"""The bulk forms of catalog values: Arrow schemas in the column order of their tables.

A million rows cross the door as Arrow, never as row objects; a text column may come dictionary-encoded and is then
decoded on the way in.
"""

import pyarrow as pa

from viewcache.errors import BadInput

__all__ = [
    "COPY",
    "DRAW",
    "EDGE",
    "ITEM",
    "KEEP",
    "MOVE",
    "OBJECT",
    "ORDER",
    "RUN",
    "SETTLED",
    "USE",
    "VIDEO",
    "VIDEO_COLUMN",
    "conform",
    "empty",
]


def _schema(**columns: str) -> pa.Schema:
    types = {
        "bigint": pa.int64(),
        "integer": pa.int32(),
        "double": pa.float64(),
        "text": pa.string(),
        "blob": pa.binary(),
        "boolean": pa.bool_(),
        "integer[]": pa.list_(pa.int32()),
    }
    fields = []
    for name, text in columns.items():
        kind, _, null = text.partition(" ")
        fields.append(pa.field(name, types[kind], nullable=null == "null"))
    return pa.schema(fields)


OBJECT = _schema(
    object_id="bigint",
    key="text",
    kind="text",
    video_id="bigint null",
    depth="integer",
    est_bytes="bigint",
    cost_s="double",
    keep="boolean",
    shape="text",
    frame_start="integer null",
    frame_stride="integer null",
    frame_count="integer null",
    frame_list="integer[] null",
)
"""One planned object. ``key`` 32 hex characters; ``kind`` frames, aug, clip or batch; ``depth`` augmentation steps done
(0 = decoded); ``est_bytes`` raw bytes; ``cost_s`` CPU seconds to make it from its parent; ``keep`` whether the plan
stores it; ``shape`` as ``32x3x224x224``; its source frames are start + i·stride for i < count, or ``frame_list`` when
they are not regular (then the first three are null)."""

EDGE = _schema(parent_id="bigint", child_id="bigint", op="text", cost_s="double")
"""``child_id`` is made from ``parent_id`` by ``op`` in ``cost_s`` CPU seconds."""

EXPECTED = _schema(object_id="bigint", refs="bigint")
"""How often objects are expected to be of use in epochs that are not planned."""

KEEP = _schema(object_id="bigint", keep="boolean")
"""Whether a plan keeps an object."""

PACK_PART = _schema(object_id="bigint", place="integer", key="text", video_key="text", first_byte="bigint")
"""Pack ``object_id`` has at ``place`` the picture ``key`` of the image ``video_key``, from ``first_byte`` on."""

USE = _schema(
    task_id="bigint",
    seq="bigint",
    epoch="integer",
    iteration="integer",
    position="integer",
    sample="integer",
    object_id="bigint",
)
"""Task's batch ``seq`` needs ``object_id`` as clip ``sample`` of the video at ``position`` of the epoch's order."""

FOUND = _schema(
    object_id="bigint",
    key="text",
    kind="text",
    video_key="text",
    depth="integer",
    est_bytes="bigint",
    cost_s="double",
    shape="text",
    frame_list="integer[]",
)
"""What an object in the store tells of itself; its video is known by its content."""

DRAW = _schema(task_id="bigint", epoch="integer", position="integer", video_id="bigint")
"""The item at ``position`` of the order of ``epoch``: ``video_id`` is that of a whole video, or of a segment."""

ORDER = _schema(task_id="bigint", epoch="integer", items="bigint", version="text", word="bigint null", digest="text")
"""The order of an epoch as what it is computed from: the ``items`` of a ``version``, sorted by their keyed words, of
which ``word`` is the part that they have in common, as a signed number; null = they stand in the version's order.
``digest`` is of the ids in the order of the epoch, ``version`` of those in its own: 32 hex characters."""

RUN = _schema(version="text", first_place="bigint", first_id="bigint", items="bigint")
"""At ``first_place`` of a version begin ``items`` items whose ids count up from ``first_id``."""

MOVE = _schema(task_id="bigint", epoch="integer", position="integer", sample="integer", object_id="bigint")
"""A use gets another object: its position got another video, or another video stands in for its clip."""

SETTLED = _schema(task_id="bigint", epoch="integer", positions="bigint")
"""So many positions of the epoch's order are drawn for certain; what lies behind is planned, and may still change."""

COPY = _schema(
    object_id="bigint",
    tier="text",
    physical="text",
    bytes="bigint",
    codec="text",
    chunk_rows="integer",
    table_blob="blob",
    crc="bigint",
    created_tick="bigint",
    access_tick="bigint",
)
"""``records.CopyRow`` in bulk."""

VIDEO = _schema(
    video_id="bigint",
    dataset_id="bigint",
    name="text",
    uri="text",
    size_bytes="bigint null",
    mtime_ns="bigint null",
    etag="text null",
    key="text",
    frames="bigint null",
    fps="double null",
    duration_s="double null",
    width="integer null",
    height="integer null",
    rotation="integer null",
    codec="text null",
    pix_fmt="text null",
    color_space="text null",
    color_range="text null",
    keyframes="integer null",
    gop_max="integer null",
    index_at="bigint null",
    time_first="bigint null",
    time_step="bigint null",
    time_numerator="bigint null",
    time_denominator="bigint null",
    status="text",
    error_kind="text null",
    error="text null",
    label="text null",
)
"""``records.VideoRow`` in bulk, with its dataset."""

ITEM = _schema(
    item_id="bigint",
    dataset_id="bigint",
    video_id="bigint",
    start_s="double null",
    end_s="double null",
    ordinal="integer",
    label="text null",
)
"""A segment of a video, known for ever by its times, null where one is open, and its ordinal among equal ones. A whole
video is an item too, whose id is the video's, and has no row: draws, stand-ins and further columns name items."""
VIDEO_COLUMN = _schema(video_id="bigint", name="text", text_value="text null", number_value="double null")
"""``records.VideoColumnRow`` in bulk."""

FACTS = pa.schema([field for field in VIDEO if field.name not in ("dataset_id", "name", "uri", "label")])
"""What was found of a registered file: of its content, not of its place in the dataset."""


def empty(schema: pa.Schema) -> pa.Table:
    """A table of no rows."""
    return schema.empty_table()


def conform(table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """The same rows with exactly the columns and types of ``schema``.

    Raises:
        BadInput: a column is missing, is not known, cannot be cast, or has a null where none may be.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        raise BadInput(f"{what}: columns missing {missing}, not known {unknown}; they are {schema.names}")
    try:
        cast = table.select(schema.names).cast(pa.schema([field.with_nullable(True) for field in schema]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(f"{what}: {error}; the columns are {schema.names}") from error
    for field in schema:
        if not field.nullable and cast.column(field.name).null_count:
            raise BadInput(f"{what}: column {field.name} has nulls; it must have a value in every row")
    return cast
