"""A task's dataset while the cache is open: which of its files may be drawn, and what stands in for bad ones."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow, VideoStatus
from viewcache.errors import BadInput, BadVideo, ViewNotFound
from viewcache.materializer.dataset.classes import class_names, class_numbers, first_epochs
from viewcache.materializer.dataset.columns import predicate_table, record_columns, record_labels
from viewcache.materializer.dataset.files import Files, VideoFile
from viewcache.materializer.dataset.fit import Fit
from viewcache.materializer.dataset.labels import labels_for
from viewcache.materializer.dataset.predicate import matching
from viewcache.materializer.dataset.stand_ins import stand_in_for, substitute_place
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.media.facts import Claims
from viewcache.materializer.media.media_index import MediaIndex
from viewcache.materializer.media.source import shown
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import DatasetSpec, OnBadVideo, OnShortVideo, TaskSpec

__all__ = ["Dataset"]

_MAY_CHANGE = ("frames", "height", "width", "keyframes", "native_bytes", "pace", "last")
"""What is known of a video by its header and may turn out otherwise."""


class Dataset:
    """The videos of one task, sorted by name. Thread-safe."""

    def __init__(
        self, spec: DatasetSpec, sampling: SamplingSpec, files: Files, catalog: Catalog, drawn: pa.Table | None = None
    ) -> None:
        """Choose among listed files, and record what the label table says of them.

        Args:
            spec: of the task.
            sampling: of the task.
            files: that are there.
            catalog: what we know.
            drawn: what the task has drawn, as `Catalog.first_drawn` gives it, if its dataset grows.

        Raises:
            DatasetNotFound: no label table.
            BadInput: labels or ``where`` do not fit.
        """
        self.spec = spec
        self._fit = Fit(spec, sampling, files)
        self.files = files
        labelled = labels_for(files.paths, spec.labels, spec.label_video_column, spec.label_column, files.names)
        self._columns = [each.columns for each in labelled]
        self._labels = [each.label for each in labelled]
        if spec.labels is not None:
            record_labels(catalog, files, self._labels)
        record_columns(catalog, files.dataset_id, dict(zip(files.ids.tolist(), self._columns, strict=True)))
        recorded = [] if drawn is None or spec.labels is None else drawn.to_pylist()
        self._classes = class_names(
            self._labels, first_epochs(recorded, dict(zip(files.ids.tolist(), self._labels, strict=True)))
        )
        self._chosen = self._where() & files.there
        """(files,) whether the predicate selects each, of those that are there."""
        if spec.grows:  # a video whose row is still to come waits for it, so that no batch has it without its label
            self._chosen &= np.array([each.named for each in labelled], bool)
        self._left_out_for: dict[int, str] = {}
        """Row of a video that the task cannot use, though it can be decoded → why."""

    @property
    def dataset_id(self) -> int:
        """Of the files in the catalog."""
        return self.files.dataset_id

    @property
    def changed(self) -> tuple[str, ...]:
        """What is to be told of files that have other content than when they were drawn."""
        return self.files.changed

    def __len__(self) -> int:
        """Number of files, good and bad."""
        return len(self.files)

    @property
    def bad(self) -> list[VideoFile]:
        """Files that cannot be decoded, by name; all headers are read now."""
        self.files.headers.wait()
        return [self._file(row) for row in np.flatnonzero(~self._fit.good()).tolist()]

    def leave_out(self, video_id: int, why: str) -> None:
        """Draw nothing of a video, though it can be decoded; before anybody draws."""
        row = self.files.row_of[video_id]
        self._chosen[row] = False
        self._left_out_for[row] = why

    def _file(self, row: int) -> VideoFile:
        error = self._fit.error(row)
        file = self.files.file(row)
        return replace(file, error=error, status=VideoStatus.BAD if error else file.status)

    def _where(self) -> NDArray[np.bool_]:
        if self.spec.where is None:
            return np.ones(len(self.files), bool)
        table = predicate_table(self.files, self._fit.good(), self._labels, self._columns)
        return np.asarray(matching(table, self.spec.where), bool)

    def candidates(self, task: TaskSpec) -> NDArray[np.int64]:
        """Ids of the videos that an epoch draws from, by name; short and bad ones as the policies say.

        Raises:
            BadVideo: a video is bad and the policy is ``raise``.
            BadInput: nothing is left to draw from.
        """
        span, files = task.sampling.span, self.files
        if not self.files.there.any():
            raise BadInput(f"task {task.name!r}: all {len(self)} videos of {shown(self.spec.uri)} are gone")
        if not self._chosen.any():
            raise BadInput(f"task {task.name!r}: where: {self.spec.where!r} selects none of {len(self)} videos")
        good = self._fit.good()
        bad = np.flatnonzero(self._chosen & ~good)
        if len(bad) and self.spec.on_bad_video == OnBadVideo.RAISE:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise BadVideo(
                f"{self._fit.error(int(bad[0]))}{more}; repair or remove it, or set on_bad_video: skip or replace"
            )
        selected = self._chosen.copy()
        if self.spec.on_bad_video == OnBadVideo.SKIP:
            selected &= good
        selected &= self._long_enough(span) | ~good
        if not (selected & self._usable(span)).any():
            longest, needed = map(task.sampling.in_words, (int(self._fit.lengths().max()), span))
            raise BadInput(
                f"task {task.name!r}: no video is left of {len(self)}: {len(bad)} are bad, and the longest has "
                f"{longest} where a clip spans {needed}"
            )
        return files.ids[selected]

    @property
    def selects(self) -> int:
        """How many videos the predicate selects, good and bad."""
        return int(self._chosen.sum())

    def overlaps(self, other: "Dataset") -> bool:
        """Whether both select a video, good or bad, that they have in common."""
        ids, theirs = self.files.ids[self._chosen], other.files.ids[other._chosen]
        return np.array_equal(ids, theirs) or bool(np.isin(ids, theirs).any())  # equal for dozens of jobs

    def _usable(self, span: int) -> NDArray[np.bool_]:
        """(files,) whether a clip can be taken of each."""
        return self._fit.good() & self._long_enough(span)

    def _long_enough(self, span: int) -> NDArray[np.bool_]:
        """(files,) whether each has a clip's span, or need not have it."""
        skips = self.spec.on_short_video == OnShortVideo.SKIP
        return self._fit.lengths() >= span if skips else np.ones(len(self.files), bool)

    def ticks(self, video_id: int) -> NDArray[np.int64]:
        """(frames,) when each frame of a video is shown, in ticks from the first.

        Raises:
            BadVideo: nobody has looked at its packets.
        """
        return self.files.ticks(self.files.row_of[video_id])

    def is_usable(self, video_id: int, span: int) -> bool:
        """Whether clips of a span can be taken of a video."""
        return bool(self._usable(span)[self.files.row_of[video_id]])

    def known_now(self, videos: Videos, video_id: int) -> Videos:
        """The videos of a plan, one of them with what is known of it now."""
        at, row = videos.row_of[video_id], self.files.row_of[video_id]
        if self._fit.sampling.by_time:
            self.files.time(np.array([row]))
        columns = {name: getattr(videos, name).copy() for name in _MAY_CHANGE}
        for name, column in columns.items():
            column[at] = getattr(self.files, name)[row]
        return replace(videos, **columns)

    def resolve_draws(
        self,
        task: TaskSpec,
        seed: int,
        first_epoch: int,
        order: NDArray[np.int64],
        stand_ins: Mapping[tuple[int, int], int],
        *,
        by_video: bool = False,
    ) -> tuple[Videos, NDArray[np.int64], list[SubstitutionRow]]:
        """Turn drawn ids into rows of the videos at hand, with another video where one is bad or gone.

        Args:
            task: whose draws.
            seed: of its random numbers.
            first_epoch: epoch of ``order[0]``.
            order: (epochs, videos) ids.
            stand_ins: (epoch, position) → ``video_id`` of what replaced the video of that place before. It stays
                there as long as it is usable, also when the drawn video is back: batches that were read stay the same.
            by_video: positions may still change, so what stands in for a video depends on the video instead.

        Returns:
            The usable videos, (epochs, videos) rows of them, and a record of each policy that was used, but for
            stand-ins that are on record.

        Raises:
            BadVideo: a drawn video is bad or gone and the policy is ``raise``.
        """
        usable = np.flatnonzero(self._chosen & self._usable(task.sampling.span))
        videos = self._arrays(usable)
        largest = int(order.max(initial=0))
        row_of = np.full(max(largest, int(videos.ids.max(initial=0))) + 1, -1, np.int64)
        row_of[videos.ids] = np.arange(len(videos))
        rows = row_of[order]
        records = self._left_out(task, first_epoch, order)
        for (epoch, position), video_id in stand_ins.items():
            rows[epoch - first_epoch, position] = videos.row_of.get(video_id, -1)
        may = self.may_stand_in(videos.ids, task.sampling.span)
        for at, position in np.argwhere(rows < 0).tolist():
            place, video_id = (first_epoch + at, position), int(order[at, position])
            record = self._filled(task, seed, place, video_id, stand_ins.get(place, video_id), may, by_video=by_video)
            assert record.replacement_id is not None  # who cannot be replaced is an error
            rows[at, position] = videos.row_of[record.replacement_id]
            records.append(record)
        return videos, rows, records

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
            Ids of the videos that give the clips, whose headers are read by now, and the records.

        Raises:
            BadVideo: as `resolve_draws`.
        """
        wanted = [stand_ins.get((epoch, position), video_id) for position, video_id in enumerate(drawn, first)]
        self.files.headers.look(row for each in wanted if (row := self.files.row_of.get(each)) is not None)
        found, records = [], []
        for position, (video_id, usual) in enumerate(zip(drawn, wanted, strict=True), first):
            each = usual
            if not self.gives(each, task.sampling.span):
                may = self.may_stand_in(self.files.ids, task.sampling.span)
                record = self._filled(task, seed, (epoch, position), video_id, each, may, by_video=by_video)
                assert record.replacement_id is not None  # who cannot be replaced is an error
                records.append(record)
                each = record.replacement_id
            found.append(each)
        return found, records

    # Stand-ins -----------------------------------------------------------------------------------------------------

    def gives(self, video_id: int, span: int) -> bool:
        """Whether clips of a span can be taken of a video, as far as is known; its header is read if nobody has."""
        row = self.files.row_of.get(video_id)
        if row is None or not self._chosen[row]:
            return False
        self.files.headers.look([row])
        return self.is_usable(video_id, span)

    @property
    def base(self) -> NDArray[np.int64]:
        """Ids of the videos that the predicate selects, good and bad, in the order of names: stand-ins are of these."""
        return np.asarray(self.files.ids[self._chosen])

    def may_stand_in(self, ids: NDArray[np.int64], span: int) -> NDArray[np.bool_]:
        """(base,) whether each is one of some videos, and nothing is known against a clip of that span."""
        return np.asarray(self._usable(span)[self._chosen] & np.isin(self.base, ids))

    def stand_in(
        self,
        task: TaskSpec,
        seed: int,
        epoch: int,
        place: int,
        may: NDArray[np.bool_],
        tried: Container[int] = (),
    ) -> int | None:
        """The video that stands in at a place, see `stand_in_for`; its header is read if nobody has.

        ``may`` is from `may_stand_in`, and is corrected by what headers say.
        """
        while True:
            found = stand_in_for(seed, task.name, epoch, place, self.base, may, tried)
            if found is None or self.gives(found, task.sampling.span):
                return found
            may[self.base == found] = False

    def _filled(
        self,
        task: TaskSpec,
        seed: int,
        place: tuple[int, int],
        video_id: int,
        missing: int,
        may: NDArray[np.bool_],
        *,
        by_video: bool,
    ) -> SubstitutionRow:
        """What fills a place, by the policy: of the drawn video, or of one that stood in for it and is ``missing``.

        The drawn one may be back when its stand-in is gone.

        Raises:
            BadVideo: the policy is ``raise``, or there is no other video.
        """
        (epoch, position), why = place, self._why_not(missing, task.sampling.span)
        replacement = video_id if missing != video_id and may[self.base == video_id].any() else None
        if replacement is None and self.spec.on_bad_video != OnBadVideo.RAISE:
            address = substitute_place(position, video_id, by_video=by_video)
            replacement = self.stand_in(task, seed, epoch, address, may, (missing,))
        if replacement is None or self.spec.on_bad_video == OnBadVideo.RAISE:
            raise BadVideo(
                f"{why}; task {task.name!r} has drawn it: restore the file; or, to go on without it, set "
                "on_bad_video: replace and give the task another tag, or forget its draws with `viewcache forget`"
            )
        return SubstitutionRow(0, epoch, position, -1, video_id, "replace", why, replacement)

    def _left_out(self, task: TaskSpec, first_epoch: int, order: NDArray[np.int64]) -> list[SubstitutionRow]:
        """One row for each video that a ``skip`` policy keeps out of the generation.

        One that is whole and was merely added later is not skipped.
        """
        span, files, good = task.sampling.span, self.files, self._fit.good()
        skipped = self._chosen & ~self._usable(span) & (good | (self.spec.on_bad_video == OnBadVideo.SKIP))
        skipped &= ~np.isin(files.ids, order)
        ids = files.ids[skipped].tolist()
        return [SubstitutionRow(0, first_epoch, -1, -1, each, "skip", self._why_not(each, span)) for each in ids]

    def _why_not(self, video_id: int, span: int) -> str:
        files = self.files
        row = files.row_of.get(video_id)
        if row is None:
            return f"{shown(files.gone.get(video_id, f'video {video_id}'))} is not in {shown(self.spec.uri)} any more"
        if error := self._fit.error(row):
            return error
        if why := self._left_out_for.get(row):
            return why
        if not files.there[row]:
            return f"{shown(files.uris[row])} is gone, or is another file than when it joined"
        if not self._chosen[row]:
            return f"{files.uris[row]} is not selected by where: {self.spec.where!r} any more"
        length = self._fit.sampling.in_words(int(self._fit.lengths()[row]))
        return f"{files.uris[row]} has {length} where a clip spans {self._fit.sampling.in_words(span)}"

    def videos(self, video_ids: Sequence[int]) -> Videos:
        """What is known now of some videos, in this order."""
        return self._arrays(np.array([self.files.row_of[each] for each in video_ids], np.int64))

    def _arrays(self, rows: NDArray[np.int64]) -> Videos:
        files = self.files
        at = rows.tolist()
        if self._fit.sampling.by_time:
            files.time(rows)
        return Videos(
            ids=files.ids[rows],
            names=tuple(files.names[row] for row in at),
            uris=tuple(files.uris[row] for row in at),
            keys=tuple(files.keys[row] for row in at),
            words=files.words[rows],
            frames=files.frames[rows],
            height=files.height[rows],
            width=files.width[rows],
            keyframes=files.keyframes[rows],
            native_bytes=files.native_bytes[rows],
            pace=files.pace[rows],
            last=files.last[rows],
        )

    def one(self, name: str) -> VideoFile:
        """The file of a name; its header is read if nobody has.

        Raises:
            ViewNotFound: no video has that name.
        """
        row = self.files.row_of_name.get(name)
        if row is None:
            first = ", ".join(map(repr, self.files.names[:3]))
            raise ViewNotFound(f"no video {name!r} in {self.spec.uri}; it has {len(self)}: {first}, …")
        self.files.headers.look([row])
        return self._file(row)

    def by_name(self, video_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same ids in the order of names; those of files that are gone last."""
        there = self.files.ids[np.isin(self.files.ids, video_ids)]
        return np.concatenate([there, np.setdiff1d(video_ids, there)])

    def names(self) -> list[str]:
        """Names of all files, sorted."""
        return list(self.files.names)

    def looked_at(self, video_id: int) -> tuple[bytes, Claims | None]:
        """The packet index of a video, serialized; or else what is claimed of it."""
        row = self.files.row_of[video_id]
        blob = self.files.index_blob(row)
        return blob, None if blob else self.files.claims(row, self.spec.max_pixels)

    def index(self, video_id: int) -> MediaIndex:
        """What planning knows of a video.

        Raises:
            BadVideo: nothing is known of its frames.
        """
        return self.files.index(self.files.row_of[video_id])

    @property
    def classes(self) -> tuple[str, ...]:
        """The distinct text labels, see `class_names`; a label's number is its place here."""
        return self._classes

    @property
    def is_numbered(self) -> bool:
        """Whether its labels are whole numbers, which stand for themselves."""
        return not self._classes and any(label is not None for label in self._labels)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """(files,) class numbers; -1 where there is no label."""
        return class_numbers(self._labels, self._classes)

    def labels(self, video_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The class number of each video; -1 where it has no label."""
        row_of = self.files.row_of
        return self._numbers[[row_of[each] for each in video_ids.tolist()]]
