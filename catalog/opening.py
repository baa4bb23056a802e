"""Opening a catalog: the lock, creation, the schema's revision, the journal, and what to do with damaged files.

What cannot be read is moved aside, never deleted, and the catalog is made anew: its draws come from the journal, its
copies from the store. Opening a current catalog imports neither Alembic nor SQLAlchemy, which would take longer than
the opening itself.
"""

import logging
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from viewcache import errors, migrations
from viewcache.catalog import files
from viewcache.catalog.blobs import BlobFile
from viewcache.catalog.duck import DuckEngine
from viewcache.catalog.engine import Engine
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.journal import Journal
from viewcache.catalog.lock import OWNER_LOCK, OwnerLock
from viewcache.catalog.replay import attach, detach
from viewcache.catalog.revisions import NONE_ON_POSTGRESQL, is_older, too_old

if TYPE_CHECKING:
    from viewcache.catalog.postgres import PostgresEngine

__all__ = [
    "Opened",
    "is_postgresql",
    "journal_of",
    "open_catalog",
    "own_store",
    "owner_lock_of",
    "postgresql_revision",
    "upgrade_catalog",
]

_log = logging.getLogger("viewcache.catalog")


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database and what belongs to holding it."""

    engine: Engine
    where: str
    """The folder or URL; a URL may hold a password."""
    layout: CatalogFiles | None
    """None for PostgreSQL."""
    lock: OwnerLock | None
    """None for PostgreSQL."""
    quarantined: tuple[Path, ...] = ()
    """Files that were moved aside; the copies they told of must be looked up in the store."""
    journal: Journal | None = None
    """Open to append to; None for a catalog that is only read, or has no folder for one."""
    blobs: BlobFile | None = None
    """Packet indexes; None for a PostgreSQL catalog that has no folder for them."""

    def make_room(self) -> bool:
        """Free what is held back for a full disk; False when there is nothing left to free."""
        return self.layout is not None and files.release_reserve(self.layout)

    def close(self) -> None:
        """Let go of all of it."""
        if self.journal is not None:
            detach(self.journal, self.engine)
        if self.blobs is not None:
            self.blobs.close()
        self.engine.close()
        if self.lock is not None:
            self.lock.release()


def is_postgresql(where: str | Path) -> bool:
    """Whether this names a PostgreSQL database rather than a folder."""
    return str(where).startswith(("postgresql://", "postgresql+psycopg://"))


def owner_lock_of(where: str, root: str | Path) -> Path:
    """The file whose lock says who owns a cache: the catalog's, or in a store's folder where that is in PostgreSQL."""
    return Path(root) / OWNER_LOCK if is_postgresql(where) else CatalogFiles(Path(root)).lock


def own_store(where: str, root: str | Path, *, exclusive: bool = True) -> OwnerLock | None:
    """Take the lock of a store whose catalog is in PostgreSQL; None of another, which is taken with its catalog.

    Raises:
        CatalogBusy: another process holds it.
    """
    return OwnerLock(owner_lock_of(where, root), exclusive=exclusive) if is_postgresql(where) else None


def open_catalog(
    where: str | Path,
    *,
    create: bool,
    writable: bool,
    wait_s: float,
    memory_bytes: int,
    beside: str | Path | None = None,
) -> Opened:
    """Open the database at ``where``; see ``Catalog.open``."""
    if is_postgresql(where):
        return _open_postgresql(str(where), beside, create=create, writable=writable)
    layout = CatalogFiles(Path(where).absolute())
    if writable and create:
        layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not layout.folder.is_dir():
        raise errors.NotFound(f"no catalog in {layout.folder}: no such folder; `viewcache run` makes one")
    lock = OwnerLock(layout.lock, exclusive=writable, wait_s=wait_s)
    try:
        return _open_duckdb(layout, lock, create=create, writable=writable, memory_bytes=memory_bytes)
    except BaseException:
        lock.release()
        raise


def journal_of(where: str | Path, beside: str | Path) -> Path:
    """Where the journal of a catalog is: with DuckDB's file, or in the store's folder under the database's own name."""
    if not is_postgresql(where):
        return CatalogFiles(Path(where).absolute()).journal
    url = urlsplit(str(where))
    host = url.netloc.rpartition("@")[2]  # not who asks, and with which password
    place = blake2b(f"{host}{url.path}?{url.query}".encode(), digest_size=4).hexdigest()
    return Path(beside) / f"catalog-{place}.journal"


def upgrade_catalog(where: str | Path) -> str:
    """Bring an existing catalog to this release's revision (``viewcache db upgrade``) and name it.

    Raises:
        NotFound: there is no catalog.
        CatalogBusy: somebody has it open.
        CatalogVersion: a newer release made it.
        BadInput: the role may not change a PostgreSQL catalog.
    """
    if is_postgresql(where):
        from viewcache.catalog.postgres import PostgresEngine

        engine = PostgresEngine(str(where))
        try:
            if is_older(_made_revision(engine), str(where)):
                engine.own()  # a process of an older release may have it open, and write as its schema has it
                engine.upgrade()
        finally:
            engine.close()
        return migrations.HEAD
    open_catalog(where, create=False, writable=True, wait_s=0.0, memory_bytes=1 << 30).close()
    return migrations.HEAD


def _open_duckdb(layout: CatalogFiles, lock: OwnerLock, *, create: bool, writable: bool, memory_bytes: int) -> Opened:
    aside: list[Path] = []
    if writable and create and layout.suspect.exists():
        aside += _set_aside(layout)
    if not layout.database.exists():
        if not (create and writable):
            raise errors.NotFound(f"no catalog in {layout.folder}; `viewcache run` makes one")
        aside += _set_aside(layout)  # a log without its database
        files.create(layout)
    if writable:
        rmtree(layout.building, ignore_errors=True)
        files.refill_reserve(layout)
    try:
        engine = _engine_of(layout, aside, writable=writable, memory_bytes=memory_bytes)
    except errors.CatalogDamaged as error:
        if not (writable and create and layout.suspect.exists()):
            raise
        _log.error("%s; it is made anew", error, extra={"action": "catalog_rebuild"})
        aside += _set_aside(layout)
        files.create(layout)
        engine = _engine_of(layout, aside, writable=writable, memory_bytes=memory_bytes)
    try:
        journal = attach(layout.journal, engine) if writable else None
        blobs = _blobs(layout.indexes, engine, writable=writable)
    except BaseException:
        engine.close()
        raise
    return Opened(engine, str(layout.folder), layout, lock, tuple(aside), journal, blobs)


def _set_aside(layout: CatalogFiles) -> list[Path]:
    """Move a database and its log aside; the mark of damage goes last, so that a kill in between changes nothing."""
    moved = [files.quarantine(layout.database), files.quarantine(layout.log)]
    layout.suspect.unlink(missing_ok=True)
    return [path for path in moved if path is not None]


def _engine_of(layout: CatalogFiles, aside: list[Path], *, writable: bool, memory_bytes: int) -> DuckEngine:
    """The database at this release's revision; a log that cannot be replayed is added to ``aside``."""

    def connect() -> DuckEngine:
        return DuckEngine(layout.database, read_only=not writable, memory_bytes=memory_bytes)

    try:
        engine = connect()
    except errors.CatalogDamaged as error:
        if not (writable and layout.log.exists() and "WAL" in str(error)):
            raise
        log = files.quarantine(layout.log)
        assert log is not None
        aside.append(log)
        layout.suspect.unlink(missing_ok=True)
        engine = connect()
    try:
        older = is_older(_revision(engine), str(layout.folder))
    except errors.ViewcacheError:
        engine.close()
        raise
    if older:
        from viewcache.catalog.upgrading import upgrade

        engine.close()
        if not writable:
            raise too_old(str(layout.folder))
        _log.info("upgrading %s to %s", layout.folder, migrations.HEAD, extra={"action": "catalog_upgrade"})
        upgrade(f"duckdb:///{layout.database}")
        engine = connect()
    return engine


def _open_postgresql(url: str, beside: str | Path | None, *, create: bool, writable: bool) -> Opened:
    from viewcache.catalog.postgres import PostgresEngine

    engine = PostgresEngine(url)
    try:
        if writable:
            engine.own()
        if engine.is_empty():
            if not (create and writable):
                raise errors.NotFound(NONE_ON_POSTGRESQL)
            engine.upgrade()
        elif is_older(_revision(engine), "of the PostgreSQL database"):
            # Other machines may be using it, so this one does not change it unasked.
            raise too_old("of the PostgreSQL database")
        journal = attach(journal_of(url, beside), engine) if writable and beside is not None else None
        blobs = None
        if beside is not None:
            blobs = _blobs(journal_of(url, beside).with_suffix(".indexes"), engine, writable=writable)
    except BaseException:
        engine.close()
        raise
    return Opened(engine, url, None, None, journal=journal, blobs=blobs)


def _blobs(path: Path, engine: Engine, *, writable: bool) -> BlobFile:
    """The file of packet indexes; emptied when the database, made anew, refers to none of them."""
    blobs = BlobFile(path, writable=writable)
    if writable and engine.query("count_indexes")["indexes"][0].as_py() == 0:
        blobs.clear()
    return blobs


def postgresql_revision(url: str) -> str:
    """The revision of a PostgreSQL catalog's schema; nothing is changed.

    Raises:
        NotFound: the database holds no catalog.
        BadInput, CatalogBusy: the server does not let us in, or does not answer.
    """
    from viewcache.catalog.postgres import PostgresEngine

    engine = PostgresEngine(url)
    try:
        return _made_revision(engine)
    finally:
        engine.close()


def _made_revision(engine: "PostgresEngine") -> str:
    if engine.is_empty():
        raise errors.NotFound(NONE_ON_POSTGRESQL)
    return _revision(engine)


def _revision(engine: Engine) -> str:
    rows: list[str] = engine.query("read_revision")["revision"].to_pylist()
    return rows[0] if rows else ""
