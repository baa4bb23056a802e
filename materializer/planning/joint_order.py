"""Orders of several jobs over overlapping elements, drawn together so that they coincide often (JOADER §3.2, §4).

Each job alone sees a uniformly random order; a round picks one element for every job that takes part, and few distinct
ones. The state is the set of elements by who still needs them ("cells"), not the paper's tree: partial rounds, joining,
leaving and recovery then need no code of their own. It is all derivable from what each job has drawn in its epoch.
"""

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken
from viewcache.materializer.randomness import Sequence, address_word, hash_address

__all__ = ["MOST_JOBS", "Chance", "DependentOrder", "EpochDraw", "KeyedChance", "Pick"]

MOST_JOBS = 60
"""Jobs that are drawn together: a set of them is one machine word. Further ones are drawn with each other."""

MANY_CELLS = 48
"""From here on a round looks at all cells by NumPy: about where both ways cost the same (benchmarks/sampler.py)."""

MOST_CELLS = 4096
"""A job joins others only while they have fewer cells; n jobs over random parts of the elements come to 2**n."""

_BLOCK = 256
"""Positions whose random words are computed at a time."""


@dataclass(slots=True)
class EpochDraw:
    """A job in one of its epochs."""

    name: str
    epoch: int
    position: int
    """Of its next pick in the epoch."""
    left: int
    """Elements it still needs in the epoch."""
    bit: int = 0
    """Its bit in the masks of cells."""
    words: list[int] = field(default_factory=list)
    """Random words of the positions from ``_BLOCK * block`` on."""
    block: int = -1


class Pick(NamedTuple):
    """What one job drew."""

    job: str
    epoch: int
    position: int
    element: int


class Chance(Protocol):
    """Where a round's choices come from; tests enumerate all of them instead."""

    def begin(self, jobs: Iterable[EpochDraw]) -> None:
        """A round of these jobs begins."""

    def coin(self, job: EpochDraw, wins: int, of: int) -> bool:
        """True with probability ``wins / of``."""

    def below(self, job: EpochDraw, n: int) -> int:
        """A uniform number below ``n``."""


class KeyedChance:
    """Random numbers whose addresses are (seed, job, epoch, position) and how many the job has used there (law 11)."""

    def __init__(self, seed: int) -> None:
        """Take the seed."""
        self._seed = seed
        self._numbers: dict[int, Sequence] = {}

    def begin(self, jobs: Iterable[EpochDraw]) -> None:
        """Look up the words of the jobs' positions."""
        for job in jobs:
            block, at = divmod(job.position, _BLOCK)
            if job.block != block:
                positions = np.arange(block * _BLOCK, (block + 1) * _BLOCK, dtype=np.uint64)
                job.words = hash_address(
                    self._seed, "order/round", address_word(job.name), job.epoch, positions
                ).tolist()
                job.block = block
            self._numbers[job.bit] = Sequence(job.words[at])

    def coin(self, job: EpochDraw, wins: int, of: int) -> bool:
        """True with probability ``wins / of``, to 2**-64."""
        return self._numbers[job.bit].below(of) < wins

    def below(self, job: EpochDraw, n: int) -> int:
        """A uniform number below ``n``, to 2**-64."""
        return self._numbers[job.bit].below(n)


class DependentOrder:
    """Which element each job takes next. Not thread-safe."""

    def __init__(self, elements: int, chance: Chance) -> None:
        """Start without jobs.

        Args:
            elements: how many there are; an element is a number below.
            chance: where random choices come from.
        """
        self.elements = elements
        self._chance = chance
        self.parts: list[Part] = []
        self._home: dict[str, Part] = {}

    def insert(self, name: str, elements: NDArray[np.int64], *, epoch: int = 0, position: int = 0) -> None:
        """Let a job join with the elements that it needs in its epoch; O(elements).

        Args:
            name: of the job; its random numbers depend on it.
            elements: (n,) distinct, in any order: its data set less what it has drawn in the epoch.
            epoch: of its picks.
            position: of its first pick: how many it has drawn in the epoch.

        Raises:
            BadInput: the job is in already, or an element is out of range or given twice.
        """
        if name in self._home:
            raise BadInput(f"job {name!r} draws already; let it `leave` first, or choose another name")
        wanted = np.zeros(self.elements, bool)
        if len(elements) and not 0 <= elements.min() <= elements.max() < self.elements:
            raise BadInput(
                f"job {name!r} needs elements {elements.min()} to {elements.max()}; there are 0 to {self.elements - 1}"
            )
        wanted[elements] = True
        if np.count_nonzero(wanted) < len(elements):
            raise BadInput(f"job {name!r} needs an element twice; an epoch has each once")
        part = next((part for part in self.parts if part.has_room()), None)
        if part is None:
            part = Part(self._chance)
            self.parts.append(part)
        part.insert(EpochDraw(name, epoch, position, len(elements)), wanted)
        self._home[name] = part

    def remove(self, name: str) -> None:
        """Let a job leave; O(1)."""
        part = self._home.pop(name, None)
        if part is not None:
            part.remove(name)

    def left(self, name: str) -> int:
        """How many elements a job still needs in its epoch; 0 for one that is not in."""
        part = self._home.get(name)
        return part.jobs[name].left if part is not None else 0

    def needs(self) -> NDArray[np.int64]:
        """(elements,) how many jobs still need each element: JOADER's reference counts."""
        counts = np.zeros(self.elements, np.int64)
        for part in self.parts:
            part.count(counts)
        return counts

    def needed_by(self, name: str) -> NDArray[np.int64]:
        """Elements that a job still needs in its epoch, sorted; empty for one that is not in."""
        part = self._home.get(name)
        return part.needed_by(part.jobs[name].bit) if part is not None else np.empty(0, np.int64)

    def draw(self, names: Collection[str]) -> list[Pick]:
        """Draw one element for each of the jobs that still needs one: one round, a partial one if not all are named.

        Two jobs of sizes a <= b that share i elements draw the same with probability i / b, the most that is possible
        (JOADER, Theorem 1). Costs O(jobs x cells).
        """
        picks: list[Pick] = []
        if len(self.parts) == 1:
            return self.parts[0].draw(names, picks)
        for part in self.parts:
            part.draw([name for name in names if self._home.get(name) is part], picks)
        return picks


class Part:
    """Jobs that are drawn together."""

    def __init__(self, chance: Chance) -> None:
        self.jobs: dict[str, EpochDraw] = {}
        self.chance = chance
        self._cells: dict[int, array[int]] = {}
        """Mask of jobs that need them → elements, no cell empty. A mask may hold bits of jobs that left."""
        self._free = [1 << k for k in reversed(range(MOST_JOBS))]
        self._left: list[int] = []
        """Bits of jobs that left and may be in masks still."""
        self._table: _Table | None = None
        """The cells as arrays; only while there are many."""
        self._swept = 0
        """Cells after the last sweep."""

    def has_room(self) -> bool:
        """Whether another job can be drawn together with these."""
        return len(self.jobs) < MOST_JOBS and len(self._cells) < MOST_CELLS

    def insert(self, job: EpochDraw, wanted: NDArray[np.bool_]) -> None:
        """Move what the job needs to the cells with its bit; ``wanted`` is used up."""
        if self._left and (not self._free or len(self._cells) > 2 * self._swept + MANY_CELLS):
            self._sweep()
        job.bit = self._free.pop()
        for mask, cell in list(self._cells.items()):
            here = np.frombuffer(cell, np.int64)
            inside = wanted[here]
            moved = here[inside]
            if len(moved):
                wanted[moved] = False
                self._put(mask, here[~inside])
                self._put(mask | job.bit, moved)
        self._put(job.bit, np.flatnonzero(wanted))
        self.jobs[job.name] = job
        self._table = None

    def remove(self, name: str) -> None:
        self._left.append(self.jobs.pop(name).bit)

    def count(self, counts: NDArray[np.int64]) -> None:
        """Add the number of jobs that need each element."""
        live = sum(job.bit for job in self.jobs.values())
        for mask, cell in self._cells.items():
            counts[np.frombuffer(cell, np.int64)] += (mask & live).bit_count()

    def needed_by(self, bit: int) -> NDArray[np.int64]:
        cells = [np.frombuffer(cell, np.int64) for mask, cell in self._cells.items() if mask & bit]
        return np.sort(np.concatenate(cells)) if cells else np.empty(0, np.int64)

    def draw(self, names: Collection[str], picks: list[Pick]) -> list[Pick]:
        """Algorithm 1, with line 12 as c ← |D| - |S|: as printed, orders are biased (docs/design/0008)."""
        jobs = self.jobs
        todo = sorted((jobs[name] for name in names if name in jobs and jobs[name].left), key=_by_left)
        self.chance.begin(todo)
        if self._table is None and len(self._cells) > MANY_CELLS:
            self._table = _Table(self._cells)
        alive: _Alive = _FewCells(self._cells) if self._table is None else _ManyCells(self._table)
        taken: dict[tuple[int, int], list[EpochDraw]] = {}
        seen = 0  # elements in cells that are not alive any more; all jobs that are still to do need them
        while todo:
            common = alive.split(sum(job.bit for job in todo))
            together = self.drawn_together(todo, common, seen)
            if together:
                place = alive.common(self.chance.below(todo[0], common))
            else:
                together = 1
                job = todo[0]
                place = alive.other(job.bit, self.chance.below(job, job.left - seen - common))
            taken.setdefault(place, []).extend(todo[:together])
            del todo[:together]
            seen += common
        for place in sorted(taken, reverse=True):  # the later place in a cell first: taking one moves the last
            self._take(place, taken[place], picks)
        return picks

    def drawn_together(self, todo: list[EpochDraw], common: int, seen: int) -> int:
        """How many of the jobs, fewest left first, draw one element that all of them need."""
        together, wins = 0, common
        for job in todo:
            of = job.left - seen
            if wins < of and not (wins and self.chance.coin(job, wins, of)):
                break
            together, wins = together + 1, of
        return together

    def _take(self, place: tuple[int, int], jobs: list[EpochDraw], picks: list[Pick]) -> None:
        mask, at = place
        cell = self._cells[mask]
        element, last = cell[at], cell.pop()
        if at < len(cell):
            cell[at] = last
        elif not cell:
            del self._cells[mask]
        rest = mask
        for job in jobs:
            picks.append(Pick(job.name, job.epoch, job.position, element))
            job.position += 1
            job.left -= 1
            rest ^= job.bit
        if rest:
            there = self._cells.get(rest)
            if there is None:
                self._cells[rest] = array("q", (element,))
            else:
                there.append(element)
        if self._table is not None:
            self._table.move(mask, rest)

    def _put(self, mask: int, elements: NDArray[np.int64]) -> None:
        """Make a cell hold these elements, besides what it got from others if it is new."""
        if len(elements):
            self._cells[mask] = array("q", elements.tobytes())
        else:
            self._cells.pop(mask, None)

    def _sweep(self) -> None:
        """Unite cells that differ in jobs that left only, and make their bits free again."""
        dead = sum(self._left)
        united: dict[int, array[int]] = {}
        for mask, cell in self._cells.items():
            if mask & ~dead:
                united.setdefault(mask & ~dead, array("q")).extend(cell)
        self._cells, self._table, self._swept = united, None, len(united)
        self._free += self._left
        self._left = []


def _by_left(job: EpochDraw) -> tuple[int, str]:
    return job.left, job.name


class _Alive(Protocol):
    """The cells that a round has still to look at."""

    def split(self, group: int) -> int:
        """Set apart the cells that all of ``group`` need, for good; returns how many elements they hold."""

    def common(self, nth: int) -> tuple[int, int]:
        """(mask, index) of the nth element of those."""

    def other(self, bit: int, nth: int) -> tuple[int, int]:
        """(mask, index) of the nth element that the job needs in the cells that are left."""


class _FewCells:
    def __init__(self, cells: dict[int, "array[int]"]) -> None:
        self._rest = [(mask, len(cell)) for mask, cell in cells.items()]
        self._common: list[tuple[int, int]] = []

    def split(self, group: int) -> int:
        common, rest, total = [], [], 0
        for each in self._rest:
            if group & ~each[0]:
                rest.append(each)
            else:
                common.append(each)
                total += each[1]
        self._common, self._rest = common, rest
        return total

    def common(self, nth: int) -> tuple[int, int]:
        return _walk(self._common, nth)

    def other(self, bit: int, nth: int) -> tuple[int, int]:
        return _walk([each for each in self._rest if each[0] & bit], nth)


def _walk(cells: list[tuple[int, int]], nth: int) -> tuple[int, int]:
    for mask, size in cells:
        if nth < size:
            return mask, nth
        nth -= size
    raise Broken(f"the cells of a round hold {nth + 1} elements fewer than the jobs that need them count")


class _Table:
    """Masks and sizes of all cells, kept while elements move; a cell that became empty stays with size 0."""

    def __init__(self, cells: dict[int, "array[int]"]) -> None:
        self.masks = np.array([*cells, *[0] * len(cells)], np.int64)
        self.sizes = np.zeros(2 * len(cells), np.int64)
        self.sizes[: len(cells)] = [len(cell) for cell in cells.values()]
        self.rows = {mask: row for row, mask in enumerate(cells)}

    def move(self, mask: int, rest: int) -> None:
        self.sizes[self.rows[mask]] -= 1
        if rest:
            row = self.rows.setdefault(rest, len(self.rows))
            if row == len(self.masks):
                self.masks = np.concatenate([self.masks, np.zeros(row, np.int64)])
                self.sizes = np.concatenate([self.sizes, np.zeros(row, np.int64)])
            self.masks[row] = rest
            self.sizes[row] += 1


class _ManyCells:
    def __init__(self, table: _Table) -> None:
        filled = np.flatnonzero(table.sizes)
        self._rest = table.masks[filled]
        self._sizes = table.sizes[filled]

    def split(self, group: int) -> int:
        inside = (self._rest & group) == group
        self._common, self._ends = self._rest[inside], np.cumsum(self._sizes[inside])
        self._rest, self._sizes = self._rest[~inside], self._sizes[~inside]
        return int(self._ends[-1]) if len(self._ends) else 0

    def common(self, nth: int) -> tuple[int, int]:
        return _nth(self._common, self._ends, nth)

    def other(self, bit: int, nth: int) -> tuple[int, int]:
        inside = (self._rest & bit) != 0
        return _nth(self._rest[inside], np.cumsum(self._sizes[inside]), nth)


def _nth(masks: NDArray[np.int64], ends: NDArray[np.int64], nth: int) -> tuple[int, int]:
    cell = int(np.searchsorted(ends, nth, "right"))
    return int(masks[cell]), nth - (int(ends[cell - 1]) if cell else 0)
