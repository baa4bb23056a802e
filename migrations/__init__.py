"""Alembic revisions of the catalog, shipped with the package; the library builds Alembic's settings itself.

``HEAD`` lets an open compare revisions without importing Alembic (0.4 s); a test keeps it equal to the scripts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, MetaData

__all__ = ["HEAD", "Schema", "comparison", "current", "is_known", "upgrade"]

HEAD = "0015"
"""The revision that this release works with."""

_HOME = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Schema:
    """What the scripts lead to. Whoever upgrades gives it: scripts know nothing of the catalog's code."""

    metadata: "MetaData"
    postgresql_indexes: frozenset[str]
    """Names of the indexes that exist on PostgreSQL alone."""
    create_views: Callable[["Connection"], None]
    drop_views: Callable[["Connection"], None]


def _config(url: str, schema: Schema) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "viewcache:migrations")
    config.attributes |= {"url": url, "schema": schema}
    return config


def upgrade(url: str, schema: Schema) -> None:
    """Bring a database to the newest revision and build its public views.

    Args:
        url: a SQLAlchemy URL: ``duckdb:///path`` or ``postgresql+psycopg://…``. A DuckDB file must not be open in this
            process, and the caller holds the catalog's lock.
        schema: the tables and views of this release.
    """
    from alembic import command

    command.upgrade(_config(url, schema), "head")


def current(url: str) -> str | None:
    """The database's revision; None when it has no schema of ours."""
    from alembic.runtime.migration import MigrationContext
    from sqlalchemy import create_engine, pool

    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        revision: str | None = MigrationContext.configure(connection).get_current_revision()
    engine.dispose()
    return revision


def is_known(revision: str) -> bool:
    """Whether a script of this release makes this revision; if not, a newer release made it."""
    return any(path.name.startswith(f"{revision}_") for path in (_HOME / "versions").glob("*.py"))


def comparison(dialect: str, schema: Schema) -> dict[str, Any]:
    """Alembic's options to compare a database with the declared schema.

    Left out is what differs without meaning anything: indexes made for PostgreSQL alone, and the name of the type of
    text, which DuckDB calls VARCHAR whatever it was declared as.
    """
    from sqlalchemy import String

    left_out = frozenset[str]() if dialect == "postgresql" else schema.postgresql_indexes

    def wanted(item: object, name: str | None, kind: str, reflected: bool, compare_to: object) -> bool:
        return not (kind == "index" and name in left_out)

    def types_differ(context: object, column: object, declared: object, found: object, wanted: object) -> bool | None:
        return False if isinstance(found, String) and isinstance(wanted, String) else None

    return {"include_object": wanted, "compare_type": types_differ}
