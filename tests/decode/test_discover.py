"""Listing a dataset: folders, globs and URLs; sorted, complete, and never outside of the folder."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from viewcache.errors import BadInput, DatasetNotFound, SourceUnreachable
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.links import Links
from viewcache.materializer.dataset.table import read_table
from viewcache.materializer.media.source import open_source

T = TypeVar("T")
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAPABILITY_VERSION = 1, 2, 0x20080522
"""Of Linux: who has the first two minds no permission of a file."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A dataset with sub-folders, other files and hidden ones."""
    base = tmp_path / "data"
    for name in ("b.mp4", "a/z.MKV", "a/c.webm", "notes.txt", ".hidden.mp4", ".cache/x.mp4", "a/labels.csv"):
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))
    return base


def paths(uri: object) -> list[str]:
    """The relative paths of what is found."""
    return [each.path for each in discover(str(uri))]


def test_a_folder(tree: Path) -> None:
    """A folder is searched to any depth; order is by path; hidden and other files are left out."""
    assert paths(tree) == ["a/c.webm", "a/z.MKV", "b.mp4"]
    first = discover(str(tree))[0]
    status = (tree / "a/c.webm").stat()
    assert (first.uri, first.stamp.size, first.stamp.mtime_ns) == (str(tree / "a/c.webm"), 8, status.st_mtime_ns)
    assert paths(f"file://{tree}") == paths(tree)


def test_a_file_and_a_glob(tree: Path) -> None:
    """One file is a dataset; a glob's names are relative to the folder above its first wildcard."""
    assert paths(tree / "b.mp4") == ["b.mp4"]
    assert paths(tree / "*.mp4") == ["b.mp4"]
    assert paths(tree / "**" / "*") == ["a/c.webm", "a/z.MKV", "b.mp4"]
    assert paths(tree / "a" / "[cz].*") == ["c.webm", "z.MKV"]


def test_a_folder_with_brackets_is_a_folder(tree: Path) -> None:
    """What exists is taken as it is written, before it is taken for a glob."""
    odd = tree / "season [1]"
    odd.mkdir()
    (odd / "e.mp4").write_bytes(b"x")
    assert paths(odd) == ["e.mp4"]


def test_links_do_not_leave_the_folder(tree: Path, tmp_path: Path) -> None:
    """A link to a file or folder outside is listed with its problem; one inside is followed; a circle ends."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.mp4").write_bytes(b"x")
    os.symlink(outside / "secret.mp4", tree / "link.mp4")
    os.symlink(outside, tree / "folder")
    os.symlink(tree / "b.mp4", tree / "same.mp4")
    os.symlink(tree, tree / "a" / "circle")
    os.symlink(tree / "nowhere.mp4", tree / "broken.mp4")
    found = {each.path: each.problem for each in discover(str(tree))}
    assert sorted(found) == ["a/c.webm", "a/z.MKV", "b.mp4", "broken.mp4", "folder.3g2", "link.mp4", "same.mp4"]
    assert "leaves the dataset's folder" in found["link.mp4"]
    assert "leaves the dataset's folder" in found["folder.3g2"]
    assert found["broken.mp4"] == f"is a link to nothing ({tree}/nowhere.mp4)"
    assert found["same.mp4"] == ""
    globbed = {each.path: each.problem for each in discover(f"{tree}/*.mp4")}
    assert "leaves" in globbed["link.mp4"]


@pytest.mark.parametrize("links", [Links(), Links(follow=True)], ids=["none", "followed"])
def test_a_link_to_nothing(tree: Path, tmp_path: Path, links: Links) -> None:
    """It is called so wherever it points: following links that leave the folder would not help."""
    os.symlink(tmp_path / "gone" / "outside.mp4", tree / "far.mp4")
    for uri in (str(tree), f"{tree}/*.mp4"):
        found = {each.path: each.problem for each in discover(uri, links)}
        assert found["far.mp4"] == f"is a link to nothing ({tmp_path}/gone/outside.mp4)"


@pytest.mark.parametrize("pattern", ["*/*.mp4", "**/*.mp4", "*/*/*.mp4"])
def test_a_glob_does_not_go_through_a_link_that_leaves_the_folder(tree: Path, tmp_path: Path, pattern: str) -> None:
    """Nothing behind a linked folder is listed, whatever wildcard leads there; the link itself is, with its problem."""
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    for name in ("secret.mp4", "deep/secret.mp4"):
        (tmp_path / "outside" / name).write_bytes(b"x")
    os.symlink(tmp_path / "outside", tree / "folder")
    (tree / "inside").mkdir()
    (tree / "inside" / "v.mp4").write_bytes(b"x")
    os.symlink(tree / "inside", tree / "also")
    found = {each.path: each.problem for each in discover(f"{tree}/{pattern}")}
    assert "leaves the dataset's folder" in found.pop("folder.3g2")
    assert not any("secret" in path for path in found)
    assert not any(found.values())


def may_not_override(run: Callable[[], T]) -> T:
    """Run something in a thread that minds permissions, also where the tests run as root."""
    libc = ctypes.CDLL(None, use_errno=True)

    def limited() -> T:
        header, data = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
        assert libc.capget(header, data) == 0
        data[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
        assert libc.capset(header, data) == 0
        return run()

    with ThreadPoolExecutor(1) as alone:
        return alone.submit(limited).result()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Path]:
    """Two folders with a video each, one of which tests let nobody see; and what a disk's own check leaves."""
    base = tmp_path / "data"
    for name in ("a/v/one.mp4", "b/v/two.mp4", "lost+found/three.mp4"):
        (base / name).parent.mkdir(parents=True)
        (base / name).touch()
    os.chmod(base / "lost+found", 0)
    yield base
    for folder in (base, *(base / name for name in ("b", "b/v", "lost+found"))):
        if folder.exists():
            os.chmod(folder, 0o700)


@pytest.mark.parametrize(("form", "links"), [("", False), ("", True), ("/*/*/*.mp4", False), ("/**/*.mp4", True)])
@pytest.mark.parametrize(("what", "mode"), [("b", 0), ("b/v", 0), ("b", 0o400), ("b/v", 0o400), ("", 0)])
def test_what_cannot_be_looked_at_is_not_gone(two: Path, form: str, links: bool, what: str, mode: int) -> None:
    """It would count as removed, or as bad, and other videos would stand in for it."""
    how = Links(follow=links)
    assert len(may_not_override(lambda: discover(f"{two}{form}", how))) == 2
    os.chmod(two / what, mode)
    with pytest.raises(SourceUnreachable, match=r"cannot be looked at \(Permission denied\).*permissions"):
        may_not_override(lambda: discover(f"{two}{form}", how))


def test_a_link_to_a_folder_out_of_reach_is_not_gone(two: Path, tmp_path: Path) -> None:
    """It looks like a file without a suffix."""
    far = tmp_path / "far"
    (two / "b").rename(far)
    (two / "b").symlink_to(far / "v")
    how = Links(follow=True, roots=(str(tmp_path),))
    assert len(may_not_override(lambda: discover(str(two), how))) == 2
    os.chmod(far, 0)
    try:
        with pytest.raises(SourceUnreachable, match="cannot be looked at"):
            may_not_override(lambda: discover(str(two), how))
    finally:
        os.chmod(far, 0o700)


def test_a_listed_file_out_of_reach_is_not_gone(two: Path, tmp_path: Path) -> None:
    """One that is not there is absent; one that may be there is an error."""
    listed = tmp_path / "files.txt"
    listed.write_text("data/a/v/one.mp4\ndata/b/v/two.mp4\ndata/b/v/none.mp4\n")
    assert [bool(each.absent) for each in discover(str(listed))] == [False, True, False]
    os.chmod(two / "b", 0)
    with pytest.raises(SourceUnreachable, match="cannot be looked at"):
        may_not_override(lambda: discover(str(listed)))


def test_a_glob_needs_no_more_than_it_looks_at(two: Path, tmp_path: Path) -> None:
    """Homes that cannot be listed, one of which cannot be entered either; and a link that is not followed."""
    os.chmod(two / "a", 0o111)
    os.chmod(two / "b", 0)
    (tmp_path / "elsewhere").mkdir(mode=0)
    try:
        assert [each.path for each in may_not_override(lambda: discover(f"{two}/*/v/*.mp4"))] == ["a/v/one.mp4"]
        os.chmod(two / "a", 0o700)
        os.chmod(two / "b", 0o700)
        (two / "link").symlink_to(tmp_path / "elsewhere")
        assert len(may_not_override(lambda: discover(f"{two}/*/*/*.mp4"))) == 2
    finally:
        os.chmod(two / "a", 0o700)
        os.chmod(tmp_path / "elsewhere", 0o700)


def test_what_is_not_there(tree: Path) -> None:
    """The message says what was looked for, and where."""
    with pytest.raises(
        DatasetNotFound, match=r"no such folder, file or glob \(looked for .*/vidoes; .*/data is there\)"
    ):
        discover(str(tree / "vidoes"))
    (tree / "empty").mkdir()
    (tree / "empty" / "readme.md").write_bytes(b"x")
    with pytest.raises(DatasetNotFound, match=r"\*\.mp4 .*; 1 other files are there"):
        discover(str(tree / "empty"))
    with pytest.raises(DatasetNotFound, match="holds no videos"):
        discover(str(tree / "*.avi"))


def test_urls() -> None:
    """Any fsspec URL: a folder, a file or a glob; names are relative, URIs absolute."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    for name in ("/data/b.mp4", "/data/a/c.webm", "/data/x.txt", "/data/.h/d.mp4"):
        fs.pipe_file(name, b"123")
    found = discover("memory://data")
    assert [(each.path, each.uri, each.stamp.size) for each in found] == [
        ("a/c.webm", "memory:///data/a/c.webm", 3),
        ("b.mp4", "memory:///data/b.mp4", 3),
    ]
    assert paths("memory://data/*.mp4") == ["b.mp4"]
    assert paths("memory://data/b.mp4") == ["b.mp4"]
    with pytest.raises(DatasetNotFound, match="memory://nothing: nothing is there"):
        discover("memory://nothing")
    fs.store.clear()


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket/videos", "simplecache::s3://bucket/videos"])
def test_urls_that_are_refused(uri: str) -> None:
    """Secrets belong to the file system's profile; chains hide where files are. The secret is not repeated."""
    with pytest.raises(BadInput) as caught:
        discover(uri)
    assert "secret" not in str(caught.value)


def test_unknown_file_systems() -> None:
    """A scheme that nothing is installed for is named."""
    with pytest.raises(DatasetNotFound, match="nosuch://bucket: fsspec has no file system for nosuch://"):
        discover("nosuch://bucket")


class NoCredentialsError(Exception):
    """As botocore's: neither an OSError nor a ValueError."""


class Refused(Exception):
    """As aiohttp's and Google's: the server's answer has a number."""

    code = 403


CURE = "check its name, and the credentials and permissions of this process"


@pytest.mark.parametrize(
    "failed", [PermissionError("Access Denied"), NoCredentialsError("Unable to locate credentials"), Refused("no")]
)
def test_refusals_say_what_to_check(monkeypatch: pytest.MonkeyPatch, failed: Exception) -> None:
    """A dataset, a list file and a label table that a server refuses: the credentials of this process may be wrong."""

    def refuse(*_: object, **__: object) -> None:
        raise failed

    for name in ("isfile", "find", "info", "_open"):
        monkeypatch.setattr(MemoryFileSystem, name, refuse)
    for place in ("memory://data", "memory://data/list.txt"):
        with pytest.raises(DatasetNotFound, match=CURE):
            discover(place)
    with pytest.raises(DatasetNotFound, match=rf"labels memory://data/t.csv cannot be read .*; {CURE}"):
        read_table("memory://data/t.csv")


def test_other_failures_are_no_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails otherwise is not said to want credentials; nor is a file of this machine."""

    def fail(*_: object, **__: object) -> None:
        raise OSError("the server has a fault")

    monkeypatch.setattr(MemoryFileSystem, "find", fail)
    with pytest.raises(DatasetNotFound, match=r"the server has a fault\)$"):
        discover("memory://data")


def test_a_bucket_that_refuses_says_what_to_check(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong key, as for the store's tier; the message repeats no key."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(DatasetNotFound, match=CURE) as caught:
        discover(f"s3://{bucket}/videos")
    assert "wrong-and-secret" not in str(caught.value)


@pytest.fixture
def put(bucket: str) -> Callable[[str, bytes], None]:
    """Puts a file into the bucket, as another machine would: no file system of this process hears of it."""
    fs = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)

    def put(name: str, data: bytes) -> None:
        fs.pipe_file(f"{bucket}/{name}", data)

    return put


@pytest.mark.parametrize("line", ["*.mp4", "s3://{bucket}/v"], ids=["glob", "folder"])
def test_a_list_file_in_a_bucket_that_grows(bucket: str, put: Callable[[str, bytes], None], line: str) -> None:
    """Lines that are added are added files, though the folder of the list itself was listed by one of its lines."""
    for name in ("v/a.mp4", "w/b.mp4"):
        put(name, b"x")
    line, more = line.format(bucket=bucket), f"s3://{bucket}/w/b.mp4"
    put("v/list.txt", line.encode())
    assert discover(f"s3://{bucket}/v/list.txt").paths[:] == ["a.mp4"]
    put("v/list.txt", f"{line}\n{more}".encode())
    assert discover(f"s3://{bucket}/v/list.txt").paths[:] == ["a.mp4", more]


def test_files_of_a_bucket_are_as_they_are_now(bucket: str, put: Callable[[str, bytes], None], tmp_path: Path) -> None:
    """Whatever else was listed in this process: another dataset over the folder that a list file names files of."""
    names, listed = ("v/a.mp4", "v/b.mp4", "v/labels.csv"), tmp_path / "list.txt"
    for name in names:
        put(name, b"video,label\na,old\n")
    listed.write_text("".join(f"s3://{bucket}/{name}\n" for name in names[:2]))
    before = {each.uri: each.stamp for each in discover(f"s3://{bucket}/v")}
    assert {each.uri: each.stamp.etag for each in discover(str(listed))} == {u: s.etag for u, s in before.items()}
    assert read_table(f"s3://{bucket}/v/labels.csv")["label"].to_pylist() == ["old"]
    for name in (names[0], names[2]):
        put(name, b"video,label\na,newer\nb,newer\n")
    after = {each.uri: each.stamp for each in discover(str(listed))}
    assert [not after[f"s3://{bucket}/{name}"].same(before[f"s3://{bucket}/{name}"]) for name in names[:2]] == [
        True,
        False,
    ]
    with open_source(f"s3://{bucket}/v/a.mp4") as source:
        assert source.stamp.same(after[f"s3://{bucket}/v/a.mp4"])
    assert read_table(f"s3://{bucket}/v/labels.csv")["label"].to_pylist() == ["newer", "newer"]


def test_a_name_that_is_not_utf8_is_a_bad_video(tree: Path) -> None:
    """File systems allow any bytes; such a file is listed with its problem, so that the policy decides."""
    (tree / os.fsdecode(b"caf\xe9.mp4")).write_bytes(b"x")
    found = {each.path: each for each in discover(str(tree))}
    assert found["caf\\udce9.mp4"].problem == "has a name that is not UTF-8; rename it"
    assert all(each.uri.encode() for each in found.values())


MISSING = [("s3://b/v", "s3fs", "s3"), ("gs://b/v", "gcsfs", "gcs"), ("az://b/v", "adlfs", "azure"),
           ("http://h/v", "aiohttp", "http")]  # fmt: skip
"""URL, the package that reaches it, and the extra that has the package."""


@pytest.mark.parametrize(("url", "package", "extra"), MISSING)
def test_a_package_that_is_not_installed_is_named(url: str, package: str, extra: str) -> None:
    """Videos or labels behind a URL whose package is missing: the error has the line that installs it, and is not that
    nothing is there.
    """
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from viewcache.errors import MissingExtra\n"
        "from viewcache.materializer.dataset.discover import discover\n"
        "from viewcache.materializer.dataset.labels import labels_for\n"
        f"for read in (lambda: discover({url!r}), lambda: labels_for(['a'], {url + '/labels.csv'!r})):\n"
        "    try: read()\n"
        "    except MissingExtra as missing: print(missing)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    told = done.stdout.splitlines()
    assert len(told) == 2, done.stderr
    assert all(line.endswith(f"needs a further package: pip install 'viewcache[{extra}]'") for line in told)
    assert url in told[0]
    assert "labels.csv" in told[1]
