"""A new DuckDB catalog from SQL that is written down: applying every revision to an empty file takes a second of CPU.

``sql/new/tables.sql`` is what the declared tables compile to. After a change of them write it anew:
``python -m viewcache.catalog.creating``. A test compares a database that is made so with a migrated one.
"""

from pathlib import Path

from viewcache import errors, migrations
from viewcache.catalog.driver import duckdb
from viewcache.catalog.duck import is_full
from viewcache.catalog.uninterrupted import uninterrupted
from viewcache.catalog.views import views_sql

__all__ = ["create_database", "tables_sql"]

_TABLES = Path(__file__).resolve().parent / "sql" / "new" / "tables.sql"
_HEAD = "-- The tables of a new DuckDB catalog, made of catalog/tables.py by `python -m viewcache.catalog.creating`.\n"


def create_database(path: Path) -> None:
    """Make a database of this release's revision, with its views; nothing may lie at ``path``.

    Raises:
        Full: there is no space for it.
        Broken: DuckDB cannot make it, for another reason.
    """
    try:
        uninterrupted(lambda: _create(path))
    except duckdb.Error as error:
        if is_full(error):
            raise errors.Full(f"catalog {path}: {error}; free disk space and open again") from error
        raise errors.Broken(f"catalog {path} cannot be made: {error}") from error


def _create(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.begin()
        connection.execute(_TABLES.read_text(encoding="utf-8"))
        for statement in views_sql("duckdb"):
            connection.execute(statement)
        connection.commit()
        connection.execute("checkpoint")  # a log of DDL is the one kind that DuckDB has failed to replay


def tables_sql() -> str:
    """What ``sql/new/tables.sql`` is to be."""
    from duckdb_sqlalchemy import Dialect
    from sqlalchemy import Column, MetaData, String, Table, literal
    from sqlalchemy.schema import CreateTable

    from viewcache.catalog.tables import metadata

    version = Column("version_num", String(32), primary_key=True)
    tables = [*metadata.sorted_tables, Table("alembic_version", MetaData(), version)]
    head = tables[-1].insert().values(version_num=literal(migrations.HEAD, literal_execute=True))
    statements = [*map(CreateTable, tables), head]
    written_out = {"literal_binds": True}
    compiled = (str(each.compile(dialect=Dialect(), compile_kwargs=written_out)).strip() for each in statements)
    lines = (line.rstrip().replace("\t", "    ") for text in compiled for line in f"{text};".splitlines())
    return _HEAD + "".join(f"{line}\n" for line in lines if line)


if __name__ == "__main__":
    _TABLES.write_text(tables_sql(), encoding="utf-8")
