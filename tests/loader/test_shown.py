"""What a cache, a loader and a batch say of themselves, in a shell and in a notebook."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.tiny import config
from viewcache.api.session.cache import Cache

KINDS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "cache": (
        lambda cache: cache,
        ["viewcache.Cache", "owned by this process", "open", "train", "5 epochs of batches of 6 videos", "val"],
    ),
    "loader": (
        lambda cache: cache.loader("train", layout="CTHW"),
        ["viewcache.Loader of task 'train'", "(12, 3, 4, 32, 32) CTHW", "epochs", "5", "0 of 1", "epoch 0, iteration"],
    ),
    "batch": (
        lambda cache: cache.read("train", 0, 1),
        ["Batch train/0/1", "(8, 4, 3, 32, 32) uint8", "videos", "labels", "0, 1"],
    ),
}
"""Value → how it is come by, and what it says."""


def table_of(value: object) -> str:
    """What a notebook asks a value for, by this name."""
    name = "_repr_html_"
    table: str = getattr(value, name)()
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_says_what_it_is(cache: Cache, kind: str) -> None:
    """One short line with the task, its epochs, the shape of a batch and the place; never pixels."""
    make, words = KINDS[kind]
    line = repr(make(cache))
    assert not [word for word in words if word not in line], line
    assert "\n" not in line
    assert len(line) < 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_table(cache: Cache, kind: str) -> None:
    """A small HTML table with the same facts."""
    make, words = KINDS[kind]
    table = table_of(make(cache))
    assert table.startswith("<table><caption>")
    assert table.endswith("</table>")
    assert not [word for word in words if word.replace("'", "&#x27;") not in table], table
    assert len(table) < 2000


def test_names_are_no_markup(cache: Cache) -> None:
    """What a video is called cannot change the page that shows it."""
    read = cache.read("train", 0, 0)
    given = replace(read, task="<b>", videos=("<script>",))
    assert "<script>" not in table_of(given)
    assert "<b>" not in table_of(given)


def test_looking_makes_nothing(videos: Path, tmp_path: Path) -> None:
    """No pixel is decoded and no worker is started for a line or a table; a closed cache says that it is closed."""
    with viewcache.open(config(tmp_path / "store", videos)) as cache:
        loader = cache.loader("train", framework="numpy")
        for each in (cache, loader):
            assert repr(each)
            assert table_of(each)
        assert cache.owner.dispatcher is None
    assert "closed" in repr(cache)
    assert "closed" in repr(loader)


def test_a_loader_says_how_far_it_is(cache: Cache) -> None:
    """The place of the batch that comes next, and that all is read."""
    loader = cache.loader("train", epochs=1)
    next(iter(loader))
    assert "next epoch 0, iteration 1" in repr(loader)
    loader.set_epoch(0)
    assert list(loader)
    assert "all epochs are read" in repr(loader)


def test_dir_lists_the_public_names_only() -> None:
    """What completion offers after ``viewcache.`` is what is promised to stay."""
    assert dir(viewcache) == ["Cache", "Loader", "ViewcacheError", "__version__", "open"]
