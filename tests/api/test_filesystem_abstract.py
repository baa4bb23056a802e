"""fsspec's own suite for reading, run over our face and a tree of the shape that the suite wants.

The suite needs files of arbitrary names, which views do not have; so the tree below the face is replaced, and
everything that fsspec sees (names, expansion, globs, opening, fetching) is the shipped code. The suites that write have
their counterpart in test_filesystem.py: every write is refused.
"""

from collections.abc import Callable
from typing import Any

import fsspec.tests.abstract as abstract
import pytest

from viewcache.api.views.filesystem import ViewFileSystem
from viewcache.api.views.payload import Payload, PayloadFile
from viewcache.api.views.tree import Entry
from viewcache.errors import ViewNotFound

Join = Callable[..., str]


class Seeded:
    """Files in memory, with the verbs of `Tree` for the face and those of a file system for the suite's scenarios."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def makedirs(self, path: str) -> None:
        """Folders are where files are."""

    mkdir = makedirs

    def touch(self, path: str) -> None:
        self.files[path] = b""

    def pipe(self, path: str, value: bytes) -> None:
        self.files[path] = value

    def entry(self, path: str) -> Entry:
        if path in self.files:
            return Entry(path, len(self.files[path]))
        if path and not any(name.startswith(path + "/") for name in self.files):
            raise ViewNotFound(f"{path} is not there")
        return Entry(path)

    def children(self, path: str) -> list[Entry]:
        if not self.entry(path).is_folder:
            return [self.entry(path)]
        prefix = path + "/" if path else ""
        below = {name.removeprefix(prefix).partition("/")[0] for name in self.files if name.startswith(prefix)}
        return [self.entry(prefix + name) for name in sorted(below)]

    def describe(self, path: str) -> dict[str, Any]:
        return {}

    def open(self, path: str) -> PayloadFile:
        return PayloadFile(Payload(self.files[self.entry(path).path]), path)

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.files[path][start:end]


class _Face(ViewFileSystem):
    """The shipped face over a seeded tree."""

    cachable = False

    def __init__(self, tree: Seeded) -> None:
        super().__init__()
        self._seeded = tree

    @property
    def _tree(self) -> Any:
        return self._seeded


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    """What the suite asks for, with scenarios seeded past the read-only face."""

    @pytest.fixture
    def seeded(self) -> Seeded:
        return Seeded()

    @pytest.fixture
    def fs(self, seeded: Seeded) -> ViewFileSystem:
        return _Face(seeded)

    @pytest.fixture
    def fs_path(self) -> str:
        return "task"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, seeded: Seeded, fs_join: Join, fs_path: str) -> Any:
        return self._bulk_operations_scenario_0(seeded, fs_join, fs_path)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, seeded: Seeded, fs_join: Join, fs_path: str) -> Any:
        return self._glob_edge_cases_files(seeded, fs_join, fs_path)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, seeded: Seeded, fs_join: Join, fs_path: str) -> Any:
        return self._dir_and_file_with_same_name_prefix(seeded, fs_join, fs_path)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, seeded: Seeded, fs_join: Join, fs_path: str) -> Any:
        return self._10_files_with_hashed_names(seeded, fs_join, fs_path)


class TestGet(Fixtures, abstract.AbstractGetTests):  # type: ignore[misc]  # fsspec has no types
    """fsspec's AbstractGetTests; one of them writes its own scenario and is given it instead."""

    def test_get_directory_recursive(
        self, fs: ViewFileSystem, seeded: Seeded, local_fs: Any, local_join: Join, local_target: str
    ) -> None:
        """A folder is fetched into a new folder, or below an existing one; with a slash, its content is."""
        seeded.touch("task/src/file")
        for there in (False, True):
            fs.get("task/src", local_target, recursive=True)
            assert local_fs.isfile(local_join(local_target, "file"))
            assert local_fs.isfile(local_join(local_target, "src", "file")) == there
        local_fs.rm(local_target, recursive=True)
        for _ in range(2):
            fs.get("task/src/", local_target, recursive=True)
            assert local_fs.isfile(local_join(local_target, "file"))
            assert not local_fs.exists(local_join(local_target, "src"))


class TestOpen(Fixtures):
    """The reading half of AbstractOpenTests, whose own test writes."""

    def test_open_exclusive(self, fs: ViewFileSystem, seeded: Seeded) -> None:
        """A file opens for reading; exclusive creation is refused, whether the file is there or not."""
        seeded.pipe("task/target", b"data")
        with fs.open("task/target", "rb") as file:
            assert file.read() == b"data"
        for path in ("task/target", "task/new"):
            with pytest.raises(OSError, match="read-only"):
                fs.open(path, "xb")
