"""The files that a listing found, as columns: a million of them are compared with what is known without an object each.

One file is a `Found`, made when somebody asks for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from viewcache.materializer.dataset.texts import RepeatedTexts, Texts
from viewcache.materializer.freed_memory import give_back_after
from viewcache.materializer.media.source import Stamp

__all__ = ["Found", "Listed", "Recorded", "in_order"]

AT_A_TIME = 1 << 16
"""Files that are objects of Python at the same time while columns are made of them."""


class Recorded(NamedTuple):
    """The version of a file that is on record."""

    key: str
    """Its content key."""
    stamp: Stamp | None
    """None where the key alone is known for sure: nobody has read the file, or it is bad now and was not once."""


class Found(NamedTuple):
    """One video file of a dataset."""

    uri: str
    """Absolute path or URL."""
    path: str
    """Under the dataset, with ``/`` between components."""
    stamp: Stamp
    problem: str = ""
    """Why it must not be opened; empty = nothing known."""
    root: str = ""
    """In short, which of the dataset's places it is of; empty if there is one."""
    absent: bool = False
    """Whether a list file names it and it is not there."""
    as_stored: bool = False
    """Whether it is an image that is taken as it is stored, whatever orientation it tells."""
    recorded: Recorded | None = None
    """The version on record, for whoever looks into the file; columns do not have it."""


@dataclass(frozen=True, slots=True)
class Listed(Sequence[Found]):
    """Some files, as columns of equal lengths."""

    uris: Texts
    paths: Texts
    sizes: NDArray[np.int64]
    """Bytes."""
    mtimes_ns: NDArray[np.int64]
    etags: RepeatedTexts
    roots: RepeatedTexts
    problems: Mapping[int, str]
    """Row of a file that must not be opened → why."""
    absent: NDArray[np.int64]
    """Rows of the files that a list file names and that are not there."""
    as_stored: bool = False
    """Whether all of them are images that are taken as they are stored."""

    @classmethod
    def of(cls, found: Iterable[Found]) -> "Listed":
        """Columns of some files, in their order; names that are no UTF-8 get one that can be stored, and a problem."""
        each, parts = iter(found), [cls._part([])]
        while some := list(islice(each, AT_A_TIME)):
            try:
                parts.append(cls._part(some))
            except UnicodeEncodeError:
                parts.append(cls._part([_named(file) for file in some]))
        return cls.all_of(parts)

    @classmethod
    def below(cls, prefix: str, files: Iterable[tuple[str, int, int]]) -> "Listed":
        """Columns of files that can be opened, without an object for each.

        Args:
            prefix: what is put before a path to make the URI.
            files: path, size in bytes and time of the last change in ns of each.
        """
        each, odd, texts = iter(files), [cls._part([])], []
        sizes, mtimes_ns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while some := list(islice(each, AT_A_TIME)):
            paths, *stamps = zip(*some, strict=True)
            try:
                prefix.encode()
                texts.append(pa.array(paths, pa.large_string()))
            except UnicodeEncodeError:
                odd.append(cls.of(Found(prefix + path, path, Stamp(size, mtime_ns)) for path, size, mtime_ns in some))
                continue
            for column, values in zip((sizes, mtimes_ns), stamps, strict=True):
                column.append(np.array(values, np.int64))
        if not texts:
            return cls.all_of(odd)
        whole = Texts(pa.chunked_array(texts))
        empty = RepeatedTexts.coded(["", None], np.zeros(len(whole), np.int8))
        del texts
        give_back_after(len(whole))  # before as much again is taken for the URIs
        before, nothing = (pa.scalar(text, pa.large_string()) for text in (prefix, ""))
        found = cls(
            Texts(pc.binary_join_element_wise(before, whole.array, nothing)),
            whole,
            np.concatenate(sizes),
            np.concatenate(mtimes_ns),
            empty,
            empty,
            {},
            np.empty(0, np.int64),
        )
        return cls.all_of([found, *odd]) if len(odd) > 1 else found

    @classmethod
    def _part(cls, some: Sequence[Found]) -> "Listed":
        columns = zip(*some, strict=True) if some else [()] * len(Found._fields)
        uris, paths, stamps, problems, roots, absent, as_stored, _ = columns
        sizes, mtimes_ns, etags = zip(*stamps, strict=True) if some else [()] * 3
        return cls(
            Texts(pa.array(uris, pa.large_string())),
            Texts(pa.array(paths, pa.large_string())),
            np.array(sizes, np.int64),
            np.array(mtimes_ns, np.int64),
            RepeatedTexts(pa.array(etags, pa.string())),
            RepeatedTexts(pa.array(roots, pa.string())),
            {row: problem for row, problem in enumerate(problems) if problem},
            np.flatnonzero(np.array(absent, bool)),
            any(as_stored),
        )

    @classmethod
    def all_of(cls, parts: Sequence["Listed"]) -> "Listed":
        """The files of some listings, of one at least, one behind the other."""
        first = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        return cls(
            Texts(pa.chunked_array([part.uris.array for part in parts])),
            Texts(pa.chunked_array([part.paths.array for part in parts])),
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.mtimes_ns for part in parts]),
            RepeatedTexts(pa.chunked_array([part.etags.array for part in parts])),
            RepeatedTexts(pa.chunked_array([part.roots.array for part in parts])),
            {at + row: why for at, part in zip(first, parts, strict=True) for row, why in part.problems.items()},
            np.concatenate([at + part.absent for at, part in zip(first, parts, strict=True)]),
            any(part.as_stored for part in parts),
        )

    def __len__(self) -> int:
        """Number of files."""
        return len(self.sizes)

    @overload
    def __getitem__(self, row: int) -> Found: ...
    @overload
    def __getitem__(self, row: slice) -> list[Found]: ...
    def __getitem__(self, row: int | slice) -> Found | list[Found]:
        """One file, or the list of some."""
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        at = range(len(self))[row]
        return Found(
            self.uris[at],
            self.paths[at],
            Stamp(int(self.sizes[at]), int(self.mtimes_ns[at]), self.etags[at] or ""),
            self.problems.get(at, ""),
            self.roots[at] or "",
            bool(len(self.absent)) and at in self.absent,
            self.as_stored,
        )

    def __iter__(self) -> Iterator[Found]:
        """All files, in order."""
        absent = set(self.absent.tolist())
        for first in range(0, len(self), AT_A_TIME):
            part = slice(first, min(first + AT_A_TIME, len(self)))
            columns = self.sizes[part].tolist(), self.mtimes_ns[part].tolist(), self.etags[part]
            stamps = (Stamp(size, mtime_ns, etag or "") for size, mtime_ns, etag in zip(*columns, strict=True))
            found = zip(self.uris[part], self.paths[part], stamps, self.roots[part], strict=True)
            for row, (uri, path, stamp, root) in enumerate(found, first):
                yield Found(uri, path, stamp, self.problems.get(row, ""), root or "", row in absent, self.as_stored)

    def some(self, rows: NDArray[np.int64]) -> list[Found]:
        """Some files, one by one."""
        return list(self.taken(rows))

    def taken(self, rows: NDArray[np.int64]) -> "Listed":
        """Some files, as columns."""
        problems = {
            at: self.problems[row]
            for at, row in enumerate(rows.tolist() if self.problems else ())
            if row in self.problems
        }
        return replace(
            self,
            uris=self.uris.taken(rows),
            paths=self.paths.taken(rows),
            sizes=self.sizes[rows],
            mtimes_ns=self.mtimes_ns[rows],
            etags=self.etags.taken(rows),
            roots=self.roots.taken(rows),
            problems=problems,
            absent=np.flatnonzero(np.isin(rows, self.absent)),
        )

    def joined(self, more: "Listed") -> "Listed":
        """These and, behind them, some more."""
        return Listed.all_of([self, more])

    def by_path(self) -> "Listed":
        """The same, sorted by path."""
        order = in_order(self.paths)
        return self if order is None else self.taken(order)


def in_order(texts: Texts) -> NDArray[np.int64] | None:
    """The rows of texts when these are sorted by their characters; None if they are already."""
    array = texts.array
    if len(array) < 2 or pc.all(pc.less_equal(array[:-1], array[1:])).as_py():
        return None
    return np.asarray(pc.array_sort_indices(array).to_numpy().astype(np.int64))  # UTF-8 sorts as characters do


def _named(found: Found) -> Found:
    """The same, under a name that can be stored and printed: file systems allow bytes that are no UTF-8."""
    try:
        found.uri.encode()
    except UnicodeEncodeError:
        uri, path = (each.encode(errors="backslashreplace").decode() for each in (found.uri, found.path))
        return found._replace(uri=uri, path=path, stamp=Stamp(0), problem="has a name that is not UTF-8; rename it")
    return found
