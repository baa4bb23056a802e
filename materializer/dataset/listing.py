"""List a dataset, look into what is new, and record both: names first, so that ids do not depend on what was faster.

What is found is recorded in batches, so that a process that is killed costs the last batch. A file that is gone keeps
its row, so that its name is not given again and its content is recognized.
"""

import gc
import logging
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow, VideoRow, VideoStatus
from viewcache.catalog.rows import column_table
from viewcache.errors import BadInput, CatalogDamaged, DatasetNotFound
from viewcache.failpoints import failpoint
from viewcache.materializer.dataset.arrivals import Arrivals
from viewcache.materializer.dataset.discover import Found, discover
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.labels import has_segments
from viewcache.materializer.dataset.names import names_for
from viewcache.materializer.dataset.recording import Batches, key_found, record_found, video_key, write_found_indexes
from viewcache.materializer.dataset.scan import scan
from viewcache.materializer.freed_memory import give_back_memory
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.index import TOO_LARGE, VideoIndex
from viewcache.materializer.media.source import Stamp, shown
from viewcache.materializer.spec import DatasetSpec, OnBadVideo, OnChangedVideo, OnShortVideo, ProbeMode, TaskSpec

__all__ = ["Progress", "files_of", "guarded_among", "list_again", "list_files", "needs_headers"]

_BY_HEADER = re.compile(r"\b(frames|fps|duration_s|height|width|codec|status)\b", re.IGNORECASE)
"""Columns of a predicate that are known of a video whose header was read."""

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the name of the last one."""

LISTED_AT_ONCE = 10_000
"""New files whose names are recorded in one transaction."""
READ_AT_OPEN = 2_000
"""New files whose headers are read before a dataset is open: that takes a second. Of more, these are read:"""
FIRST_READ = 128
"""Enough to know what clips look like; the others are read while training has begun."""
RECORD_EVERY_S = 5.0
"""Seconds of looking that are lost when the process is killed, and about one file more."""

_log = logging.getLogger("viewcache.dataset")


def files_of(task: TaskSpec, probe: ProbeMode | None = None) -> DatasetSpec:
    """What of a task decides which files are listed, and how they are looked into; ``probe`` in place of its own."""
    dataset = task.dataset
    if probe is None:
        # Who shares a dataset that grows sees it grow at the same place, so it is looked into in one way for all.
        columns = dataset.label_start_column, dataset.label_end_column
        timed = task.sampling.by_time or dataset.grows or has_segments(dataset.labels, *columns)
        by_header = ProbeMode.TIMES if timed else ProbeMode.LAZY
        probe = by_header if dataset.probe == ProbeMode.LAZY else dataset.probe
    listed = DatasetSpec(dataset.uri, max_pixels=dataset.max_pixels, probe=probe)
    return replace(listed, input_source=dataset.input_source, settle=dataset.settle) if dataset.grows else listed


def guarded_among(tasks: Iterable[TaskSpec], dataset: DatasetSpec) -> set[str]:
    """The tasks over a dataset that must not be shown other content under the name of a video that they have drawn."""
    of_it = (each for each in tasks if each.dataset.uri == dataset.uri)
    return {each.name for each in of_it if each.dataset.on_changed_video == OnChangedVideo.RAISE}


def needs_headers(spec: DatasetSpec) -> bool:
    """Whether it cannot be said which videos are drawn before all headers are read.

    Orders must not depend on how far reading them is, or two caches would draw different ones. Of a dataset that grows
    only files join whose header was read.
    """
    skips = spec.on_bad_video == OnBadVideo.SKIP or spec.on_short_video == OnShortVideo.SKIP
    return spec.grows or skips or (spec.where is not None and _BY_HEADER.search(spec.where) is not None)


def list_files(
    spec: DatasetSpec,
    catalog: Catalog,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    guarded: Container[str] = (),
    whole: bool = True,
) -> Files:
    """List a dataset's files, look into the new and changed ones, and record what is found.

    Args:
        spec: where it is, how thoroughly files are looked into, and the largest frame allowed.
        catalog: what is known of it.
        workers: processes that look into files; 0 = one per core.
        progress: called while files are looked into.
        guarded: tasks that must not be shown other content under the name of a video that they have drawn.
        whole: all of them; else the headers of a large dataset's new files are left to `Files.headers`.

    Raises:
        DatasetNotFound: no folder, or no videos; of a dataset that grows, none that is complete.
        BadInput: a file has other content than when a guarded task drew it; that is not recorded.
        Full: no disk space, or too many open files.
    """
    dataset_id = catalog.register_dataset(spec.uri)
    with _uncollected():
        known = _Known(catalog.load_videos(dataset_id))
        found = discover(spec.uri)
        if spec.grows:
            found = _complete(spec, known, found, workers)
        listing = _Listing(spec, catalog, dataset_id, known, found, guarded)
        listing.register()
    failpoint("dataset.listed")
    listing.look(workers, progress, whole=whole or spec.probe == ProbeMode.FULL)
    with _uncollected():
        files = listing.files(workers)
    give_back_memory()
    return files


def _complete(spec: DatasetSpec, known: "_Known", found: Sequence[Found], workers: int) -> list[Found]:
    """The files that may be drawn: those that could be before, and what is new and complete."""
    arrivals = Arrivals(spec)
    ready = {each.uri for each in arrivals.complete([each for each in found if not known.is_whole(each.uri)], workers)}
    there = [each for each in found if each.uri in ready or known.is_whole(each.uri)]
    if not there:
        raise DatasetNotFound(
            f"{shown(spec.uri)} holds no complete video yet: {arrivals.waiting} are still being written, or cannot be "
            f"read yet; a dataset that grows begins with one to which nobody has written for {spec.settle:g} s "
            "(dataset.settle): open the cache again then"
        )
    return there


def list_again(spec: DatasetSpec, catalog: Catalog, files: Files, arrivals: Arrivals, workers: int = 0) -> Files:
    """List a dataset that grows once more: the same files, what is new and complete, and which are gone.

    A file that has joined stays as it was when it did. Should it be replaced, it counts as gone: in epochs that are
    drawn its clips are an error by policy, as in any dataset, and the next opening compares the contents.

    Args:
        spec: what `list_files` was given.
        catalog: what is known of it.
        files: what it gave, or this function.
        arrivals: remembers what is not complete.
        workers: processes that look into files; 0 = one per core.

    Returns:
        ``files`` itself if nothing is new or gone.

    Raises:
        DatasetNotFound: it cannot be listed, or nothing is there.
        Full: no disk space, or too many open files.
    """
    with _uncollected():
        found = discover(spec.uri)
        here = {each.uri: each for each in found}
        joined = {uri: row for row, uri in enumerate(files.uris)}
        missing = {uri for uri, row in joined.items() if uri not in here or _is_replaced(files, row, here[uri])}
        new = [each for each in found if _may_join(files, joined.get(each.uri), each)]
    new = arrivals.complete(new, workers)
    if new:
        with _uncollected():
            known = _Known(catalog.load_videos(files.dataset_id))
            new = [each for each in new if not known.is_replaced(each)]
            listing = _Listing(spec, catalog, files.dataset_id, known, new, ())
            listing.register(partly=True)
        listing.look(workers, None, whole=True)
    if not new and missing == files.missing:
        return files
    with _uncollected():
        fresh = {each.uri: each for each in new}
        rows = catalog.load_videos(files.dataset_id)
        rows = rows.filter(pa.array([uri in joined or uri in fresh for uri in rows["uri"].to_pylist()], pa.bool_()))
        rows = rows.take(pc.sort_indices(rows["name"]))
        listed = [fresh.get(uri) or files.found(joined[uri]) for uri in rows["uri"].to_pylist()]
        grown = Files(
            catalog,
            spec.uri,
            files.dataset_id,
            rows,
            listed,
            files.gone,
            files.changed,
            max_pixels=spec.max_pixels,
            probe=spec.probe,
            workers=workers,
            missing=missing,
        )
        grown.remember_faults(files)
    give_back_memory()
    return grown


def _may_join(files: Files, row: int | None, file: Found) -> bool:
    """Whether a file is new, or was bad and is another one by now."""
    return row is None or not (files.whole[row] or files.found(row).stamp.same(file.stamp))


def _is_replaced(files: Files, row: int, file: Found) -> bool:
    """Whether a file that can be decoded is another one than when it joined."""
    return bool(files.whole[row]) and not files.found(row).stamp.same(file.stamp)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no cyclic garbage: each look goes through all files again, and takes a fifth of the time of listing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_KNOWN = (
    *("video_id", "name", "key", "size_bytes", "mtime_ns", "etag"),
    *("frames", "index_at", "time_step", "status", "error"),
)
"""Columns that a listing looks at file by file."""


class _Known:
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


@dataclass(slots=True)
class _Listing:
    """One look at a dataset."""

    spec: DatasetSpec
    catalog: Catalog
    dataset_id: int
    known: _Known
    found: list[Found]
    guarded: Container[str]
    warnings: list[str] = field(default_factory=list)
    """What is to be told of files that were replaced."""

    def register(self, *, partly: bool = False) -> None:
        """Give the new files names and ids, and say which are gone; nothing of the latter if only part was listed."""
        uris = {each.uri for each in self.found}
        fresh = [each for each in self.found if each.uri not in self.known.row_of]
        named = sorted(zip(self._names(fresh), fresh, strict=True), key=lambda each: each[0])
        for first in range(0, len(named), LISTED_AT_ONCE):
            self.catalog.upsert_videos(self.dataset_id, _new_rows(named[first : first + LISTED_AT_ONCE]))
        gone = [] if partly else [_gone_row(row) for row in self.known.gone(uris)]
        self.catalog.upsert_videos(self.dataset_id, gone)
        if fresh or gone:
            self.known = _Known(self.catalog.load_videos(self.dataset_id))

    def _names(self, fresh: Sequence[Found]) -> list[str]:
        if not fresh:
            return []
        paths = [each.path for each in self.found]
        given = {each.path: name for each in self.found if (name := self.known.name(each.uri)) is not None}
        here = {each.uri for each in self.found}
        taken = [name for uri in self.known.row_of if uri not in here and (name := self.known.name(uri)) is not None]
        named = dict(zip(paths, names_for(paths, given, taken), strict=True))
        return [named[each.path] for each in fresh]

    def look(self, workers: int, progress: Progress | None, *, whole: bool) -> None:
        """Look into what is new or changed; what is found is recorded as it comes.

        Unless that is to be the whole, most of what is new is left out where there is much of it.
        """
        todo = [each for each in self.found if not self.known.holds(each, self.spec)]
        known = len(self.found) - len(todo)
        if not whole:
            new = [each for each in todo if not each.problem and self.known.is_new(each.uri)]
            if len(new) > READ_AT_OPEN:
                later = {each.uri for each in new[FIRST_READ:]}
                todo = [each for each in todo if each.uri not in later]
        if progress is not None and known:
            progress(known, len(self.found), "")
        with Batches(self._record, RECORD_EVERY_S) as batches:
            for done, (file, found) in enumerate(self._looked(todo, workers), known + 1):
                batches.add([(file, found)])
                if progress is not None:
                    progress(done, len(self.found), self.known.name(file.uri) or file.path)
        if todo:
            self.known = _Known(self.catalog.load_videos(self.dataset_id))

    def _looked(self, todo: Sequence[Found], workers: int) -> Iterator[tuple[Found, Scanned]]:
        for each in todo:
            if each.problem:
                yield each, Scanned(error=f"{each.uri}: {each.problem}")
        # What was indexed before may have been replaced: only the packets tell whether it was, so these come first.
        seen = [each for each in todo if not each.problem and self.known.was_indexed(each.uri)]
        yield from scan(seen, self.spec.max_pixels, probe=ProbeMode.FULL, workers=workers)
        fresh = [each for each in todo if not each.problem and not self.known.was_indexed(each.uri)]
        yield from scan(fresh, self.spec.max_pixels, probe=self.spec.probe, workers=workers)

    def _record(self, part: Sequence[tuple[Found, Scanned]]) -> None:
        self.warnings += self._warn_of_changed(part)
        ids = [self.known.of(file.uri, "video_id") for file, _ in part]
        record_found(self.catalog, ids, part, write_found_indexes(self.catalog, part))

    def _warn_of_changed(self, looked: Iterable[tuple[Found, Scanned]]) -> list[str]:
        """Say which files have other content now than when they were drawn; a warning and a row for each task.

        Raises:
            BadInput: a guarded task has drawn one; nothing of its batch is recorded then.
        """
        changed = {
            self.known.of(file.uri, "video_id"): file.uri for file, found in looked if self._changed(file, found)
        }
        drawn = self.catalog.drawn_among(list(changed)).to_pylist() if changed else []
        warnings = []
        for row in drawn:
            uri = shown(changed[row["video_id"]])
            what = f"{uri} has other content than when task {row['task']!r} drew it, and so have its views"
            if row["task"] in self.guarded:
                raise BadInput(
                    f"{what}: restore the file; or, to go on with the new content, set on_changed_video: warn, give "
                    "the task another tag, or forget its draws with `viewcache forget`"
                )
            warnings.append(what)
        for row, what in zip(drawn, warnings, strict=True):
            _log.warning("%s", what, extra={"action": "video_changed"})
            self.catalog.add_events([EventRow("error", row["task_id"], detail=f"changed_video: {what}")])
        return warnings

    def _changed(self, file: Found, new: Scanned) -> bool:
        """Whether a file that was whole, and may have been seen, is whole again with other content."""
        status, key, index_at = (self.known.of(file.uri, name) for name in ("status", "key", "index_at"))
        if status in (VideoStatus.BAD, VideoStatus.LISTED) or new.error or key == key_found(file, new):
            return False
        frames, video_id = (self.known.of(file.uri, name) for name in ("frames", "video_id"))
        if index_at is None and frames is not None and not self._has_copies(video_id):
            return False  # only its header was read, so nobody has seen a clip of it
        blob = None if index_at is None else self.catalog.read_index(index_at, key)
        try:
            before = None if blob is None else VideoIndex.from_bytes(blob)
        except CatalogDamaged:  # of another release
            before = None
        # Without the packets of both, size and time have to do, and these are others.
        return before is None or not new.index or not before.same_content(VideoIndex.from_bytes(new.index))

    def _has_copies(self, video_id: int) -> bool:
        """Whether objects of a video lie anywhere: in a bucket they may have been made by another cache."""
        return bool(self.catalog.copies_of_videos([video_id]).num_rows)

    def files(self, workers: int) -> Files:
        """The files that are there, by name."""
        known, here = self.known, {each.uri: each for each in self.found}
        rows = known.rows.filter(pa.array([uri in here for uri in known.rows["uri"].to_pylist()], pa.bool_()))
        rows = rows.take(pc.sort_indices(rows["name"]))  # ASCII, so bytes sort as characters do
        ids = zip(known.rows["uri"].to_pylist(), known.rows["video_id"].to_pylist(), strict=True)
        gone = {video_id: uri for uri, video_id in ids if uri not in here}
        listed = [here[uri] for uri in rows["uri"].to_pylist()]
        return Files(
            self.catalog,
            self.spec.uri,
            self.dataset_id,
            rows,
            listed,
            gone,
            self.warnings,
            max_pixels=self.spec.max_pixels,
            probe=self.spec.probe,
            workers=workers,
        )


def _new_rows(named: Sequence[tuple[str, Found]]) -> pa.Table:
    """All that is known of files that nobody has looked into; at least one."""
    rows = [
        (file.uri, name, video_key(file.uri, file.stamp), *file.stamp, VideoStatus.LISTED.value) for name, file in named
    ]
    return column_table(rows, uri=str, name=str, key=str, size_bytes=int, mtime_ns=int, etag=str, status=str)


def _gone_row(row: Mapping[str, Any]) -> VideoRow:
    """What was known of a file stays known, so that it is recognized should it come back."""
    known = VideoRow(**{each.name: row[each.name] for each in fields(VideoRow) if each.name in row})
    return replace(known, status=VideoStatus.GONE, error_kind=None, error="the file is gone")
