"""What was chosen for each video, as far as a task that is open has it: an owner may be open for years."""

from collections.abc import Collection, Mapping

from viewcache.materializer.retention.chosen import Settled
from viewcache.materializer.retention.ways import Way

__all__ = ["SettledWays"]


class SettledWays:
    """Not thread-safe: the keeper's lock guards it."""

    def __init__(self) -> None:
        """Nothing was chosen yet."""
        self._ways: dict[str, Way] = {}
        self._videos: dict[int, Collection[str]] = {}
        """Task → content keys of those of its newest plan."""

    def __len__(self) -> int:
        """Of how many videos it is known."""
        return len(self._ways)

    def seen(self, *, later: bool) -> Settled:
        """What a rule is told; ``later`` as there."""
        return Settled(self._ways, later=later)

    def choose(self, ways: Mapping[str, Way]) -> None:
        """Take note of what was chosen for the newest generation, by the content key of the video."""
        self._ways.update(ways)

    def has(self, task_id: int, videos: Collection[str]) -> None:
        """A task has these videos, by their content keys, and no others; whether one is among them is asked of each."""
        self._videos[task_id] = videos

    def over(self, task_id: int) -> None:
        """A task is over."""
        self._videos.pop(task_id, None)

    def forget_gone(self) -> set[str]:
        """Forget videos that no task has any more, if there must be some; returns them."""
        if len(self._ways) <= sum(map(len, self._videos.values())):
            return set()
        gone = {key for key in self._ways if not any(key in mine for mine in self._videos.values())}
        self._ways = {key: way for key, way in self._ways.items() if key not in gone}
        return gone
