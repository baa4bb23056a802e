"""Where workers find the videos that something is kept of, as far as clips of them are to come."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.retention.ways import ToCome
from viewcache.materializer.scheduling.generation import ActiveGeneration

__all__ = ["ClipSources", "clip_code"]

Rows = TypeVar("Rows", int, NDArray[np.int64])


def clip_code(row: Rows, number: int, plans: int) -> Rows:
    """One number for a clip, or for each of several: its row, and which of so many plans has it."""
    return row * plans + number


class ClipSources:
    """Asks a clip of each, which may be of one of several generations. Of a million images it has a number for each."""

    def __init__(self, works: Sequence[ActiveGeneration], plans: Sequence[ToCome], codes: Mapping[str, int]) -> None:
        """Take the clips, by the content key of their video; see `clip_code`."""
        self._works, self._plans, self._codes = works, [each.plan for each in plans], codes

    def __contains__(self, video: object) -> bool:
        """Whether it is among them; asked far more often than for what it is."""
        return video in self._codes

    def of(self, videos: Sequence[str]) -> list[VideoSource]:
        """Those of some videos, all clips of one generation together.

        Raises:
            KeyError: one is not among them.
        """
        clips = [divmod(self._codes[video], len(self._works)) for video in videos]
        found: dict[tuple[int, int], VideoSource] = {}
        for number in {number for _, number in clips}:
            mine = [clip for clip in clips if clip[1] == number]
            sources = self._works[number].sources_of(self._plans[number], [row for row, _ in mine])
            found.update(zip(mine, sources, strict=True))
        return [found[clip] for clip in clips]
