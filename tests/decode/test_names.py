"""Names of videos: safe in paths, reversible, unique, and short of the characters that mean something."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from viewcache.errors import BadUrl
from viewcache.materializer.dataset.names import MAX_NAME, SUFFIXES, escape, names_for, new_names, stem, unescape
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.dataset.versions import path_of, version_name
from viewcache.materializer.media.source import retired_uri

PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@given(PATHS)
@example("a/b.c d_é-.mp4")
@example("..")
@example(".zz")
def test_names_can_be_undone(path: str) -> None:
    """A name has only the characters that every path part of the interface may have, and gives the path back."""
    name = escape(path)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name)
    if ".z" not in name:
        assert unescape(name) == path


@given(st.text("abc/é.", min_size=60, max_size=400))
def test_long_paths_get_short_names(path: str) -> None:
    """However long a path is, its name fits, and two paths never share one."""
    assert len(escape(path)) <= MAX_NAME
    assert escape(path) != escape(path + "x")


@given(st.lists(PATHS, unique=True, max_size=12))
@example(["a.mp4", "a.mkv", "a.mp4.mkv", "b.mp4"])
def test_names_are_unique(paths: list[str]) -> None:
    """No two videos of a dataset share a name."""
    names = names_for(paths)
    assert len(set(names)) == len(paths)


PIECES = st.sampled_from(
    ["a", "b", "B1", "_-", ".", "/", " ", "é", "\n", "\u212a", ".jpg", ".JPG", ".mp4", ".t\u017f", "x" * 70]
)


@given(st.lists(st.lists(PIECES, min_size=1, max_size=7).map("".join), unique=True, max_size=9), st.data())
@example(["a.jpg", "a.png", "b.jpg"], None)
def test_names_as_columns_are_the_same(paths: list[str], data: st.DataObject | None) -> None:
    """A million plain files get the names that each would get alone, and so do those beside them that are not plain."""
    taken = set() if data is None or not paths else {escape(stem(data.draw(st.sampled_from(paths)))), "z"}
    for given_names in (set[str](), taken):
        assert [*new_names(Texts.of(paths), Texts.of(given_names))] == names_for(paths, taken=given_names)


def test_what_people_see() -> None:
    """The extension goes, unless two files differ in nothing else."""
    assert names_for(["v_Apply_g01.avi"]) == ["v_Apply_g01"]
    assert names_for(["cats/a b.mp4"]) == ["cats.-a.20b"]
    assert names_for(["a.mp4", "a.mkv", "c.MP4"]) == ["a..mp4", "a..mkv", "c"]
    assert names_for(["a.mp4", "a.mkv", "a.mp4.mkv"]) == ["a..mp4", "a..mkv", "a..mp4..mkv"]
    assert stem("x/.mp4") == "x/.mp4"


@pytest.mark.parametrize("suffix", [each for suffixes in SUFFIXES.values() for each in suffixes])
def test_no_name_ends_like_an_extension(suffix: str) -> None:
    """`name.mp4` in a path is always the video `name`: unescaping what ends so fails."""
    with pytest.raises(BadUrl):
        unescape("clip" + suffix)


@pytest.mark.parametrize("name", ["a b", "a/b", "a.", "a.g0", "é", "a.2"])
def test_what_is_not_a_name(name: str) -> None:
    """A wrong name is refused at its place, with the rules."""
    with pytest.raises(BadUrl, match=r"is not a video's name at character \d"):
        unescape(name)


@given(st.lists(st.lists(st.text("ab.", min_size=1, max_size=3), max_size=4), max_size=5))
@example([["v0.mp4"], ["v0.mkv"], ["v0.mp4.mkv"]])
@example([["v0.mp4.mkv", "v0.mkv"], ["v0.mp4"]])
def test_a_name_once_given_stays(scans: list[list[str]]) -> None:
    """Whatever files come and go, none is renamed, and no name is ever given to a second file."""
    given: dict[str, str] = {}
    for stems in scans:
        paths = sorted({path for each in stems for path in (each, f"{each}.mp4", f"{each}.mkv")})
        gone = [name for path, name in given.items() if path not in paths]
        names = names_for(paths, {path: given[path] for path in paths if path in given}, gone)
        for path, name in zip(paths, names, strict=True):
            assert given.setdefault(path, name) == name
        assert len(set(given.values())) == len(given)


def test_a_newcomer_takes_its_name_with_its_extension() -> None:
    """The file that was first keeps the short name; should the long one be taken too, a hash makes the name unique."""
    assert names_for(["v0.mkv", "v0.mp4"], {"v0.mp4": "v0"}) == ["v0..mkv", "v0"]
    assert names_for(["v0.mkv"], {}, ["v0"]) == ["v0..mkv"]
    (name,) = names_for(["v0.mp4"], {}, ["v0", "v0..mp4"])
    assert re.fullmatch(r"v0\.\.mp4\.z[0-9a-f]{32}", name)


@given(st.lists(st.sampled_from(["v2.mp4", "a/b.mkv", "a.v2.mp4", "x" * 200 + ".mp4"]), max_size=8))
def test_versions_have_names_of_their_own(replaced: list[str]) -> None:
    """However often files are replaced, each version gets a name that nobody has, and the path can be told from it."""
    taken = {escape(stem(path)) for path in replaced}
    for path in replaced:
        name = version_name(path, taken)
        assert name not in taken
        assert len(name) <= MAX_NAME
        taken.add(name)
        if len(path) < MAX_NAME:
            assert path_of(name, f"/data/{path}") == path
            assert path_of(name, retired_uri(f"/data/{path}", "0" * 32)) == path


@pytest.mark.parametrize("path", ["v.mp4", "a/b.c.MKV", "v.mp4.mp4", "a.v2.mp4", "x y.mov"])
def test_the_path_of_a_file_that_is_gone(path: str) -> None:
    """It follows from its name and its URI, with or without the extension in the name."""
    for name in (escape(stem(path)), escape(path)):
        assert path_of(name, f"s3://bucket/data/{path}") == path
