"""What the service of a cache says to a client: one struct for each kind of answer, every field typed."""

from msgspec import Struct

__all__ = [
    "ALL",
    "AboutTask",
    "Answer",
    "ChangeOf",
    "ClientOf",
    "CoreSecondsOf",
    "CountersOf",
    "Counts",
    "EvictedOf",
    "Failed",
    "Fetched",
    "FieldOf",
    "FrameFacts",
    "Going",
    "Held",
    "Joined",
    "Note",
    "Number",
    "Ok",
    "PlaceOf",
    "SeatOf",
    "Seated",
    "StatsOf",
    "TaskCountsOf",
    "Text",
    "TierOf",
    "VideoFacts",
    "VideosOf",
    "Welcome",
    "WorkOf",
]


class Answer(Struct):
    """What the service says."""


class Welcome(Answer, tag="welcome"):
    """The service knows the client."""

    protocol: int
    version: str
    incarnation: str
    """Another one each time that the service starts."""
    pid: int
    session: int
    token: str
    """Lets further connections into the session."""
    tiers: tuple[str, ...]
    """Names of the tiers whose descriptors come with this, in their order."""
    tasks: tuple[str, ...]
    """Of the documents, in their order, by the names that they have here: those of a job have its name, too."""
    warnings: tuple[str, ...]
    settings: dict[str, str] = {}
    """Of the cache, by key: those of the configuration that started the service."""


class Joined(Answer, tag="joined"):
    """The tasks of the documents."""

    tasks: tuple[str, ...]


class AboutTask(Answer, tag="about_task"):
    """What its readers need to know of a task."""

    task_id: int
    name: str
    epochs: int
    seed: int
    layout: str
    """As whoever opened the task says; each process that described it hands out in its own."""
    videos_per_batch: int
    samples_per_video: int
    classes: tuple[str, ...]
    draws_together: bool
    clip_shape: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    joined: int
    """The epoch of its group in which it has its first."""
    epochs_per_generation: int
    read_ops: str
    """JSON: names and parameters of the operations that run at reading."""
    depths: tuple[int, ...]
    grows: bool
    """Whether new videos join it, and with them new classes."""
    audio: tuple[int, int] | None = None
    """Shape of each clip's audio, (C,n); none of a task without."""
    changes: tuple["ChangeOf", ...] = ()
    """What happened to its files since they were listed before the service opened them."""


class Seated(Answer, tag="seated"):
    """The seat is taken."""

    seat: int


class Number(Answer, tag="number"):
    """One number."""

    value: float


class Text(Answer, tag="text"):
    """One text."""

    value: str


class Ok(Answer, tag="ok"):
    """It is done."""


class ChangeOf(Struct, frozen=True):
    """What happened to some of a task's files."""

    change: str
    """``added``, ``removed``, ``replaced``, ``returned``, ``bad`` or, of classes, ``renumbered``."""
    count: int
    names: tuple[str, ...]
    """The first of the videos; of bad ones a text: why, and what to do."""
    from_epoch: int | None
    """The first epoch that may have those that were added or are back; of bad ones the first that cannot be drawn."""
    views: int
    """Batches that were read and show one that was removed or replaced."""
    first_views: tuple[tuple[int, int], ...]
    """Epoch and iteration of the first of these."""


class PlaceOf(Struct, frozen=True):
    """Where an object lies that the service holds for the client."""

    tier: str
    physical: str
    shape: tuple[int, ...]
    chunk_rows: int
    codec: str
    table: bytes
    """Offsets, sizes and checksums of its chunks; see `ChunkTable.to_bytes`."""


class FieldOf(Struct, frozen=True):
    """What a batch has of one further column of the label table: an array, lists of different lengths, or texts."""

    name: str
    dtype: str = ""
    """Of the values, as NumPy writes it, such as ``<f4``; empty for texts."""
    shape: tuple[int, ...] = ()
    """Of the values."""
    values: bytes = b""
    offsets: bytes = b""
    """int64 (b+1,), where each clip's values begin; empty where each clip has as many."""
    texts: tuple[str | None, ...] = ()
    """(b,) one for each clip."""
    text_lists: tuple[tuple[str, ...], ...] = ()
    """(b,) a list of texts for each clip."""


class Fetched(Answer, tag="fetched"):
    """A batch, or a share of it. Arrays are little-endian, C order."""

    lease: int
    """For `Done`; 0 if nothing is held."""
    places: tuple[PlaceOf, ...]
    shape: tuple[int, ...]
    """Of the pixels."""
    keys: tuple[str, ...]
    videos: tuple[str, ...]
    label: bytes
    """int64 (b,); with ``classes`` float32 (b, classes)."""
    index: bytes
    """int64 (b,)."""
    frame: bytes
    """int64 (b,T)."""
    time_s: bytes
    """float64 (b,T)."""
    sample: bytes
    """int64 (b,)."""
    item: bytes
    """int64 (b,)."""
    start_s: bytes
    """float64 (b,)."""
    end_s: bytes
    """float64 (b,)."""
    waited_s: float
    stalls: dict[str, float]
    audio: tuple[int, ...] = ()
    """Shape of the audio, (b,C,n), whose objects lie at further places behind those of the clips; empty = none."""
    classes: int = 0
    """How many there are, where a video may have several labels."""
    fields: tuple[FieldOf, ...] = ()
    """Further columns of the label table."""
    stand_ins: tuple[str, ...] = ()
    """For which videos, whose files are gone, others stand in: what no process of this training was told yet."""
    hits: int = 0
    """Clips that were there, with their audio, when they were asked for."""
    misses: int = 0
    """Clips that were not."""


class Held(Answer, tag="held"):
    """Single frames, each an object of shape (1,3,H,W)."""

    lease: int
    places: tuple[PlaceOf, ...]


class WorkOf(Struct, frozen=True):
    """Work of making clips; see `Forecast`."""

    packets: float
    frames: float
    objects: float
    object_bytes: float
    decode_s: float
    convert_s: float
    augment_s: float
    store_s: float


class Counts(Answer, tag="counts"):
    """How far clips that are made ahead are."""

    clips: dict[str, int]
    """How many are ``ready``, ``planned`` and ``failed``."""
    over: bool
    """Whether all is made that the budget keeps."""
    predicted: WorkOf
    measured: WorkOf
    """Since it began, for other readers too."""
    failure: str
    """Why the last job failed as a whole; empty when it did not."""
    from_kept: int
    """Once all is made: how many of the ``planned`` ones are made of kept pictures when they are read."""


class VideoFacts(Struct, frozen=True):
    """What is known of one video; see `VideoInfo`."""

    video_id: int
    name: str
    uri: str
    extension: str
    key: str
    label: int | tuple[int, ...]
    status: str
    error: str
    size: int
    mtime_ns: int
    etag: str
    frames: int
    height: int
    width: int
    fps: float | None
    duration_s: float | None
    codec: str | None


class VideosOf(Answer, tag="videos_of"):
    """Videos by name; none if there are no more."""

    videos: tuple[VideoFacts, ...]


class FrameFacts(Answer, tag="frame_facts"):
    """What a single frame is; see `FrameInfo`."""

    video_id: int
    video: str
    label: int | tuple[int, ...]
    frame: int
    depth: int
    shape: tuple[int, int, int]
    time_s: float
    key: str
    recipe: str
    """JSON: what is done to the frame."""


class SeatOf(Struct, frozen=True):
    """A seat that a client has taken."""

    task: str
    rank: int
    world: int
    part: int
    parts: int
    epoch: int
    iteration: int


class ClientOf(Struct, frozen=True):
    """A client process of the service."""

    session: int
    pid: int
    program: str
    since: float
    """Seconds since 1970."""
    held: int
    """Objects that are held for it."""
    seats: tuple[SeatOf, ...]
    job: str = ""
    """Which training it belongs to; empty if it has no name."""


class StatsOf(Answer, tag="stats_of"):
    """What the service does."""

    pid: int
    version: str
    since: float
    """When it began, in seconds since 1970."""
    cpu_s: float
    """Of the service and its workers, also those that have ended."""
    clients: tuple[ClientOf, ...]
    settings: dict[str, str] = {}
    """Of the cache, by key: those of the configuration that started the service."""
    in_memory: tuple[int, ...] | None = None
    """Numbers of the objects that are ready in memory for their one reader, or were so in the last five seconds: the
    catalog has no copies of these. None from a service of an earlier version, which does not tell."""


class TaskCountsOf(Struct, frozen=True):
    """What the readers of one task did; see `TaskCounts`."""

    batches: int
    hits: int
    misses: int
    rebuilds: int
    stalls: dict[str, float]


class TierOf(Struct, frozen=True):
    """Bytes of a tier; see `TierBytes`."""

    used: int
    reserved: int
    budget: int


class EvictedOf(Struct, frozen=True):
    """How many objects left a tier for one reason."""

    tier: str
    reason: str
    objects: int


class CoreSecondsOf(Struct, frozen=True):
    """What a class of work took of cores in one stage."""

    kind: str
    stage: str
    seconds: float


class CountersOf(Answer, tag="counters_of"):
    """All counters of the cache; see `Snapshot`."""

    tasks: dict[str, TaskCountsOf]
    tiers: dict[str, TierOf]
    passing: TierOf
    objects: int
    evictions: tuple[EvictedOf, ...]
    readers_waiting: int
    worker_seconds: dict[str, float]
    work: dict[str, int]
    jobs: int
    jobs_running: int
    jobs_died: int
    generations: dict[str, int]
    planning_s: dict[str, float]
    catalog_backlog: int
    cpu_s: tuple[CoreSecondsOf, ...]
    joules: dict[str, float]


class Note(Answer, tag="note"):
    """The work goes on; the answer comes later."""

    seconds: float
    """Since it was asked."""
    done: int = 0
    """Files of a new task's dataset that were looked at."""
    total: int = 0
    """Of how many; 0 if nothing is being looked at."""
    name: str = ""
    """The one that was looked at last."""


class Going(Answer, tag="going"):
    """The service is ending: connect again."""


class Failed(Answer, tag="failed"):
    """It could not be done."""

    kind: str
    message: str
    code: str = ""
    """Of a `ConfigError`; so are the next three."""
    file: str = ""
    """Of a `CatalogBusy` the store's folder."""
    line: int = 0
    column: int = 0
    number: int = 0
    """The minimum of a `BudgetTooSmall`, the process of a `CatalogBusy`."""


ALL = (
    Welcome | Joined | AboutTask | Seated | Number | Text | Ok | Fetched | Held | VideosOf | FrameFacts | Counts
    | StatsOf | CountersOf | Note | Going | Failed
)  # fmt: skip
"""Every answer."""
