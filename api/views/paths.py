"""The paths below `view://`: text to a value and back, nothing else (SAND Table 1).

The last component decides what a path names, so a video called `12` and epoch 12 can live side by side.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode

from viewcache.errors import BadUrl

__all__ = ["AT", "FORMS", "NodeKind", "ViewPath", "parse_path"]

FORMS = (
    "view://{task}/{video}.{ext}",
    "view://{task}/{video}/frame{i}",
    "view://{task}/{video}/frame{i}/aug{d}[?epoch=&item=&sample=&output=]",
    "view://{task}/{video}/at/{seconds}s",
    "view://{task}/{epoch}/{iteration}/view[?rank=&world=]",
    "view://{task}/{epoch}/{iteration}/view.zarr",
    "view://{task}/{epoch}/{iteration}/audio[?rank=&world=&clip=]",
)
"""The kinds of path, as messages show them; ``at/{seconds}s`` may be followed by ``aug{d}`` too."""

AT = "at"
"""The folder of a video whose files are named by time; nothing is listed there."""


class NodeKind(StrEnum):
    """What a path names."""

    FOLDER = "folder"
    VIDEO = "video"
    FRAME = "frame"
    AUG = "aug"
    VIEW = "view"
    ZARR = "zarr"
    AUDIO = "audio"


_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,134}", re.ASCII)
"""A component: a name of 128 characters, and a video's extension."""
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_FRAME = re.compile(f"frame{_NUMBER}", re.ASCII)
_AUG = re.compile(f"aug{_NUMBER}", re.ASCII)
_WHOLE = re.compile(_NUMBER, re.ASCII)
_SECONDS = re.compile(r"((?:0|[1-9][0-9]{0,6})(?:\.[0-9]{1,9})?)s", re.ASCII)
_QUERY = {
    NodeKind.VIEW: ("rank", "world"),
    NodeKind.AUDIO: ("rank", "world", "clip"),
    NodeKind.AUG: ("epoch", "item", "sample", "output"),
}


@dataclass(frozen=True, slots=True)
class ViewPath:
    """What a path names."""

    kind: NodeKind
    parts: tuple[str, ...]
    """The components, without the query."""
    task: str = ""
    video: str = ""
    """For ``video``: with its extension."""
    frame: int = 0
    depth: int = 0
    """Augmentation steps done."""
    epoch: int | None = None
    iteration: int = 0
    rank: int = 0
    world: int = 1
    sample: int = 0
    output: str | None = None
    """For ``aug``: which output of a step that has several."""
    inside: str = ""
    """For ``zarr``: the path inside the group; empty = the group itself."""
    at_s: float | None = None
    """For ``frame`` and ``aug``: a presentation time in seconds, in the place of ``frame``."""
    item: int | None = None
    """For ``aug``: the ``item_id`` of a segment, or of the video as a whole."""
    clip: int | None = None
    """For ``audio``: that of one clip of the share alone."""

    def __str__(self) -> str:
        """The shortest text that means the same, without ``view://``."""
        given: dict[str, object] = {}
        if self.kind == NodeKind.AUG:
            given = {"epoch": self.epoch, "item": self.item, "sample": self.sample or None, "output": self.output}
        else:
            given = {"rank": self.rank, "world": self.world} if self.world != 1 else {}
            given["clip"] = self.clip
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return "/".join(self.parts) + ("?" + query if query else "")


def parse_path(path: str) -> ViewPath:
    """Read a path, with or without ``view://``.

    Raises:
        BadUrl: a character, a name or a query that no path has; the message shows the forms.
    """
    text = path.removeprefix("view://").strip("/") if "://" not in path or path.startswith("view://") else path
    text, _, query = text.partition("?")
    parts = tuple(text.split("/")) if text else ()
    for part in parts:
        if not _NAME.fullmatch(part):
            raise _bad(path, f"{part!r} is not a name ([A-Za-z0-9._-], not . or ..)")
    found = _kind(path, parts)
    return _with_query(path, found, query) if query else found


def _kind(path: str, parts: tuple[str, ...]) -> ViewPath:
    if len(parts) < 2:
        return ViewPath(NodeKind.FOLDER, parts, task=parts[0] if parts else "")
    task, *rest = parts
    if len(rest) >= 3 and rest[2] == "view.zarr" and _numbers(rest[:2]):
        epoch, iteration = int(rest[0]), int(rest[1])
        return ViewPath(NodeKind.ZARR, parts, task, epoch=epoch, iteration=iteration, inside="/".join(rest[3:]))
    if len(rest) == 3 and rest[2] in (NodeKind.VIEW, NodeKind.AUDIO) and _numbers(rest[:2]):
        return ViewPath(NodeKind(rest[2]), parts, task, epoch=int(rest[0]), iteration=int(rest[1]))
    if len(rest) in (2, 3) and (frame := _FRAME.fullmatch(rest[1])):
        if len(rest) == 2:
            return ViewPath(NodeKind.FRAME, parts, task, rest[0], int(frame[1]))
        if depth := _AUG.fullmatch(rest[2]):
            return ViewPath(NodeKind.AUG, parts, task, rest[0], int(frame[1]), int(depth[1]))
    if len(rest) in (3, 4) and rest[1] == AT and (time := _SECONDS.fullmatch(rest[2])):
        if len(rest) == 3:
            return ViewPath(NodeKind.FRAME, parts, task, rest[0], at_s=float(time[1]))
        if depth := _AUG.fullmatch(rest[3]):
            return ViewPath(NodeKind.AUG, parts, task, rest[0], at_s=float(time[1]), depth=int(depth[1]))
    if len(rest) == 1 and "." in rest[0]:
        return ViewPath(NodeKind.VIDEO, parts, task, rest[0])
    if len(rest) == 1 or (len(rest) == 2 and (_numbers(rest) or rest[1] == AT)):
        return ViewPath(NodeKind.FOLDER, parts, task)
    raise _bad(path, "no path has this form")


def _numbers(parts: list[str]) -> bool:
    return all(_WHOLE.fullmatch(part) for part in parts)


def _with_query(path: str, found: ViewPath, query: str) -> ViewPath:
    allowed = _QUERY.get(found.kind, ())
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=False):
        if name in values:
            raise _bad(path, f"?{name}= is given twice; give it once")
        if name not in allowed:
            raise _bad(path, f"?{name}= is not asked of it here; allowed: {', '.join(allowed) or 'nothing'}")
        values[name] = value
    numbers = {name: value for name, value in values.items() if name != "output"}
    for name, value in numbers.items():
        if not _WHOLE.fullmatch(value):
            raise _bad(path, f"{name}={value!r} is not a whole number")
    rank, world = int(numbers.get("rank", 0)), int(numbers.get("world", 1))
    if world < 1 or rank >= world:
        raise _bad(path, f"rank={rank} and world={world}: rank must be below world")
    epoch = int(numbers["epoch"]) if "epoch" in numbers else found.epoch
    item, clip = (int(numbers[name]) if name in numbers else None for name in ("item", "clip"))
    return ViewPath(
        found.kind, found.parts, found.task, found.video, found.frame, found.depth, epoch, found.iteration,
        rank, world, int(numbers.get("sample", 0)), values.get("output"), found.inside, found.at_s, item, clip,
    )  # fmt: skip


def _bad(path: str, reason: str) -> BadUrl:
    return BadUrl(f"{path!r}: {reason}; the forms are {', '.join(FORMS)}")
