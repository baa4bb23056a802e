"""What a reader has waited for, held in the store until its bytes are loaded: by this process or by a client."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.scheduling.generation import PlannedClips
from viewcache.materializer.scheduling.seats import Seat
from viewcache.materializer.telemetry.stalls import Reading

__all__ = ["Held"]


@dataclass(slots=True)
class Held:
    """A batch, or a share of it, whose clips are held in the store for whoever loads them."""

    reading: Reading
    clips: PlannedClips
    rows: list[int]
    fetched: Fetched
    seat: Seat | None
    """Who reads it; None for who only looks."""
    is_part: bool = False
    """Whether it is some clips of a share, or the audio of a share alone, which does not count as read."""
    heard: bool = True
    """Whether the clips' audio is held, if the task has any."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Content keys of the clips; behind their copies are those of their audio."""
        return tuple(copy.key for copy in self.fetched.copies[: len(self.rows)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the batch's pixels."""
        return (len(self.rows), *self.clips.plan.shape)

    @property
    def audio_shape(self) -> tuple[int, ...] | None:
        """Of the batch's audio, (b,C,n); None where none is held."""
        audio = self.clips.plan.audio
        return None if audio is None or not self.heard else (len(self.rows), *audio.shape)

    @contextmanager
    def given_back_on_error(self) -> Iterator[None]:
        """Hold nothing for who cannot load it, for want of memory or because of Ctrl-C."""
        try:
            yield
        except BaseException:
            self.fetched.give_back()
            raise
