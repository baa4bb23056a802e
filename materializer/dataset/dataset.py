"""A task's dataset while the cache is open: which of its items may be drawn, and what stands in for bad ones.

An item is a whole video or a segment of one (`segments`). Ids are those of items; a whole video's is its own.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow, VideoStatus
from viewcache.errors import BadInput, BadVideo, ViewNotFound
from viewcache.materializer.choices import OnBadVideo
from viewcache.materializer.dataset.annotations import Annotations
from viewcache.materializer.dataset.files import Files
from viewcache.materializer.dataset.fit import Fit, ItemFit
from viewcache.materializer.dataset.past import Past
from viewcache.materializer.dataset.predicate import matching
from viewcache.materializer.dataset.said import known_items
from viewcache.materializer.dataset.segments import Items
from viewcache.materializer.dataset.split import selection_words
from viewcache.materializer.dataset.stand_ins import stand_in_for, substitute_place
from viewcache.materializer.dataset.versions import missing_reason
from viewcache.materializer.dataset.video_file import VideoFile
from viewcache.materializer.dataset.weights import epoch_length
from viewcache.materializer.field_values import FieldValues
from viewcache.materializer.media.facts import Claims
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.source import shown
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import DatasetSpec, TaskSpec

__all__ = ["Dataset"]


class Dataset:
    """The items of one task, sorted by name. Thread-safe."""

    def __init__(
        self, spec: DatasetSpec, sampling: SamplingSpec, files: Files, catalog: Catalog, past: Past | None = None
    ) -> None:
        """Choose among listed files, and record what the label table says of them.

        Args:
            spec: of the task.
            sampling: of the task.
            files: that are there.
            catalog: what we know.
            past: what the task has drawn; None if it is new.

        Raises:
            DatasetNotFound: no label table.
            BadInput: labels or ``where`` do not fit.
        """
        self.spec = spec
        self._fit = Fit(spec, sampling, files)
        self.files = files
        self.items, said = known_items(spec, files, catalog, by_time=sampling.by_time)
        """Those that can be named: what may be drawn, and what may have been drawn before."""
        self._of_items = ItemFit(self._fit, self.items)
        self._said = said
        self._past = Past(catalog, None) if past is None else past
        self._annotations = Annotations(spec, self.items, said, catalog, self._past)
        selected = self._where() & files.there[self.items.file]
        self._chosen = selected & self._annotations.part_mask(selected)
        """(items,) whether the predicate and the split select each, of those that are there."""
        if spec.grows:  # a video whose row is still to come waits for it, so that no batch has it without its label
            self._chosen &= said.named | (spec.labels is None)
        self._annotations.check(self._chosen, sampling.videos_per_batch * sampling.samples_per_video)
        self._left_out_for: dict[int, str] = {}
        """Row of an item that the task cannot use, though it can be decoded → why."""

    @property
    def dataset_id(self) -> int:
        """Of the files in the catalog."""
        return self.files.dataset_id

    def __len__(self) -> int:
        """Number of files, good and bad."""
        return len(self.files)

    @property
    def bad(self) -> list[VideoFile]:
        """Files that cannot be decoded, by name; all headers are read now."""
        self.files.headers.wait()
        return [self._file(row) for row in np.flatnonzero(self.files.there & ~self._fit.good()).tolist()]

    def leave_out(self, item_id: int, why: str) -> None:
        """Draw nothing of an item, though it can be decoded; before anybody draws."""
        row = self.items.row_of[item_id]
        self._chosen[row] = False
        self._left_out_for[row] = why

    def _file(self, row: int) -> VideoFile:
        file = self.files.file(row)
        if file.status == VideoStatus.GONE:
            return replace(file, error=self._why_not(file.video_id, 0))
        error = self._fit.error(row)
        return replace(file, error=error, status=VideoStatus.BAD if error else file.status)

    def _where(self) -> NDArray[np.bool_]:
        chosen = self._said.listed.copy()
        if self.spec.where is not None:
            table = self._annotations.predicate_table(self._fit.good())
            chosen[chosen] = matching(table, self.spec.where)
        return chosen

    def candidates(self, task: TaskSpec) -> NDArray[np.int64]:
        """Ids of the items that an epoch draws from, by name; short and bad ones as the policies say.

        Raises:
            BadVideo: a video is bad, or has no frame in a segment, and the policy is ``raise``.
            BadInput: nothing is left to draw from.
        """
        if not self.files.there.any():
            raise BadInput(f"task {task.name!r}: all {len(self)} {self.spec.media}s of {shown(self.spec.uri)} are gone")
        if not self._chosen.any():
            by = selection_words(self.spec) or "the label table"
            raise BadInput(f"task {task.name!r}: {by} selects none of {len(self)} {self.spec.media}s")
        return self.items.ids[self._of_items.selected(task, self._chosen, self._past)]

    def weights(self, ids: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """(n,) how often some items come in an epoch of all of them, on average; None where each comes once."""
        return None if self.spec.weighted is None else self._annotations.weights(self.items.row_of.of(ids))

    def strata(self, ids: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(n,) which value each of some items has of those that come equally often; None where none do."""
        return self._annotations.strata(self.items.row_of.of(ids))

    def epoch_like(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many ids as an epoch of some items has positions: these, each once, but for weights."""
        weights = self.weights(ids)
        return ids if weights is None else np.resize(ids, epoch_length(weights))

    def overlaps(self, other: "Dataset") -> bool:
        """Whether both select an item, good or bad, that they have in common."""
        ids, theirs = self.base, other.base
        return np.array_equal(ids, theirs) or bool(np.isin(ids, theirs).any())  # equal for dozens of jobs

    def ticks(self, video_id: int) -> NDArray[np.int64]:
        """(frames,) when each frame of a video is shown, in ticks from the first.

        Raises:
            BadVideo: nobody has looked at its packets.
        """
        return self.files.ticks(self.files.row_of[video_id])

    def is_usable(self, item_id: int, span: int) -> bool:
        """Whether clips of a span can be taken of an item."""
        return bool(self._of_items.usable(span, np.array([self.items.row_of[item_id]]))[0])

    def resolve_draws(
        self,
        task: TaskSpec,
        seed: int,
        first_epoch: int,
        order: NDArray[np.int64],
        stand_ins: Mapping[tuple[int, int], int],
        also: Iterable[int] = (),
        *,
        by_video: bool = False,
    ) -> tuple[Items, NDArray[np.int64], list[SubstitutionRow]]:
        """Turn drawn ids into rows of items, with another item where one is bad; for those that are gone: `missing`.

        Args:
            task: whose draws.
            seed: of its random numbers.
            first_epoch: epoch of ``order[0]``.
            order: (epochs, positions) ids.
            stand_ins: (epoch, position) → id of what replaced the item of that place before. It stays there as long as
                it is usable, also when the drawn one is back: batches that were read stay the same.
            also: ids of items that stand in for single clips by record.
            by_video: positions may still change, so what stands in for an item depends on the item instead.

        Returns:
            The usable items, (epochs, positions) rows of them, and a record of each policy that was used, but for
            stand-ins that are on record.

        Raises:
            BadVideo: a drawn video is bad or gone and the policy is ``raise``.
        """
        drawn = np.union1d(order, np.fromiter([*stand_ins.values(), *also], np.int64))
        held = ~self.files.there[self.items.file] & np.isin(self.items.ids, drawn)
        at = np.flatnonzero((self._chosen | held) & self._of_items.usable(task.sampling.span))
        past = np.flatnonzero(self._without_row & ~self._chosen & np.isin(self.items.ids, drawn))
        if len(past):
            at = np.sort(np.concatenate([at, past[self._of_items.usable(task.sampling.span, past)]]))
        items = self.items.taken(at)
        largest = int(order.max(initial=0))
        row_of = np.full(max(largest, int(items.ids.max(initial=0))) + 1, -1, np.int64)
        row_of[items.ids] = np.arange(len(items))
        rows = row_of[order]
        records = self._left_out(task, first_epoch, order)
        for (epoch, position), item_id in stand_ins.items():
            rows[epoch - first_epoch, position] = items.row_of.get(item_id, -1)
        may = self.may_stand_in(items.ids, task.sampling.span)
        for number, position in np.argwhere(rows < 0).tolist():
            place, item_id = (first_epoch + number, position), int(order[number, position])
            record = self.filled(task, seed, place, item_id, stand_ins.get(place, item_id), may, by_video=by_video)
            assert record.replacement_id is not None  # who cannot be replaced is an error
            rows[number, position] = items.row_of[record.replacement_id]
            records.append(record)
        return items, rows, records

    def resolve_batch(
        self,
        task: TaskSpec,
        seed: int,
        epoch: int,
        first: int,
        drawn: Sequence[int],
        stand_ins: Mapping[tuple[int, int], int],
        *,
        by_video: bool = False,
    ) -> tuple[list[int], list[SubstitutionRow]]:
        """The same for positions of one epoch, ``first`` and those behind it; no other video needs to be known.

        Returns:
            Ids of the items that give the clips, whose headers are read by now, and the records.

        Raises:
            BadVideo: as `resolve_draws`.
        """
        wanted = [stand_ins.get((epoch, position), item_id) for position, item_id in enumerate(drawn, first)]
        self.files.headers.look(self.file_rows(wanted))
        found, records = [], []
        for position, (item_id, usual) in enumerate(zip(drawn, wanted, strict=True), first):
            each = usual
            if not (self.gives(each, task.sampling.span) or self.is_held(each, task.sampling.span)):
                may = self.may_stand_in(self.items.ids, task.sampling.span)
                record = self.filled(task, seed, (epoch, position), item_id, each, may, by_video=by_video)
                assert record.replacement_id is not None  # who cannot be replaced is an error
                records.append(record)
                each = record.replacement_id
            found.append(each)
        return found, records

    def file_rows(self, ids: Iterable[int]) -> list[int]:
        """Rows of the files of those of some items that are there."""
        rows = self.items.row_of.find(list(ids))
        return list(map(int, self.items.file[rows[rows >= 0]]))

    def is_missing(self, item_id: int) -> bool:
        """Whether the file of an item is gone, or has other content, as far as is known."""
        return bool(self.missing([item_id])[0])

    def missing(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """(ids,) the same of several items."""
        rows = self.items.row_of.find(ids)
        return np.asarray((rows < 0) | ~self.files.there[self.items.file[rows]])

    def is_held(self, item_id: int, span: int) -> bool:
        """Whether an item that was drawn is gone, and known well enough to say which its clips were."""
        return item_id in self.items.row_of and self.is_missing(item_id) and self.is_usable(item_id, span)

    # Stand-ins -----------------------------------------------------------------------------------------------------

    def gives(self, item_id: int, span: int) -> bool:
        """Whether clips of a span can be taken of an item, as far as is known; a header is read if nobody has."""
        row = self.items.row_of.get(item_id)
        if row is None or not (self._chosen[row] or self.is_past(item_id)):
            return False
        self.files.headers.look([int(self.items.file[row])])
        return self.is_usable(item_id, span)

    def is_past(self, item_id: int) -> bool:
        """Whether an item is no more in the label table, while its file is there: what was drawn of it stays."""
        row = self.items.row_of.get(item_id)
        return row is not None and bool(self._without_row[row] and not self._chosen[row])

    def _is_left(self, item_id: int) -> bool:
        """Whether an item that can be decoded is not selected by what the label table says of it."""
        row = self.items.row_of.get(item_id)
        if row is None or self.is_missing(item_id) or self._chosen[row] or row in self._left_out_for:
            return False
        return not self.is_past(item_id) and not self._of_items.error(row)

    @cached_property
    def _without_row(self) -> NDArray[np.bool_]:
        """(items,) whether the label table has none for each, while its file is there."""
        if self.spec.labels is None:
            return np.zeros(len(self.items), bool)
        return ~self._said.named & self.files.there[self.items.file]

    def record_rows(self, task_id: int) -> None:
        """Record of a task which whole videos have no row in the label table; before it draws on."""
        if self.spec.labels is not None and not self.spec.grows:
            self._past.record(task_id, self.items.ids[self._without_row & self._said.listed])

    @property
    def base(self) -> NDArray[np.int64]:
        """Ids of the items that the predicate selects, good and bad, in the order of names: stand-ins are of these."""
        return np.asarray(self.items.ids[self._chosen])

    def may_stand_in(self, ids: NDArray[np.int64], span: int) -> NDArray[np.bool_]:
        """(base,) whether each is one of some items, and nothing is known against a clip of that span."""
        return np.asarray(self._of_items.usable(span)[self._chosen] & np.isin(self.base, ids))

    def stand_in(
        self,
        task: TaskSpec,
        seed: int,
        epoch: int,
        place: int,
        may: NDArray[np.bool_],
        tried: Container[int] = (),
    ) -> int | None:
        """The item that stands in at a place, see `stand_in_for`; its header is read if nobody has.

        ``may`` is from `may_stand_in`, and is corrected by what headers say.
        """
        while True:
            found = stand_in_for(seed, task.name, epoch, place, self.base, may, tried)
            if found is None or self.gives(found, task.sampling.span):
                return found
            may[self.base == found] = False

    def filled(
        self,
        task: TaskSpec,
        seed: int,
        place: tuple[int, int],
        item_id: int,
        missing: int,
        may: NDArray[np.bool_],
        *,
        by_video: bool,
    ) -> SubstitutionRow:
        """What fills a place, by the policy: of the drawn item, or of one that stood in for it and is ``missing``.

        The drawn one may be back when its stand-in is gone.

        Raises:
            BadVideo: the policy is ``raise``, or there is no other item.
        """
        (epoch, position), why = place, self._why_not(missing, task.sampling.span)
        replacement = item_id if missing != item_id and may[self.base == item_id].any() else None
        gone = self.is_missing(missing)
        refused = self.spec.refuses(missing=gone)
        if replacement is None and not refused:
            address = substitute_place(position, item_id, by_video=by_video)
            replacement = self.stand_in(task, seed, epoch, address, may, (missing,))
        if replacement is None or refused:
            key = "on_missing_video" if gone else f"on_bad_{self.spec.media}"
            cure = f"set {key}: replace" if refused else f"add another {self.spec.media} that can stand in"
            back = "put its row of the label table back as it was" if self._is_left(missing) else "restore the file"
            raise BadVideo(f"{why}; task {task.name!r} has drawn it: {back}; or, to go on without it, {cure}")
        return SubstitutionRow(0, epoch, position, -1, item_id, "replace", why, replacement)

    def _left_out(self, task: TaskSpec, first_epoch: int, order: NDArray[np.int64]) -> list[SubstitutionRow]:
        """One row for each item that a ``skip`` policy keeps out of the generation.

        One that is whole and was merely added later is not skipped.
        """
        span, items, good = task.sampling.span, self.items, self._of_items.good()
        skipped = self._chosen & ~self._of_items.usable(span) & (good | (self.spec.on_bad_video == OnBadVideo.SKIP))
        skipped &= ~np.isin(items.ids, order)
        ids = items.ids[skipped].tolist()
        return [SubstitutionRow(0, first_epoch, -1, -1, each, "skip", self._why_not(each, span)) for each in ids]

    def _why_not(self, item_id: int, span: int) -> str:
        files, row = self.files, self.items.row_of.get(item_id)
        if row is None or self.is_missing(item_id):
            uri = files.gone.get(item_id, f"video {item_id}") if row is None else files.uris[self.items.file[row]]
            return missing_reason(uri, self.spec.uri, grows=self.spec.grows)
        if error := self._of_items.error(row):
            return error
        if why := self._left_out_for.get(row):
            return why
        if self._is_left(item_id):
            uri = files.uris[self.items.file[row]]
            return f"{uri}{self.items.segment(row)} is not selected by {selection_words(self.spec)} any more"
        return self._of_items.too_short(row, span)

    def too_little(self, item_id: int, span: int) -> str:
        """Why no clip can be taken of a segment of a video that can be decoded; empty for all else."""
        row = self.items.row_of[item_id]
        if self.items.is_whole[row] or not self._fit.good()[self.items.file[row]]:
            return ""
        return self._why_not(item_id, span)

    def items_of(self, ids: Sequence[int]) -> Items:
        """What is known now of some items, in this order."""
        return self.items.taken(self.items.row_of.of(ids))

    def one(self, name: str) -> VideoFile:
        """The file of a name; its header is read if nobody has.

        Raises:
            ViewNotFound: no video has that name.
        """
        row = self.files.row_of_name.get(name)
        if row is None:
            first = ", ".join(map(repr, self.files.names[:3])) + (", …" if len(self) > 3 else "")
            raise ViewNotFound(f"no {self.spec.media} {name!r} in {self.spec.uri}; it has {len(self)}: {first}")
        self.files.headers.look([row])
        return self._file(row)

    def by_name(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same ids in the order of names; those of files that are gone last."""
        there = self.items.ids[self.files.there[self.items.file] & np.isin(self.items.ids, ids)]
        return np.concatenate([there, np.unique(ids[~np.isin(ids, there)])])

    def names(self) -> list[str]:
        """Names of all files that are there, sorted."""
        return [*self.files.names.taken(np.flatnonzero(self.files.there))]

    def looked_at(self, ids: NDArray[np.int64]) -> tuple[list[bytes], Sequence[Claims | None]]:
        """Of some videos the packet indexes, serialized, each empty where nobody looked; then what is claimed of it."""
        rows = self.files.row_of.of(ids).tolist()
        blobs = [self.files.index_blob(row) for row in rows]
        unseen = [row for row, blob in zip(rows, blobs, strict=True) if not blob]
        claims = self.files.claims(unseen, self.spec.max_pixels)
        each = iter(claims)
        return blobs, [None if blob else next(each) for blob in blobs] if len(unseen) < len(rows) else claims

    def index(self, video_id: int) -> MediaIndex:
        """What planning knows of a video.

        Raises:
            BadVideo: nothing is known of its frames.
        """
        return self.files.index(self.files.row_of[video_id])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels, see `Classes`; a label's number is its place here."""
        return self._annotations.classes.names

    @property
    def is_numbered(self) -> bool:
        """Whether its labels are whole numbers, which stand for themselves."""
        return self._annotations.classes.is_numbered and self._annotations.has_labels()

    def labels(self, ids: NDArray[np.int64], epoch: int) -> NDArray[Any]:
        """The labels of some items in an epoch; see `Classes.numbers`."""
        return self._annotations.labels(self.items.row_of.of(ids), epoch)

    def label(self, item_id: int) -> int | tuple[int, ...]:
        """The class number of one item, -1 without a label; where items may have several, the numbers of all."""
        return self._annotations.label(self.items.row_of[item_id])

    def fields(self, ids: NDArray[np.int64], epoch: int) -> dict[str, FieldValues]:
        """The further columns that come with the clips of some items in an epoch."""
        return self._annotations.fields(self.items.row_of.of(ids), epoch)
