"""A client's configuration: as it was when the cache was opened, and as its files have it by now.

The files are read only by who starts a service or is compared with one: most connections do neither.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from viewcache.api.config.documents import TextSource, renewed, unlike
from viewcache.api.config.load import Config
from viewcache.api.service import asks
from viewcache.errors import BudgetTooSmall, ConfigCode, ConfigError, ViewcacheError

__all__ = ["Renewal", "documents_of", "explained", "is_of_others", "settings_stay"]

_log = logging.getLogger("viewcache.service")


class Renewal:
    """The configuration of one client."""

    def __init__(self, sources: Iterable[TextSource], config: Config | None) -> None:
        """Keep it.

        Args:
            sources: as they were read when the cache was opened.
            config: what they say; None = they are not read again.
        """
        self._sources, self._config = tuple(sources), config
        self.before = documents_of(self._sources)
        """As it was."""
        self._need = 0
        """Bytes that a batch takes, as a service said that had no room for one."""

    def now(self) -> tuple[asks.Document, ...]:
        """With which a service is to begin: what the files say, or what they said, if it cannot be that; logs why."""
        try:
            sources, config = self._renewed()
        except ViewcacheError as error:
            settings_stay(error)
            return self.before
        if sources != self._sources and config is not None and _budget(config) < self._need:
            why = f"cache.budget is {_budget(config)}, but a batch takes up to {self._need} bytes"
            settings_stay(BudgetTooSmall(why, self._need))
            return self.before
        return documents_of(sources)

    def has_room(self, error: Exception) -> bool:
        """Whether a service that begins with this configuration has room for a batch, where the running one has not.

        Args:
            error: with which the running one refused this client.
        """
        if not isinstance(error, BudgetTooSmall):
            return False
        self._need = error.minimum
        return any(config is not None and _budget(config) >= self._need for config in (self._config, self._latest()[1]))

    def differing(self, running: Mapping[str, str]) -> tuple[str, ...]:
        """What the files say otherwise than a service that runs with other settings: warnings.

        Args:
            running: the service's settings.
        """
        sources, config = self._latest()
        if config is None:
            return ()
        return tuple(each.told(config.cache.local.url) for each in unlike(sources, config, running))

    def _latest(self) -> tuple[tuple[TextSource, ...], Config | None]:
        try:
            return self._renewed()
        except ViewcacheError:
            return self._sources, self._config

    def _renewed(self) -> tuple[tuple[TextSource, ...], Config | None]:
        return (self._sources, None) if self._config is None else renewed(self._sources, self._config)


def _budget(config: Config) -> int:
    return config.cache.local.budget_bytes


def is_of_others(error: Exception) -> bool:
    """Whether a service refuses a configuration that would be right for one that begins with it."""
    return isinstance(error, ConfigError) and error.code in (ConfigCode.GIVEN_TWICE, ConfigCode.OTHER_CACHE)


def explained(error: Exception, root: Path) -> Exception:
    """An error of a service that goes on; of a budget with the cure, as it need not be that of this configuration."""
    if not isinstance(error, BudgetTooSmall):
        return error
    return BudgetTooSmall(
        f"{error}. The running service began with that budget: raise it in the configurations of this store, then "
        f"`viewcache stop {root}`",
        error.minimum,
    )


def settings_stay(why: Exception) -> None:
    """Log why no service begins with the configuration as it is now."""
    text = "no service begins with the settings that the file has by now, so those of before stay: %s"
    _log.warning(text, why, extra={"action": "start_service"})


def documents_of(sources: Iterable[TextSource]) -> tuple[asks.Document, ...]:
    """The sources of a configuration as they travel."""
    return tuple(asks.Document(each.name, each.folder, each.text, each.ops) for each in sources)
