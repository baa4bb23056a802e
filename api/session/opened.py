"""The caches that are open in this process, for whoever is given only a path or a URL."""

import os
from typing import Protocol, TypeVar

from viewcache.api.config.load import Config
from viewcache.api.port import TaskSource

__all__ = ["OpenCache", "enter", "leave", "open_caches"]


class OpenCache(TaskSource, Protocol):
    """A cache that this process owns, or one that a service owns for it."""

    @property
    def config(self) -> Config:
        """The settings and the tasks."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the configuration."""

    def close(self) -> None:
        """Let go of it; harmless when done twice."""


_open: list[OpenCache] = []

C = TypeVar("C", bound=OpenCache)


def enter(cache: C) -> C:
    """Note that a cache is open; returns it."""
    _open.append(cache)
    return cache


def leave(cache: OpenCache) -> None:
    """Note that a cache is closed; harmless when it was done."""
    if cache in _open:
        _open.remove(cache)


def open_caches() -> tuple[OpenCache, ...]:
    """The caches that are open in this process, the one that was opened last first.

    Raises:
        WrongProcess: only the parent of this process had some open; they did not survive the fork.
    """
    own = tuple(cache for cache in reversed(_open) if cache.pid in (None, os.getpid()))
    if _open and not own:
        _open[-1].check_open()
    return own
