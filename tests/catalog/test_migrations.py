"""Migrations make the declared schema, on both databases, and never depend on live code."""

import ast
import lzma
import re
import shutil
from pathlib import Path

import duckdb
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, pool

from tests.catalog.samples import copy, draws, plan, registered, select
from viewcache import migrations
from viewcache.catalog import Catalog, creating, views
from viewcache.catalog.creating import create_database, tables_sql
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.opening import upgrade_catalog
from viewcache.catalog.postgres import sqlalchemy_url
from viewcache.catalog.tables import metadata
from viewcache.catalog.upgrading import SCHEMA, upgrade

WRITTEN = Path(__file__).parent / "written"
VERSIONS = Path(migrations.__file__).resolve().parent / "versions"


@pytest.fixture(params=["duckdb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of an empty database."""
    if request.param == "duckdb":
        return f"duckdb:///{tmp_path / 'catalog.duckdb'}"
    return sqlalchemy_url(request.getfixturevalue("empty_database"))


def test_migrations_make_the_declared_schema(url: str) -> None:
    """All revisions applied, Alembic finds no difference to the declared tables."""
    upgrade(url)
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=migrations.comparison(connection.dialect.name, SCHEMA))
        assert compare_metadata(context, metadata) == []
        assert set(inspect(connection).get_view_names()) == set(views.ORDER)
    engine.dispose()


def test_a_new_catalog_is_as_a_migrated_one(tmp_path: Path) -> None:
    """What is made of SQL that is written down has the same tables, constraints and views, at the same revision."""
    create_database(tmp_path / "new.duckdb")
    upgrade(f"duckdb:///{tmp_path / 'migrated.duckdb'}")
    new, migrated = (_described(tmp_path / f"{name}.duckdb") for name in ("new", "migrated"))
    assert new == migrated
    assert not (tmp_path / "new.duckdb.wal").exists()
    assert tables_sql() == (Path(creating.__file__).parent / "sql/new/tables.sql").read_text(), (
        "run python -m viewcache.catalog.creating"
    )


def _described(path: Path) -> list[list[tuple[object, ...]]]:
    questions = (
        "select table_name, column_name, data_type, is_nullable, column_default from duckdb_columns() "
        "where not internal order by all",
        "select table_name, constraint_type, constraint_column_names from duckdb_constraints() order by all",
        "select index_name, sql from duckdb_indexes() order by all",
        "select view_name, sql from duckdb_views() where not internal order by all",
        "select version_num from alembic_version",
    )
    with duckdb.connect(str(path), read_only=True) as connection:
        return [connection.execute(question).fetchall() for question in questions]


def test_a_difference_is_found(url: str) -> None:
    """The comparison above can fail: a column more, a table less, another type."""
    upgrade(url)
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        for change in (
            "alter table setting add column extra bigint",
            "drop table counter",
            "drop view tiers",
            "alter table tier alter column budget_bytes type double precision",
        ):
            connection.exec_driver_sql(change)
        context = MigrationContext.configure(connection, opts=migrations.comparison(connection.dialect.name, SCHEMA))
        found = [
            change[0] if isinstance(change, tuple) else change[0][0] for change in compare_metadata(context, metadata)
        ]
    engine.dispose()
    assert sorted(found) == ["add_table", "modify_type", "remove_column"]


def test_declared_tables_and_migrations_have_the_same_columns(url: str) -> None:
    """Column by column, nullability and key too: what Alembic does not compare on DuckDB."""
    upgrade(url)
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        found = inspect(connection)
        for name, table in metadata.tables.items():
            columns = [(column["name"], column["nullable"]) for column in found.get_columns(name)]
            assert columns == [(column.name, column.nullable) for column in table.columns], name
            key = found.get_pk_constraint(name)["constrained_columns"]
            assert key == [column.name for column in table.primary_key], name
    engine.dispose()


def test_indexes_are_made_on_postgresql_only(url: str) -> None:
    """On DuckDB an index doubles load times and has damaged updates."""
    upgrade(url)
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        found = {index["name"] for name in metadata.tables for index in inspect(connection).get_indexes(name)}
    engine.dispose()
    declared = {index.name for table in metadata.tables.values() for index in table.indexes}
    assert found == (set() if url.startswith("duckdb") else declared)


def test_upgrading_twice_changes_nothing(url: str) -> None:
    """A second upgrade, or one that another machine was faster with, finds nothing to do."""
    assert migrations.current(url) is None
    upgrade(url)
    upgrade(url)
    assert migrations.current(url) == migrations.HEAD


def test_head_is_the_newest_script() -> None:
    """The constant that an open compares with is the last revision there is, and there is one last."""
    script = ScriptDirectory(str(VERSIONS.parent))
    assert script.get_heads() == [migrations.HEAD]
    assert all(migrations.is_known(revision.revision) for revision in script.walk_revisions())
    assert not migrations.is_known("9999")


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("*.py")), ids=lambda path: path.stem)
def test_migrations_import_no_live_code(path: Path) -> None:
    """A revision does the same for ever, whatever becomes of the code; its file is named after it."""
    imported = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert imported <= {"sqlalchemy", "alembic"}
    assert re.fullmatch(r"\d{4}_[a-z_]+", path.stem)


def test_a_migration_checkpoints(tmp_path: Path) -> None:
    """No log of DDL is left to replay: the one kind that DuckDB has failed on."""
    upgrade(f"duckdb:///{tmp_path / 'catalog.duckdb'}")
    assert not (tmp_path / "catalog.duckdb.wal").exists()


@pytest.mark.parametrize("path", sorted(WRITTEN.glob("*.duckdb.xz")), ids=lambda path: path.name)
def test_catalogs_of_every_release_open(path: Path, tmp_path: Path) -> None:
    """A file that each revision's release wrote is upgraded and reads the same."""
    layout = CatalogFiles(tmp_path)
    layout.database.write_bytes(lzma.decompress(path.read_bytes()))
    assert upgrade_catalog(tmp_path) == migrations.HEAD
    with Catalog.open(tmp_path, create=False) as catalog:
        tasks = catalog.load_tasks()
        assert [task.name for task in tasks] == ["train"]
        assert catalog.load_videos(tasks[0].dataset_id)["name"].to_pylist() == ["0", "1", "2", "3"]
        assert catalog.load_copies()["object_id"].to_pylist() == [1, 5]
        found = catalog.load_plan(tasks[0].task_id, 0)
        assert found is not None
        assert (found.objects.num_rows, found.edges.num_rows, found.uses.num_rows) == (20, 16, 16)
        assert catalog.load_draws(tasks[0].task_id, 0, 0).num_rows == 4
        assert select(catalog, "select kind, state, count(*) from objects group by all order by all") == [
            ("clip", "planned", 15),
            ("clip", "ready", 1),
            ("frames", "planned", 3),
            ("frames", "ready", 1),
        ]


def test_this_release_has_its_file() -> None:
    """When HEAD moves, the catalog that it writes is kept (``python -m tests.catalog.test_migrations``)."""
    assert (WRITTEN / f"{migrations.HEAD}.duckdb.xz").exists()


def test_views_change_with_a_revision(tmp_path: Path) -> None:
    """Views are built when a revision is applied: what this release's file has is what it would build today."""
    written = tmp_path / "written.duckdb"
    written.write_bytes(lzma.decompress((WRITTEN / f"{migrations.HEAD}.duckdb.xz").read_bytes()))
    create_database(tmp_path / "new.duckdb")
    found = []
    for path in (written, tmp_path / "new.duckdb"):
        with duckdb.connect(str(path), read_only=True) as connection:
            question = "select view_name, sql from duckdb_views() where not internal order by all"
            found.append(dict(connection.execute(question).fetchall()))
    before, now = found
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    assert not changed, f"{sorted(changed)} changed: add a revision, so that catalogs get them (migrations/versions)"


def write_file() -> None:
    """Write the file of this release's revision."""
    folder = Path("written-catalog").absolute()
    with Catalog.open(folder) as catalog:
        row, ids = registered(catalog)
        catalog.record_plan(plan(catalog, row, ids))
        catalog.record_draws(draws(row, 0, ids))
        catalog.mark_ready([copy(1), copy(5)])
    with duckdb.connect(str(CatalogFiles(folder).database)) as connection:
        connection.execute("checkpoint")
    WRITTEN.mkdir(exist_ok=True)
    (WRITTEN / f"{migrations.HEAD}.duckdb.xz").write_bytes(lzma.compress(CatalogFiles(folder).database.read_bytes()))
    shutil.rmtree(folder)


if __name__ == "__main__":
    write_file()
