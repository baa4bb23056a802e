"""What `viewcache status` shows: each part is the answer to a question that people can ask in SQL themselves."""

from dataclasses import dataclass

from viewcache.api.queries.ask import ask_all, question

__all__ = ["PARTS", "Status", "as_number", "status"]

PARTS = ("tasks", "epochs", "objects", "tiers", "passing", "waiting", "changes", "errors")
"""Each is the question ``status_<part>``."""


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


def as_number(value: object) -> float:
    """A value of a row as a number; what is none counts as zero."""
    return float(value) if isinstance(value, int | float) else 0.0
