"""The counts of the house, on small trees whose counts are known."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import house
from benchmarks.harness import main

WHO = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
TREE = {
    "src/viewcache/errors.py": "class Broken(Exception):\n    pass\n",
    "store/__init__.py": "",
    "store/disk.py": "_limit = 1\nclass Disk:\n    def __init__(self):\n        self._bytes = self._free = 0\n",
    "materializer/a.py": (
        "from viewcache.materializer.low import b\nfrom viewcache.store import disk\nb._inner\ndisk._limit\n"
    ),
    "materializer/low/__init__.py": "",
    "materializer/low/b.py": "from viewcache.store.disk import Disk\n_inner = Disk()\n",
    "materializer/low/c.py": "def f():\n    from viewcache.materializer.low.d import g\n",
    "materializer/low/d.py": "from viewcache.materializer.low import c\n_inner = c\n",
    "api/many.py": "class Many:\n" + "".join(f"    def m{n}(self): pass\n" for n in range(13)),
    "api/value.py": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Value:\n"
        + "".join(f"    f{n}: int\n" for n in range(11))
        + "class Life:\n    def __init__(self):\n"
        + "".join(f"        self.f{n} = 0\n" for n in range(11))
        + "class Half:\n    f: int\n    def m(self):\n        return self._missing\n"
    ),
    "api/long.py": "def long():\n" + "    pass\n" * 60 + "def short():\n" + "    pass\n" * 59 + "\n" * 400,
    "api/one.sql": "-- Nothing.\nselect 1\n",
    "tests/test_it.py": (
        "import os\nfrom viewcache.store import disk\ndisk._limit\nos._exit\nsetattr(disk, '_free', 2)\n"
        "_mine = disk\nx._mine\n"
    ),
}


def test_every_count_of_a_known_tree(tmp_path: Path) -> None:
    """Folders, arrows, circles, floors, long and wide things, and names that others keep to themselves."""
    _write(tmp_path, TREE)
    assert house.counts(house.Tree(tmp_path)) == {
        "folders in the five rooms": 4,
        "most files in one folder of materializer/": 4,
        "most files in one folder of api/": 3,
        "arrows between folders": 3,  # materializer → low, materializer → store, low → store
        "circles of folders": 0,
        "floors of folders": 3,
        "arrows between modules": 5,
        "circles of modules": 1,  # c and d, though one imports in a function
        "modules in circles": 2,
        "floors of modules": 3,
        "modules over 400 lines": 1,
        "classes with more than 12 public methods": 1,
        "classes with more than 10 attributes": 1,  # the frozen dataclass is a value
        "functions over 60 lines": 1,
        "private reads across modules, in the product": 2,
        "private reads of the product, in tests": 2,
        "lines of Python in the product": sum(
            len(text.splitlines()) for name, text in TREE.items() if name.endswith(".py") and "tests" not in name
        ),
        "lines of SQL in the product": 2,
        "lines of tests": 7,
    }


def test_two_revisions_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the revision's counts beside those of the files as they are now."""
    repository, out = tmp_path / "repository", tmp_path / "out.json"
    _write(repository, {"store/a.py": "one = 1\n"})
    for command in (["init", "-q"], ["add", "."], [*WHO, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)
    _write(repository, {"store/b.py": "two = 2\n"})
    monkeypatch.setattr(house, "ROOT", repository)
    main(house.__doc__, house.bench, house._arguments, ["--against", "HEAD", "--json", str(out)])
    (table,) = json.loads(out.read_text())["results"]
    assert table["columns"] == ["HEAD", "this tree"]
    assert table["rows"]["lines of Python in the product"] == [1, 2]


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
