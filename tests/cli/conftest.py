"""Clips are encoded once, and what many tests start from is made once; each test gets a copy in the same place."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.site import Site, encode_clips, make_site

Template = Callable[[str, Site, Callable[[Site], object]], Site]


@pytest.fixture(scope="session")
def tiny_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoded clips."""
    return encode_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every test finds its folder: a catalog knows its videos by their paths, so a copy must lie where it lay."""
    return tmp_path_factory.mktemp("place") / "site"


@pytest.fixture
def site(place: Path, tiny_clips: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    """A configuration with videos, no cache yet; the working directory is its folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    make_site(place, tiny_clips)
    monkeypatch.chdir(place)
    monkeypatch.delenv("VIEWCACHE", raising=False)
    return Site(place, capsys)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Gives a site as a function leaves it, which is called the first time only: (name, the site, function) → site."""
    folder = tmp_path_factory.mktemp("templates")

    def give(name: str, site: Site, make: Callable[[Site], object]) -> Site:
        if (folder / name).exists():
            shutil.rmtree(site.folder)
            shutil.copytree(folder / name, site.folder)
        else:
            make(site)
            shutil.copytree(site.folder, folder / name)
        os.chdir(site.folder)
        return site

    return give


@pytest.fixture
def made(site: Site, template: Template) -> Site:
    """The same with everything made."""
    return template("made", site, lambda fresh: fresh.run("run", "train.yaml"))
