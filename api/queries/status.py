"""What `viewcache status` shows: each part is the answer to a question that people can ask in SQL themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

from viewcache.api.queries.ask import ask_all, question
from viewcache.api.text import duration, size
from viewcache.materializer.telemetry.stalls import CAUSES

__all__ = ["PARTS", "Status", "status"]

PARTS = ("tasks", "objects", "tiers", "waiting", "errors")
"""Each is the question ``status_<part>``."""

Table = tuple[str, Sequence[str], list[tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a cache at one moment."""

    parts: dict[str, list[dict[str, object]]]
    """By name of `PARTS`: rows by column."""
    seen: str
    """Which state of the catalog this is."""

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, with the stalls added up."""
        return {"seen": self.seen, **self.parts, "stalls": self.stalls()}

    def stalls(self) -> list[dict[str, object]]:
        """Per task: what its reader waited for, in seconds and as a share of all waiting; the longest first."""
        rows = [row for row in self.parts["waiting"] if row["kind"] == "stall"]
        total: dict[object, float] = {}
        for row in rows:
            total[row["task"]] = total.get(row["task"], 0.0) + _number(row["seconds"])
        return [
            {
                "task": row["task"],
                "waiting_for": row["detail"],
                "seconds": _number(row["seconds"]),
                "share": _number(row["seconds"]) / total[row["task"]] if total[row["task"]] else 0.0,
            }
            for row in rows
        ]

    def tables(self) -> list[Table]:
        """(title, columns, rows) for people."""
        return [self._tasks(), self._objects(), self._tiers(), self._waiting(), self._errors()]

    def _tasks(self) -> Table:
        rows: list[tuple[object, ...]] = []
        for row in self.parts["tasks"]:
            at = "not read yet" if row["epoch"] is None else f"epoch {row['epoch']}, iteration {row['iteration']}"
            ready = f"{row['ready_to_come'] or 0} of {row['clips_to_come'] or 0}"
            pace = duration(_number(row["seconds_each"])) if row["seconds_each"] else ""
            rows.append((row["task"], row["epochs"], row["generations"], row["rank"], at, pace, ready))
        return (
            "tasks",
            ("task", "epochs", "planned", "rank", "next", "per iteration", "clips to come that are ready"),
            rows,
        )

    def _objects(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (row["kind"], row["state"], row["objects"], size(_number(row["bytes"]))) for row in self.parts["objects"]
        ]
        return "objects", ("kind", "state", "objects", "bytes"), rows

    def _tiers(self) -> Table:
        rows: list[tuple[object, ...]] = []
        for row in self.parts["tiers"]:
            used, budget = _number(row["used_bytes"]), _number(row["budget_bytes"])
            rows.append((row["tier"], row["url"], size(used), size(budget), f"{used / budget:.0%}" if budget else ""))
        return "store", ("tier", "where", "used", "budget", "full"), rows

    def _waiting(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (
                row["task"],
                CAUSES.get(str(row["waiting_for"]), row["waiting_for"]),
                duration(_number(row["seconds"])),
                f"{_number(row['share']):.0%}",
            )
            for row in self.stalls()
        ]
        rows += [
            (
                row["task"],
                {"hit": "clips that were there", "miss": "clips that were not"}.get(str(row["kind"]), row["kind"]),
                row["count"],
                "",
            )
            for row in self.parts["waiting"]
            if row["kind"] != "stall"
        ]
        return "what reading waited for", ("task", "for", "", "share"), rows

    def _errors(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (row["about"], row["name"], row["message"], row["count"]) for row in self.parts["errors"]
        ]
        return "last errors", ("about", "name", "message", "times"), rows


def status(where: str) -> Status:
    """Look at a cache from any process.

    Args:
        where: the catalog's folder or ``postgresql://`` URL.

    Raises:
        NotFound: there is no catalog.
        Timeout: another process owns it and did not publish a snapshot.
    """
    answers = ask_all(where, [question(f"status_{part}") for part in PARTS])
    return Status({part: answer.dicts() for part, answer in zip(PARTS, answers, strict=True)}, answers[0].seen)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
