"""The public names are a promise, and importing them costs next to nothing."""

import importlib
import json
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

import viewcache
from tests.house.tree import ROOMS, ROOT, module_name, room_files

HEAVY = {
    "alembic", "av", "cv2", "duckdb", "duckdb_sqlalchemy", "fsspec", "numcodecs", "numpy", "psycopg", "pyarrow",
    "sqlalchemy", "torch", "yaml", "zarr",
}  # fmt: skip
"""What `import viewcache` must not load: each costs tens to hundreds of milliseconds or, like torch, a gigabyte."""

DOORS = {
    "viewcache.ops": """
        ONE REQUIRED Channels Choice ClipOp Draw Field Flag FrameOp NativeOp Numbers Op Params Range
        ReadOp Real Rows Sides Size StaticSize Text TimeOp Whole WholeRange register scaled static_size
        transform
    """,
    "viewcache.sampling": "DependentSampler JobSampler",
    "viewcache.testing": "TierContract nothing_left pixels put stored_of",
}
"""Front doors beside `import viewcache`, and the public names of each."""

HELP_CPU_S = 0.3
"""CPU seconds of `viewcache --help`, the interpreter's own start included."""


def _fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def _loaded_after(code: str) -> set[str]:
    done = _fresh(f"import json, sys\n{code}\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_public_names_are_pinned() -> None:
    """These names, no more and no fewer; a removal needs a CHANGELOG line and a major version."""
    assert viewcache.__all__ == ["Cache", "Loader", "ViewcacheError", "__version__", "open"]
    for module, names in DOORS.items():
        assert importlib.import_module(module).__all__ == names.split()


@pytest.mark.parametrize("module", ["viewcache", *DOORS])
def test_public_names_resolve(module: str) -> None:
    """Each name of a front door is really there."""
    door = importlib.import_module(module)
    assert not [name for name in door.__all__ if getattr(door, name, None) is None]


def test_unknown_name_lists_the_known() -> None:
    """A typo is answered with what there is."""
    with pytest.raises(AttributeError, match=r"no attribute 'opne'.*open"):
        viewcache.opne  # noqa: B018  -- the access itself is the test


@pytest.mark.parametrize("name", sorted(map(module_name, room_files())))
def test_every_module_says_what_it_offers(name: str) -> None:
    """`__all__` is there, sorted by nothing but the author's sense, and each name in it exists."""
    if name.startswith("viewcache.migrations."):
        assert importlib.util.find_spec(name) is not None  # Alembic runs these; importing them would run a migration
        return
    module = importlib.import_module(name)
    missing = [entry for entry in module.__all__ if not hasattr(module, entry)]
    assert not missing


def test_version_is_one() -> None:
    """The package, its metadata and the CHANGELOG's newest heading agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert viewcache.__version__ == project["version"] == metadata.version("viewcache")
    assert f"## [{viewcache.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_import_is_light() -> None:
    """`import viewcache` loads nothing but the standard library and itself."""
    assert not _loaded_after("import viewcache") & HEAVY


def test_a_system_without_locks_on_files_is_told_at_once() -> None:
    """Where there is no fcntl, as on Windows, any use of the package says where it runs."""
    for use in ("import viewcache", "from viewcache.sampling import DependentSampler", "import viewcache.api.cli.main"):
        done = _fresh(f"import sys; sys.modules['fcntl'] = None\n{use}")
        assert done.returncode == 1
        told = done.stderr.splitlines()[-1]
        assert told.startswith("viewcache.errors.UnsupportedPlatform: viewcache runs on Linux only: ")
        assert "WSL 2" in told


def test_help_is_light() -> None:
    """`viewcache --help` loads none of the libraries that do the work."""
    code = "import viewcache.api.cli.main as cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass"
    assert not _loaded_after(code) & HEAVY


def test_help_is_fast() -> None:
    """`viewcache --help` answers within 0.3 s of CPU time (the best of five, as the machine is shared)."""
    code = (
        "import time\nimport viewcache.api.cli.main as cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print(time.process_time())"
    )
    best = min(float(_fresh(code).stdout.splitlines()[-1]) for _ in range(5))
    assert best < HELP_CPU_S


def test_store_needs_no_database() -> None:
    """Worker processes load the store without the catalog's libraries, zarr-python or torch."""
    code = (
        "import importlib, pkgutil, viewcache.store as store\n"
        "for found in pkgutil.iter_modules(store.__path__, 'viewcache.store.'): importlib.import_module(found.name)"
    )
    assert not _loaded_after(code) & {"alembic", "duckdb", "pyarrow", "sqlalchemy", "torch", "zarr"}


def test_rooms_are_attributes() -> None:
    """`viewcache.store` works after importing it, for each room."""
    for room in ROOMS:
        assert importlib.import_module(f"viewcache.{room}") is getattr(viewcache, room)
