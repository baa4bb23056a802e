"""Where nothing can be mounted, the command says why and what to do, and changes nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.mounted import Mounted, Site
from viewcache import errors
from viewcache.api.cli.main import main
from viewcache.api.config.load import load
from viewcache.api.mount import library
from viewcache.api.mount.errnos import ERRNOS, Failures, errno_of
from viewcache.api.mount.names import view_path
from viewcache.api.mount.place import check_place
from viewcache.api.service.attached import AttachedCache


def _refused(site: Site, folder: Path) -> errors.ViewcacheError:
    with pytest.raises(errors.ViewcacheError) as refused:
        check_place(folder, load(site.config), print)
    return refused.value


def test_folders_that_cannot_be_mounted_over(subtests: pytest.Subtests, site: Site, tmp_path: Path) -> None:
    """A missing one, a file, one that holds something, and those that the service itself reads."""
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    videos = Path(load(site.config).tasks[0].dataset.uri)
    inside = [site.store / "views", videos / "views"]
    cases = {
        "missing": (tmp_path / "no", errors.NotFound, "mkdir -p"),
        "file": (tmp_path / "file", errors.BadInput, "is no folder"),
        "full": (tmp_path / "full", errors.BadInput, "is not empty (thesis.tex)"),
        "store": (inside[0], errors.BadInput, "lies inside the store"),
        "videos": (inside[1], errors.BadInput, "lies inside the videos of task 'train'"),
    }
    for each in inside:
        each.mkdir(parents=True)
    for what, (folder, kind, text) in cases.items():
        with subtests.test(what):
            error = _refused(site, folder)
            assert type(error) is kind
            assert text in str(error)
    for each in inside:
        each.rmdir()


@contextmanager
def _user(number: int) -> Iterator[None]:
    """This process as another user."""
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_folder_of_another_user(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not write into a folder hides nothing under a mount of his own."""
    config = load(site.config)
    monkeypatch.setattr(os, "access", lambda *_: False)  # it asks for the real user, which is root here
    with pytest.raises(errors.BadInput, match="is not yours to write"):
        check_place(tmp_path, config, print)
    monkeypatch.undo()
    tmp_path.chmod(0o700)
    with _user(65534), pytest.raises(errors.BadInput, match="is not yours to read"):
        check_place(tmp_path, config, print)


def test_a_second_mount_on_a_folder(shared: Mounted) -> None:
    """It is refused with the command that ends the first, which goes on."""
    error = _refused(shared.site, shared.root)
    assert type(error) is errors.Busy
    assert f"fusermount3 -u {shared.root}" in str(error)
    assert os.listdir(shared.root) == ["train"]


def test_what_is_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """libfuse, its Python part, and the kernel's device: each with what brings it, and an exit code."""
    arguments = ["mount", str(site.config), str(site.folder)]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        assert main(arguments) == 2
        assert "apt-get install fuse3" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "mfusepy", None)
        assert main(arguments) == 2
        assert "pip install 'viewcache[mount]'" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(library, "DEVICE", "/dev/no-fuse")
        assert main(arguments) == 5
        assert "modprobe fuse" in capsys.readouterr().err


def test_every_error_has_its_number() -> None:
    """A reader can tell what is not there, what is busy and what is broken; nothing comes out as success."""
    import errno

    names = [name for name in errors.__all__ if name not in ("ConfigCode", "is_unforeseen")]
    numbers = {name: errno_of(_made(getattr(errors, name))) for name in names}
    special = {"BadUrl", "NotFound", "DatasetNotFound", "ViewNotFound", "ReadOnly", "Timeout", "Closed"}
    busy = {"Busy", "CatalogBusy", "SeatTaken", "ServiceDown"}
    wrong = {"BadInput", "BudgetTooSmall", "QueryRefused", "UnknownOption", "MissingExtra"}
    assert {numbers[name] for name in ("BadUrl", "NotFound", "DatasetNotFound", "ViewNotFound")} == {errno.ENOENT}
    assert (numbers["ReadOnly"], numbers["Timeout"], numbers["Closed"]) == (
        errno.EROFS,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
    )
    assert {numbers[name] for name in busy} == {errno.EAGAIN}
    assert {numbers[name] for name in wrong} == {errno.EINVAL}
    assert {numbers[name] for name in numbers.keys() - special - busy - wrong} == {errno.EIO}
    assert (errno_of(OSError(errno.EACCES, "")), errno_of(ZeroDivisionError())) == (errno.EACCES, errno.EIO)
    assert all(issubclass(kind, errors.ViewcacheError) for kind, _ in ERRNOS)


def _made(kind: type[errors.ViewcacheError]) -> errors.ViewcacheError:
    if kind is errors.ConfigError:
        return errors.ConfigError(errors.ConfigCode.CREDENTIALS, "x")
    return errors.BudgetTooSmall("x", 1) if kind is errors.BudgetTooSmall else kind("x")


def test_paths_are_those_of_views() -> None:
    """Only frames after augmentation are called otherwise, since a file cannot lie below a file."""
    same = ["train", "train/0/1/view?rank=0&world=2", "train/cat/frame3", "train/frame3.mp4", "train/0/1/view.zarr/c/0"]
    assert [view_path(f"/{each}") for each in same] == same
    assert view_path("/") == ""
    assert view_path("/train/cat/frame3.aug1?epoch=2") == "train/cat/frame3/aug1?epoch=2"


def test_the_last_failure_at_or_below_a_path() -> None:
    """The newest counts, other folders' do not, and the oldest of very many are forgotten."""
    failures = Failures()
    assert failures.last("") is None
    failures.note("train/0/0/view", "first")
    failures.note("valid/0/0/view", "second")
    assert (failures.last(""), failures.last("train"), failures.last("train/0/0/view")) == ("second", "first", "first")
    assert failures.last("train/0/0/vie") is None
    for number in range(1000):
        failures.note(f"train/1/{number}/view", str(number))
    assert failures.last("train/0") is None
    assert failures.last("") == "999"


def test_the_caches_of_others_are_theirs(cache: AttachedCache, site: Site) -> None:
    """A configuration that does not fit the running service is told before anything is mounted."""
    text = site.config.read_text()
    site.config.write_text(text.replace("seed: 7", "seed: 8"))
    try:
        assert main(["mount", str(site.config), str(site.folder / "elsewhere")]) == 3
        (site.folder / "elsewhere").mkdir()
        assert main(["mount", str(site.config), str(site.folder / "elsewhere")]) == 2
        assert not os.path.ismount(site.folder / "elsewhere")
    finally:
        site.config.write_text(text)
