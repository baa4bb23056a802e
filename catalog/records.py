"""The values that go through the catalog's door, one frozen class per relation; ``schemas`` has the bulk forms.

A value here mirrors one table row. Ids of 0 mean "not given out yet": the catalog fills them in. Every instant is a
float, seconds since 1970-01-01 UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from viewcache.catalog.kinds import ObjectKind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CLEAN",
    "WENT_WHILE_OPEN",
    "CopyRow",
    "EventRow",
    "GenerationRow",
    "IoSampleRow",
    "ObjectRow",
    "PlanTables",
    "ProgressRow",
    "SubstitutionRow",
    "TaskRow",
    "TierRow",
    "UsageRow",
    "VideoColumnRow",
    "VideoRow",
    "VideoStatus",
]

CLEAN = "clean_end"
"""Setting, and file in the store's folder: the same while rows and files are known to agree, see `ends.Ends`."""

_Blob = bytes
"""The type under a name that the field ``bytes`` does not hide."""


class VideoStatus(StrEnum):
    """Whether a source file can be used."""

    LISTED = "listed"
    """It is there; nobody has looked into it."""
    OK = "ok"
    BAD = "bad"
    """It cannot be decoded, or not all of it."""
    GONE = "gone"
    """It is no longer there."""


WENT_WHILE_OPEN = "the file went, or became another one, while the cache was open"
"""The error of a `GONE` video of which the next opening tells, and decides what it is."""


@dataclass(frozen=True, slots=True)
class VideoRow:
    """One source file of a dataset; ``(dataset, uri)`` is its identity, so its id survives a change of content."""

    uri: str
    """As the scan found it: an absolute path or an fsspec URL without credentials."""
    name: str
    """Unique within the dataset; the video's name in ``view://`` paths."""
    key: str
    """32 hex characters: hash of uri and etag, or of uri, size and mtime. A changed file has another key."""
    size_bytes: int | None = None
    mtime_ns: int | None = None
    """Nanoseconds since the epoch; None for remote files with an etag."""
    etag: str | None = None
    frames: int | None = None
    """Frames in presentation order; None when the file could not be indexed."""
    fps: float | None = None
    """Average frames per second."""
    duration_s: float | None = None
    width: int | None = None
    """Pixels as coded, before rotation."""
    height: int | None = None
    """Pixels as coded, before rotation."""
    rotation: int | None = None
    """Degrees clockwise that a player turns the picture: 0, 90, 180 or 270."""
    codec: str | None = None
    pix_fmt: str | None = None
    color_space: str | None = None
    color_range: str | None = None
    keyframes: int | None = None
    """How many frames can be decoded without another."""
    gop_max: int | None = None
    """Most frames from one keyframe to the next."""
    index_at: int | None = None
    """Where its packet index lies, for ``Catalog.read_index``; None if it was not indexed yet."""
    time_first: int | None = None
    """Presentation time of the first frame, in units of ``time_numerator / time_denominator`` seconds."""
    time_step: int | None = None
    """Units from each frame to the next; None if that differs."""
    time_numerator: int | None = None
    time_denominator: int | None = None
    status: VideoStatus = VideoStatus.OK
    error_kind: str | None = None
    """The ``kind`` of an error class, when bad."""
    error: str | None = None
    label: str | None = None
    video_id: int = 0


@dataclass(frozen=True, slots=True)
class VideoColumnRow:
    """One further column of the labels table for one item; text always, number too when it reads as one."""

    video_id: int
    """Of a whole video; of a segment its ``item_id``."""
    name: str
    text_value: str | None = None
    number_value: float | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One training job's description, as far as SQL needs it."""

    name: str
    dataset_id: int
    definition_key: str
    """Hash of everything that decides which bytes a path means; the same name with another key is another task."""
    definition: str
    """Canonical text of the same, for people."""
    epochs: int
    videos_per_batch: int
    samples_per_video: int
    frames_per_clip: int
    frame_stride: int
    """0 for clips that are sampled by time."""
    """In frames of the source."""
    seed: int
    drop_last: bool = False
    task_id: int = 0
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """Consecutive epochs of one task that are planned at once, or begun: nothing of them is made before that."""

    task_id: int
    number: int
    """0-based."""
    first_epoch: int
    last_epoch: int
    """Inclusive."""
    bytes: int = 0
    """Estimated bytes of the kept objects."""
    decode_s: float = 0.0
    """Estimated CPU seconds to make everything once."""
    objects: int = 0
    """Objects that this generation was the first to name; filled in by ``record_plan``."""
    planned_at: float = 0.0
    """Filled in by ``record_plan``."""
    group_epoch: int | None = None
    """Epoch of the group that ``first_epoch`` is planned with; None in catalogs of before there were groups."""
    grid: int | None = None
    """Frames between the possible clip starts of one phase: the gcd of the group's strides; None likewise."""
    generation_id: int = 0
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """One planned object, as a row of ``schemas.OBJECT``; plans of many clips build its columns instead."""

    object_id: int
    key: str
    """Content key, 32 hex characters."""
    kind: ObjectKind
    video_id: int | None
    depth: int
    """Augmentation steps done; 0 = decoded."""
    est_bytes: int
    """Raw bytes."""
    cost_s: float
    """CPU seconds to make it from what it is made of."""
    keep: bool
    """Whether the plan stores it."""
    shape: str
    """As ``32x3x224x224``."""
    frame_start: int | None = None
    """Its source frames are start + i·stride for i < count, or ``frame_list``; the others are None."""
    frame_stride: int | None = None
    frame_count: int | None = None
    frame_list: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class PlanTables:
    """One generation's plan in bulk."""

    generation: GenerationRow
    objects: "pa.Table"
    """``schemas.OBJECT``; only objects that are new to the catalog, ids from ``next_object_id``."""
    edges: "pa.Table"
    """``schemas.EDGE``; parents may be objects of earlier generations."""
    uses: "pa.Table"
    """``schemas.USE``, any order: the catalog stores it by (task_id, seq, position, sample)."""


@dataclass(frozen=True, slots=True)
class CopyRow:
    """Where one object's bytes lie in one tier, and all that a read of them needs."""

    object_id: int
    tier: str
    physical: str
    """Path under the tier's root."""
    bytes: int
    """On disk, metadata included; what the budget counts."""
    codec: str
    """``raw``, ``lz4`` or ``zstd1``; of kept pictures also ``delta-lz4``, ``delta-zstd1`` or ``h264``."""
    chunk_rows: int
    """Rows of axis 0 in one inner chunk."""
    table_blob: _Blob
    """Offsets, sizes and checksums of the chunks, as the store serialized them; opaque here."""
    crc: int
    """crc32c over the chunks' checksums, 0…2³²-1."""
    created_tick: int = 0
    """The owner's logical clock when it was written: any counter that only grows."""
    access_tick: int = 0
    """The same clock at the last read (``touch``)."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """The next iteration that one reader of a task needs; every use before that one is past."""

    task_id: int
    rank: int
    epoch: int
    iteration: int
    seq: int
    """Global iteration number: epoch * iterations per epoch + iteration. Epochs of other lengths can share numbers."""
    seconds_per_iteration: float
    """Of the consumer, smoothed; 0 when not known yet."""
    part: int = 0
    """Of the rank's batches, where several workers share them."""
    seen_at: float = 0.0
    """Seconds since 1970; 0 when not known."""


@dataclass(frozen=True, slots=True)
class SubstitutionRow:
    """One use of a policy for a bad or short video, so that no gap is silent."""

    task_id: int
    epoch: int
    position: int
    """Place in the epoch's order of videos."""
    sample: int
    """Which clip of the video; -1 = all of them."""
    video_id: int
    policy: str
    """``skip``, ``replace``, ``clamp`` or ``loop``."""
    reason: str
    replacement_id: int | None = None
    """The video used instead, when replaced."""
    at_s: float = 0.0
    """0 = now."""


@dataclass(frozen=True, slots=True)
class IoSampleRow:
    """Measured work of one kind; rows of equal (op, size_bucket, codec, tier) are added up."""

    op: str
    """``decode``, ``augment``, ``load``, ``store``, …"""
    size_bucket: int
    """⌊log2(bytes of one object)⌋."""
    codec: str
    tier: str
    n: int
    """How many times."""
    seconds: float
    """In all."""
    bytes: int
    """In all."""
    cpu_s: float = 0.0
    """Of the seconds, those of a core; the rest was waited for."""

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Its kind."""
        return self.op, self.size_bucket, self.codec, self.tier

    def plus(self, later: "IoSampleRow") -> "IoSampleRow":
        """Both together."""
        return replace(
            self,
            n=self.n + later.n,
            seconds=self.seconds + later.seconds,
            bytes=self.bytes + later.bytes,
            cpu_s=self.cpu_s + later.cpu_s,
        )


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What work of one class and stage has cost; rows of equal (kind, stage) are added up."""

    kind: str
    """Whose: ``worker``, ``reader``, ``planner``, ``machine``."""
    stage: str
    """Of its work, or the part of the machine."""
    cpu_s: float | None
    """Core seconds; None where only energy was measured."""
    wall_s: float | None
    """Seconds from begin to end; None where nobody looked at a clock."""
    joules: float
    source: str
    """Where the joules are from: ``estimate`` or ``rapl``."""
    since_s: float
    """When counting began."""

    def plus(self, later: "UsageRow") -> "UsageRow":
        """Both together."""
        cpu_s = None if self.cpu_s is None or later.cpu_s is None else self.cpu_s + later.cpu_s
        wall_s = None if self.wall_s is None or later.wall_s is None else self.wall_s + later.wall_s
        return replace(self, cpu_s=cpu_s, wall_s=wall_s, joules=self.joules + later.joules)


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened; rows of equal kind, task, object, detail and whole second are added up."""

    kind: str
    """``hit``, ``miss``, ``evict``, ``rebuild``, ``error``, ``stall``, …"""
    task_id: int | None = None
    object_id: int | None = None
    """Set for errors of one object (state ``failed``); None for what is counted per task."""
    count: int = 1
    bytes: int = 0
    seconds: float = 0.0
    detail: str = ""
    """For errors: the error's kind and message."""
    at_s: float = 0.0
    """0 = now."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One eviction policy that a cache can use."""

    name: str
    source: str
    """``shipped``, or the file that it was read from."""
    purpose: str
    text: str
    """The SELECT."""
    active: bool
    problem: str | None = None
    """Why it cannot be used, or that it was not tried."""


@dataclass(frozen=True, slots=True)
class TierRow:
    """One place where bytes lie."""

    tier: str
    url: str
    """Without credentials."""
    budget_bytes: int
