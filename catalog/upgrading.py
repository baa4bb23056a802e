"""Bringing a database to this release's schema: the scripts lie in migrations, tables and views are declared here.

Imported only when there is something to upgrade or to create: it loads SQLAlchemy.
"""

from viewcache import migrations
from viewcache.catalog.tables import POSTGRESQL_INDEXES, metadata
from viewcache.catalog.views import create_views, drop_views

__all__ = ["SCHEMA", "upgrade"]

SCHEMA = migrations.Schema(metadata, frozenset(map(str, POSTGRESQL_INDEXES)), create_views, drop_views)
"""Also named in alembic.ini, for developers who write the next script."""


def upgrade(url: str) -> None:
    """Bring a database to the newest revision and build its public views; see `viewcache.migrations.upgrade`."""
    migrations.upgrade(url, SCHEMA)
