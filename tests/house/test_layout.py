"""The repository layout is a contract; these tests keep it."""

import subprocess
import sys

from tests.house.tree import PACKAGE, ROOMS, ROOT, module_names, room_files, short


def test_links_point_at_root_folders() -> None:
    """The five folders at the top ARE the sub-packages: one copy of the code, seen through links."""
    for room in ROOMS:
        assert (PACKAGE / room).is_symlink()
        assert (PACKAGE / room).resolve() == ROOT / room


def test_every_room_is_a_typed_package() -> None:
    """Each room imports as viewcache.<room>, and checkers of users see our types."""
    assert (PACKAGE / "py.typed").exists()
    for room in ROOMS:
        assert (ROOT / room / "__init__.py").exists()


def test_every_folder_with_code_is_a_package() -> None:
    """A folder without __init__.py would import by luck; Alembic alone loads its versions by path."""
    lost = {short(path.parent) for path in room_files() if not (path.parent / "__init__.py").exists()}
    assert lost <= {"migrations/versions"}


def test_all_modules_import_under_one_name() -> None:
    """A fresh process can import every module, warnings as errors, and none arrives under a bare name."""
    names = sorted(name for name in module_names() if not name.startswith("viewcache.migrations."))
    script = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        f"bare = {{m.split('.')[0] for m in sys.modules}} & set({ROOMS!r})\n"
        "assert not bare, bare\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
