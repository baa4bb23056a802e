"""Verbs of the door about datasets and their videos: rows, labels, and the packet indexes beside the database.

A part of ``door.Catalog``, which has the others; it stands here because an index and its row are one subject.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from viewcache.catalog import tasks
from viewcache.catalog.blobs import BlobFile
from viewcache.catalog.engine import Engine, Session
from viewcache.catalog.pending import Pending
from viewcache.catalog.records import VideoColumnRow, VideoRow
from viewcache.catalog.rows import to_table

__all__ = ["Videos"]

T = TypeVar("T")


class Videos(ABC):
    """See ``door.Catalog``."""

    def register_dataset(self, uri: str) -> int:
        """The id of the dataset of this folder, glob or URL, registered if it is new."""
        return self._call(lambda session: tasks.register_dataset(session, uri))

    def upsert_videos(self, dataset_id: int, videos: Sequence[VideoRow] | pa.Table) -> list[int]:
        """Record scanned files; a uri that is known keeps its id and takes the new content.

        Args:
            dataset_id: of the files.
            videos: rows, or the columns of ``schemas.VIDEO`` that are known of many files.

        Returns:
            The ids, in the order of ``videos``.

        Raises:
            BadInput: a uri comes twice.
        """
        if not len(videos):
            return []
        table = videos if isinstance(videos, pa.Table) else to_table(videos)
        return self._call(lambda session: tasks.upsert_videos(session, dataset_id, table))

    def replace_videos(self, dataset_id: int, retired: pa.Table, fresh: Sequence[VideoRow]) -> list[int]:
        """Record files as new videos that take the uris of known ones.

        Args:
            dataset_id: of the files.
            retired: the known ones, ``schemas.VIDEO``; each keeps its id and its name, and has another uri now.
            fresh: what lies there.

        Returns:
            The ids of ``fresh``.
        """
        return self._call(lambda session: tasks.replace_videos(session, dataset_id, retired, to_table(fresh)))

    def record_facts(self, facts: pa.Table) -> None:
        """Record what was found of registered files (small): ``schemas.FACTS``."""
        self._note(lambda pending: pending.record_facts(facts))

    def set_video_keys(self, keys: Mapping[int, str]) -> None:
        """Record which contents files have by now, by ``video_id``: in the journal, too, which `record_facts` is not.

        A lost catalog is told by it whether a file is still the one that was drawn.
        """
        if keys:
            self._call(lambda session: tasks.set_video_keys(session, keys))

    def set_video_etags(self, etags: Mapping[int, str | None]) -> None:
        """Record what a server marks the versions of files with, which are the same, by ``video_id``."""
        self._call(lambda session: tasks.set_video_etags(session, etags))

    def mark_missing(self, video_ids: Iterable[int], *, missing: bool = True) -> None:
        """Record that the files of videos went, or were replaced, while the cache is open (small); or are back.

        Of what is `missing`, nothing that cannot be made again is given up from then on. Who flushes knows that it is
        recorded.
        """
        ids = list(video_ids)
        if ids:
            self._note(lambda pending: pending.mark_missing(ids, missing=missing))

    def set_labels(self, labels: Mapping[int, str | None]) -> None:
        """Record the labels of files, by ``video_id``."""
        if labels:
            self._call(lambda session: tasks.set_labels(session, labels))

    def register_items(self, dataset_id: int, items: pa.Table) -> list[int]:
        """The ids of segments, given out now where they are new; the same ones for ever.

        Args:
            dataset_id: of the videos.
            items: (video_id, start_s, end_s, ordinal) of ``schemas.ITEM``, in the order in which ids are given out.
        """
        return self._call(lambda session: tasks.register_items(session, dataset_id, items)) if len(items) else []

    def set_item_labels(self, labels: Mapping[int, str | None]) -> None:
        """Record the labels of segments, by ``item_id``."""
        if labels:
            self._call(lambda session: tasks.set_item_labels(session, labels))

    def load_items(self, dataset_id: int) -> pa.Table:
        """The segments of a dataset's videos by id, ``schemas.ITEM``."""
        return self._reading().query("read_items", {"dataset_id": dataset_id})

    def load_videos(self, dataset_id: int) -> pa.Table:
        """A dataset's files by id, ``schemas.VIDEO``; the ids stay the same for ever.

        What repeats is coded, and each column has memory of its own: there may be a million files.
        """
        rows = self._reading().query_packed("read_videos", {"dataset_id": dataset_id}, _OF_ONE_FILE)
        ids = rows["video_id"].to_numpy()
        if (ids[1:] > ids[:-1]).all():
            return rows
        order, names, columns = pa.array(np.argsort(ids)), rows.column_names, rows.columns
        del rows, ids
        for at in range(len(columns)):  # one after the other, so that not all are there twice
            columns[at] = columns[at].take(order)
            pa.default_memory_pool().release_unused()
        return pa.table(columns, names)

    def write_indexes(self, blobs: Sequence[tuple[str, bytes]]) -> list[int | None]:
        """Keep packet indexes beside the database, each with the content key of its file; opaque here.

        Returns:
            What ``VideoRow.index_at`` is to be for each; None where this catalog has no folder for them.

        Raises:
            Full: no disk space.
        """
        file = self._blobs
        return [None] * len(blobs) if file is None else [*file.append(blobs)]

    def read_index(self, index_at: int, key: str) -> bytes | None:
        """The packet index of a file, by its content key; None if it is not there any more: it is indexed again."""
        return None if self._blobs is None else self._blobs.read(index_at, key)

    def load_video_sizes(self, dataset_id: int) -> pa.Table:
        """(video_id, name, key, frames, width, height, rotation) of a dataset's files by video_id."""
        return self._reading().query("read_video_sizes", {"dataset_id": dataset_id})

    def set_video_columns(self, rows: Sequence[VideoColumnRow] | pa.Table) -> None:
        """Replace the further columns of the items that appear in ``rows``; a table is of ``schemas.VIDEO_COLUMN``."""
        if len(rows):
            table = rows if isinstance(rows, pa.Table) else to_table(rows)
            self._call(lambda session: tasks.set_video_columns(session, table))

    def drawn_among(self, video_ids: Sequence[int]) -> pa.Table:
        """(task_id, task, video_id) of the tasks that have drawn any of these videos for certain; or it stands in."""
        return self._reading().query("drawn_among", {}, _ids(video_ids))

    def places_of_videos(self, task_id: int, video_ids: Sequence[int]) -> pa.Table:
        """(epoch, position, videos) where a task has drawn these videos for certain, or one of them stands in.

        ``videos`` says how many the epoch has. Of orders of which no place is a row nothing is computed here: there are
        only their stand-ins, without a size.
        """
        return self._reading().query("places_of_videos", {"task_id": task_id}, _ids(video_ids))

    def load_video_columns(self, dataset_id: int) -> pa.Table:
        """(video_id, name, text_value, number_value) of a dataset's items; ``video_id`` is that of an item."""
        return self._reading().query("read_video_columns", {"dataset_id": dataset_id})

    @property
    @abstractmethod
    def _blobs(self) -> BlobFile | None:
        """Where packet indexes lie; None if this catalog has no folder for them."""

    @abstractmethod
    def _note(self, change: Callable[[Pending], None]) -> None:
        """See ``door.Catalog``."""

    @abstractmethod
    def _call(self, work: Callable[[Session], T]) -> T:
        """See ``door.Catalog``."""

    @abstractmethod
    def _reading(self) -> Engine:
        """See ``door.Catalog``."""


_OF_ONE_FILE = frozenset(("video_id", "name", "uri", "key", "size_bytes", "mtime_ns", "duration_s", "index_at"))
"""What hardly two files share."""


def _ids(video_ids: Sequence[int]) -> pa.Table:
    return pa.table({"video_id": pa.array(video_ids, pa.int64())})
