"""A dataset of several places, of a list file, or with links: every video once, under a name that stays."""

import logging
import os
import shutil
from pathlib import Path

import pytest

import viewcache
from tests.tiny import config, drawn, open_cache, pixels, same, sql
from viewcache.api.session.cache import Cache
from viewcache.errors import BadInput, BadVideo, ConfigError, DatasetNotFound
from viewcache.materializer.dataset.changes import FileChange
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.links import Links
from viewcache.materializer.dataset.roots import labels_of
from viewcache.materializer.places import joined


@pytest.fixture
def folders(tmp_path: Path, videos: Path) -> Path:
    """Two folders, ``one`` and ``two``, that both have a video ``v0``; five videos in all."""
    for k, name in enumerate(("one/v0", "one/v1", "two/v0", "two/v3", "two/v4")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(videos / f"v{k}.mp4", tmp_path / f"{name}.mp4")
    return tmp_path


def opened(folder: Path, places: object, **keys: object) -> Cache:
    """A cache of some places."""
    described = config(folder / "store", folder, **{"video_dataset_path": places, **keys})  # type: ignore[arg-type]
    cache = viewcache.open(described)
    assert isinstance(cache, Cache)
    return cache


def paths(uri: str, links: Links | None = None) -> list[str]:
    """The relative paths of what is found without a problem."""
    return [each.path for each in discover(uri, links or Links()) if not each.problem]


# Several places ------------------------------------------------------------------------------------------------------


def test_several_folders_are_one_dataset(folders: Path) -> None:
    """Each video once an epoch, named by its folder and its path there; the folders' order means nothing."""
    places = [str(folders / "two"), str(folders / "one" / "*.mp4")]
    with opened(folders, places) as cache:
        before = pixels(cache)
        assert sorted(set(drawn(before)[0])) == ["one.-v0", "one.-v1", "two.-v0", "two.-v3", "two.-v4"]
        assert all(len(names) == 2 * len(set(names)) == 10 for names in drawn(before).values())
        roots = sql(cache, "select video, text_value from video_columns where name = 'root' order by video")
    assert roots[:3] == [("one.-v0", "one"), ("one.-v1", "one"), ("two.-v0", "two")]
    with opened(folders, places[::-1]) as cache:
        assert same(pixels(cache), before)


def test_a_list_of_one_is_that_one(folders: Path) -> None:
    """Names, draws and pixels are those of the folder itself."""
    with opened(folders, str(folders / "two")) as cache:
        before = pixels(cache)
    with opened(folders, [str(folders / "two")]) as cache:
        assert same(pixels(cache), before)


def test_labels_and_predicates_know_the_place(folders: Path) -> None:
    """A table names videos by their path with the place, ``folders`` works as in one, and ``root`` says which it is."""
    (folders / "labels.csv").write_text("video,label\none/v0.mp4,a\ntwo/v0.mp4,b\nv1.mp4,c\n")
    places = [str(folders / "one"), str(folders / "two")]
    with opened(folders, places, labels=str(folders / "labels.csv"), where="root = 'two' or label = 'a'") as cache:
        assert sorted(set(drawn(pixels(cache))[0])) == ["one.-v0", "two.-v0", "two.-v3", "two.-v4"]
        assert cache.classes("train") == ("a", "b", "c")
    with opened(folders, places, tag="of-folders", labels="folders") as cache:
        assert cache.classes("of-folders") == ("one", "two")


def test_the_same_file_by_two_ways_counts_once(folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder inside another one, or a link to it, adds no video again; that is told."""
    os.symlink(folders / "two", folders / "also")
    places = [str(folders / name) for name in ("one", "two", "two/*.mp4", "also")]
    with caplog.at_level(logging.WARNING, "viewcache.dataset"):
        found = discover(joined(places))
    assert len(found) == 5
    assert "named_twice" in {getattr(each, "action", "") for each in caplog.records}


def test_labels_of_places() -> None:
    """As many of a folder's last names as tell it from the others; whole where nothing less does."""
    assert labels_of(["/d/a/videos", "/d/b/videos", "/d/c"]) == {
        "/d/a/videos": "a/videos", "/d/b/videos": "b/videos", "/d/c": "c"
    }  # fmt: skip
    assert labels_of(["/b/videos", "s3://b/videos"]) == {"/b/videos": "/b/videos", "s3://b/videos": "s3://b/videos"}


@pytest.mark.parametrize(
    ("places", "error", "told"),
    [
        ([], ConfigError, "a path or URL, or a list of them"),
        (["one", "one"], ConfigError, r"video_dataset_path\[1\] is 'one' again"),
        (["one", 3], ConfigError, r"video_dataset_path\[1\]"),
        (["one", "three"], DatasetNotFound, "three: no such folder, file or glob"),
        (["one", "list.txt"], BadInput, "a list file is a dataset of its own"),
        ("empty.txt", DatasetNotFound, "empty.txt names no file"),
        ("binary.txt", BadInput, "not UTF-8 text"),
        ("nowhere.txt", DatasetNotFound, "nowhere.txt: no such list file"),
        ("of-lists.txt", BadInput, "line 2 of .*list.txt is a list file"),
        ("of-texts.txt", BadInput, "line 1 of .* names no video"),
        ("of-folders.txt", DatasetNotFound, "line 1 of .*: .*three: no such folder"),
    ],
    ids=str,
)
def test_places_that_are_refused(
    folders: Path, monkeypatch: pytest.MonkeyPatch, places: object, error: type[Exception], told: str
) -> None:
    """Each is told by its name, of a list file with the line."""
    monkeypatch.chdir(folders)
    for name, text in (
        ("list.txt", b"one"),
        ("empty.txt", b"# nothing\n\n"),
        ("binary.txt", b"\xff\xfe\x00"),
        ("of-lists.txt", b"one\nlist.txt"),
        ("texts/a.md", b""),
        ("of-texts.txt", b"texts"),
        ("of-folders.txt", b"three"),
    ):
        (folders / name).parent.mkdir(exist_ok=True)
        (folders / name).write_bytes(text)
    with pytest.raises(error, match=told):
        opened(folders, places)


# List files ----------------------------------------------------------------------------------------------------------


def test_a_list_file_lives(folders: Path) -> None:
    """Lines that are added are added files, lines that go are removed ones; names are paths seen from the list."""
    lines = ["# of two places", "one/v0.mp4", "", str(folders / "two"), "one/v0.mp4"]
    (folders / "lists").mkdir()
    listed = folders / "videos.txt"
    listed.write_text("\n".join(lines))
    with opened(folders, str(listed), epochs=2) as cache:
        before = pixels(cache)
    assert sorted(set(drawn(before)[0])) == ["one.-v0", "two.-v0", "two.-v3", "two.-v4"]
    listed.write_text("\n".join(["one/v1.mp4", *lines[3:4]]))
    with opened(folders, str(listed), epochs=4) as cache:
        added, removed = cache.changes("train")
        assert (added.names, removed.names) == (("one.-v1",), ("one.-v0",))
        after = pixels(cache)
    assert same({place: after[place] for place in before}, before)
    assert sorted(set(drawn(after)[3])) == ["one.-v1", "two.-v0", "two.-v3", "two.-v4"]


def test_a_line_of_a_file_that_is_not_there(folders: Path) -> None:
    """One that never was is a bad video, so that nobody misses it unknowingly; one that was is a video that is gone."""
    listed = folders / "videos.txt"
    listed.write_text("two\none/v0.mp4\none/nowhere.mp4\n")
    with pytest.raises(BadVideo, match=r"nowhere\.mp4: is not there, and is named by line 3 of .*videos\.txt"):
        opened(folders, str(listed))
    with opened(folders, str(listed), tag="skips", on_bad_video="skip") as cache:
        assert len(set(drawn(pixels(cache, "skips"))[0])) == 4
    listed.write_text("two\none/v0.mp4\n")
    with opened(folders, str(listed)) as cache:
        before = pixels(cache)
    (folders / "one" / "v0.mp4").unlink()
    with opened(folders, str(listed)) as cache:
        assert [each.change for each in cache.changes("train")] == [FileChange.REMOVED]
        assert same(pixels(cache), before)


def test_names_beside_and_below_a_list_file(folders: Path) -> None:
    """What lies elsewhere has the way there in its path, so no two files share one."""
    (folders / "lists").mkdir()
    (folders / "lists" / "v.txt").write_text("../one/v0.mp4\n../two/v0.mp4\n")
    assert paths(str(folders / "lists" / "v.txt")) == ["../one/v0.mp4", "../two/v0.mp4"]
    with open_cache(folders / "store", folders / "lists" / "v.txt") as cache:
        assert set(drawn(pixels(cache))[0]) == {".....-one.-v0", ".....-two.-v0"}


def test_a_list_file_of_urls() -> None:
    """A list may name remote files, from anywhere; a list may lie in a bucket itself."""
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for name in ("/data/b.mp4", "/data/a/c.webm", "/other/d.mp4"):
        fs.pipe_file(name, b"123")
    fs.pipe_file("/data/videos.txt", b"b.mp4\na\nmemory://other/d.mp4\nmemory://data/nowhere.mp4")
    found = {each.path: (each.uri, each.absent) for each in discover("memory://data/videos.txt")}
    fs.store.clear()
    assert list(found) == ["a/c.webm", "b.mp4", "memory:///other/d.mp4", "nowhere.mp4"]
    assert sum(absent for _, absent in found.values()) == 1


# Links ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool(folders: Path) -> Path:
    """A dataset of links into a pool beside it: a file, a folder, one that leaves for elsewhere, and circles."""
    data = folders / "data"
    data.mkdir()
    os.symlink(folders / "one" / "v0.mp4", data / "file.mp4")
    os.symlink(folders / "two", data / "folder")
    os.symlink(data, data / "circle")
    os.symlink(data, folders / "two" / "back")
    (folders / "far").mkdir()
    shutil.copyfile(folders / "two" / "v3.mp4", folders / "far" / "secret.mp4")
    os.symlink(folders / "far", data / "elsewhere")
    return data


def test_links_are_followed_within_roots(pool: Path, folders: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files behind links to stated folders are videos, each once; a circle ends and is told; others are refused."""
    links = Links(follow=True, roots=(str(folders / "one"), str(folders / "two")))
    with caplog.at_level(logging.WARNING, "viewcache.dataset"):
        found = {each.path: each.problem for each in discover(str(pool), links)}
    assert [path for path, problem in found.items() if not problem] == [
        "file.mp4", "folder/v0.mp4", "folder/v3.mp4", "folder/v4.mp4"
    ]  # fmt: skip
    assert "leaves the dataset's folder" in found["elsewhere.3g2"]
    assert "link_roots" in found["elsewhere.3g2"]
    assert "links_again" in {getattr(each, "action", "") for each in caplog.records}
    globbed = {each.path: each.problem for each in discover(f"{pool}/**/*.mp4", links)}
    assert [path for path, problem in globbed.items() if not problem] == [
        path for path, problem in found.items() if not problem
    ]


def test_links_between_a_datasets_own_places(pool: Path, folders: Path) -> None:
    """Its own folders are roots: nothing is to be stated for them, and a file that both ways show counts once."""
    places = joined([str(pool), str(folders / "two")])
    assert paths(places, Links(follow=True)) == [f"data/folder/v{k}.mp4" for k in (0, 3, 4)]
    assert paths(places) == [f"two/v{k}.mp4" for k in (0, 3, 4)]


def test_following_links_may_be_set_later(pool: Path, folders: Path) -> None:
    """It adds files as any other change of a folder does: what was drawn stays; without it they are bad videos."""
    keys: dict[str, object] = {"link_roots": [str(folders)], "epochs": 2}
    with pytest.raises(BadVideo, match=r"leaves the dataset's folder.*follow_links: true"):
        opened(folders, str(pool), epochs=2)
    with opened(folders, str(pool), follow_links=True, **keys) as cache:
        before = pixels(cache)
        assert set(drawn(before)[0]) == {
            "file", "folder.-v0", "folder.-v3", "folder.-v4", "elsewhere.-secret"
        }  # fmt: skip
    with opened(folders, str(pool), follow_links=True, **(keys | {"epochs": 3})) as cache:
        after = pixels(cache)
    assert same({place: after[place] for place in before}, before)
    with pytest.raises(ConfigError, match="set follow_links: true"):
        opened(folders, str(pool), **keys)


def test_a_link_that_is_not_followed_need_not_be_repaired(pool: Path, folders: Path) -> None:
    """What can be done about it is said in one sentence: the folder it leads to may be named, or the link removed."""
    policy = "remove the link, or set on_bad_video: skip or replace"
    with pytest.raises(BadVideo, match=rf"name a folder above that in link_roots, {policy} \(and \d more\)$"):
        opened(folders, str(pool), follow_links=True)


def test_a_folder_of_links_that_is_not_there(pool: Path, folders: Path, tmp_path: Path) -> None:
    """What is to be followed into a folder that is missing is an error that names it, and no silence."""
    with pytest.raises(DatasetNotFound, match=r"link_roots: .*nowhere is no folder"):
        opened(folders, str(pool), follow_links=True, link_roots=[str(tmp_path / "nowhere")])
