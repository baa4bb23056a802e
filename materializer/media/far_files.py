"""The file systems that sources behind URLs lie on, asked what is there now: none answers out of an earlier listing.

That costs a request where a listing would have known; but a process may live for weeks, files are replaced meanwhile,
and what fsspec has listed once it remembers for good, whoever asked for it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any, cast

from viewcache.errors import URL_EXTRAS
from viewcache.materializer.media.reaching import is_absent, reach
from viewcache.store.quiet import quiet_requests

__all__ = ["AT_ONCE", "far_file", "files_below", "open_far", "walks", "with_sizes"]

AT_ONCE = 16
"""Files that are asked for at the same time."""


def far_file(uri: str) -> tuple[Any, str]:
    """The file system of a URL, which knows nothing of earlier listings, and the path there.

    Raises:
        ImportError: the package for such URLs is not installed.
        Exception: whatever the file system raises, see `open_source`.
    """
    from fsspec.core import url_to_fs

    quiet_requests()
    if uri.partition("://")[0] in URL_EXTRAS:  # others may not know the option, as SFTP, which hands it to its client
        fs, path = url_to_fs(uri, use_listings_cache=False)
    else:
        fs, path = url_to_fs(uri)
        fs.invalidate_cache()
    return fs, path


def walks(fs: Any) -> bool:
    """Whether a file system lists all that lies below a folder by asking for one folder after the other."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(fs)
    return (
        kind._find is AsyncFileSystem._find if isinstance(fs, AsyncFileSystem) else kind.find is AbstractFileSystem.find
    )


def files_below(fs: Any, path: str, depth: int | None = None) -> dict[str, dict[str, Any]]:
    """What is told of all files below a folder, or in so many levels of folders, by path.

    A folder that cannot be listed is an error: fsspec takes it for an empty one, and its files would be gone.

    Raises:
        Exception: whatever the file system raises, see `open_source`.
    """
    if not walks(fs):
        return cast(dict[str, dict[str, Any]], fs.find(path, detail=True))
    found: dict[str, dict[str, Any]] = {}
    waiting = [(path, 1)]
    while waiting:
        folder, level = waiting.pop()
        try:
            inside = reach(partial(fs.ls, folder, detail=True))
        except Exception as failed:  # as in open_source
            if level == 1 or not is_absent(failed):
                raise
            inside = []  # it went meanwhile, or a page names what is not there
        for info in inside:
            name = str(info["name"])
            if info["type"] != "directory":
                found[name] = info
            elif name.startswith(folder.rstrip("/") + "/") and level != depth and name != folder:
                waiting.append((name, level + 1))  # others are links of a page, which may lead anywhere
    return dict(sorted(found.items()))


def with_sizes(
    fs: Any, found: Mapping[str, dict[str, Any]], is_wanted: Callable[[str], bool]
) -> dict[str, dict[str, Any]]:
    """What a file system has listed, and of wanted files that are listed by name alone what it tells of each.

    So are those of a web server's page. One that is gone by now is left out, as if it had been listed later.
    """
    bare = [name for name, info in found.items() if info.get("type") == "file" and info.get("size") is None]

    def ask(name: str) -> dict[str, Any] | None:
        try:
            info: dict[str, Any] = reach(lambda: fs.info(name))
        except Exception as failed:  # as in open_source
            if not is_absent(failed):
                raise
            return None
        return info

    bare = [*filter(is_wanted, bare)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        told = dict(zip(bare, threads.map(ask, bare), strict=True)) if bare else {}
    each = ((name, told.get(name, info)) for name, info in found.items())
    return {name: info for name, info in each if info is not None}


def open_far(uri: str) -> IO[bytes]:
    """A file behind a URL, seekable; raises as `far_file`."""
    fs, path = far_file(uri)
    return cast(IO[bytes], fs.open(path, "rb"))
