"""All that is known of a cache at one moment, for people, as frozen values: numbers with units, not words.

The page and ``viewcache top`` are drawn from this value alone, so that where a number comes from is decided once, in
`gather`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from viewcache.api.service.answers import StatsOf

__all__ = [
    "BadVideo",
    "DueBatch",
    "Evicted",
    "Failure",
    "ObjectCount",
    "Overview",
    "Pace",
    "Passed",
    "Place",
    "Sample",
    "Span",
    "TaskState",
    "TierState",
    "Verdict",
    "Wait",
]


class Verdict(StrEnum):
    """Whether a batch will be there when it is due."""

    READY = "ready"
    """All its clips are there: stored, or in the owner's memory for their reader."""
    IN_TIME = "in time"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """One reader of a task."""

    rank: int
    part: int
    """Which of the rank's DataLoader workers; 0 without workers."""
    epoch: int
    """Of the next batch that it needs."""
    iteration: int
    pace_s: float | None
    """Seconds that its consumer takes a batch, smoothed; None while not known."""
    seen_s: float
    """When it read last, seconds since 1970; 0 = not known."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What reads of a task took, for one cause (docs/observing.md)."""

    cause: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task is."""

    task: str
    epochs: int
    generations: int
    """That were planned."""
    epoch: int
    """Of the next batch that its slowest reader needs; ``epochs`` when all are read."""
    iteration: int
    iterations: int | None
    """Batches of that epoch; None while it is not planned, or not there any more."""
    clips_to_come: int
    """Of what is planned and not read yet."""
    ready_to_come: int
    """Of those, how many are stored, or lie in the owner's memory where `counts_memory` says that this is known."""
    hits: int
    """Clips that were there when they were asked for."""
    misses: int
    reading_share: float | None
    """Part of its last minute that a reader of it spent in reads, 0 to 1; None if it was never read."""
    waits: tuple[Wait, ...]
    """Of all its reads so far, the longest first."""
    places: tuple[Place, ...]
    """One for each reader that there ever was."""


@dataclass(frozen=True, slots=True)
class TierState:
    """How full a tier is."""

    tier: str
    url: str
    """Without user, password and query."""
    used_bytes: int
    budget_bytes: int
    copies: int


@dataclass(frozen=True, slots=True)
class Passed:
    """What went from workers to its one reader through memory, and was never stored; of all runs together."""

    made: int
    """Objects that workers put there: clips, the audio of clips, and blocks of images."""
    read: int
    """Objects that readers took from there."""
    bytes: int
    """Of those."""


@dataclass(frozen=True, slots=True)
class ObjectCount:
    """How many objects of a kind are in a state."""

    kind: str
    state: str
    objects: int
    bytes: int
    """That their copies take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast objects are made now: clips, their audio, blocks of images, and pictures that clips are made from."""

    objects_per_s: float | None
    """None if it cannot be told."""
    measured: bool
    """Seen in the last half minute; else estimated from what a clip has cost so far, on all workers."""


@dataclass(frozen=True, slots=True)
class DueBatch:
    """A batch that is needed soon."""

    task: str
    epoch: int
    iteration: int
    ahead: int
    """Batches that are needed before it."""
    clips: int
    ready: int
    """Of those, how many are stored or lie in memory, as of `TaskState`."""
    missing: int
    """Objects that are yet to be made for it: clips, the audio of clips, and blocks of images."""
    drawn: bool
    """Whether its videos are certain; else the epoch's order is not drawn up to here yet."""
    due_s: float | None
    """Seconds until it is needed, at the task's pace; None if nobody reads, or the pace is not known."""
    ready_s: float | None
    """Seconds until all its clips are there, as fast as they are made now; None if that is not known."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Evicted:
    """Copies that left a tier for one reason."""

    tier: str
    reason: str
    """evict (room was needed), rebuild, damaged or missing."""
    policy: str
    detail: str
    """Why, in the policy's words."""
    objects: int
    bytes: int
    last_s: float
    """When the last of them left, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BadVideo:
    """A video that could not be used."""

    video_id: int
    video: str
    message: str
    uses: int
    """How often it was left out or replaced."""
    policies: str
    """skip, replace, or both; empty if it never came up."""
    tasks: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Something else that went wrong."""

    about: str
    """task or object, or cache for what is of neither."""
    name: str
    message: str
    count: int
    first_s: float
    """When it came first, seconds since 1970."""
    last_s: float
    """When it came last, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Span:
    """What happened in a span of time, in equal steps, the oldest first."""

    span_s: int
    step_s: int
    end_s: float
    """When the last step ends, seconds since 1970: the last activity, not now."""
    hits: tuple[int, ...]
    """Clips that were there, in each step; all tasks together, as below."""
    misses: tuple[int, ...]
    waited_s: tuple[float, ...]
    """Seconds that readers waited, of all readers."""
    loaded_s: tuple[float, ...]
    """Seconds that readers loaded stored clips."""
    evicted_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A few numbers that the catalog keeps no history of, as they were at one look."""

    at_s: float
    """Seconds since 1970."""
    used_bytes: int
    """Of all tiers."""
    made: int
    """Objects that were ever made."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A cache at one moment."""

    store: str
    """The store's folder."""
    as_of_s: float
    """When it was so, seconds since 1970."""
    source: str
    """``file`` (nobody has it open), ``snapshot`` or ``postgresql``."""
    owner: int
    """Process that has the cache open; 0 = none, or PostgreSQL's."""
    service: StatsOf | None
    tasks: tuple[TaskState, ...]
    tiers: tuple[TierState, ...]
    passed: Passed
    counts_memory: bool
    """Whether what is ready in the owner's memory is counted: its service was asked, or nothing can lie there."""
    objects: tuple[ObjectCount, ...]
    pace: Pace
    due: tuple[DueBatch, ...]
    evictions: tuple[Evicted, ...]
    videos: tuple[BadVideo, ...]
    failures: tuple[Failure, ...]
    spans: tuple[Span, ...]
    sample: Sample
    missing: Mapping[str, str]
    """Questions that could not be answered, and why: their part of the overview is empty."""
