"""What a client and the service of a cache say to each other: framed msgpack, every field typed.

A frame is the length of its body, four bytes little-endian, and then the body: one struct, tagged by its kind. A client
asks on a line and waits for the answer, before which notes may come that say that the work goes on; `Done` and `Bye`
have no answer. Nothing is pickled, nothing names code, and whoever sends anything else is cut off.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from viewcache.errors import (
    Broken,
    BudgetTooSmall,
    CatalogBusy,
    ConfigCode,
    ConfigError,
    ViewcacheError,
)

__all__ = [
    "ANSWER_BYTES",
    "ASK_BYTES",
    "PROTOCOL",
    "About",
    "AboutTask",
    "Answer",
    "Ask",
    "Bye",
    "Describe",
    "DescribeFrame",
    "Document",
    "Done",
    "Failed",
    "Fetch",
    "Fetched",
    "FrameAsked",
    "FrameFacts",
    "Frames",
    "Going",
    "Held",
    "Hello",
    "Iterations",
    "Join",
    "Joined",
    "Leave",
    "Line",
    "Loaded",
    "Look",
    "Note",
    "Number",
    "Ok",
    "PlaceOf",
    "PlannedAt",
    "Rise",
    "Seated",
    "Sit",
    "Stats",
    "StatsOf",
    "Stop",
    "Text",
    "Version",
    "Video",
    "VideoFacts",
    "Videos",
    "VideosOf",
    "Welcome",
    "decode_answer",
    "decode_ask",
    "encode",
    "error_of",
    "failed_of",
    "receive",
    "send",
]

PROTOCOL: Final = 1
"""Its version: another one is another protocol."""

ASK_BYTES: Final = 1 << 20
"""Most bytes of a frame to the service."""

ANSWER_BYTES: Final = 16 << 20
"""Most bytes of a frame from the service."""

_LENGTH = struct.Struct("<I")

MOST_DESCRIPTORS: Final = 8
"""Of one frame."""


class Ask(Struct, forbid_unknown_fields=True):
    """What a client asks."""


class Answer(Struct):
    """What the service says."""


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """One source of a configuration, as text: the service reads it with the same care as a file."""

    name: str
    """The file's path, or ``<string>`` or ``<mapping>``."""
    folder: str
    """Where relative paths start."""
    text: str
    """YAML; of a mapping JSON."""


# What a client asks ---------------------------------------------------------------------------------------------------


class Hello(Ask, tag="hello"):
    """The first frame of a client process. Answer: `Welcome`, with descriptors of the tiers that it reads itself."""

    protocol: int
    version: str
    """Of viewcache."""
    program: str
    """What the process runs, for people."""
    documents: tuple[Document, ...]
    """Whose tasks it reads; those that the service does not know join."""


class Line(Ask, tag="line"):
    """The first frame of a further connection of the same process, for another thread. Answer: `Ok`."""

    session: int
    token: str


class Join(Ask, tag="join"):
    """Let further tasks join. Answer: `Joined`."""

    documents: tuple[Document, ...]


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
    """Stop reading from a seat. Answer: `Ok`."""

    seat: int


class Iterations(Ask, tag="iterations"):
    """How many batches an epoch has. Answer: `Number`."""

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


class Describe(Ask, tag="describe"):
    """A batch as planned, without its pixels. Answer: `Fetched`, which holds nothing."""

    task: str
    epoch: int
    iteration: int
    rank: int
    world: int


class PlannedAt(Ask, tag="planned_at"):
    """When the generation of an epoch was planned first. Answer: `Number`, seconds since 1970."""

    task: str
    epoch: int


class Version(Ask, tag="version"):
    """What is another text as soon as a clip of a batch was replaced. Answer: `Text`."""

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


class DescribeFrame(Ask, tag="describe_frame"):
    """What a single frame is. Answer: `FrameFacts`."""

    task: str
    frame: FrameAsked


class Frames(Ask, tag="frames"):
    """Make single frames and hold them. Answer: `Held`."""

    task: str
    frames: tuple[FrameAsked, ...]


class Stats(Ask, tag="stats"):
    """What the service does. Answer: `StatsOf`."""


class Stop(Ask, tag="stop"):
    """End the service. Answer: `Ok`, or `Failed` if others use it and it is to end only when idle."""

    if_idle: bool = False


class Bye(Ask, tag="bye"):
    """The process needs the cache no more. No answer."""


# What the service says ------------------------------------------------------------------------------------------------


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
    warnings: tuple[str, ...]


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


class PlaceOf(Struct, frozen=True):
    """Where an object lies that the service holds for the client."""

    tier: str
    physical: str
    shape: tuple[int, ...]
    chunk_rows: int
    codec: str
    table: bytes
    """Offsets, sizes and checksums of its chunks; see `ChunkTable.to_bytes`."""


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
    """int64 (b,)."""
    index: bytes
    """int64 (b,)."""
    frame: bytes
    """int64 (b,T)."""
    time_s: bytes
    """float64 (b,T)."""
    waited_s: float
    stalls: dict[str, float]


class Held(Answer, tag="held"):
    """Single frames, each an object of shape (1,3,H,W)."""

    lease: int
    places: tuple[PlaceOf, ...]


class VideoFacts(Struct, frozen=True):
    """What is known of one video; see `VideoInfo`."""

    video_id: int
    name: str
    uri: str
    extension: str
    key: str
    label: int
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
    label: int
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


class StatsOf(Answer, tag="stats_of"):
    """What the service does."""

    pid: int
    version: str
    since: float
    cpu_s: float
    """Of the service and its workers, also those that have ended."""
    clients: tuple[ClientOf, ...]


class Note(Answer, tag="note"):
    """The work goes on; the answer comes later."""

    seconds: float
    """Since it was asked."""


class Going(Answer, tag="going"):
    """The service is ending: connect again."""


class Failed(Answer, tag="failed"):
    """It could not be done."""

    kind: str
    message: str
    code: str = ""
    """Of a `ConfigError`; so are the next three."""
    file: str = ""
    line: int = 0
    column: int = 0
    number: int = 0
    """The minimum of a `BudgetTooSmall`, the process of a `CatalogBusy`."""


_ASKS = (
    Hello | Line | Join | Leave | About | Sit | Rise | Iterations | Fetch | Look | Done | Describe | PlannedAt | Version
    | Video | Videos | DescribeFrame | Frames | Stats | Stop | Bye
)  # fmt: skip
_ANSWERS = (
    Welcome | Joined | AboutTask | Seated | Number | Text | Ok | Fetched | Held | VideosOf | FrameFacts | StatsOf | Note
    | Going | Failed
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_ask_decoder: "msgspec.msgpack.Decoder[Ask]" = msgspec.msgpack.Decoder(cast(Any, _ASKS))
_answer_decoder: "msgspec.msgpack.Decoder[Answer]" = msgspec.msgpack.Decoder(cast(Any, _ANSWERS))

# Frames ---------------------------------------------------------------------------------------------------------------


def encode(message: Struct) -> bytes:
    """The body of a frame."""
    return _encoder.encode(message)


def decode_ask(body: bytes) -> Ask:
    """What a client asks.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    return _decoded(_ask_decoder, body)


def decode_answer(body: bytes) -> Answer:
    """What the service says.

    Raises:
        Broken: the body is nothing that the protocol knows.
    """
    return _decoded(_answer_decoder, body)


T = TypeVar("T")


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"a frame of {len(body)} bytes is not of protocol {PROTOCOL}: {error}") from error


def send(line: socket.socket, message: Struct, descriptors: Sequence[int] = ()) -> None:
    """Send one frame, and descriptors with it.

    Raises:
        OSError: the other side is gone, or does not take it within the line's time.
    """
    body = encode(message)
    data = memoryview(_LENGTH.pack(len(body)) + body)
    if descriptors:
        data = data[socket.send_fds(line, [data], list(descriptors)) :]
    line.sendall(data)


def receive(line: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """The body of the next frame, and the descriptors that came with it.

    Raises:
        EOFError: the other side is gone.
        Broken: the frame is longer than ``most`` bytes.
        OSError: nothing comes within the line's time.
    """
    head, descriptors, _, _ = socket.recv_fds(line, _LENGTH.size, MOST_DESCRIPTORS)
    data = bytearray(head)
    while 0 < len(data) < _LENGTH.size:
        part = line.recv(_LENGTH.size - len(data))
        if not part:
            break
        data += part
    if len(data) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(data)
    if length > most:
        raise Broken(f"a frame of {length} bytes; at most {most} may be sent")
    body = bytearray(length)
    view = memoryview(body)
    while view:
        count = line.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(body), descriptors


# Errors ---------------------------------------------------------------------------------------------------------------


def failed_of(error: BaseException) -> Failed:
    """An error as it travels; one that is not ours keeps its words alone."""
    if isinstance(error, ConfigError):
        return Failed(
            error.kind, error.reason, code=str(error.code), file=error.file, line=error.line, column=error.column
        )
    if isinstance(error, BudgetTooSmall):
        return Failed(error.kind, str(error), number=error.minimum)
    if isinstance(error, CatalogBusy):
        return Failed(error.kind, str(error), number=error.pid)
    if isinstance(error, ViewcacheError):
        return Failed(error.kind, str(error))
    return Failed(Broken.kind, f"the service failed: {type(error).__name__}: {error}; its log says more")


def error_of(failed: Failed) -> ViewcacheError:
    """The error that was sent, of its own class."""
    kind = _by_kind().get(failed.kind, ViewcacheError)
    if kind is ConfigError:
        known = {str(code): code for code in ConfigCode}
        code = known.get(failed.code, ConfigCode.OTHER_CACHE)
        return ConfigError(code, failed.message, failed.file, failed.line, failed.column)
    if kind is BudgetTooSmall:
        return BudgetTooSmall(failed.message, failed.number)
    if kind is CatalogBusy:
        return CatalogBusy(failed.message, failed.number)
    return kind(failed.message)


def _by_kind() -> dict[str, type[ViewcacheError]]:
    kinds, todo = {}, [ViewcacheError]
    while todo:
        each = todo.pop()
        kinds[each.kind] = each
        todo += each.__subclasses__()
    return kinds
