"""A cache on a file system that cannot be written: who only reads works, everybody else is told."""

import errno
import os
from pathlib import Path

import pytest

from tests.cli.site import Site

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@pytest.fixture
def frozen(made: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A made cache whose folder refuses whoever would write, as a read-only mount does."""
    (made.store / "catalog.lock").unlink()
    really = os.open

    def refuse(path: str | os.PathLike[str], flags: int, *more: int, **how: int) -> int:
        if flags & _WRITES and Path(os.fsdecode(path)).is_relative_to(made.store):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return really(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", refuse)
    return made


@pytest.mark.parametrize(
    "command",
    [
        ("run", "train.yaml"),
        ("verify",),
        ("gc",),
        ("evict", "--need", "60MB"),
        ("forget", "train.yaml", "train"),
        ("db", "upgrade"),
    ],
    ids=lambda command: " ".join(command),
)
def test_who_would_write_is_told(frozen: Site, command: tuple[str, ...]) -> None:
    """One line that names the folder and what to do, and no traceback."""
    frozen.run(*command, code=5)
    assert "Traceback" not in frozen.words
    assert f"cannot own the cache in {frozen.store}: Read-only file system" in frozen.words


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("sql", "select count(*) from objects"),
        ("verify", "--dry-run"),
        ("gc", "--dry-run"),
        ("evict", "--need", "60MB", "--dry-run"),
        ("forget", "train.yaml", "train", "--dry-run"),
    ],
    ids=lambda command: " ".join(command),
)
def test_who_only_reads_works(frozen: Site, command: tuple[str, ...]) -> None:
    """There is no lock to take: nobody can own a cache that cannot be written."""
    frozen.run(*command)
    assert not (frozen.store / "catalog.lock").exists()
