"""The file systems that sources behind URLs lie on, asked what is there now: none answers out of an earlier listing.

That costs a request where a listing would have known; but a process may live for weeks, files are replaced meanwhile,
and what fsspec has listed once it remembers for good, whoever asked for it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, cast

from viewcache.errors import URL_EXTRAS
from viewcache.materializer.media.reaching import is_absent, reach
from viewcache.store.quiet import quiet_requests

__all__ = ["AT_ONCE", "far_file", "open_far", "with_sizes"]

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
