"""The settings of a cache that is open, and what a configuration says otherwise.

They travel as text, so that a process compares them without asking for the configuration of another one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from viewcache.api.config.load import Config
from viewcache.api.text import size
from viewcache.materializer.spec import CacheSpec, EvictionSpec
from viewcache.store.tier import LOCAL, MEMORY

__all__ = ["MEANING", "Differing", "differing", "settings_of"]

MEANING = ("catalog", "epochs_per_generation", "seed")
"""Keys of ``cache`` that decide what paths mean, or where things are: who uses a service goes on with its values."""


@dataclass(frozen=True, slots=True)
class Differing:
    """A setting that a running service has otherwise than a configuration."""

    key: str
    """Below ``cache``; those of a tier that is not the folder are below ``store.`` and its name."""
    running: str
    """The service's value."""
    given: str
    """The configuration's."""

    def told(self, root: str) -> str:
        """It in a sentence, with the cure; ``root`` is the store's folder."""
        running, given = _shown(self.key, self.running), _shown(self.key, self.given)
        if running == given:  # as large as makes no difference in words
            running, given = f"{self.running} bytes", f"{self.given} bytes"
        end = "the processes that use it have ended" if self.key in MEANING else f"`viewcache stop {root}`"
        return (
            f"cache.{self.key} is {given} in the configuration, but the running service has {running}, which stays "
            f"until {end}"
        )


def settings_of(config: Config) -> dict[str, str]:
    """The settings of a cache by key, exactly: sizes in bytes."""
    cache = config.cache
    found = {
        "store": ", ".join(tier.url for tier in cache.tiers),
        "catalog": cache.catalog,
        "budget": str(cache.local.budget_bytes),
        "memory": str(cache.memory_bytes),
        "epochs_per_generation": str(cache.epochs_per_generation),
        "seed": str(cache.seed),
        "draw_ahead": str(cache.draw_ahead),
        "keep": str(cache.keep),
        "mix": "auto" if cache.mix is None else f"{cache.mix:g}",
        "workers": str(cache.workers) if cache.workers else "one per core",
        "worker_kind": str(cache.worker_kind),
        "eviction": _eviction(cache.eviction),
        "durability": str(cache.durability),
        "service_idle": f"{cache.service_idle_s:g}",
        "trace": cache.trace or "none",
        "power.core_w": f"{config.core_w:g}",
    }
    return found | _tiers(cache)


def _tiers(cache: CacheSpec) -> dict[str, str]:
    found: dict[str, str] = {}
    for tier in cache.tiers:
        found |= {f"store.{tier.name}.codec": tier.codec, f"store.{tier.name}.timeout": f"{tier.timeout:g}"}
        if tier.name != LOCAL:
            found[f"store.{tier.name}.budget"] = str(tier.budget_bytes)
        if tier.name == MEMORY:
            found[f"store.{tier.name}.residents"] = "auto" if tier.residents is None else str(tier.residents)
    return found


def _eviction(eviction: EvictionSpec) -> str:
    where = f" of {eviction.folder}" if eviction.folder else ""
    trim = "" if eviction.trim else ", no trim"
    return f"{eviction.policy}{where}, from {eviction.high_water:g} down to {eviction.low_water:g}{trim}"


def differing(given: Collection[str], more: Config, running: Mapping[str, str]) -> list[Differing]:
    """What a configuration says of an open cache that the cache has otherwise.

    Args:
        given: keys of ``cache`` that the configuration has: what it leaves out it does not say.
        more: the configuration.
        running: `settings_of` the cache; those that it does not tell are taken for equal.
    """
    mine = settings_of(more)
    said = {key for key in mine if key.partition(".")[0] in given} - {"budget"}
    if more.budget_given:  # also as the budget of a tier
        said.add("budget")
    return [
        Differing(key, running[key], value)
        for key, value in mine.items()
        if key in said and key in running and running[key] != value
    ]


def _shown(key: str, value: str) -> str:
    is_size = key == "memory" or key.endswith(("budget", "residents"))
    return size(int(value)) if is_size and value.isdecimal() else value
