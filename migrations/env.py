"""How Alembic runs here: views away, revisions on, views back, all in one transaction.

PostgreSQL refuses to alter a column that a view reads, so every view is dropped first. DuckDB cannot add constraints
to a column or alter an indexed table, so batch operations build the table anew there; on PostgreSQL they are plain
ALTERs.
"""

from pkgutil import resolve_name

from alembic import context
from duckdb_sqlalchemy.alembic_impl import DuckDBImpl
from sqlalchemy import Connection, create_engine, pool

from viewcache.migrations import Schema, comparison


class RecreatingImpl(DuckDBImpl):
    """DuckDB's Alembic dialect, with every batch operation as a rebuilt table."""

    __dialect__ = "duckdb"

    def requires_recreate_in_batch(self, batch_op: object) -> bool:
        """Always: DuckDB's ALTER TABLE does too little."""
        return True


def _url() -> str:
    given = context.config.attributes.get("url") or context.get_x_argument(as_dictionary=True).get("url")
    if not given:
        raise SystemExit("name the database: alembic -x url=duckdb:///catalog.duckdb …")
    return str(given)


def _schema() -> Schema:
    """Given by the caller; a developer's `alembic` has it from alembic.ini."""
    given = context.config.attributes.get("schema") or resolve_name(str(context.config.get_main_option("schema")))
    assert isinstance(given, Schema)
    return given


def _run(connection: Connection) -> None:
    schema = _schema()
    context.configure(
        connection=connection,
        target_metadata=schema.metadata,
        render_as_batch=True,
        **comparison(connection.dialect.name, schema),
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            # Two machines may start at once; the second then finds nothing left to do.
            connection.exec_driver_sql("select pg_advisory_xact_lock(hashtext('viewcache.migrations'))")
        schema.drop_views(connection)
        context.run_migrations()
        schema.create_views(connection)


engine = create_engine(_url(), poolclass=pool.NullPool)
with engine.connect() as live:
    _run(live)
    if live.dialect.name == "duckdb":
        # A log of DDL is the one kind that DuckDB has failed to replay.
        live.commit()
        live.exec_driver_sql("checkpoint")
engine.dispose()
