"""The file systems that sources behind URLs lie on, asked what is there now: none answers out of an earlier listing.

That costs a request where a listing would have known; but a process may live for weeks, files are replaced meanwhile,
and what fsspec has listed once it remembers for good, whoever asked for it.
"""

from typing import IO, Any, cast

from viewcache.errors import URL_EXTRAS
from viewcache.store.quiet import quiet_requests

__all__ = ["far_file", "open_far"]


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


def open_far(uri: str) -> IO[bytes]:
    """A file behind a URL, seekable; raises as `far_file`."""
    fs, path = far_file(uri)
    return cast(IO[bytes], fs.open(path, "rb"))
