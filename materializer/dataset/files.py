"""The files of a dataset in memory, sorted by name: what a plan needs of each, in arrays, and where the rest is found.

Several tasks draw from them. Packet indexes stay where they lie until a video is decoded or looked at.
"""

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import VideoStatus
from viewcache.errors import BadVideo, CatalogDamaged
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.changes import FileChanges
from viewcache.materializer.dataset.clock import even_pace, frames_before_even, last_tick, ticks_of
from viewcache.materializer.dataset.file_facts import (
    MEASURES,
    facts_of,
    learned_facts,
    learned_size,
    sizes_of,
    unknown_ticks,
)
from viewcache.materializer.dataset.headers import Headers, Looked
from viewcache.materializer.dataset.listed import Found, Listed, Recorded
from viewcache.materializer.dataset.numbers import numbers
from viewcache.materializer.dataset.recording import key_found, record_found, write_found_indexes
from viewcache.materializer.dataset.scan import Keep
from viewcache.materializer.dataset.texts import IdPlaces, Keys, Places, RepeatedTexts, Texts, places_of_names
from viewcache.materializer.dataset.video_file import VideoFile
from viewcache.materializer.media.facts import FrameTimes, ManyClaims, Scanned
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.sketch import SketchedIndex
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.randomness import Words, address_word

__all__ = ["Files"]

UNCHANGED = FileChanges()
INDEXES = 256
"""Packet indexes that are remembered parsed."""


class Files:
    """What is known of a dataset's files; arrays have one entry a file. Thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        uri: str,
        dataset_id: int,
        rows: pa.Table,
        listed: Listed,
        gone: Mapping[int, str],
        changed: Sequence[str],
        *,
        max_pixels: int,
        probe: ProbeMode = ProbeMode.LAZY,
        workers: int = 0,
        missing: Set[str] = frozenset(),
        changes: FileChanges = UNCHANGED,
        keep: Keep | None = None,
    ) -> None:
        """Take the rows of the files that are there, sorted by name, and what else a listing finds.

        Args:
            catalog: where indexes are read.
            uri: of the dataset.
            dataset_id: of the dataset.
            rows: of ``schemas.VIDEO``, sorted by name; without the URIs, which the listed files have.
            listed: the file of each row, as it is now.
            gone: ``video_id`` → URI of files that were there once, and have no row.
            changed: what is to be told of files that have other content than when they were drawn.
            max_pixels: a frame with more makes a video bad.
            probe: how thoroughly those are looked into that nobody has looked into.
            workers: processes that read headers; 0 = one per core.
            missing: URIs of rows whose file went away; they are kept because they are drawn.
            changes: what happened to files since the dataset was listed last.
            keep: given the files that lie far away and that reading headers had to read whole.
        """
        self.uri = uri
        self.dataset_id = dataset_id
        self.as_stored = listed.as_stored
        """Whether they are images that are taken as they are stored, whatever orientation they tell."""
        self.gone = gone
        self.changed = tuple(changed)
        self.missing = missing
        """URIs of files that went away: no order that is drawn from now on has them."""
        self.changes = changes
        """What happened to files since the dataset was listed before."""
        self._catalog = catalog
        self._lock = threading.Lock()
        self.ids: NDArray[np.int64] = rows["video_id"].to_numpy()
        self.names, self.uris, self.paths = Texts(rows["name"]), listed.uris, listed.paths
        self.roots = listed.roots
        """Which of the dataset's places each is of, in short; empty if there is one, or it is gone."""
        away = pc.is_in(self.uris.array, pa.array(list(missing), pa.large_string()))
        self.there: NDArray[np.bool_] = ~away.to_numpy(zero_copy_only=False)
        """Whether each was there when the dataset was listed last."""
        self.keys = Keys.of(rows["key"])
        self._facts, self._sizes, self._ticks = facts_of(rows), sizes_of(rows), unknown_ticks(len(rows))
        self.frames, self.keyframes = self._facts.column("frames"), self._facts.column("keyframes")
        self.height, self.width = self._sizes.column("height"), self._sizes.column("width")
        """As shown, rotation applied; 0 if unknown."""
        self.native_bytes = self._sizes.column("native_bytes")
        """Bytes of a frame in the decoder's own planes; -1 if these are not kept."""
        self.pace, self.last = self._ticks.column("pace"), self._ticks.column("last")
        """See `Videos`."""
        self._pix_fmts = RepeatedTexts(rows["pix_fmt"])
        self.file_bytes, self._mtime_ns = (np.array(numbers(rows[name])) for name in ("size_bytes", "mtime_ns"))
        self._etags = RepeatedTexts(rows["etag"])
        statuses = RepeatedTexts(rows["status"])
        self.unread = statuses.are(VideoStatus.LISTED)
        """Whether nobody has read its header, so that nothing is known of its frames."""
        left = statuses.are(VideoStatus.GONE)
        self.whole: NDArray[np.bool_] = statuses.are(VideoStatus.OK) | self.unread | left
        """Whether nothing is known to be wrong with its content, be it there or not."""
        unread = np.flatnonzero(self.unread)
        # Which may have been replaced since they were recorded.
        self.file_bytes[unread], self._mtime_ns[unread] = listed.sizes[unread], listed.mtimes_ns[unread]
        for row in unread[self._etags.unlike(listed.etags, unread)].tolist():
            self._etags[row] = listed.etags[row]
        self.headers = Headers(unread, self.some, self._learn_header, self._record, max_pixels, probe, workers, keep)
        """Reads those that are left."""
        faulty = np.flatnonzero(rows["error"].is_valid().to_numpy() & ~left)
        self._words, self._is_hashed = np.zeros(len(rows), np.uint64), np.zeros(len(rows), bool)
        """See `words`: a batch needs those of its own files, and the first one shall not wait for those of all."""
        self._index_at = np.array(numbers(rows["index_at"], -1))
        self._errors = dict(zip(faulty.tolist(), rows["error"].take(pa.array(faulty)).to_pylist(), strict=True))
        self._codecs = RepeatedTexts(rows["codec"])
        self.labels = RepeatedTexts(rows["label"])
        """On record of each, as text."""
        self._remembered = lru_cache(maxsize=INDEXES)(self._index)

    def __len__(self) -> int:
        """Number of files, good and bad."""
        return len(self.ids)

    def words(self, rows: NDArray[np.int64]) -> Words:
        """Addresses of some files' random numbers: of their names, so that a dataset that moves keeps its draws."""
        with self._lock:
            new = rows[~self._is_hashed[rows]]
            self._words[new] = [address_word(name) for name in self.names.taken(new)]
            self._is_hashed[new] = True
            return self._words[rows]

    @cached_property
    def row_of(self) -> IdPlaces:
        """``video_id`` → position in the arrays."""
        return IdPlaces(self.ids)

    @cached_property
    def row_of_name(self) -> Places[str]:
        """Name → position in the arrays."""
        return places_of_names(self.names)

    @cached_property
    def row_of_key(self) -> Places[str]:
        """Content key → position in the arrays."""
        return self.keys.places

    def found(self, row: int) -> Found:
        """A file, to be looked into."""
        return self.some([row])[0]

    def some(self, rows: Sequence[int]) -> list[Found]:
        """The same of several."""
        at = np.array(rows, np.int64)
        etags = (etag or "" for etag in self._etags.taken(at)[:])
        stamps = [*map(Stamp, self.file_bytes[at].tolist(), self._mtime_ns[at].tolist(), etags)]
        sure = (self.whole[at] & ~self.unread[at]).tolist()
        known = [Recorded(self.keys[row], stamps[k] if sure[k] else None) for k, row in enumerate(rows)]
        each = zip(self.uris.taken(at), self.paths.taken(at), stamps, known, strict=True)
        return [Found(uri, path, stamp, as_stored=self.as_stored, recorded=of) for uri, path, stamp, of in each]

    def stamp(self, row: int) -> Stamp:
        """The version of a file that was listed."""
        return Stamp(int(self.file_bytes[row]), int(self._mtime_ns[row]), self._etags[row] or "")

    def error(self, row: int) -> str:
        """Why a file is bad."""
        return self._errors.get(row) or ""

    def column(self, name: str) -> pa.Array:
        """``fps``, ``duration_s`` or ``codec`` of all files, as far as it is known."""
        if name == "codec":
            return self._codecs.array
        values = self._facts.at(name, slice(None))
        return pa.array(values, mask=np.isnan(values))

    def file(self, row: int) -> VideoFile:
        """One file as a record."""
        measures = {name: float(self._facts.at(name, row)) for name in MEASURES}
        return VideoFile(
            video_id=int(self.ids[row]),
            name=self.names[row],
            uri=self.uris[row],
            path=self.paths[row],
            key=self.keys[row],
            stamp=self.stamp(row),
            status=self._status(row),
            error=self.error(row),
            frames=int(self.frames[row]),
            size=(int(self.height[row]), int(self.width[row])),
            codec=self._codecs[row],
            **{name: None if np.isnan(value) else value for name, value in measures.items()},
        )

    def _status(self, row: int) -> VideoStatus:
        if not self.there[row]:
            return VideoStatus.GONE
        if self.unread[row]:
            return VideoStatus.LISTED
        return VideoStatus.OK if self.whole[row] else VideoStatus.BAD

    # Packet indexes ------------------------------------------------------------------------------------------------

    def is_looked_at(self, row: int) -> bool:
        """Whether all packets of a video were looked at, in this run or an earlier one."""
        return bool(self._index_at[row] >= 0)

    def index_blob(self, row: int) -> bytes:
        """A video's packet index as a worker gets it; empty if it is bad, or nobody looked at its packets yet."""
        return self._blob(row) if self.whole[row] else b""

    def _blob(self, row: int) -> bytes:
        at = int(self._index_at[row])
        blob = self._catalog.read_index(at, self.keys[row]) if at >= 0 else None
        return blob if blob is not None and VideoIndex.is_readable(blob) else b""

    def claims(self, rows: Sequence[int], max_pixels: int) -> ManyClaims:
        """What plans take for granted of some videos whose packets nobody has looked at."""
        at = np.array(rows, np.int64)
        etags, pix_fmts = ([text or "" for text in each.at(at)] for each in (self._etags, self._pix_fmts))
        file_bytes, mtimes_ns, frames, heights, widths = (
            each[at].tolist() for each in (self.file_bytes, self._mtime_ns, self.frames, self.height, self.width)
        )
        times = [_even_times(*each) for each in self._facts.at("times", at).tolist()]
        sizes, errors = (frames, heights, widths, pix_fmts), [*map(self.error, rows)]
        return ManyClaims(file_bytes, mtimes_ns, etags, *sizes, max_pixels, errors, times, self.as_stored)

    def exact_index(self, row: int) -> VideoIndex | None:
        """A video's packet index; None if nobody looked at its packets yet, or the index is lost."""
        blob = self._blob(row)
        try:
            return VideoIndex.from_bytes(blob) if blob else None
        except CatalogDamaged:  # of another release
            return None

    def index(self, row: int) -> MediaIndex:
        """What planning knows of a video: its index, or a sketch by its header; raises BadVideo where it is nothing."""
        return self._remembered(row, int(self._index_at[row]), int(self.frames[row]))

    def _index(self, row: int, *_: int) -> MediaIndex:
        exact = self.exact_index(row)
        if exact is not None:
            return exact
        if not self.frames[row]:
            raise BadVideo(self.error(row))
        height, width = self._sizes.at("coded", row).tolist()
        return SketchedIndex(
            frames=int(self.frames[row]),
            shown_size=(int(self.height[row]), int(self.width[row])),
            coded_size=(height, width),
            pix_fmt=self._pix_fmts[row] or "",
            keyframes=int(self.keyframes[row]),
            file_bytes=int(self.file_bytes[row]),
        )

    def times_s(self, row: int, frames: np.ndarray) -> np.ndarray | None:
        """Presentation times of frames in seconds, float64, same shape; without the index where they are even.

        None for a video of which nobody knows them: its packets were not looked at, and its header does not tell.
        """
        times = self._even_times(row)
        if times is not None:
            return times.times_s(frames)
        index = self.index(row)
        return index.times_s(frames) if isinstance(index, VideoIndex) else None

    def _even_times(self, row: int) -> FrameTimes | None:
        return _even_times(*self._facts.at("times", row).tolist())

    def _set_pace(self, row: int) -> None:
        times, last = self._even_times(row), -1
        pace = (0, 0) if times is None else even_pace(times)
        if self.frames[row] > 0 and pace[0] > 0:
            last = int(last_tick(self.frames[row : row + 1], np.array([pace]))[0])
        self._ticks.put(row, (pace, last))

    def ticks(self, row: int) -> NDArray[np.int64]:
        """(frames,) when each frame of a video is shown, in ticks from the first.

        Raises:
            BadVideo: nobody has looked at its packets.
        """
        index = self.index(row)
        if not isinstance(index, VideoIndex):
            raise BadVideo(f"{self.uris[row]}: its header does not tell when frames are shown")
        return ticks_of(index)

    def ticks_at(self, rows: NDArray[np.int64], frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) when one frame of each of some videos is shown, in ticks from the first; raises as `ticks`."""
        pace = self.pace[rows]
        even = pace[:, 0] > 0
        out = np.zeros(len(rows), np.int64)
        out[even] = frames[even] * pace[even, 0] // pace[even, 1]
        for at in np.flatnonzero(~even).tolist():
            out[at] = self.ticks(int(rows[at]))[frames[at]]
        return out

    def frames_before(self, rows: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """(n,) how many frames of each of some videos have a presentation time below so many seconds, see `times_s`.

        Raises:
            BadVideo: nobody has looked at its packets, and its header does not tell.
        """
        frames = self.frames[rows]
        times = self._facts.at("times", rows)
        even = (times[:, 1] >= 0) & (times[:, 3] > 0)
        out = np.where(seconds == np.inf, frames, 0)
        asked = np.isfinite(seconds) & (frames > 0)
        at = np.flatnonzero(asked & even)
        out[at] = frames_before_even(seconds[at], frames[at], times[at])
        for each in np.flatnonzero(asked & ~even).tolist():
            shown = self.times_s(int(rows[each]), np.arange(frames[each]))
            if shown is None:
                raise BadVideo(f"{self.uris[rows[each]]}: its header does not tell when frames are shown")
            out[each] = np.searchsorted(shown, seconds[each])
        return out

    def known_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, 2) what changes when more is known of videos: how many frames each has, and where its index lies."""
        return np.stack([self.frames[rows], self._index_at[rows]], axis=1)

    def time(self, rows: NDArray[np.int64]) -> None:
        """Set ``pace`` and ``last`` of some videos, those that can be decoded and whose header was read."""
        with self._lock:
            for row in self._untimed(rows):
                self._set_pace(row)
        for row in self._untimed(rows):
            last = int(self.ticks(row)[-1])
            with self._lock:
                self._ticks.put(row, (tuple(self.pace[row].tolist()), last))

    def _untimed(self, rows: NDArray[np.int64]) -> list[int]:
        untimed: list[int] = rows[(self.last[rows] < 0) & self.whole[rows] & ~self.unread[rows]].tolist()
        return untimed

    def learn(self, row: int, found: Scanned, index_at: int | None) -> None:
        """Go by what was found of a file, instead of what was known."""
        facts = found.facts
        with self._lock:
            self.unread[row] = False
            self.whole[row] = not found.error
            self._errors[row] = found.error
            self._index_at[row] = -1 if index_at is None else index_at
            if facts is not None:
                self._facts.put(row, learned_facts(facts))
                self._sizes.put(row, learned_size(facts))
                self._pix_fmts[row], self._codecs[row] = facts.pix_fmt, facts.codec
                self._set_pace(row)

    def as_now(self, row: int) -> Callable[[], None]:
        """Takes back what is learned of a file from now on."""
        columns: list[Any] = [self.unread, self._index_at, self.whole, self._pix_fmts, self._codecs]
        before, error = [copy(column[row]) for column in columns], self.error(row)
        shared = [(rows, rows.code(row)) for rows in (self._facts, self._sizes, self._ticks)]

        def back() -> None:
            with self._lock:
                self._errors[row] = error
                for column, value in zip(columns, before, strict=True):
                    column[row] = value
                for rows, code in shared:
                    rows.set_code(row, code)

        return back

    def remember_faults(self, before: "Files") -> None:
        """Videos that turned out bad stay so, also where only this process knows it."""
        for row in np.flatnonzero(~before.whole).tolist():
            mine = self.row_of_key.get(before.keys[row])
            if mine is not None:
                self.whole[mine] = False
                self._errors[mine] = before.error(row)

    def _learn_header(self, looked: Sequence[Looked]) -> None:
        """Go by what was found of files that were only listed."""
        index_at = write_found_indexes(self._catalog, [(file, found) for _, file, found in looked])
        others: dict[int, str] = {}
        for (row, file, found), at in zip(looked, index_at, strict=True):
            key, facts = key_found(file, found), found.facts
            if key != self.keys[row] and facts is not None:  # replaced since it was listed, and nobody has seen it
                with self._lock:
                    self.keys[row] = key
                    self.file_bytes[row], self._mtime_ns[row], self._etags[row] = facts.stamp
                others[int(self.ids[row])] = key
            self.learn(row, found, at)
        self._catalog.set_video_keys(others)

    def _record(self, looked: Sequence[Looked]) -> None:
        """Let the catalog know what was learned of files that were only listed."""
        ids = [int(self.ids[row]) for row, *_ in looked]
        index_at = [None if at < 0 else at for at in self._index_at[[row for row, *_ in looked]].tolist()]
        record_found(self._catalog, ids, [(file, found) for _, file, found in looked], index_at)


@lru_cache(maxsize=1024)  # of images there is one
def _even_times(first: int, step: int, numerator: int, denominator: int) -> FrameTimes | None:
    """When frames are shown, where that is known of a video without its packets."""
    return FrameTimes(first, step, numerator, denominator) if step >= 0 and denominator > 0 else None
