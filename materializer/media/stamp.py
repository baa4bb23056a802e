"""What tells one version of a file from the next: its size, and its time or what a server marks it with.

No content is read for it, so a file that is written anew with the size and time, or mark, that it had is the same.
"""

from typing import Any, NamedTuple

__all__ = ["NO_FILE", "VALIDATORS", "Stamp", "stamp_of"]

VALIDATORS = ("Content-MD5", "Digest", "Last-Modified")
"""Headers of HTTP that stand in for an ETag, the surest one first."""


class Stamp(NamedTuple):
    """What tells one version of a file from the next."""

    size: int
    """Bytes."""
    mtime_ns: int = 0
    """Nanoseconds since the epoch; 0 where the file system has none."""
    etag: str = ""
    """The object store's own version mark; of a web server that gives none, one of `VALIDATORS` with its name, such as
    ``Last-Modified: Sat, 28 Nov 2026 09:58:09 GMT``; empty where there is none."""

    def same(self, other: "Stamp") -> bool:
        """Whether both are of one version: by etag where both have one of a kind, else by size and time.

        So a server that begins to give another mark, or one at all, has not replaced its files by that.
        """
        if self.etag and other.etag and _kind(self.etag) == _kind(other.etag):
            return self.etag == other.etag
        return self.size == other.size and self.mtime_ns == other.mtime_ns


NO_FILE = Stamp(-1)
"""Of a file that is not there."""


def stamp_of(info: dict[str, Any]) -> Stamp:
    """The version of a remote file from fsspec's ``info``."""
    etag = str(info.get("ETag") or info.get("etag") or info.get("md5") or info.get("generation") or "").strip('"')
    time = info.get("mtime") or info.get("LastModified") or info.get("last_modified") or info.get("created") or 0
    stamp = time.timestamp() if hasattr(time, "timestamp") else time
    mtime_ns = int(stamp * 1e9) if isinstance(stamp, int | float) else 0
    # As a mark and not as a time: a catalog that was written before has neither, and is not to take a time for another.
    marks = (f"{header}: {info[header]}" for header in VALIDATORS if info.get(header))
    return Stamp(int(info.get("size") or 0), mtime_ns, etag or next(marks, ""))


def _kind(etag: str) -> str:
    """The header that stands in for an ETag; empty if it is one."""
    return next((header for header in VALIDATORS if etag.startswith(header + ": ")), "")
