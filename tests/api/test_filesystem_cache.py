"""Which cache a URL means, and what happens to it in other processes."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import yaml

import viewcache
from tests.api.small import config
from viewcache.api.session.opened import open_caches
from viewcache.api.views.filesystem import ViewFileSystem, find_cache
from viewcache.errors import BadInput, Closed, ConfigError, Misuse, WrongProcess


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test starts without an open cache, without VIEWCACHE, in an empty folder; what it opens is closed."""
    assert not open_caches()
    monkeypatch.delenv("VIEWCACHE", raising=False)
    (tmp_path / "work" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "deep")
    yield
    for cache in open_caches():
        cache.close()


def write(path: Path, store: Path, videos: Path) -> Path:
    """A configuration file."""
    cache, dataset = config(store, videos).values()
    path.write_text(yaml.safe_dump({"cache": cache, "dataset": dataset}))
    return path


def test_without_any_cache(tmp_path: Path) -> None:
    """With nothing open and nothing named, the error says the four ways; it is no "file not found"."""
    with pytest.raises(Misuse, match=r"viewcache\.open.*cache=.*VIEWCACHE.*viewcache\.yaml") as caught:
        fsspec.filesystem("view").ls("")
    assert not isinstance(caught.value, OSError)
    with pytest.raises(Misuse):
        fsspec.filesystem("view").exists("train")


def test_the_open_cache_comes_first(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that was opened last wins over the environment; when it is closed, the one before it is meant."""
    monkeypatch.setenv("VIEWCACHE", str(tmp_path / "nowhere.yaml"))
    with viewcache.open(config(tmp_path / "one", videos)) as one:
        with viewcache.open(config(tmp_path / "two", videos, tag="other")) as two:
            assert find_cache() is two
            assert fsspec.filesystem("view").ls("", detail=False) == ["other"]
        assert find_cache() is one
        assert fsspec.filesystem("view").ls("", detail=False) == ["train"]


def test_a_cache_by_its_store_or_its_file(videos: Path, tmp_path: Path) -> None:
    """The storage option names an open cache by its store's folder or by its configuration."""
    file = write(tmp_path / "train.yaml", tmp_path / "one", videos)
    with viewcache.open(file) as one, viewcache.open(config(tmp_path / "two", videos, tag="other")) as two:
        assert find_cache(str(tmp_path / "one")) is find_cache(str(file)) is one
        assert find_cache(str(tmp_path / "two")) is two
        with fsspec.open("view://train/cat/frame0", cache=str(file)) as opened:
            assert len(opened.read()) == 128 + 3 * 48 * 64
        assert ViewFileSystem(cache=tmp_path / "two").ls("", detail=False) == ["other"]


@pytest.mark.parametrize("how", ["option", "environment", "nearest"])
def test_a_configuration_is_opened_and_kept(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A configuration named by the option, by VIEWCACHE, or found upward is opened once and stays open."""
    file = write(tmp_path / "viewcache.yaml", tmp_path / "store", videos)
    if how == "environment":
        file = file.rename(tmp_path / "other.yaml")
        monkeypatch.setenv("VIEWCACHE", str(file))
    elif how == "option":
        file = file.rename(tmp_path / "other.yaml")
    fs = ViewFileSystem(cache=str(file) if how == "option" else None)
    assert fs.ls("", detail=False) == ["train"]
    (cache,) = open_caches()
    assert fs.exists("train/cat.mp4")
    assert open_caches() == (cache,)


def test_a_wrong_option_is_named(tmp_path: Path) -> None:
    """A configuration that is not there, or an object instead of a path, is an error that names it."""
    with pytest.raises((ConfigError, FileNotFoundError), match="nowhere"):
        ViewFileSystem(cache=str(tmp_path / "nowhere.yaml")).ls("")
    with pytest.raises(BadInput, match="give the path"):
        ViewFileSystem(cache=object())  # type: ignore[arg-type]


def test_a_file_of_a_closed_cache(videos: Path, tmp_path: Path) -> None:
    """A file that was opened before its cache was closed says so when its pixels are asked for."""
    with viewcache.open(config(tmp_path, videos)):
        file = fsspec.filesystem("view").open("train/0/0/view")
    with pytest.raises(Closed):
        file.read()


def test_a_fork_is_refused(videos: Path, tmp_path: Path) -> None:
    """In a forked child every use is a WrongProcess, with an instance from before the fork and with a new one."""
    with viewcache.open(config(tmp_path, videos)):
        fs = fsspec.filesystem("view")
        fs.info("train/0/0/view")
        read, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            kinds = []
            for new in (False, True):
                try:
                    (ViewFileSystem() if new else fs).info("train/0/0/view")
                    kinds.append("none")
                except WrongProcess as error:
                    kinds.append(error.kind)
                except BaseException as error:
                    kinds.append(repr(error))
            os.write(write_end, " ".join(kinds).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read, "rb") as answer:
            assert answer.read() == b"wrong_process wrong_process"
        os.waitpid(pid, 0)
        assert fs.exists("train/cat.mp4")


def test_another_process_opens_its_own(videos: Path, tmp_path: Path) -> None:
    """A pickled file system finds its cache by the option in a new process, through fsspec's entry point."""
    file = write(tmp_path / "train.yaml", tmp_path / "store", videos)
    fs = ViewFileSystem(cache=str(file))
    code = "import pickle, sys; fs = pickle.load(sys.stdin.buffer); print(fs.size('train/cat/frame0'))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(fs), capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) == 128 + 3 * 48 * 64
    code = "import fsspec; print(fsspec.get_filesystem_class('view').__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"ViewFileSystem\n"
