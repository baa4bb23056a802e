"""Clips are encoded once; each test gets a folder of its own."""

from pathlib import Path

import pytest

from tests.cli.site import Site, encode_clips, make_site


@pytest.fixture(scope="session")
def tiny_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoded clips."""
    return encode_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture
def site(tmp_path: Path, tiny_clips: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    """A configuration with videos, no cache yet; the working directory is its folder."""
    make_site(tmp_path, tiny_clips)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIEWCACHE", raising=False)
    return Site(tmp_path, capsys)


@pytest.fixture
def made(site: Site) -> Site:
    """The same with everything made."""
    site.run("run", "train.yaml")
    return site
