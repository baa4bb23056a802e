"""`viewcache doctor`: look at the machine and the cache, and say for each thing whether it is well and what to do.

Every check stands alone: one that fails to run is itself a finding, so that the rest is still told.
"""

import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.api.permission import refused
from viewcache.api.text import counted, size
from viewcache.api.upkeep.doctor_cache import (
    Finding,
    Health,
    Recorded,
    bucket,
    clock,
    damage,
    damage_of,
    failures,
    journal,
    moved_aside,
    objects,
)
from viewcache.api.upkeep.doctor_devices import devices
from viewcache.errors import NotFound, ViewcacheError
from viewcache.store.tier import LOCAL

__all__ = ["Finding", "doctor", "revision_of"]

_NEEDED = ("av", "duckdb", "pyarrow", "numpy", "cv2", "numcodecs", "google_crc32c", "fsspec", "sqlalchemy", "alembic")
_OPTIONAL = {
    "torch": "the loader's tensors: pip install 'viewcache[torch]'",
    "fastcrc": "checksums in half the time: pip install 'viewcache[fast]'",
    "psycopg": "a PostgreSQL catalog: pip install 'viewcache[pg]'",
    "s3fs": "s3:// sources: pip install 'viewcache[s3]'",
    "scipy": "p-values of `viewcache verify`: pip install 'viewcache[verify]'",
    "matplotlib": "its plots: pip install 'viewcache[verify]'",
}
_DECODERS = ("h264", "hevc", "vp9", "av1", "mpeg4")
_LOW_FILES = 1024
_LOW_SHM = 64 << 20
_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "google_crc32c": "google-crc32c"}


def doctor(located: Located | None, problem: ViewcacheError | None = None) -> list[Finding]:
    """Look at the machine and, where there is one, at a cache. Changes nothing.

    Args:
        located: which cache; None = none was found.
        problem: why none was found.
    """
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("python", _python),
        ("libraries", _libraries),
        ("decoders", _decoders),
        ("limits", _limits),
    ]
    if located is not None:
        recorded = Recorded(located)
        checks += [
            ("catalog", lambda: _catalog(located)),
            ("store", lambda: _store(located)),
            ("journal", lambda: journal(located)),
            ("quarantine", lambda: moved_aside(located)),
            ("objects", lambda: objects(located, recorded)),
            ("bucket", lambda: bucket(recorded)),
            ("disk", lambda: _disk(located, recorded)),
            ("devices", lambda: devices(located)),
            ("errors", lambda: failures(recorded)),
            ("clock", lambda: clock(located)),
        ]
        checks.append(("catalog", lambda: damage_of(recorded, findings)))
    findings: list[Finding] = []
    failed: dict[str, int] = {}
    """Why a check failed → where its finding is: what several fail of, such as a full disk, is told once."""
    for about, check in checks:
        try:
            findings += check()
        except Exception as error:  # the other checks must still be told
            told = refused(error)
            why = f"could not be checked ({type(error).__name__}: {error})" if told is None else str(told)
            if why in failed:
                before = findings[failed[why]]
                findings[failed[why]] = replace(before, about=f"{before.about}, {about}")
            else:
                failed[why] = len(findings)
                findings.append(Finding(Health.FAIL, about, why))
    if problem is not None:
        level = Health.WARN if isinstance(problem, NotFound) else Health.FAIL
        findings.append(Finding(level, "cache", str(problem), "name a configuration or a cache's folder"))
    return findings


def revision_of(where: str) -> str:
    """The schema revision of a catalog; nothing is opened for writing.

    Raises:
        NotFound: there is no catalog.
    """
    from viewcache import migrations
    from viewcache.api.queries.ask import copy_catalog
    from viewcache.catalog.opening import is_postgresql, postgresql_revision
    from viewcache.catalog.private import private_folder

    if is_postgresql(where):
        return postgresql_revision(where)
    with private_folder() as folder:
        if not copy_catalog(where, folder):
            raise NotFound(f"no catalog in {where}; `viewcache run` makes one")
        return migrations.current(f"duckdb:///{folder}/catalog.duckdb") or ""


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding(Health.OK, "python", f"{version} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    if platform.system() != "Linux":
        yield Finding(Health.WARN, "system", platform.system(), "viewcache is tested on Linux only")


def _libraries() -> Iterator[Finding]:
    found = []
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            yield Finding(Health.FAIL, name, str(error), "pip install viewcache again")
        else:
            found.append(f"{name} {_version(name)}")
    yield Finding(Health.OK, "libraries", ", ".join(found))
    duckdb = _version("duckdb")
    if duckdb.split(".")[0] not in ("1",):
        yield Finding(
            Health.FAIL, "duckdb", f"{duckdb} is not tested and 2.0.0 damages data", "pip install 'duckdb>=1.5.6,<2'"
        )
    for name, use in _OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        yield (
            Finding(Health.OK, name, _version(name))
            if there
            else Finding(Health.OK, name, f"not installed, which gives {use}")
        )


def _version(module: str) -> str:
    try:
        return metadata.version(_DISTRIBUTIONS.get(module, module))
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _decoders() -> Iterator[Finding]:
    import av

    missing = [
        name for name in _DECODERS if name not in av.codecs_available and f"lib{name}" not in av.codecs_available
    ]
    if missing:
        yield Finding(Health.WARN, "decoders", f"this FFmpeg lacks {', '.join(missing)}", "install av from its wheel")
    else:
        yield Finding(Health.OK, "decoders", f"FFmpeg in av {av.__version__} has {', '.join(_DECODERS)}")


def _limits() -> Iterator[Finding]:
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _LOW_FILES:
        yield Finding(Health.WARN, "open files", f"at most {files}", f"ulimit -n {4 * _LOW_FILES}")
    else:
        yield Finding(Health.OK, "open files", f"at most {files}")
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        yield Finding(
            Health.WARN, "/dev/shm", "cannot be written", "PyTorch's own workers need it; in Docker: --shm-size=1g"
        )
    elif (free := shutil.disk_usage(shm).free) < _LOW_SHM:
        yield Finding(
            Health.WARN, "/dev/shm", f"{size(free)} free", "PyTorch's own workers need it; in Docker: --shm-size=1g"
        )
    else:
        yield Finding(Health.OK, "/dev/shm", f"{size(free)} free")


def _catalog(located: Located) -> Iterator[Finding]:
    from viewcache import migrations
    from viewcache.api.queries.ask import owner_of
    from viewcache.catalog.files import CatalogFiles
    from viewcache.catalog.opening import is_postgresql

    if not is_postgresql(located.catalog):
        layout = CatalogFiles(Path(located.catalog))
        if found := damage(located):
            yield found
            return
        if not layout.database.exists():
            yield Finding(Health.WARN, "catalog", f"none in {layout.folder} yet", "`viewcache run` makes it")
            return
        if owner := owner_of(located.catalog):
            yield Finding(
                Health.OK, "owner", f"process {owner} ({_command(owner)}) has it open; `viewcache sql` reads a snapshot"
            )
        else:
            yield Finding(Health.OK, "owner", "no process has it open")
    try:
        revision = revision_of(located.catalog)
    except NotFound as missing:
        yield Finding(Health.WARN, "catalog", str(missing))
        return
    if revision == migrations.HEAD:
        yield Finding(Health.OK, "catalog", f"schema {revision}")
    elif migrations.is_known(revision):
        yield Finding(
            Health.WARN, "catalog", f"schema {revision}, this release has {migrations.HEAD}", "`viewcache db upgrade`"
        )
    else:
        yield Finding(Health.FAIL, "catalog", f"schema {revision!r} is not known to this release", "upgrade viewcache")


def _store(located: Located) -> Iterator[Finding]:
    from viewcache.store.format import FORMAT
    from viewcache.store.local import lies_in
    from viewcache.store.marker import MARKER
    from viewcache.store.temporary import abandoned

    root = Path(located.root)
    if not (folder := lies_in(root)).is_dir():
        missing = f"none in {root}: the folder {folder} does not exist"
        yield Finding(Health.FAIL, "store", missing, "mount the disk that belongs there, or correct cache.store")
        return
    if not (root / MARKER).is_file():
        yield Finding(Health.WARN, "store", f"none in {root} yet", "`viewcache run` makes it")
        return
    if not os.access(root, os.W_OK | os.X_OK):
        yield Finding(Health.FAIL, "store", f"{root} cannot be written by this user", "check its owner and permissions")
    elif root.stat().st_mode & 0o077:
        yield Finding(Health.WARN, "store", f"{root} is open to other users", f"chmod 700 {root}")
    else:
        yield Finding(Health.OK, "store", f"{root}, format {FORMAT}")
    if left := abandoned(root):
        yield Finding(
            Health.OK, "unfinished", f"{counted(len(left), 'folder')} of dead writers", "removed at the next start"
        )
    else:
        yield Finding(Health.OK, "unfinished", "nothing is left of dead writers")


def _disk(located: Located, recorded: Recorded) -> Iterator[Finding]:
    from viewcache.store.local import lies_in

    if not (folder := lies_in(located.root)).is_dir():
        return  # which disk it is to be is not known
    disk = os.statvfs(located.root if os.path.isdir(located.root) else folder)
    free = disk.f_bavail * disk.f_frsize
    budget, used = _budget(located, recorded)
    left = max(0, budget - used)
    if budget and free < left:
        yield Finding(
            Health.WARN,
            "disk",
            f"{size(free)} free, but the budget may still take {size(left)}",
            "free space, or lower cache.budget",
        )
    else:
        yield Finding(
            Health.OK, "disk", f"{size(free)} free" + (f", the budget may still take {size(left)}" if budget else "")
        )
    if disk.f_files and disk.f_favail < 10_000:
        yield Finding(Health.WARN, "inodes", f"{disk.f_favail} free", "each object takes five; free some")


def _budget(located: Located, recorded: Recorded) -> tuple[int, int]:
    """The budget of the store's folder and what it holds, as last configured; zeros if it was never opened."""
    rows = recorded.tiers()
    sizes = ((int(str(row["budget_bytes"])), int(str(row["used_bytes"]))) for row in rows if row["tier"] == LOCAL)
    budget, used = next(sizes, (0, 0))
    if located.config is not None and located.config.budget_given:
        budget = located.config.cache.local.budget_bytes
    return budget, used


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "not of this user"
    return b" ".join(words[:3]).decode(errors="replace")[:80]
