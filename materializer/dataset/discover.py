"""Find a dataset's files: a folder, one file, a glob or an fsspec URL becomes a sorted list.

Order is by path, so that it does not depend on the file system; nothing outside the folder is ever listed.
"""

import glob
import os
import posixpath
import stat
from collections.abc import Iterator
from typing import NamedTuple

from viewcache.errors import BadInput, DatasetNotFound, MissingExtra
from viewcache.materializer.dataset.names import SUFFIXES
from viewcache.materializer.media.source import Stamp, is_local, local_path, shown, stamp_of
from viewcache.store.quiet import quiet_requests

__all__ = ["Found", "discover"]

_MAGIC = frozenset("*?[")


class Found(NamedTuple):
    """One video file of a dataset."""

    uri: str
    """Absolute path or URL."""
    path: str
    """Under the dataset, with ``/`` between components."""
    stamp: Stamp
    problem: str = ""
    """Why it must not be opened; empty = nothing known."""


def discover(uri: str) -> list[Found]:
    """List the videos of a dataset.

    Args:
        uri: a folder (searched to any depth), a file, a glob (``**`` allowed) or an fsspec URL of one of these.

    Returns:
        Files with a video's extension, sorted by path; hidden files and folders are left out. Links that lead out of
        the folder are listed with their ``problem`` and never followed.

    Raises:
        DatasetNotFound: nothing is there, or no videos are.
        BadInput: the URL holds a user or password, or chains file systems.
        MissingExtra: the package that reaches such a URL is not installed.
    """
    found = [_named(each) for each in (_local(uri) if is_local(uri) else _remote(uri))]
    videos = sorted((each for each in found if _is_video(each.path)), key=lambda each: each.path)
    if not videos:
        others = f"; {len(found)} other files are there" if found else ""
        raise DatasetNotFound(
            f"{shown(uri)} holds no videos: looked for {' '.join('*' + each for each in SUFFIXES)}{others}"
        )
    return videos


def _named(found: Found) -> Found:
    """The same, under a name that can be stored and printed: file systems allow bytes that are no UTF-8."""
    try:
        found.uri.encode()
    except UnicodeEncodeError:
        uri, path = (each.encode(errors="backslashreplace").decode() for each in (found.uri, found.path))
        return Found(uri, path, Stamp(0), "has a name that is not UTF-8; rename it")
    return found


def _is_video(path: str) -> bool:
    parts = path.split("/")
    return path.lower().endswith(SUFFIXES) and not any(part.startswith(".") for part in parts)


def _local(uri: str) -> Iterator[Found]:
    path = local_path(uri)
    if os.path.isdir(path):
        yield from _folder(path)
    elif os.path.isfile(path):
        yield _file(path, os.path.dirname(path))
    elif _MAGIC & set(path):
        base = _fixed_part(path, os.sep)
        links: set[str] = set()
        for each in map(os.path.abspath, glob.iglob(path, recursive=True)):
            link = _linked_folder(each, base)
            if link is None:
                if os.path.isfile(each) or os.path.islink(each):
                    yield _file(each, base)
            elif link not in links:
                links.add(link)
                yield _refused(link, base)
    else:
        parent = os.path.dirname(path)
        hint = f"; {parent} is there" if os.path.isdir(parent) else ""
        raise DatasetNotFound(f"{uri}: no such folder, file or glob (looked for {path}{hint})")


def _folder(base: str) -> Iterator[Found]:
    for folder, folders, files in os.walk(base):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in folders:
            path = os.path.join(folder, each)
            if os.path.islink(path) and not _inside(path, base):
                yield _refused(path, base)
        above = os.path.join(folder, "")
        inside = _relative(above, base)
        for each in files:
            if not each.startswith("."):
                yield _file(above + each, base, inside + each)


def _linked_folder(path: str, base: str) -> str | None:
    """The folder above a path that is a link out of the dataset's folder; None if there is none."""
    if _inside(os.path.dirname(path), base):
        return None
    at = base
    for part in _relative(path, base).split("/"):
        at = os.path.join(at, part)
        if not _inside(at, base):
            return at
    return path


def _refused(link: str, base: str) -> Found:
    """A linked folder, as a file of that name, so that the policy for bad videos and not silence is what people get."""
    return Found(link, _relative(link, base) + SUFFIXES[0], Stamp(0), _leaves(link))


def _file(path: str, base: str, relative: str = "") -> Found:
    relative = relative or _relative(path, base)
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if not _inside(path, base):
                return Found(path, relative, Stamp(0), _leaves(path))
            status = os.stat(path)
    except OSError as gone:
        return Found(path, relative, Stamp(0), f"cannot be read ({gone.strerror})")
    return Found(path, relative, Stamp(status.st_size, status.st_mtime_ns))


def _relative(path: str, base: str) -> str:
    prefix = os.path.join(base, "")
    relative = path[len(prefix) :] if path.startswith(prefix) else os.path.relpath(path, base)
    return relative.replace(os.sep, "/")


def _inside(path: str, base: str) -> bool:
    real, root = os.path.realpath(path), os.path.realpath(base)
    return os.path.commonpath((real, root)) == root


def _leaves(path: str) -> str:
    return (
        f"is a link that leaves the dataset's folder (to {os.path.realpath(path)}); links are followed only inside it"
    )


def _fixed_part(path: str, separator: str) -> str:
    """The folder above the first component with a wildcard."""
    parts = path.split(separator)
    first = next(number for number, part in enumerate(parts) if _MAGIC & set(part))
    return separator.join(parts[:first]) or separator


def _remote(uri: str) -> Iterator[Found]:
    from fsspec.core import url_to_fs

    if "::" in uri:
        raise BadInput(
            f"{shown(uri)}: chained file systems cannot hold a dataset; give the URL of the one that has the files"
        )
    if "@" in uri.split("://", 1)[1].partition("/")[0]:
        raise BadInput(
            f"{shown(uri)}: no user or password in a dataset's URL; use the file system's own profile or environment"
        )
    quiet_requests()
    try:
        fs, path = url_to_fs(uri)
        fs.invalidate_cache()  # it remembers what it listed before, and files may have come since
        if _MAGIC & set(path):
            base, entries = _fixed_part(path, "/"), fs.glob(path, detail=True)
        elif fs.isfile(path):
            base, entries = posixpath.dirname(path), {path: fs.info(path)}
        else:
            base, entries = path, fs.find(path, detail=True)
    except FileNotFoundError:
        entries, base = {}, ""
    except ImportError as missing:
        raise MissingExtra.of_url(f"{shown(uri)}: listing it", uri.partition("://")[0], missing) from missing
    except Exception as failed:  # as in open_source
        raise DatasetNotFound(f"{shown(uri)} cannot be listed ({type(failed).__name__}: {failed})") from failed
    if not entries:
        raise DatasetNotFound(f"{shown(uri)}: nothing is there")
    prefix = base.rstrip("/") + "/"
    for name, info in entries.items():
        if info.get("type") == "file":
            yield Found(str(fs.unstrip_protocol(name)), name.removeprefix(prefix), stamp_of(info))
