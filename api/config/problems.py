"""Where the loader of configurations reports mistakes: loading ends at the first one, `lint` collects them all.

The reader of each part of a configuration is run by `Problems.part`. A part that is refused has no value, and whoever
asks for it is refused too, without a second report: so nothing is told that only follows from another mistake.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from viewcache.errors import ConfigError

__all__ = ["CacheAlone", "Collected", "Part", "Problems", "Refused"]

T = TypeVar("T")


class Refused(Exception):
    """A value was asked for that was refused; the reason was reported."""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What was read of one part of a configuration."""

    _read: tuple[T, ...] = ()
    """The value alone, or nothing if the part was refused."""

    @classmethod
    def of(cls, value: T) -> "Part[T]":
        """A part that needs no reading."""
        return cls((value,))

    def __bool__(self) -> bool:
        """Whether it was read and not refused."""
        return bool(self._read)

    @property
    def value(self) -> T:
        """What was read.

        Raises:
            Refused: nothing was; what depends on it is refused too.
        """
        if not self._read:
            raise Refused
        return self._read[0]

    def value_or(self, default: T) -> T:
        """What was read, or something else if it was refused."""
        return self._read[0] if self._read else default


class Problems:
    """Takes the mistakes of one configuration; this one raises the first."""

    imports = True
    """Whether the modules of ``cache.op_modules`` are imported."""
    tasks = True
    """Whether tasks are read, and not the section ``cache`` alone."""

    def __init__(self) -> None:
        """Begin without problems."""
        self.ops_missing: set[str] = set()
        """Keys of ``cache`` of which a module was not imported, so that an unknown operation may exist."""

    @property
    def clean(self) -> bool:
        """Whether nothing was reported so far."""
        return True

    def report(self, error: ConfigError) -> None:
        """Take a mistake, for which the configuration is refused."""
        raise error

    def warn(self, error: ConfigError) -> None:
        """Take what could not be checked; nothing is refused for it."""

    def part(self, read: Callable[[], T]) -> Part[T]:
        """Read one part, and report why if it is refused.

        Args:
            read: gives the part's value or raises the first ConfigError of the part; it may report others before.
        """
        try:
            return Part.of(read())
        except ConfigError as error:
            self.report(error)
        except Refused:
            pass
        return Part()


class CacheAlone(Problems):
    """Raises the first mistake of the section ``cache``: no task is read, and no code of the user's is imported."""

    imports = False
    tasks = False


class Collected(Problems):
    """Keeps all mistakes, in the order in which they are found."""

    def __init__(self, *, imports: bool, most: int = 100) -> None:
        """Begin without problems.

        Args:
            imports: whether the modules of ``cache.op_modules`` are imported.
            most: mistakes that are kept; parts in which there are more are not read to their end.
        """
        super().__init__()
        self.imports = imports
        self._most = most
        self.errors: list[ConfigError] = []
        self.unchecked: list[ConfigError] = []
        """What could not be checked."""

    @property
    def clean(self) -> bool:
        """Whether nothing was reported so far."""
        return not self.errors

    def report(self, error: ConfigError) -> None:
        """Keep a mistake.

        Raises:
            Refused: there are enough.
        """
        if len(self.errors) >= self._most:
            raise Refused
        self.errors.append(error)

    def warn(self, error: ConfigError) -> None:
        """Keep what could not be checked."""
        self.unchecked.append(error)
