"""What was found of files, as rows of the catalog, and the content keys that they go by."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import VideoStatus
from viewcache.errors import BadVideo
from viewcache.failpoints import failpoint
from viewcache.materializer.dataset.listed import Found, Listed
from viewcache.materializer.dataset.texts import Texts
from viewcache.materializer.media.facts import FrameTimes, Scanned, VideoFacts
from viewcache.materializer.media.source import Stamp

__all__ = [
    "Batches",
    "Behind",
    "facts_table",
    "gone_rows",
    "is_key_of",
    "is_recorded",
    "key_found",
    "listed_rows",
    "record_bad",
    "record_found",
    "video_key",
    "write_found_indexes",
]

RECORDED_AT_ONCE = 10_000
"""Files of which it is recorded in one transaction what was found, at the most."""

_AS_THEY_ARE = tuple(name for name in VideoFacts._fields if name in schemas.FACTS.names)
"""What a file's facts and its row call the same."""
_TIMES = ("time_first", "time_step", "time_numerator", "time_denominator")
"""Columns of the fields of `FrameTimes`."""
_NO_FACTS, _NO_TIMES = (None,) * len(VideoFacts._fields), (None,) * len(FrameTimes._fields)


def video_key(uri: str, stamp: Stamp, *, as_stored: bool = False) -> str:
    """The content key of one version of a file: 32 hex digits of BLAKE2b over its URI and etag, or size and time.

    An image that is taken as it is stored has another key than one that is turned: nothing that is made of one is made
    of the other.
    """
    version = f"etag:{stamp.etag}" if stamp.etag else f"size:{stamp.size} mtime:{stamp.mtime_ns}"
    text = f"{'image as stored' if as_stored else 'video'}\0{uri}\0{version}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def key_found(file: Found, found: Scanned) -> str:
    """The content key of what was found: a file may be replaced between the listing and the look into it.

    The version on record keeps its key, and so what was made of it. Of a bad file there is nothing: its key tells by
    what stamp it is bad, see `KnownFiles.was_whole`.
    """
    if file.recorded is not None and not found.error and is_recorded(file, found):
        return file.recorded.key
    return video_key(file.uri, _stamp_found(file, found), as_stored=file.as_stored)


def is_recorded(file: Found, found: Scanned) -> bool:
    """Whether what was found is the version that is on record, though its key may be of a stamp that told less."""
    if file.recorded is None:
        return False
    key, before = file.recorded
    now = _stamp_found(file, found)
    return (before is not None and before.same(now)) or is_key_of(key, file, now, less=before is None)


def is_key_of(key: str, file: Found, stamp: Stamp, *, less: bool = True) -> bool:
    """Whether a version of a file has a key; or had it, when ``less`` was known of it: no etag."""
    stamps = (stamp, stamp._replace(etag="")) if less and stamp.etag else (stamp,)
    return any(key == video_key(file.uri, each, as_stored=file.as_stored) for each in stamps)


def _stamp_found(file: Found, found: Scanned) -> Stamp:
    return file.stamp if found.facts is None else found.facts.stamp


Item = TypeVar("Item")


class Batches(Generic[Item]):
    """Gathers what is found of files and has it recorded in batches; use it as a context manager.

    What was gathered when the block ends, well or ill, is recorded then.
    """

    def __init__(self, record: Callable[[Sequence[Item]], None], every_s: float) -> None:
        """Have ``record`` take a batch when it is full, or when ``every_s`` seconds have passed since the last one."""
        self._record = record
        self._every_s = every_s
        self._found: list[Item] = []
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        """Gather."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Record the rest."""
        self._hand_on()

    def add(self, found: Iterable[Item]) -> None:
        """Gather some more."""
        self._found += found
        if len(self._found) >= RECORDED_AT_ONCE or time.monotonic() - self._since >= self._every_s:
            self._hand_on()

    def _hand_on(self) -> None:
        ready, self._found, self._since = self._found, [], time.monotonic()
        if ready:
            self._record(ready)


class Behind(Generic[Item]):
    """Has a batch recorded while the next one is gathered; use it as a context manager.

    One batch at a time: who hands one on waits for the one before, and when the block ends the last is recorded.
    """

    def __init__(self, record: Callable[[Sequence[Item]], None]) -> None:
        """Have ``record`` called in a thread of its own."""
        self._record = record
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Take batches."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Wait for the last batch."""
        self._wait()

    def __call__(self, batch: Sequence[Item]) -> None:
        """Have a batch recorded.

        Raises:
            Exception: what the batch before it met; this one is not recorded.
        """
        self._wait()
        self._thread = threading.Thread(target=self._run, args=(batch,), name="viewcache-records", daemon=True)
        self._thread.start()

    def _run(self, batch: Sequence[Item]) -> None:
        try:
            self._record(batch)
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error


def write_found_indexes(catalog: Catalog, looked: Sequence[tuple[Found, Scanned]]) -> list[int | None]:
    """Keep the packet indexes of what was looked into; where each lies, None for files that have none."""
    offsets = iter(catalog.write_indexes([(key_found(*each), each[1].index) for each in looked if each[1].index]))
    return [next(offsets) if found.index else None for _, found in looked]


def record_found(
    catalog: Catalog,
    video_ids: Sequence[int],
    looked: Sequence[tuple[Found, Scanned]],
    index_at: Sequence[int | None],
) -> None:
    """Let the catalog know what was found of files, see `facts_table`; it is committed when this returns."""
    _record(catalog, facts_table(video_ids, looked, index_at))


def record_bad(catalog: Catalog, rows: pa.Table, looked: Sequence[tuple[Found, Scanned]]) -> None:
    """The same of drawn files that can be decoded no more, and could be before: what is known of that content stays.

    So it is told from what may come later, and what is stored of it is found. Size and time are those of the bad file.

    Args:
        catalog: to be told.
        rows: of ``schemas.VIDEO``, of each file.
        looked: the file as it was listed, and what was found.
    """
    told = facts_table(rows["video_id"].to_pylist(), looked, [None] * len(looked))
    now = {"size_bytes", "mtime_ns", "etag", "status", "error_kind", "error"}
    _record(catalog, pa.table({name: (told if name in now else rows)[name] for name in told.column_names}))


def _record(catalog: Catalog, facts: pa.Table) -> None:
    catalog.record_facts(facts)
    catalog.flush()
    failpoint("dataset.found")


def facts_table(
    video_ids: Sequence[int], looked: Sequence[tuple[Found, Scanned]], index_at: Sequence[int | None]
) -> pa.Table:
    """What was found of files, as ``schemas.FACTS``.

    Args:
        video_ids: of each.
        looked: the file as it was listed, and what was found.
        index_at: where its packet index lies, if it has one.
    """
    facts = zip(*(_NO_FACTS if found.facts is None else found.facts for _, found in looked), strict=True)
    told: dict[str, Sequence[Any]] = dict(zip(VideoFacts._fields, facts, strict=True))
    times = zip(*(_NO_TIMES if each is None else each for each in told["times"]), strict=True)
    stamps = [_stamp(file, found) for file, found in looked]
    errors = [found.error or None for _, found in looked]
    columns: dict[str, Sequence[object]] = {
        "video_id": video_ids,
        "key": [key_found(*each) for each in looked],
        "size_bytes": [stamp.size for stamp in stamps],
        "mtime_ns": [stamp.mtime_ns for stamp in stamps],
        "etag": [stamp.etag for stamp in stamps],
        "index_at": index_at,
        "status": [(VideoStatus.BAD if error else VideoStatus.OK).value for error in errors],
        "error_kind": [BadVideo.kind if error else None for error in errors],
        "error": errors,
    }
    columns |= {name: told[name] for name in _AS_THEY_ARE} | dict(zip(_TIMES, times, strict=True))
    return pa.table(columns, schema=schemas.FACTS)


def listed_rows(names: Texts, files: Listed) -> pa.Table:
    """All that is known of files that nobody has looked into, under the names that they are given."""
    return pa.table(
        {
            "uri": files.uris.array,
            "name": names.array,
            "key": [video_key(file.uri, file.stamp, as_stored=file.as_stored) for file in files],
            "size_bytes": files.sizes,
            "mtime_ns": files.mtimes_ns,
            "etag": files.etags.array,
            "status": [VideoStatus.LISTED.value] * len(files),
        }
    )


def gone_rows(rows: pa.Table) -> pa.Table:
    """Rows of ``schemas.VIDEO`` once their files are gone: what was known stays, so that they are recognized.

    So does ``error_kind``: of a file that was bad nobody has seen anything, see `KnownFiles.was_whole`.
    """
    gone = {"status": VideoStatus.GONE.value, "error": "the file is gone"}
    for name, value in gone.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(at)
        rows = rows.set_column(at, kind, pa.array([value] * len(rows), kind.type))
    return rows


def _stamp(file: Found, found: Scanned) -> Stamp:
    """The version of the bytes that were read; none where the next look may find something else."""
    if not found.lasting:
        return Stamp(-1)
    return _stamp_found(file, found)
