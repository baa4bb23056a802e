"""Which clips pass through memory instead of being stored, and which of them leave when there is no room (0045).

Pure functions. A clip that is not kept and has one use to come is read once and never again, so to store it costs more
than it is worth. The trade-off: what passes and is lost before it was read, with its process say, is made again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from viewcache.materializer.planning.cost import CostModel

__all__ = ["Handling", "OneUse", "handling", "leaving", "passing_bytes"]

PASSING_SHARE = 4
"""The part of ``cache.memory`` that clips may take at most on their way from workers to readers: one of so many."""

STORED_S = 0.005
"""Core seconds that a clip takes of the owner when it is stored, beside writing and reading its bytes: rows that come
and go, a file that is removed, a policy that is asked for room. 7 ms were measured (docs/design/0062). Without it the
two ways are so near each other that chance in the first measurements decides, and what is not done any more is not
measured again."""

T = TypeVar("T")


class Handling(Enum):
    """What becomes of a clip that a job could make."""

    STORE = auto()
    """It is made and stored."""
    PASS = auto()
    """It is made and lies in memory until its reader has it."""
    LATER = auto()
    """It is not made yet: then it will pass, which costs less than to store it now."""


@dataclass(frozen=True, slots=True)
class OneUse:
    """What decides it, of one clip."""

    bytes: int
    """Most raw bytes."""
    unkept: bool
    """Whether it was decided that it is made shortly before it is read."""
    uses: int
    """Of all open tasks to come."""
    soon: bool
    """Whether a reader is about to need it."""
    read: bool
    """Whether somebody reads its task: what is made for a training that has not begun is stored."""
    pictures_bytes: int | None = None
    """Bytes of the kept pictures that it can be made from; None = it must be decoded."""
    tight: bool = True
    """Whether the folder lacks room for all that its task has to come: what is stored takes the room of something."""
    kept_beside: bool = False
    """Whether the job that makes it is to make the kept pictures too, from which it could be made again."""


def passing_bytes(memory_bytes: int) -> int:
    """Of the memory that workers and passing clips may take together, what the clips may."""
    return memory_bytes // PASSING_SHARE


def handling(clip: OneUse, cost: CostModel) -> Handling:
    """What becomes of it, by what each way costs.

    Args:
        clip: what is known of it.
        cost: seconds of each kind of work, as measured.
    """
    if not clip.unkept or clip.uses != 1:
        return Handling.STORE
    stored_s = clip.bytes * (cost.store_s_per_byte + cost.load_s_per_byte) + STORED_S
    passing_s = clip.bytes * cost.pass_s_per_byte
    if clip.soon:
        # To decode again for a path that is read again costs much: where there is room to spare, that is stored.
        worthless = clip.tight or clip.pictures_bytes is not None or clip.kept_beside
        return Handling.PASS if clip.read and worthless and passing_s < stored_s else Handling.STORE
    if clip.pictures_bytes is None:
        return Handling.STORE  # while its video is being decoded it costs least
    # What it takes to crop and copy is the same now and later.
    return Handling.LATER if clip.pictures_bytes * cost.load_s_per_byte + passing_s < stored_s else Handling.STORE


def leaving(lying: Iterable[tuple[T, float | None, int]], need: int, before_s: float) -> list[T]:
    """What leaves memory for a clip: first what nobody needs, then what is needed latest, and nothing needed sooner.

    Args:
        lying: what may leave: it, in how many seconds it is needed (None = never), and its bytes.
        need: bytes that shall be free.
        before_s: in how many seconds the clip is needed.
    """
    latest_first = sorted(lying, key=lambda each: (each[1] is not None, -(each[1] or 0.0)))
    chosen: list[T] = []
    freed = 0
    for what, due_s, size in latest_first:
        if freed >= need or (due_s is not None and due_s <= before_s):
            break
        chosen.append(what)
        freed += size
    return chosen
