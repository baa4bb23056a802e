"""How far making ahead is, as a plain value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewcache.materializer.retention.forecast import Forecast

__all__ = ["Making"]


@dataclass(frozen=True, slots=True)
class Making:
    """What `Cache.materialize` has made, or is making."""

    clips: Mapping[str, int]
    """How many are ``ready``, ``planned`` (to be made) and ``failed``."""
    predicted: "Forecast"
    """What it would take, worked out before anything was made."""
    measured: "Forecast"
    """What the workers have done since it began, for other readers too."""
    failure: str = ""
    """Why the last job failed as a whole, such as a full disk; empty when it did not."""
    from_kept: int = 0
    """Once all is made: how many of the ``planned`` ones are made of kept pictures when they are read."""

    def made(self) -> tuple[int, int]:
        """How many objects were made since it began, and of how many as predicted.

        Unlike the count of clips that are ready it never goes down. Less is made than was predicted where objects have
        no room, cost less when they are read, since pictures for them lie there, or do not pack as small as promised.
        """
        done = round(self.measured.objects)
        return done, max(done, round(self.predicted.objects))
