"""List a dataset, look into what is new, and record both: names first, so that ids do not depend on what was faster.

What is found is recorded in batches, so that a process that is killed costs the last batch. A file that is gone keeps
its row, so that its name is not given again and its content is recognized.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow, VideoStatus
from viewcache.errors import BadInput, DatasetNotFound
from viewcache.failpoints import failpoint
from viewcache.materializer.choices import OnChangedVideo, ProbeMode
from viewcache.materializer.collecting import uncollected
from viewcache.materializer.dataset.arrivals import Arrivals
from viewcache.materializer.dataset.changes import FileChange, FileChanges, in_short
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.known import STAMP, Known, KnownFiles
from viewcache.materializer.dataset.links import links_of
from viewcache.materializer.dataset.listed import Found, Listed, in_order
from viewcache.materializer.dataset.names import new_names
from viewcache.materializer.dataset.recording import (
    Batches,
    gone_rows,
    key_found,
    listed_rows,
    record_bad,
    record_found,
    write_found_indexes,
)
from viewcache.materializer.dataset.replaced import ReplacedFiles
from viewcache.materializer.dataset.scan import Keep, scan
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.dataset.versions import path_of
from viewcache.materializer.freed_memory import give_back_after, give_back_memory
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.source import Stamp, shown
from viewcache.materializer.spec import DatasetSpec

__all__ = ["Progress", "list_again", "list_files"]

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the name of the last one."""

LISTED_AT_ONCE = 10_000
"""New files whose names are recorded in one transaction."""
READ_AT_OPEN = 2_000
"""New files whose headers are read before a dataset is open: that takes a second. Of more, these are read:"""
FIRST_READ = 128
"""Enough to know what clips look like; the others are read while training has begun."""
TOLD = "told_videos"
"""Setting, with the dataset's number: the largest id of a video that somebody was told of."""
RECORD_EVERY_S = 5.0
"""Seconds of looking that are lost when the process is killed, and about one file more."""

_log = logging.getLogger("viewcache.dataset")


def list_files(
    spec: DatasetSpec,
    catalog: Catalog,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    policies: Mapping[str, OnChangedVideo] | None = None,
    whole: bool = True,
    tells: bool = True,
    keep: Keep | None = None,
) -> Files:
    """List a dataset's files, look into the new and changed ones, and record what is found.

    Args:
        spec: where it is, how thoroughly files are looked into, and the largest frame allowed.
        catalog: what is known of it.
        workers: processes that look into files; 0 = one per core.
        progress: called while files are looked into.
        policies: task → what it says of files that were replaced after it has drawn their videos; who is not named
            is only told.
        whole: all of them; else the headers of a large dataset's new files are left to `Files.headers`.
        tells: whether somebody is told of `Files.changes`; else the next listing has them too.
        keep: given the files that lie far away and that looking into them had to read whole.

    Raises:
        DatasetNotFound: no folder, or no videos; of a dataset that grows, none that is complete.
        BadInput: a file has other content than when a task drew it that has ``raise``; that is not recorded.
        Full: no disk space, or too many open files.
    """
    dataset_id = catalog.register_dataset(spec.known_as)
    with uncollected():
        known = Known(catalog.load_videos(dataset_id), opening=True)
        found = _there(spec, known, _discovered(spec))
        give_back_memory()  # of a million files that is a fifth of what is held at most
        if spec.grows:
            found = _complete(spec, known, found, workers)
        replaced = ReplacedFiles(catalog, dataset_id, policies or {})
        listing = _Listing(spec, catalog, dataset_id, known, found, replaced, opening=True, tells=tells, keep=keep)
        del known, found  # it holds them as long as it needs them
        listing.register()
    failpoint("dataset.listed")
    try:
        listing.look(workers, progress, whole=whole or spec.probe == ProbeMode.FULL)
    except BadInput:
        listing.untell()
        raise
    listing.take_back()
    with uncollected():
        files = listing.files(workers)
    del replaced, listing  # what they hold is given back, too
    give_back_memory()
    return files


def _discovered(spec: DatasetSpec) -> Listed:
    """The files, as they are to be looked into."""
    return replace(discover(spec.uri, links_of(spec), spec.media), as_stored=spec.as_stored)


def _there(spec: DatasetSpec, known: Known, found: Listed) -> Listed:
    """Without what a list file names and is not there, if it ever was or may still come: that is gone, or waits."""
    if not len(found.absent):
        return found
    left_out = np.zeros(len(found), bool)
    left_out[found.absent] = True
    if not spec.grows:
        left_out &= known.were_there(known.rows_of(found.uris))
    if left_out.all():
        raise DatasetNotFound(f"{shown(spec.uri)} names {len(found)} files, and none of them is there")
    return found.taken(np.flatnonzero(~left_out))


def _complete(spec: DatasetSpec, known: Known, found: Listed, workers: int) -> Listed:
    """The files that may be drawn: those that could be before, and what is new and complete."""
    arrivals = Arrivals(spec)
    there = known.have(known.rows_of(found.uris), VideoStatus.OK)
    others = np.flatnonzero(~there)
    ready = {each.uri for each in arrivals.complete(found.some(others), workers)}
    there[others] = [found.uris[row] in ready for row in others.tolist()]
    if not there.any():
        raise DatasetNotFound(
            f"{shown(spec.uri)} holds no complete video yet: {arrivals.waiting} are still being written, or cannot be "
            f"read yet; a dataset that grows begins with one to which nobody has written for {spec.settle:g} s "
            "(dataset.settle): open the cache again then"
        )
    return found.taken(np.flatnonzero(there))


def list_again(spec: DatasetSpec, catalog: Catalog, files: Files, arrivals: Arrivals, workers: int = 0) -> Files:
    """List a dataset that grows once more: the same files, what is new and complete, and which are gone.

    A file that has joined stays as it was when it did. Should it be replaced, it counts as gone: in epochs that are
    drawn its clips are an error by policy, as in any dataset, and the next opening compares the contents. What is gone
    is recorded, so that what is stored of it stays; the next opening tells of it.

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
    with uncollected():
        found = [each for each in _discovered(spec) if not each.absent]
        here = {each.uri: each for each in found}
        joined = {uri: row for row, uri in enumerate(files.uris)}
        missing = {uri for uri, row in joined.items() if uri not in here or _is_replaced(files, row, here[uri])}
        new = [each for each in found if _may_join(files, joined.get(each.uri), each)]
        # Before anything else can fail: from now on nothing is given up that only they could give again.
        for uris, gone in ((missing - files.missing, True), (files.missing - missing, False)):
            catalog.mark_missing(files.ids[[joined[uri] for uri in uris]].tolist(), missing=gone)
        if missing != files.missing:
            catalog.flush()
    new = arrivals.complete(new, workers)
    if new:
        with uncollected():
            known = Known(catalog.load_videos(files.dataset_id))
            before = KnownFiles(known.rows)
            new = [each for each in new if not before.is_replaced(each)]
            replaced = ReplacedFiles(catalog, files.dataset_id, {})
            listing = _Listing(spec, catalog, files.dataset_id, known, Listed.of(new), replaced)
            listing.register()
        listing.look(workers, None, whole=True)
    if not new and missing == files.missing:
        return files
    with uncollected():
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
            Listed.of(listed),
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
    return row is None or not (files.whole[row] or files.stamp(row).same(file.stamp))


def _is_replaced(files: Files, row: int, file: Found) -> bool:
    """Whether a file that can be decoded is another one than when it joined."""
    return bool(files.whole[row]) and not files.stamp(row).same(file.stamp)


@dataclass(slots=True)
class _Listing:
    """One look at a dataset."""

    spec: DatasetSpec
    catalog: Catalog
    dataset_id: int
    known: Known
    found: Listed
    replaced: ReplacedFiles
    opening: bool = False
    """Whether it is of the whole dataset; else of files that are new."""
    tells: bool = False
    keep: Keep | None = None
    changes: dict[FileChange, dict[int, str]] = field(default_factory=dict)
    """What is to be told of all files."""
    told: tuple[int, pa.Table] | None = None
    """The largest id that was told of before, and rows of files that are gone, as they were; None = none is told."""
    at: NDArray[np.int64] = field(init=False)
    """(found,) the row of each in what is known; -1 of what is new."""

    def __post_init__(self) -> None:
        """Look up which files are known."""
        self.at = self.known.rows_of(self.found.uris)

    def _know(self) -> None:
        """Load again what is known, which has changed."""
        del self.known  # or a million files are there twice
        self.known = Known(self.catalog.load_videos(self.dataset_id), opening=self.opening)
        self.at = self.known.rows_of(self.found.uris)

    def register(self) -> None:
        """Give the new files names and ids, and say which are gone; nothing of the latter if only part was listed."""
        new = np.flatnonzero(self.at < 0)
        if len(new):
            fresh = self.found.taken(new)
            names = new_names(fresh.paths, self.known.names())
            order = in_order(names)
            if order is not None:
                fresh, names = fresh.taken(order), names.taken(order)
            for first in range(0, len(fresh), LISTED_AT_ONCE):
                part = np.arange(first, min(first + LISTED_AT_ONCE, len(fresh)))
                self.catalog.upsert_videos(self.dataset_id, listed_rows(names.taken(part), fresh.taken(part)))
            self._know()
        if self.tells:
            self._tell_of_files()

    def _tell_of_files(self) -> None:
        """Note what came and went since the last time, and which files are gone; told first, so that it is told."""
        until = int(self.catalog.setting(f"{TOLD}:{self.dataset_id}") or 0)
        known, here = self.known, self.known.is_there(self.at)
        were_gone = known.statuses.are(VideoStatus.GONE)
        if until:
            self._note(FileChange.ADDED, self._names_of(here & (known.rows["video_id"].to_numpy() > until)))
        self._note(FileChange.RETURNED, self._names_of(here & were_gone))
        gone = ~here & ~were_gone
        self.told = until, known.rows.filter(pa.array(gone))
        if gone.any():
            self._note(FileChange.REMOVED, self._names_of(gone))
            self.catalog.upsert_videos(self.dataset_id, gone_rows(self.told[1]))
            self._know()
        if (newest := self.known.newest()) > until:
            self._set_told(newest)

    def untell(self) -> None:
        """Who opens is told nothing, since he may not: what came and went is told by the next opening."""
        if self.told is not None:
            until, went = self.told
            self._set_told(until)
            self.catalog.upsert_videos(self.dataset_id, went)

    def _names_of(self, which: NDArray[np.bool_]) -> dict[int, str]:
        """``video_id`` → name of some rows."""
        rows = self.known.rows.select(["video_id", "name"]).filter(pa.array(which))
        return dict(zip(rows["video_id"].to_pylist(), rows["name"].to_pylist(), strict=True))

    def _set_told(self, until: int) -> None:
        """Videos were told of up to an id; what comes later has larger ones."""
        self.catalog.set_setting(f"{TOLD}:{self.dataset_id}", str(until))

    def _note(self, change: FileChange, names: dict[int, str]) -> None:
        """Let the catalog know of a change, and whoever asks for `Files.changes`."""
        if names:
            self.changes[change] = self.changes.get(change, {}) | names
            detail = f"{shown(self.spec.uri)}: {in_short(sorted(names.values()), len(names))}"
            self.catalog.add_events([EventRow(f"videos_{change}", count=len(names), detail=detail)])
            self.catalog.flush()

    def look(self, workers: int, progress: Progress | None, *, whole: bool) -> None:
        """Look into what is new or changed; what is found is recorded as it comes.

        Unless that is to be the whole, most of what is new is left out where there is much of it.
        """
        asked = ~self.known.holds(self.found, self.at, self.spec)
        self._mark(np.flatnonzero(~asked & self.known.marked_anew(self.found, self.at)))
        known = len(self.found) - int(asked.sum())
        if not whole:
            new = asked & self.known.have(self.at, VideoStatus.LISTED)
            new[list(self.found.problems)] = False
            if new.sum() > READ_AT_OPEN:
                later = np.flatnonzero(new)[FIRST_READ:]
                asked[later[~self.known.are_others(self.found, later, self.at[later])]] = False
        if progress is not None and known:
            progress(known, len(self.found), "")
        todo = np.flatnonzero(asked)
        few = self.known.few(self.at[todo])
        with Batches(partial(self._record, few), RECORD_EVERY_S) as batches:
            files = [file._replace(recorded=few.recorded(file)) for file in self.found.some(todo)]
            for done, (file, found) in enumerate(self._looked(files, few, workers), known + 1):
                batches.add([(file, found)])
                if progress is not None:
                    progress(done, len(self.found), few.of(file.uri, "name"))
        if len(todo):
            self._know()
        if self.replaced.versions and self.tells:  # these were told of as replaced
            self._set_told(self.known.newest())

    def _mark(self, rows: NDArray[np.int64]) -> None:
        """Record the etags of files that are as they were, but had none, or another kind: by these they go from now on.

        They keep their keys, and so what was made of them.
        """
        if len(rows):
            ids = self.known.rows["video_id"].to_numpy()[self.at[rows]].tolist()
            self.catalog.set_video_etags(dict(zip(ids, self.found.etags.at(rows), strict=True)))
            self._know()

    def _looked(self, todo: Sequence[Found], few: KnownFiles, workers: int) -> Iterator[tuple[Found, Scanned]]:
        for each in todo:
            if each.problem:
                yield each, Scanned(error=f"{each.uri}: {each.problem}")
        # What was indexed before may have been replaced: only the packets tell whether it was, so these come first.
        seen = [each for each in todo if not each.problem and few.was_indexed(each.uri)]
        yield from scan(seen, self.spec.max_pixels, probe=ProbeMode.FULL, workers=workers, keep=self.keep)
        fresh = [each for each in todo if not each.problem and not few.was_indexed(each.uri)]
        yield from scan(fresh, self.spec.max_pixels, probe=self.spec.probe, workers=workers, keep=self.keep)

    def _record(self, few: KnownFiles, part: Sequence[tuple[Found, Scanned]]) -> None:
        changed = self.replaced.among(part, few)
        ids = {file.uri: few.of(file.uri, "video_id") for file, _ in part}
        versions = self.replaced.tell(changed, few)
        if self.tells:
            names = {ids[file.uri]: few.of(file.uri, "name") for file, _ in changed}
            self._note(FileChange.REPLACED, names)
        fresh = self.replaced.add_versions(versions, few, self.known.names)
        ids |= fresh
        went_bad = [file for file, found in part if found.error and file.uri not in fresh and few.was_whole(file)]
        # Of what nobody has drawn nothing is kept: it decides which videos are drawn, and shall not depend on the past.
        drawn = self._drawn_among(ids[file.uri] for file in went_bad)
        kept = {file.uri for file in went_bad if ids[file.uri] in drawn}
        bad = [each for each in part if each[0].uri in kept]
        rest = [each for each in part if each[0].uri not in kept]
        if bad:
            record_bad(self.catalog, few.rows_of(file.uri for file, _ in bad), bad)
        if rest:
            keys = {file.uri: key_found(file, found) for file, found in rest if file.uri not in fresh}
            self.catalog.set_video_keys({ids[uri]: key for uri, key in keys.items() if key != few.of(uri, "key")})
            index_at = write_found_indexes(self.catalog, rest)
            record_found(self.catalog, [ids[file.uri] for file, _ in rest], rest, index_at)

    def take_back(self) -> None:
        """What had gone while the cache was open and is here as it was is recorded so; last, when nothing can fail."""
        if self.tells:
            here = self.known.is_there(self.at) & self.known.went
            self.catalog.mark_missing(self.known.rows["video_id"].filter(pa.array(here)).to_pylist(), missing=False)

    def files(self, workers: int) -> Files:
        """The files that are there, by name."""
        known = self.known
        lost = known.rows.select(["video_id", "uri"]).filter(pa.array(~known.is_there(self.at)))
        gone = dict(zip(lost["video_id"].to_pylist(), lost["uri"].to_pylist(), strict=True))
        held = self._still_needed(gone)
        listed, at = self.found, self.at
        if held:
            listed = listed.joined(Listed.of(held.values()))
            at = np.concatenate([at, known.rows_of(Texts.of(held))])
        rows, names = known.rows.drop_columns(["uri", "name"]), known.names()
        count = len(known)
        del known, self.known  # what a million files are called is there once
        if not np.array_equal(at, np.arange(count)):
            rows, names = rows.take(pa.array(at)), names.taken(at)
        order = in_order(names)
        if order is not None:
            listed, rows, names = listed.taken(order), rows.take(pa.array(order)), names.taken(order)
        give_back_after(count)
        return Files(
            self.catalog,
            self.spec.uri,
            self.dataset_id,
            rows.append_column("name", names.array),
            listed,
            {video_id: uri for video_id, uri in gone.items() if uri not in held},
            self.replaced.warnings,
            max_pixels=self.spec.max_pixels,
            probe=self.spec.probe,
            workers=workers,
            missing=held.keys(),
            changes=FileChanges(self.changes),
            keep=self.keep,
        )

    def _drawn_among(self, video_ids: Iterable[int]) -> set[int]:
        ids = list(video_ids)
        return set(self.catalog.drawn_among(ids)["video_id"].to_pylist()) if ids else set()

    def _still_needed(self, gone: Mapping[int, str]) -> dict[str, Found]:
        """Files that are gone, were drawn and are known well enough to say which clips were: their copies serve on."""
        if not gone:
            return {}
        uris = {gone[video_id] for video_id in self._drawn_among(gone)}
        few, found = self.known.few(self.known.rows_of(Texts.of(uris))), {}
        for uri in uris:
            name, size, mtime_ns, etag = (few.of(uri, each) for each in ("name", *STAMP))
            if few.of(uri, "frames"):
                stamp = Stamp(size or 0, mtime_ns or 0, etag or "")
                found[uri] = Found(uri, path_of(name, uri), stamp, as_stored=self.spec.as_stored)
        return found
