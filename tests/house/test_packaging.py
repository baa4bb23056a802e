"""What is built is what is in the repository: nothing forgotten, nothing else."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import PACKAGE, ROOMS, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """A wheel built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return zipfile.Path(next(out.glob("*.whl")))


def _shipped() -> set[str]:
    """Code, SQL, templates and the page's files of the package, by the path they are imported from."""
    rooms = {path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*") if _is_source(path)}
    own = [*PACKAGE.iterdir(), *(PACKAGE / "testing").iterdir()]
    root = {path.relative_to(PACKAGE) for path in own if _is_source(path)}
    return {f"viewcache/{path.as_posix()}" for path in rooms | root}


def _is_source(path: Path) -> bool:
    return path.is_file() and (
        path.suffix in {".py", ".sql", ".mako", ".html", ".css", ".js", ".svg"} or path.name == "py.typed"
    )


def test_wheel_has_every_file(wheel: zipfile.Path) -> None:
    """An installed viewcache has each module, statement, view and migration, under one package."""
    names = {name for name in wheel.root.namelist() if not name.endswith("/")}
    code = {name for name in names if ".dist-info/" not in name}
    assert _shipped() <= code
    assert {name.split("/")[0] for name in code} == {"viewcache"}


def test_wheel_has_no_litter(wheel: zipfile.Path) -> None:
    """No compiled files, tests or data travel with the package."""
    assert not [
        name for name in wheel.root.namelist() if name.endswith((".pyc", ".duckdb", ".mp4")) or "/tests/" in name
    ]


def test_wheel_carries_licence_and_entry_points(wheel: zipfile.Path) -> None:
    """The command, the fsspec protocol and the licence come with an install."""
    info = next(name for name in wheel.root.namelist() if name.endswith(".dist-info/entry_points.txt"))
    text = wheel.root.read(info).decode()
    assert "viewcache = viewcache.api.cli.main:main" in text
    assert "view = viewcache.api.views.filesystem:ViewFileSystem" in text
    assert any(name.endswith("/LICENSE") for name in wheel.root.namelist())


def test_ci_runs_what_people_run() -> None:
    """CI has no steps of its own: the nightly lane, or the demo, then the checkers beside the tests."""
    text = (ROOT / ".ci" / "run").read_text()
    targets = re.findall(r"^ *(?:exec |timeout .* )?make ([\w./-]+)", text, re.MULTILINE)
    assert targets == ["test-long", "demo", ".venv/.developed", "lint", "test"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
