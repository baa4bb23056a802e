"""What the catalog has of a dataset's files: a listing compares with it what is there now.

All files are compared as columns; of those that are looked into, each is found by its URI.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog.records import WENT_WHILE_OPEN, VideoStatus
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.listed import Found, Listed, Recorded
from viewcache.materializer.dataset.numbers import numbers
from viewcache.materializer.dataset.recording import is_key_of, video_key
from viewcache.materializer.dataset.texts import RepeatedTexts, Texts
from viewcache.materializer.media.index import TOO_LARGE
from viewcache.materializer.media.stamp import VALIDATORS, Stamp
from viewcache.materializer.spec import DatasetSpec

__all__ = ["STAMP", "Known", "KnownFiles"]

AT_ONCE = 1 << 16
"""Files that are objects of Python at the same time."""
STAMP = ("size_bytes", "mtime_ns", "etag")
_KNOWN = ("video_id", "name", "key", *STAMP, "frames", "index_at", "status", "error_kind")
"""Columns that are looked at file by file."""


class Known:
    """What the catalog has of a dataset; arrays have one entry a row."""

    def __init__(self, rows: pa.Table, *, opening: bool = False) -> None:
        """Compare with rows of ``schemas.VIDEO``.

        An ``opening`` tells of what went while the cache was open, and decides what it is: to it these files are as
        they were before.
        """
        self.went = _is_true(pc.equal(rows["error"].cast(pa.large_string()), WENT_WHILE_OPEN))
        """Which went, or were replaced, while the cache was open, and no opening has told of it."""
        self.rows = _as_before(rows, self.went) if opening and self.went.any() else rows
        self.statuses = RepeatedTexts(self.rows["status"])

    def __len__(self) -> int:
        """Number of files, with those that are gone."""
        return len(self.statuses)

    def newest(self) -> int:
        """The largest id of a video; 0 of none."""
        return int(pc.max(self.rows["video_id"]).as_py() or 0)

    def rows_of(self, uris: Texts) -> NDArray[np.int64]:
        """(uris,) the row of each; -1 of what is not registered."""
        mine = self.rows["uri"].cast(pa.large_string())
        if mine.equals(pa.chunked_array([uris.array])):  # as it mostly is, and far faster than to look each up
            return np.arange(len(self))
        found = pc.index_in(uris.array, value_set=mine)
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def is_there(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are among some."""
        there = np.zeros(len(self), bool)
        there[at[at >= 0]] = True
        return there

    def names(self) -> Texts:
        """All names that were given."""
        return Texts(self.rows["name"])

    @cached_property
    def etags(self) -> RepeatedTexts:
        """On record of each."""
        return RepeatedTexts(self.rows["etag"])

    @cached_property
    def has_frames(self) -> NDArray[np.bool_]:
        """Whether each could be decoded when it was looked into."""
        return _is_known(self.rows["frames"])

    def holds(self, listed: Listed, at: NDArray[np.int64], spec: DatasetSpec) -> NDArray[np.bool_]:
        """Which files are as they are known, and known well enough.

        Args:
            listed: the files.
            at: (files,) the row of each; -1 of what is not registered.
            spec: how they are to be looked into.
        """
        left_out = self.statuses.are(VideoStatus.GONE) | self.statuses.are(VideoStatus.LISTED)
        held = at >= 0
        held[held] = ~left_out[at[held]]
        held[held] = self._same(listed, np.flatnonzero(held), at[held])
        known = at[held]
        sure = np.ones(len(self), bool)
        for row in np.flatnonzero((~self.has_frames | self.statuses.are(VideoStatus.BAD)) & ~left_out).tolist():
            sure[row] = _still_bad(self.rows["error"][row].as_py() or "", spec)
        enough = np.ones(len(self), bool)
        if spec.probe != ProbeMode.LAZY:
            enough = numbers(self.rows["index_at"], -1) >= 0
            if spec.probe == ProbeMode.TIMES:
                enough = enough | _is_known(self.rows["time_step"])
        held[held] = sure[known] & (enough[known] | ~self.has_frames[known])
        # A bad file is looked into once more: its key tells by what stamp it is bad, so this cannot be set alone.
        return held & ~(self.have(at, VideoStatus.BAD) & self.marked_anew(listed, at))

    def marked_anew(self, listed: Listed, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which registered files have an etag that is not the one on record, as where a server told none before."""
        marked = at >= 0
        if not any(listed.etags.values):  # as of all local files
            return np.zeros(len(at), bool)
        rows = np.flatnonzero(marked)
        now, before = listed.etags.taken(rows).array, self.etags.taken(at[rows]).array
        marked[rows] = _is_true(pc.and_(pc.not_equal(now, ""), pc.not_equal(now, before.fill_null(""))))
        return marked

    def _same(self, listed: Listed, mine: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some files have the size and time, or the etag, that is known of them; see `Stamp.same`."""
        sizes, times = (numbers(self.rows[name])[at] for name in ("size_bytes", "mtime_ns"))
        same = (listed.sizes[mine] == sizes) & (listed.mtimes_ns[mine] == times)
        etag, before = (each.array for each in (listed.etags.taken(mine), self.etags.taken(at)))
        both = _is_true(pc.and_(pc.not_equal(etag, ""), pc.not_equal(before, "")))
        for header in VALIDATORS if both.any() else ():
            both &= _is_true(pc.equal(*(pc.starts_with(each, f"{header}: ") for each in (etag, before))))
        return np.asarray(np.where(both, _is_true(pc.equal(etag, before)), same))

    def are_others(self, listed: Listed, mine: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some files have another key than a lost catalog's journal had: what it told no size of.

        Args:
            listed: has the files.
            mine: (files,) their rows in ``listed``.
            at: (files,) those in the catalog.
        """
        others = ~_is_known(self.rows["size_bytes"])[at]
        asked = np.flatnonzero(others)
        for first in range(0, len(asked), AT_ONCE):
            part = asked[first : first + AT_ONCE]
            keys = self.rows["key"].take(pa.array(at[part])).to_pylist()
            here = listed.some(mine[part])
            others[part] = [not is_key_of(key, file, file.stamp) for key, file in zip(keys, here, strict=True)]
        return others

    def were_there(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which files were videos once, whatever they are now."""
        return _of(~self.statuses.are(VideoStatus.BAD) | self.has_frames, at)

    def have(self, at: NDArray[np.int64], status: VideoStatus) -> NDArray[np.bool_]:
        """Which files have a status; ``at`` as for `holds`."""
        return _of(self.statuses.are(status), at)

    def few(self, rows: NDArray[np.int64]) -> "KnownFiles":
        """Some of them, file by file."""
        return KnownFiles(self.rows.take(pa.array(rows)))


class KnownFiles:
    """What the catalog has of files that are looked into, by URI."""

    def __init__(self, rows: pa.Table) -> None:
        """Find rows of ``schemas.VIDEO`` by their URIs."""
        self.rows = rows
        self.row_of = {uri: row for row, uri in enumerate(rows["uri"].to_pylist())}
        self._columns = {name: rows[name].to_pylist() for name in _KNOWN}

    def of(self, uri: str, column: str) -> Any:
        """What a column of `_KNOWN` says of a file."""
        return self._columns[column][self.row_of[uri]]

    def rows_of(self, uris: Iterable[str]) -> pa.Table:
        """The rows of some files, in their order."""
        return self.rows.take(pa.array([self.row_of[uri] for uri in uris], pa.int64()))

    def was_indexed(self, uri: str) -> bool:
        """Whether every packet of a file was read once, so that views of it may have been made."""
        return self.of(uri, "index_at") is not None

    def was_whole(self, file: Found) -> bool:
        """Whether the row of a file is of a content that could be decoded, be it there or not.

        The row of a bad file is where another content was there before: then its key is that content's, while size and
        time are those of the bad one, see `record_bad`. Of what a lost catalog got from its journal, which has the key
        alone, it is taken for granted.
        """
        status, frames, size = (self.of(file.uri, name) for name in ("status", "frames", "size_bytes"))
        if status == VideoStatus.LISTED or size is None:
            return size is None
        if self.of(file.uri, "error_kind") is None:
            return frames is not None
        # Size and time of a file that could not be read for now are not on record: of these only facts tell.
        return self.of(file.uri, "key") != self._key(file) and (size >= 0 or frames is not None)

    def recorded(self, file: Found) -> Recorded | None:
        """The version on record of a content that somebody may have seen; see `was_whole` of what a row is of."""
        key, size, kind = (self.of(file.uri, name) for name in ("key", "size_bytes", "error_kind"))
        if kind is not None and not self.was_whole(file):
            return None
        return Recorded(key, None if kind is not None or size is None else self._stamp(file))

    def is_replaced(self, file: Found) -> bool:
        """Whether a file that was gone, or went bad, is here with another size or time than when it was recorded so.

        The next opening compares the contents.
        """
        if file.uri not in self.row_of or self.of(file.uri, "status") not in (VideoStatus.GONE, VideoStatus.BAD):
            return False
        return self.was_whole(file) and not self._stamp(file).same(file.stamp)

    def _key(self, file: Found) -> str:
        """What the key of a file is, if it is of the size and time on record."""
        return video_key(file.uri, self._stamp(file), as_stored=file.as_stored)

    def _stamp(self, file: Found) -> Stamp:
        size, mtime_ns, etag = (self.of(file.uri, name) for name in STAMP)
        return Stamp(size or 0, mtime_ns or 0, etag or "")


def _still_bad(error: str, spec: DatasetSpec) -> bool:
    """Whether a file is bad as it was, unless it was refused for a limit that is another one here."""
    return bool(error) and (TOO_LARGE not in error or error.endswith(f"({spec.max_pixels})"))


def _as_before(rows: pa.Table, went: NDArray[np.bool_]) -> pa.Table:
    """Rows whose files went while the cache was open, as they were when these were there."""
    for name, value in (("status", VideoStatus.OK.value), ("error", None)):
        at, kind = rows.schema.get_field_index(name), rows.schema.field(name)
        texts = [value if each else text for each, text in zip(went.tolist(), rows[name].to_pylist(), strict=True)]
        rows = rows.set_column(at, kind, pa.array(texts, kind.type))
    return rows


def _of(rows: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """What is so of the row of each of some files; of what is not registered nothing is."""
    out = at >= 0
    out[out] = rows[at[out]]
    return out


def _is_true(mask: pa.BooleanArray | pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _is_known(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy())
