"""What is on its way between tiers: the mover keeps it, and the dispatcher asks whether there may be room soon.

One value that both are given, so that neither has to know the other to be built.
"""

import threading

__all__ = ["Moves"]


class Moves:
    """Copies that move between tiers now, and the bell that makes the mover look again. Thread-safe."""

    def __init__(self) -> None:
        """Nothing moves yet."""
        self._awake = threading.Event()
        self._looking = False
        self._turned = False
        self._under_way: set[tuple[str, str]] = set()

    def wake(self) -> None:
        """Have the mover look again: a reader moved on, or there is no room to make more."""
        self._awake.set()

    def turn(self) -> None:
        """A reader has come to another generation, or something was given up: what nobody needs may leave."""
        self._turned = True
        self.wake()

    def has_turned(self) -> bool:
        """Whether one has since this was asked last."""
        turned, self._turned = self._turned, False
        return turned

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to look at, or the time is over."""
        self._awake.wait(timeout_s)

    def look(self) -> None:
        """Begin to look: whatever happens from now on wakes the mover again."""
        self._looking = True
        self._awake.clear()

    def rest(self) -> None:
        """End looking: nothing is to be moved now."""
        self._looking = False

    def begin(self, key: str, tier: str) -> None:
        """Note that an object is on its way to a tier."""
        self._under_way.add((key, tier))

    def end(self, key: str, tier: str) -> None:
        """Note that it has arrived, or stays where it was."""
        self._under_way.discard((key, tier))

    def is_under_way(self, key: str, tier: str) -> bool:
        """Whether an object is on its way to a tier."""
        return (key, tier) in self._under_way

    def is_any(self) -> bool:
        """Whether something is on its way, or may be soon."""
        return bool(self._under_way) or self._looking or self._awake.is_set()
