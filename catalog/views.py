"""The public relations: SQL views in ``sql/views``, built after every migration.

A file opens with its purpose and one line per column, ``--   name: meaning``; docs/catalog.md is tested against them.
Files are created in the order of ``ORDER``, because views read views.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["ORDER", "View", "create_views", "drop_views", "read_view", "views_sql"]

ORDER = (
    "tasks",
    "videos",
    "images",
    "items",
    "video_columns",
    "generations",
    "order_items",
    "order_places",
    "orders",
    "draws",
    "uses",
    "progress",
    "positions",
    "leases",
    "substitutions",
    "io_samples",
    "usage",
    "events",
    "errors",
    "evictions",
    "policies",
    "tiers",
    "copies",
    "deadlines",
    "refcounts",
    "object_demand",
    "objects",
    "packs",
    "frames",
    "frame_runs",
    "views",
)
"""Every public relation, those that others read first."""

_HOME = Path(__file__).resolve().parent / "sql" / "views"
_COLUMN = re.compile(r"^--   ([a-z_0-9]+): (.+)$")


@dataclass(frozen=True, slots=True)
class View:
    """One public relation as its file declares it."""

    name: str
    purpose: str
    columns: tuple[tuple[str, str], ...]
    """(name, meaning) in order."""
    text: str
    """The SELECT."""


def read_view(name: str, dialect: str) -> View:
    """The view's file, from the dialect's folder if it has one there."""
    path = _HOME / dialect / f"{name}.sql"
    lines = (path if path.is_file() else _HOME / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    matches = [_COLUMN.match(line) for line in lines[:start]]
    columns = tuple((match[1], match[2]) for match in matches if match)
    purpose = " ".join(line[2:].strip() for line, match in zip(lines[:start], matches, strict=True) if not match)
    return View(name, purpose, columns, "\n".join(lines[start:]).strip().rstrip(";"))


def views_sql(dialect: str) -> Iterator[str]:
    """What creates the public views, one after the other; none may exist."""
    return (f"create view {name} as {read_view(name, dialect).text}" for name in ORDER)


def create_views(connection: "Connection") -> None:
    """Create every public view; none may exist."""
    dialect = connection.dialect.name
    for text in views_sql(dialect):
        # psycopg takes a percent sign for a parameter.
        connection.exec_driver_sql(text.replace("%", "%%") if dialect == "postgresql" else text)


def drop_views(connection: "Connection") -> None:
    """Drop every public view that exists."""
    for name in reversed(ORDER):
        connection.exec_driver_sql(f"drop view if exists {name}")
