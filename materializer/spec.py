"""What a task and a cache are, as frozen values: the output of the YAML reader and the input of the planner.

Everything here is plain data that pickles and hashes; the meaning of each field is documented under it.
"""

import os
from dataclasses import dataclass, field

from viewcache.materializer.choices import (
    BranchType,
    Durability,
    Exif,
    InputSource,
    Join,
    KeepRule,
    Layout,
    Media,
    Merge,
    OnBadAudio,
    OnBadVideo,
    OnChangedVideo,
    OnLowFps,
    OnMissingVideo,
    OnNoAudio,
    OnShortVideo,
    ProbeMode,
    ServiceMode,
    WorkerKind,
)
from viewcache.materializer.sampling import SamplingSpec

__all__ = [
    "FOLDERS",
    "LABEL",
    "ROOT",
    "TABLE_SUFFIXES",
    "AudioSpec",
    "Branch",
    "CacheSpec",
    "DatasetSpec",
    "EvictionSpec",
    "OpCall",
    "OpWorkerSpec",
    "Place",
    "SplitSpec",
    "StepSpec",
    "TaskSpec",
    "TierSpec",
]

ROOT = "root"
"""The column that says which place of a dataset a video is of, where there are several."""
LABEL = "label"
"""What a label is called everywhere, and the default name of the column with it."""
FOLDERS = "folders"
"""In the place of a label table: the parent folder's name is the label."""
TABLE_SUFFIXES = (".csv", ".parquet", ".jsonl", ".ndjson")
"""What a label table's file may be called."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something was written, for messages."""

    file: str = "<string>"
    line: int = 0
    """1-based; 0 = unknown."""
    column: int = 0
    """1-based; 0 = unknown."""


@dataclass(frozen=True, slots=True)
class OpCall:
    """One operation as written: its name and canonical parameters."""

    name: str
    """A name of the op registry, e.g. ``resize``."""
    params: tuple[tuple[str, object], ...] = ()
    """Validated by the op itself, with defaults filled in and sorted by name, so that equal meaning is equal value.
    Values are str, int, float, bool, None or (nested) tuples of them."""
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """One arm of a conditional or random step."""

    ops: tuple[OpCall, ...]
    """Empty = pass through unchanged (``config: None`` in the paper)."""
    condition: str | None = None
    """Canonical text of the condition grammar, or ``else``; None on random branches."""
    prob: float | None = None
    """In [0, 1]; None on conditional branches."""
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One entry of ``augmentation`` (SAND §5.1, Fig. 9)."""

    name: str
    branch_type: BranchType
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[OpCall, ...] = ()
    """For ``single``: the chain. For ``multi``: nothing (each output is a copy)."""
    branches: tuple[Branch, ...] = ()
    merge: Merge = Merge.CONCAT
    """For ``merge``."""
    place: Place = field(default=Place(), compare=False)

    @property
    def calls(self) -> tuple[OpCall, ...]:
        """Its operations, those of all branches too."""
        return (*self.ops, *(call for branch in self.branches for call in branch.ops))


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """How a dataset is parted: by shares of its videos, or by a column that names the parts."""

    val: float | None = None
    """Share of the part ``val``, between 0 and 1; what is left is ``train``."""
    test: float | None = None
    seed: int = 0
    """Of the shares."""
    by: str | None = None
    """Column of which all videos with one value are in one part."""
    column: str | None = None
    """Column that names each video's part, in the place of shares."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts; with ``column`` they are its values, and nothing is said here."""
        if self.column is not None:
            return ()
        return ("train", *(name for name in ("val", "test") if getattr(self, name) is not None))


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Where the videos are and what is known about them."""

    uri: str
    """A folder, a glob, a list file or an fsspec URL, as written but made absolute when local; several of them as a
    JSON list."""
    input_source: InputSource = InputSource.FILE
    join: Join = Join.GENERATION
    """When new videos join, where the source is streaming."""
    settle: float = 2.0
    """Seconds for which nobody has written to a file that joins, where the source is streaming. Decides no view, so it
    may change from run to run."""
    labels: str | None = None
    """Path or URL of a CSV, Parquet or JSON lines table, ``folders`` (the parent folder's name is the label), or
    None."""
    label_video_column: str = "video"
    label_column: str = LABEL
    label_start_column: str = "start_s"
    label_end_column: str = "end_s"
    """A table with a column of one of these names has a row for each segment of a video."""
    label_separator: str | None = None
    """What stands between the labels of a video that has several, where the column is text."""
    classes: tuple[str, ...] = ()
    """Names of the labels, whose numbers are their places; empty = those of the labels that there are."""
    fields: tuple[str, ...] = ()
    """Further columns of the table that come with the clips of a batch. Decides no view, so it may change from run to
    run."""
    where: str | None = None
    """SQL predicate over the dataset's columns (JOADER's predicate)."""
    split: SplitSpec | None = None
    part: str | None = None
    """Which part of ``split`` the task has."""
    weight: str | None = None
    """Column that says how often a video comes in an epoch."""
    balance: str | None = None
    """Column of which each value comes equally often in an epoch."""
    mix: tuple[tuple[str, float], ...] = ()
    """Values of ``mix_column`` and their shares of an epoch, in proportion; empty = nothing is mixed."""
    mix_column: str = ROOT
    on_bad_video: OnBadVideo = OnBadVideo.RAISE
    on_short_video: OnShortVideo = OnShortVideo.CLAMP
    on_changed_video: OnChangedVideo = OnChangedVideo.RAISE
    """Decides no view, so it may change from run to run."""
    on_missing_video: OnMissingVideo = OnMissingVideo.REPLACE
    """Likewise: what stood in before stays."""
    on_low_fps: OnLowFps = OnLowFps.REPEAT
    max_pixels: int = 8192 * 4320
    """A larger frame is a bad video, refused before it is decoded."""
    remote: bool | None = None
    """Whether the videos lie far away; None = as their URLs and file systems say. Decides no view."""
    probe: ProbeMode = ProbeMode.LAZY
    """Decides no view, so it may change from run to run."""
    follow_links: bool = False
    """Whether symbolic links may leave the folder they lie in, for another one of the dataset or of ``link_roots``."""
    link_roots: tuple[str, ...] = ()
    """Absolute paths of folders that links may lead into."""
    media: Media = Media.VIDEO
    """What its files are."""
    exif: Exif = Exif.APPLY
    """Of images, what becomes of the orientation that their EXIF data tell."""

    def refuses(self, *, missing: bool) -> bool:
        """Whether the policy for videos that are gone, or for bad ones, is ``raise``."""
        if missing:
            return self.on_missing_video == OnMissingVideo.RAISE
        return self.on_bad_video == OnBadVideo.RAISE

    @property
    def known_as(self) -> str:
        """What the catalog calls it: its place, and of images ``images:`` before it, so that a folder may hold both.

        Images that are taken as they are stored are a dataset of their own: sizes and content keys are others.
        """
        if self.media == Media.VIDEO:
            return self.uri
        return f"images:exif=ignore:{self.uri}" if self.as_stored else f"images:{self.uri}"

    @property
    def as_stored(self) -> bool:
        """Whether images are taken as they are stored, whatever orientation their EXIF data tell."""
        return self.exif == Exif.IGNORE

    @property
    def weighted(self) -> str | None:
        """The column by which videos come more or less often than once an epoch; None = each comes once."""
        return self.weight or self.balance or (self.mix_column if self.mix else None)

    @property
    def grows(self) -> bool:
        """Whether new videos join while the cache is open."""
        return self.input_source == InputSource.STREAMING


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """The audio that comes with each clip."""

    rate: int
    """Samples a second."""
    samples: int
    """Of one clip in each channel: those of its span."""
    mono: bool = True
    """One channel; else two."""
    track: int | str | None = None
    """Number among the video's audio tracks, from 0, or a language as the file has it (``eng``); None = the file's
    default track."""
    on_no_audio: OnNoAudio = OnNoAudio.SILENCE
    on_bad_audio: OnBadAudio = OnBadAudio.BAD

    @property
    def channels(self) -> int:
        """How many."""
        return 1 if self.mono else 2

    @property
    def shape(self) -> tuple[int, int]:
        """Of the audio of one clip, (C,n)."""
        return self.channels, self.samples


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One training job's description."""

    name: str
    """``tag`` in YAML; the task's name in paths."""
    dataset: DatasetSpec
    sampling: SamplingSpec
    steps: tuple[StepSpec, ...]
    epochs: int = 1
    seed: int | None = None
    """None = the cache's seed."""
    drop_last: bool = False
    shuffle: bool = True
    """False: an epoch has the videos in the order of their names, and the task draws with no other."""
    layout: Layout = Layout.TCHW
    audio: AudioSpec | None = None
    """None: batches have none."""
    place: Place = field(default=Place(), compare=False)

    @property
    def op_names(self) -> frozenset[str]:
        """Names of its operations."""
        return frozenset(call.name for step in self.steps for call in step.calls)


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One place where bytes lie."""

    url: str
    budget_bytes: int
    codec: str = "auto"
    """``auto``, ``raw``, ``lz4`` or ``zstd1``."""
    timeout: float = 20.0
    """Seconds until a remote tier that does not answer is passed over for a while."""
    name: str = "local"
    """``memory``, ``local`` or ``remote``: its name in the catalog."""
    residents: int | None = None
    """Of the memory tier, most bytes for what stays there through a generation; None = what the window does not
    need."""


@dataclass(frozen=True, slots=True)
class EvictionSpec:
    """What leaves a tier that is full, and when."""

    policy: str = "demand"
    """Name of a shipped policy, or of a file in ``folder`` without its ``.sql``."""
    folder: str | None = None
    """Absolute path of the folder with policies of the user's own."""
    high_water: float = 0.95
    """Share of a tier's budget above which making ahead evicts, in (0, 1]."""
    low_water: float = 0.9
    """Share of the budget down to which it does, at most ``high_water``."""
    trim: bool = True
    """Whether what nothing wants any more leaves while there is room, too."""


@dataclass(frozen=True, slots=True)
class OpWorkerSpec:
    """A program that serves operations in processes of its own."""

    name: str
    """Its key below ``op_workers``, for messages."""
    command: tuple[str, ...]
    """What is run: a program and its arguments."""
    modules: tuple[str, ...] = ()
    """Modules of operations that it imports."""
    packages: tuple[str, ...] = ()
    """Packages whose versions enter the fingerprints of its operations."""
    timeout_s: float = 10.0
    """Most time for one call, which is for at most some sixteen frames."""
    memory_bytes: int = 4 << 30
    """Most private memory of one process."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The cache's own settings (``cache:`` in YAML)."""

    tiers: tuple[TierSpec, ...]
    """The fastest first; one of them is local."""
    catalog: str = "duckdb"
    """``duckdb`` (a file beside the store) or a ``postgresql://`` URL without a password."""
    memory_bytes: int = 8 << 30
    epochs_per_generation: int = 5
    """k: epochs that are planned, and decoded for, at once."""
    seed: int = 0
    draw_ahead: int = 16
    """Iterations that the order of tasks over one dataset is drawn ahead of each reader; a task alone draws epochs."""
    keep: KeepRule = KeepRule.CHEAPEST
    mix: float | None = None
    """The share of the videos or images of which something is kept, 0 to 1; None = what is best."""
    eviction: EvictionSpec = field(default_factory=EvictionSpec)
    workers: int = 0
    """How many workers; 0 = one per core."""
    worker_kind: WorkerKind = WorkerKind.PROCESSES
    durability: Durability = Durability.CACHE
    op_modules: tuple[str, ...] = ()
    """Modules that may register custom ops; nothing else is imported."""
    op_workers: tuple[OpWorkerSpec, ...] = ()
    """Programs that serve custom ops; no other is run."""
    trace: str | None = None
    """Path of the file that gets a trace of the run, absolute."""
    service: ServiceMode = ServiceMode.AUTO
    service_idle_s: float = 10.0
    """How long a service goes on after its last client, seconds."""

    @property
    def room_bytes(self) -> int:
        """Of all tiers together but memory, which has only copies of what lies below."""
        return sum(tier.budget_bytes for tier in self.tiers if tier.name != "memory")

    @property
    def local(self) -> TierSpec:
        """The tier in which objects are made."""
        return next(tier for tier in self.tiers if tier.name == "local")

    @property
    def worker_count(self) -> int:
        """How many workers."""
        return self.workers or os.cpu_count() or 1

    def epochs_at_once(self, task: TaskSpec) -> int:
        """K of a task: epochs of it that are drawn and planned at once."""
        return 1 if task.dataset.join == Join.EPOCH else self.epochs_per_generation
