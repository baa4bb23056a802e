"""What the catalog has of a dataset's files, by URI: a listing compares with it what is there now."""

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from viewcache.catalog.records import VideoStatus
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.discover import Found
from viewcache.materializer.media.index import TOO_LARGE
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.spec import DatasetSpec

__all__ = ["STAMP", "Known"]

STAMP = ("size_bytes", "mtime_ns", "etag")
_KNOWN = (
    *("video_id", "name", "key", *STAMP),
    *("frames", "index_at", "time_step", "status", "error"),
)
"""Columns that a listing looks at file by file."""


class Known:
    """What the catalog has of a dataset, by URI."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.row_of = {uri: row for row, uri in enumerate(rows["uri"].to_pylist())}
        self._columns = {name: rows[name].to_pylist() for name in _KNOWN}

    def name(self, uri: str) -> str | None:
        """The name that a file was given."""
        row = self.row_of.get(uri)
        return None if row is None else self._columns["name"][row]

    def of(self, uri: str, column: str) -> Any:
        """What a column of `_KNOWN` says of a registered file."""
        return self._columns[column][self.row_of[uri]]

    def holds(self, file: Found, spec: DatasetSpec) -> bool:
        """Whether what is known of a file is still so, and enough."""
        row = self.row_of.get(file.uri)
        if row is None or self._columns["status"][row] in (VideoStatus.GONE, VideoStatus.LISTED):
            return False
        size, mtime_ns, etag = (self._columns[name][row] for name in ("size_bytes", "mtime_ns", "etag"))
        if not Stamp(size or 0, mtime_ns or 0, etag or "").same(file.stamp):
            return False
        if self._columns["frames"][row] is None:
            # Bad as it was, unless it was refused for a limit that is another one here.
            error = self._columns["error"][row] or ""
            return bool(error) and (TOO_LARGE not in error or error.endswith(f"({spec.max_pixels})"))
        index_at, step = self._columns["index_at"][row], self._columns["time_step"][row]
        by_header = spec.probe == ProbeMode.LAZY or (spec.probe == ProbeMode.TIMES and step is not None)
        return by_header or (index_at is not None and index_at >= 0)

    def was_there(self, uri: str) -> bool:
        """Whether a file was a video once, whatever it is now."""
        row = self.row_of.get(uri)
        return row is not None and (
            self._columns["status"][row] != VideoStatus.BAD or self._columns["frames"][row] is not None
        )

    def is_new(self, uri: str) -> bool:
        """Whether nobody has looked into a registered file."""
        return bool(self._columns["status"][self.row_of[uri]] == VideoStatus.LISTED)

    def is_whole(self, uri: str) -> bool:
        """Whether a file could be decoded when it was looked into last."""
        row = self.row_of.get(uri)
        return row is not None and bool(self._columns["status"][row] == VideoStatus.OK)

    def is_replaced(self, file: Found) -> bool:
        """Whether a file that was gone is back with another size or time: the next opening compares the contents."""
        row = self.row_of.get(file.uri)
        if row is None or self._columns["status"][row] != VideoStatus.GONE or self._columns["frames"][row] is None:
            return False
        size, mtime_ns, etag = (self._columns[name][row] for name in ("size_bytes", "mtime_ns", "etag"))
        return not Stamp(size or 0, mtime_ns or 0, etag or "").same(file.stamp)

    def was_indexed(self, uri: str) -> bool:
        """Whether every packet of a file was read once, so that views of it may have been made."""
        row = self.row_of.get(uri)
        return row is not None and self._columns["index_at"][row] is not None

    def gone(self, here: Collection[str]) -> list[dict[str, Any]]:
        """Files that were there before and are not any more, and are not recorded as gone."""
        missing = [
            row for uri, row in self.row_of.items()
            if uri not in here and self._columns["status"][row] != VideoStatus.GONE
        ]  # fmt: skip
        return self.rows.take(missing).to_pylist() if missing else []
