"""How several clips are made, and where their videos are, as columns: what a job of many images says of each of them.

An object of Python for each would cost the owner and the worker more than all else that they do for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from viewcache.materializer.column import Column
from viewcache.materializer.media.facts import Claims
from viewcache.materializer.planning.program import Program
from viewcache.materializer.planning.recipe import Part, Recipe, VideoSource

__all__ = ["BlockParts", "ClipRecipes", "VideoSources"]


@dataclass(frozen=True, slots=True)
class VideoSources(Column[VideoSource]):
    """Several videos: a list for each field."""

    uris: list[str]
    names: list[str]
    keys: list[str]
    indexes: list[bytes]
    frames: list[int]
    claims: Sequence[Claims | None]

    def __len__(self) -> int:
        """How many."""
        return len(self.uris)

    def one(self, row: int) -> VideoSource:
        """One of them."""
        about = self.indexes[row], self.frames[row], self.claims[row]
        return VideoSource(self.uris[row], self.names[row], self.keys[row], *about)


@dataclass(frozen=True, slots=True)
class ClipRecipes(Column[Recipe]):
    """How several clips of one plan are made: an array or a list for each field that differs."""

    keys: list[str]
    programs: list[Program]
    rows: np.ndarray
    """int32 (n, P): of the longest program's columns; the rest is zero."""
    frames: np.ndarray
    """int32 (n, F)."""
    shape: tuple[int, ...]
    due: list[int]
    bound: int

    def __len__(self) -> int:
        """How many."""
        return len(self.programs)

    def one(self, row: int) -> Recipe:
        """One of them."""
        program = self.programs[row]
        drawn = self.rows[row, : program.columns]
        return Recipe(self.keys[row], program, drawn, self.frames[row], self.shape, self.due[row], self.bound)


@dataclass(frozen=True, slots=True)
class BlockParts(Column[Part]):
    """The parts of a block."""

    sources: Sequence[VideoSource]
    recipes: ClipRecipes

    def __len__(self) -> int:
        """How many."""
        return len(self.recipes)

    def one(self, row: int) -> Part:
        """One of them."""
        return Part(self.sources[row], self.recipes.one(row))
