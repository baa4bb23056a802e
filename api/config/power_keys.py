"""The keys of ``cache.power``: what work takes of energy, where no meter says it."""

from viewcache.api.config.kinds import Key, KeySection
from viewcache.materializer.telemetry.power import CORE_W

__all__ = ["POWER"]

POWER = KeySection(
    "power",
    "cache.power",
    "What work takes of energy, as `viewcache status` and the relation `usage` estimate it.",
    (Key("core_w", "number", "Watts that a core takes while it works.", CORE_W, least=0.01, most=1000.0),),
)
