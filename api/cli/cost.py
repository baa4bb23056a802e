"""What status says of core seconds and energy, in words."""

from viewcache.api.queries.status import Cost, Status, as_number
from viewcache.api.text import duration, energy
from viewcache.materializer.clock import OTHER
from viewcache.materializer.telemetry.stalls import CAUSES
from viewcache.materializer.telemetry.usage import PLANNER, READER, WORKER

__all__ = ["cost_lines"]

MOST_STAGES = 4
"""Of workers, that are named; the rest is one figure."""

_WORDS = {"decode": "decoding", "convert": "converting", "augment": "augmenting", "store": "storing", "load": "loading"}


def cost_lines(found: Status) -> list[str]:
    """What the cache took of cores and of energy, and what decoding on demand would have taken; empty if unknown."""
    cost = found.cost()
    if cost is None:
        return []
    beside = (
        f"; what opened the cache has taken {duration(cost.beside_cpu_s)} more, its own work included"
        if cost.beside_cpu_s
        else ""
    )
    lines = [f"CPU {duration(cost.cpu_s)} ({', '.join(_stages(found))}){beside}"]
    if cost.on_demand_s is not None and cost.times is not None:
        times = f"{cost.times:.0f}" if cost.times >= 10 else f"{cost.times:.2g}"
        would = f"decoding each clip on demand would have taken about {duration(cost.on_demand_s)}"
        lines.append(f"{would}, {times} times as much")
    return [*lines, _energy(cost)]


def _stages(found: Status) -> list[str]:
    """The largest stages of workers, and the other classes, with what they took."""
    rows = found.parts["usage"]
    stages = {str(row["stage"]): as_number(row["cpu_s"]) for row in rows if row["class"] == WORKER}
    named = sorted((stage for stage in stages if stage != OTHER), key=lambda stage: -stages[stage])[:MOST_STAGES]
    rest = sum(seconds for stage, seconds in stages.items() if stage not in named)
    figures = [(_WORDS.get(stage, CAUSES.get(stage, stage)), stages[stage]) for stage in named]
    figures.append(("workers beside that", rest))
    for kind, words in ((READER, "reading"), (PLANNER, "planning and serving")):
        mine = [row for row in rows if row["class"] == kind and (kind, row["stage"]) != (READER, OTHER)]
        figures.append((words, sum(as_number(row["cpu_s"]) for row in mine)))
    return [f"{words} {duration(seconds)}" for words, seconds in figures if seconds]


def _energy(cost: Cost) -> str:
    about = f"energy about {energy(cost.joules)} ({cost.core_w:.3g} W a core"
    if cost.machine_joules is None:
        return f"{about}; no meter on this machine)"
    return f"{about}); by its meters (RAPL) the whole machine took {energy(cost.machine_joules)} meanwhile"
