"""What `viewcache status` shows: each part is the answer to a question that people can ask in SQL themselves."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from viewcache.api.queries.ask import ask_all, in_memory, question
from viewcache.materializer.clock import OTHER
from viewcache.materializer.telemetry.usage import ESTIMATE, MACHINE, READER

__all__ = ["PARTS", "Cost", "Status", "as_number", "counts_memory", "status"]

PARTS = (
    "tasks",
    "epochs",
    "objects",
    "tiers",
    "residents",
    "passing",
    "waiting",
    "usage",
    "on_demand",
    "changes",
    "errors",
)
"""Each is the question ``status_<part>``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the work of a cache has taken since that is counted, and what it would have taken without."""

    since_s: float
    """When counting began, seconds since 1970-01-01 UTC."""
    cpu_s: float
    """Core seconds of the cache."""
    beside_cpu_s: float
    """Of the processes that opened the cache themselves, what is not known to be the cache's: training, say."""
    on_demand_s: float | None
    """Core seconds of decoding each clip alone when it is read; None where the rates are not known."""
    joules: float
    """Of the cache, estimated."""
    machine_joules: float | None
    """Of the whole machine meanwhile; None without a meter."""

    @property
    def times(self) -> float | None:
        """How many times as much decoding on demand would have taken; None where that is not known."""
        return None if self.on_demand_s is None or not self.cpu_s else self.on_demand_s / self.cpu_s

    @property
    def core_w(self) -> float:
        """Watts of a core, as the estimate has them; their mean if they were changed."""
        return self.joules / self.cpu_s if self.cpu_s else 0.0

    def as_dict(self) -> dict[str, float | None]:
        """The same as plain values."""
        return {**asdict(self), "times": self.times, "core_w": self.core_w}


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a cache at one moment."""

    parts: dict[str, list[dict[str, object]]]
    """By name of `PARTS`: rows by column."""
    seen: str
    """Which state of the catalog this is."""
    counts_memory: bool
    """Whether what is ready in the owner's memory is counted; see `counts_memory`."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, with the stalls added up."""
        cost = self.cost()
        told = {"stalls": self.stalls(), "cost": None if cost is None else cost.as_dict()}
        return {"seen": self.seen, "counts_memory": self.counts_memory, **self.parts, **told}

    def cost(self) -> Cost | None:
        """What all work has taken; None if none was counted yet."""
        rows = self.parts["usage"]
        ours = [row for row in rows if row["source"] == ESTIMATE and (row["class"], row["stage"]) != (READER, OTHER)]
        if not ours:
            return None
        on_demand = [as_number(row["seconds"]) for row in self.parts["on_demand"]]
        metered = [as_number(row["joules"]) for row in rows if row["class"] == MACHINE]
        cpu_s = sum(as_number(row["cpu_s"]) for row in ours)
        return Cost(
            since_s=min(as_number(row["since_s"]) for row in rows),
            cpu_s=cpu_s,
            beside_cpu_s=sum(as_number(row["cpu_s"]) for row in rows) - cpu_s,
            on_demand_s=sum(on_demand) if on_demand else None,
            joules=sum(as_number(row["joules"]) for row in ours),
            machine_joules=sum(metered) if metered else None,
        )

    def stalls(self) -> list[dict[str, object]]:
        """Per task: what its reader waited for, in seconds and as a share of all waiting; the longest first."""
        rows = [row for row in self.parts["waiting"] if row["kind"] == "stall"]
        total: dict[object, float] = {}
        for row in rows:
            total[row["task"]] = total.get(row["task"], 0.0) + as_number(row["seconds"])
        return [
            {
                "task": row["task"],
                "waiting_for": row["detail"],
                "seconds": as_number(row["seconds"]),
                "share": as_number(row["seconds"]) / total[row["task"]] if total[row["task"]] else 0.0,
            }
            for row in rows
        ]


def status(where: str, lying: Sequence[int] | None = None) -> Status:
    """Look at a cache from any process.

    Args:
        where: the catalog's folder or ``postgresql://`` URL.
        lying: objects that are ready in the owner's memory, as its service told them just before; None = nobody did.

    Raises:
        NotFound: there is no catalog.
        CatalogVersion: it is of another release, and has not what is asked for.
        Timeout: another process owns it and did not publish a snapshot.
    """
    answers = ask_all(where, [question(f"status_{part}") for part in PARTS], parameters=in_memory(lying))
    found = {part: answer.dicts() for part, answer in zip(PARTS, answers, strict=True)}
    made = sum(as_number(row["made"]) for row in found["passing"])
    counted = counts_memory(lying, answers[0].source, passes=made > 0)
    return Status(found, answers[0].seen, counted)


def counts_memory(lying: Sequence[int] | None, source: str, *, passes: bool) -> bool:
    """Whether all that is ready is known: also what lies in the owner's memory, which the catalog does not know.

    Args:
        lying: what the owner's service told of that; None = it could not be asked, or the owner is no service.
        source: of the answers: of a ``file`` nobody is the owner, so nothing lies in memory.
        passes: whether anything was ever put into memory.
    """
    return lying is not None or source == "file" or not passes


def as_number(value: object) -> float:
    """A value of a row as a number; what is none counts as zero."""
    return float(value) if isinstance(value, int | float) else 0.0
