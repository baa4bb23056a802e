"""Alembic revisions of the catalog, shipped with the package; the library builds Alembic's settings itself.

``HEAD`` lets an open compare revisions without importing Alembic (0.4 s); a test keeps it equal to the scripts.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["HEAD", "comparison", "current", "is_known", "upgrade"]

HEAD = "0004"
"""The revision that this release works with."""

_HOME = Path(__file__).resolve().parent


def _config(url: str) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "viewcache:migrations")
    config.attributes["url"] = url
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Bring a database to a revision and build its public views.

    Args:
        url: a SQLAlchemy URL: ``duckdb:///path`` or ``postgresql+psycopg://…``. A DuckDB file must not be open in this
            process, and the caller holds the catalog's lock.
        revision: ``head``, or a test's older one.
    """
    from alembic import command

    command.upgrade(_config(url), revision)


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


def comparison(dialect: str) -> dict[str, Any]:
    """Alembic's options to compare a database with the declared schema.

    Left out is what differs without meaning anything: indexes made for PostgreSQL alone, and the name of the type of
    text, which DuckDB calls VARCHAR whatever it was declared as.
    """
    from sqlalchemy import String

    from viewcache.catalog.tables import POSTGRESQL_INDEXES

    left_out = set() if dialect == "postgresql" else set(POSTGRESQL_INDEXES)

    def wanted(item: object, name: str | None, kind: str, reflected: bool, compare_to: object) -> bool:
        return not (kind == "index" and name in left_out)

    def types_differ(context: object, column: object, declared: object, found: object, wanted: object) -> bool | None:
        return False if isinstance(found, String) and isinstance(wanted, String) else None

    return {"include_object": wanted, "compare_type": types_differ}
