"""What a client asks the service of a cache, and what it tells it: one struct for each verb, every field typed."""

from msgspec import Struct

__all__ = [
    "ALL",
    "UNANSWERED",
    "About",
    "Ask",
    "Bye",
    "Counters",
    "Describe",
    "DescribeFrame",
    "Document",
    "Done",
    "Drop",
    "EndMake",
    "Fetch",
    "FrameAsked",
    "Frames",
    "Hello",
    "Iterations",
    "Join",
    "Leave",
    "Line",
    "Loaded",
    "Look",
    "Make",
    "Parts",
    "PlannedAt",
    "Positions",
    "Publish",
    "Recipes",
    "Rise",
    "Sit",
    "Stats",
    "Stop",
    "Version",
    "Video",
    "Videos",
    "verb_of",
]


class Ask(Struct, forbid_unknown_fields=True):
    """What a client asks."""


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """One source of a configuration, as text: the service reads it with the same care as a file."""

    name: str
    """The file's path, or ``<string>`` or ``<mapping>``."""
    folder: str
    """Where relative paths start."""
    text: str
    """YAML; of a mapping JSON."""
    ops: tuple[tuple[str, str], ...] = ()
    """Operations of users' own that its tasks use, and the fingerprints of their code in the client's process."""


class Hello(Ask, tag="hello"):
    """The first frame of a client process. Answer: `Welcome`, with descriptors of the tiers that it reads itself."""

    protocol: int
    version: str
    """Of viewcache."""
    program: str
    """What the process runs, for people."""
    documents: tuple[Document, ...]
    """Whose tasks it reads; those that the service does not know join."""
    job: str
    """Which training it belongs to: empty, or a name, whose tasks have draws of their own."""


class Line(Ask, tag="line"):
    """The first frame of a further connection of the same process, for another thread. Answer: `Ok`."""

    session: int
    token: str


class Join(Ask, tag="join"):
    """Let further tasks join. Answer: `Joined`."""

    documents: tuple[Document, ...]
    job: str


class Leave(Ask, tag="leave"):
    """A task has ended. Answer: `Ok`."""

    task: str


class About(Ask, tag="about"):
    """What a task is. Answer: `AboutTask`."""

    task: str


class Sit(Ask, tag="sit"):
    """Take a seat of a task, to read from a place on. Answer: `Seated`."""

    task: str
    rank: int
    world: int
    part: int
    parts: int
    epoch: int
    iteration: int


class Rise(Ask, tag="rise"):
    """Stop reading from a seat. No answer."""

    seat: int


class Iterations(Ask, tag="iterations"):
    """How many batches an epoch has. Answer: `Number`."""

    task: str
    epoch: int


class Positions(Ask, tag="positions"):
    """How many videos an epoch has. Answer: `Number`."""

    task: str
    epoch: int


class Fetch(Ask, tag="fetch"):
    """Make a seat's share of a batch and hold it. Answer: `Fetched`."""

    seat: int
    epoch: int
    iteration: int


class Look(Ask, tag="look"):
    """The same without a seat: all of a batch, which counts as read where nobody sits, or some of its clips."""

    task: str
    epoch: int
    iteration: int
    rank: int
    world: int
    first: int = 0
    last: int = -1
    """Behind the last clip; -1 = the whole batch."""
    heard: bool = False
    """Of some clips the audio, and not the pixels."""


class Loaded(Struct, frozen=True, forbid_unknown_fields=True):
    """What reading objects of one size and kind took."""

    tier: str
    codec: str
    size_bits: int
    """Their bytes have so many bits less one."""
    count: int
    bytes: int
    seconds: float


class Done(Ask, tag="done"):
    """What was held is read, and may leave. No answer."""

    lease: int
    damaged: tuple[int, ...]
    """Positions of the clips that were not as promised: they are made again."""
    loaded: tuple[Loaded, ...]
    seconds: float


class Drop(Ask, tag="drop"):
    """What was held was not read, and may leave. No answer."""

    lease: int


class Describe(Ask, tag="describe"):
    """A batch as planned, without its pixels. Answer: `Fetched`, which holds nothing."""

    task: str
    epoch: int
    iteration: int
    rank: int
    world: int


class Recipes(Ask, tag="recipes"):
    """What was decided for clips: those of a batch, or those of a video in an epoch. Answer: `Text`, JSON."""

    task: str
    epoch: int
    iteration: int = 0
    video: str = ""
    """Its name; empty = the batch."""


class Parts(Ask, tag="parts"):
    """How many DataLoader workers take turns at a rank's batches, as the task was read last. Answer: `Number`."""

    task: str


class PlannedAt(Ask, tag="planned_at"):
    """When the generation of an epoch was planned first. Answer: `Number`, seconds since 1970."""

    task: str
    epoch: int


class Version(Ask, tag="version"):
    """What is another text as soon as a clip of a batch was replaced, and in another run. Answer: `Text`."""

    task: str
    epoch: int
    iteration: int


class Video(Ask, tag="video"):
    """What is known of one video. Answer: `VideosOf` with one."""

    task: str
    name: str


class Videos(Ask, tag="videos"):
    """What is known of the next videos by name. Answer: `VideosOf`."""

    task: str
    after: str = ""
    """The last one that is known."""


class FrameAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """One frame of a video; see `FrameRequest`."""

    video: str
    frame: int
    depth: int | None
    epoch: int | None
    sample: int
    output: str | None
    at_s: float | None
    item: int | None


class DescribeFrame(Ask, tag="describe_frame"):
    """What a single frame is. Answer: `FrameFacts`."""

    task: str
    frame: FrameAsked


class Frames(Ask, tag="frames"):
    """Make single frames and hold them. Answer: `Held`."""

    task: str
    frames: tuple[FrameAsked, ...]


class Make(Ask, tag="make"):
    """Make ahead what the budget keeps of some epochs, and say how far it is. Answer: `Counts`, within a second."""

    tasks: tuple[str, ...]
    epochs: int | None
    """None = as many as a task has."""


class EndMake(Ask, tag="end_make"):
    """Give up what is left of it, but for who reads it. Answer: `Ok`."""

    tasks: tuple[str, ...]
    epochs: int | None


class Publish(Ask, tag="publish"):
    """Let SQL, which reads a copy of the catalog, see all that has been done until now. Answer: `Ok`."""


class Stats(Ask, tag="stats"):
    """Who uses the service, and what it took; may be asked without a hello. Answer: `StatsOf`."""


class Counters(Ask, tag="counters"):
    """All counters of the cache. Answer: `CountersOf`."""


class Stop(Ask, tag="stop"):
    """End the service. Answer: `Ok`, or `Failed` if that was not to be."""

    if_idle: bool = False
    """Only if no other process uses it."""
    begun_by_hand: bool = True
    """Also if `viewcache serve` began it, rather than a client."""


class Bye(Ask, tag="bye"):
    """The process needs the cache no more. No answer."""


ALL = (
    Hello | Line | Join | Leave | About | Sit | Rise | Iterations | Positions | Fetch | Look | Done | Drop | Describe
    | Recipes | Parts | PlannedAt | Version | Video | Videos | DescribeFrame | Frames | Make | EndMake | Publish | Stats
    | Counters | Stop | Bye
)  # fmt: skip
"""Every question."""

UNANSWERED = (Rise, Done, Drop, Bye)
"""What is only said: it has no answer."""


def verb_of(kind: type[Ask]) -> str:
    """What a kind of question is called where it travels, such as ``end_make``."""
    return str(kind.__struct_config__.tag)
