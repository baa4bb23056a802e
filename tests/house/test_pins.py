"""pyproject.toml says what may be installed, constraints.txt what was tested; both stay true."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = {
    requirement.name: next(iter(requirement.specifier)).version
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _asked() -> list[Requirement]:
    project = PROJECT["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    return [Requirement(text) for text in [*texts, *PROJECT["dependency-groups"]["dev"]]]


def _installed_closure() -> Iterator[metadata.Distribution]:
    """What is installed of everything that we ask for, and of everything that those ask for."""
    todo, seen = _asked(), set[tuple[str, str]]()
    while todo:
        requirement = todo.pop()
        for extra in {"", *requirement.extras}:
            if (_plain(requirement.name), extra) in seen:
                continue
            seen.add((_plain(requirement.name), extra))
            try:
                found = metadata.distribution(requirement.name)
            except metadata.PackageNotFoundError:
                continue  # an extra that this environment leaves out
            yield found
            needs = map(Requirement, found.requires or [])
            todo += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


@pytest.mark.parametrize("requirement", _asked(), ids=str)
def test_every_range_holds_its_pin(requirement: Requirement) -> None:
    """What was tested lies in the range that we promise."""
    pin = PINS[_plain(requirement.name)]
    assert requirement.specifier.contains(pin), f"{requirement} excludes its own pin {pin}"


def test_whole_closure_is_pinned() -> None:
    """Nothing that an install brings in is free to change under us."""
    assert not {_plain(found.name) for found in _installed_closure()} - PINS.keys()


def test_tests_run_on_the_pins() -> None:
    """This very run uses the pinned versions (a local part such as +cpu is the same release)."""
    wrong = {
        found.name: found.version
        for found in _installed_closure()
        if Version(Version(found.version).public) != Version(PINS[_plain(found.name)])
    }
    assert not wrong


def test_dangerous_versions_are_excluded() -> None:
    """Releases that damaged data, ran code or left their folder cannot be installed beside us."""
    ranges = {requirement.name: requirement.specifier for requirement in _asked()}
    for name, version in {"duckdb": "2.0.0", "numcodecs": "0.16.5", "fsspec": "2026.6.0", "s3fs": "2026.6.0"}.items():
        assert not ranges[name].contains(version), f"{name} {version}"


def test_torch_is_the_cpu_build_in_the_makefile() -> None:
    """A plain `torch` pulls gigabytes of CUDA; the Makefile installs the CPU build of the pinned version first."""
    assert PINS["torch"] == "2.13.0"
    makefile = (ROOT / "Makefile").read_text()
    assert '"$$torch+cpu"' in makefile
    assert makefile.index("+cpu") < makefile.index("--editable")
