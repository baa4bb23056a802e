"""A task's dataset while the cache is open: its videos as scanned, what may be drawn, what stands in for bad ones."""

from collections.abc import Callable, Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache.catalog import Catalog
from viewcache.catalog.records import SubstitutionRow, VideoStatus
from viewcache.errors import BadInput, BadVideo, ViewNotFound
from viewcache.materializer.dataset.predicate import matching
from viewcache.materializer.dataset.recorded import known_files, record_columns, record_files
from viewcache.materializer.dataset.scan import Scanned, scan
from viewcache.materializer.dataset.stand_ins import draw_substitute, substitute_place
from viewcache.materializer.dataset.videos import Videos
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.source import shown
from viewcache.materializer.randomness import address_word
from viewcache.materializer.spec import DatasetSpec, OnBadVideo, OnShortVideo, TaskSpec

__all__ = ["Dataset", "Progress"]

Progress = Callable[[int, int, str], None]
"""Called with files done, files in all, and the name of the last one."""


@dataclass(frozen=True, slots=True)
class _Video:
    """One file as it is now; its packet index is kept serialized, a fifth of its size."""

    video_id: int
    found: Scanned
    """Without its index."""
    blob: bytes
    """The index, serialized; empty if there is none."""
    frames: int
    size: tuple[int, int]
    """(height, width) as shown; zeros if unknown."""
    fps: float | None
    duration_s: float | None
    codec: str | None

    @classmethod
    def of(cls, video_id: int, found: Scanned) -> "_Video":
        index = found.index
        if index is None:
            return cls(video_id, found, b"", 0, (0, 0), None, None, None)
        bare = replace(found, index=None)
        facts = (index.frames, index.shown_size, index.fps, index.duration_s, index.codec)
        return cls(video_id, bare, index.to_bytes(), *facts)


class Dataset:
    """The videos of one task, sorted by name. Immutable once scanned; thread-safe."""

    def __init__(
        self,
        spec: DatasetSpec,
        dataset_id: int,
        videos: list[_Video],
        gone: Mapping[int, str] | None = None,
        changed: Sequence[str] = (),
    ) -> None:
        """For `Dataset.open`; ``gone`` has the uris of files that were there once."""
        self._gone = gone or {}
        self.changed = tuple(changed)
        """What is to be told of files that have other content than when they were drawn."""
        self.spec = spec
        self.dataset_id = dataset_id
        self._videos = sorted(videos, key=lambda video: video.found.name)
        self._by_id = {video.video_id: video for video in videos}
        self._by_name = {video.found.name: video for video in videos}
        self._chosen = self._where()
        self._classes = _classes([video.found.label for video in videos])
        self.index = lru_cache(maxsize=256)(self._parsed)

    @classmethod
    def open(
        cls,
        spec: DatasetSpec,
        catalog: Catalog,
        *,
        workers: int = 0,
        progress: Progress | None = None,
        guarded: Container[str] = (),
    ) -> "Dataset":
        """Scan the files, record what changed, and remember the rest.

        Args:
            spec: where it is.
            catalog: what is known of it.
            workers: processes that scan; 0 = one per core.
            progress: called while files are scanned.
            guarded: tasks that must not be shown other content under the name of a video that they have drawn.

        Raises:
            DatasetNotFound: no folder, no videos, no label table.
            BadInput: labels or ``where`` do not fit, or a file has other content than when a guarded task drew it.
        """
        dataset_id = catalog.register_dataset(spec.uri)
        rows = catalog.load_videos(dataset_id)
        given = dict(zip(rows["uri"].to_pylist(), rows["name"].to_pylist(), strict=True))
        found = scan(spec, known_files(rows), given=given, workers=workers, progress=progress)
        # By name, so that ids do not depend on which file was ready first.
        scanned = sorted(found, key=lambda each: each.name)
        ids, replaced = record_files(
            catalog, dataset_id, rows, scanned, labelled=spec.labels is not None, guarded=guarded
        )
        record_columns(catalog, dataset_id, {ids[each.uri]: each.columns for each in scanned})
        gone = {ids[uri]: uri for uri in ids.keys() - {each.uri for each in scanned}}
        return cls(spec, dataset_id, [_Video.of(ids[each.uri], each) for each in scanned], gone, replaced)

    def __len__(self) -> int:
        """Number of files, good and bad."""
        return len(self._videos)

    @property
    def bad(self) -> list[Scanned]:
        """Files that cannot be decoded, by name."""
        return [video.found for video in self._videos if video.found.status != VideoStatus.OK]

    def _where(self) -> set[int]:
        """Ids of the videos that the predicate selects."""
        if self.spec.where is None:
            return set(self._by_id)
        holds = matching(self._table(), self.spec.where)
        return {video.video_id for video, chosen in zip(self._videos, holds.tolist(), strict=True) if chosen}

    def _table(self) -> pa.Table:
        """What a predicate can name: the videos' own columns and those of the label table.

        A video's name is ``video``, as in the catalog's relations, and ``name``.
        """
        found = [video.found for video in self._videos]
        names: list[object] = [each.name for each in found]
        columns: dict[str, list[object]] = {
            "video": names,
            "name": names,
            "path": [each.path for each in found],
            "label": [each.label for each in found],
            "frames": [video.frames for video in self._videos],
            "fps": [video.fps for video in self._videos],
            "duration_s": [video.duration_s for video in self._videos],
            "height": [video.size[0] for video in self._videos],
            "width": [video.size[1] for video in self._videos],
            "codec": [video.codec for video in self._videos],
            "status": [each.status for each in found],
        }
        for name in sorted({name for each in found for name in each.columns}):
            columns.setdefault(name, [each.columns.get(name) for each in found])
        return pa.table({name: _column(values) for name, values in columns.items()})

    def candidates(self, task: TaskSpec) -> NDArray[np.int64]:
        """Ids of the videos that an epoch draws from, by name; short and bad ones as the policies say.

        Raises:
            BadVideo: a video is bad and the policy is ``raise``.
            BadInput: nothing is left to draw from.
        """
        span = task.sampling.span
        selected = [video for video in self._videos if video.video_id in self._chosen]
        if not selected:
            raise BadInput(f"task {task.name!r}: where: {self.spec.where!r} selects none of {len(self)} videos")
        bad = [video for video in selected if video.found.status != VideoStatus.OK]
        if bad and self.spec.on_bad_video == OnBadVideo.RAISE:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise BadVideo(f"{bad[0].found.error}{more}; repair or remove it, or set on_bad_video: skip or replace")
        if self.spec.on_bad_video == OnBadVideo.SKIP:
            selected = [video for video in selected if video.found.status == VideoStatus.OK]
        if self.spec.on_short_video == OnShortVideo.SKIP:
            selected = [video for video in selected if video.frames >= span or video.found.status != VideoStatus.OK]
        if not any(self._usable(video, span) for video in selected):
            raise BadInput(
                f"task {task.name!r}: no video is left of {len(self)}: {len(bad)} are bad, and the longest has "
                f"{max(video.frames for video in self._videos)} frames where a clip spans {span}"
            )
        return np.array([video.video_id for video in selected], np.int64)

    @property
    def selected(self) -> Set[int]:
        """Ids of the videos that the predicate selects, good and bad."""
        return self._chosen

    def _usable(self, video: _Video, span: int) -> bool:
        return video.found.status == VideoStatus.OK and (
            self.spec.on_short_video != OnShortVideo.SKIP or video.frames >= span
        )

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
        span = task.sampling.span
        usable = [v for v in self._videos if v.video_id in self._chosen and self._usable(v, span)]
        videos = self._arrays(usable)
        largest = int(order.max(initial=0))
        row_of = np.full(max(largest, int(videos.ids.max(initial=0))) + 1, -1, np.int64)
        row_of[videos.ids] = np.arange(len(videos))
        rows = row_of[order]
        records = self._left_out(task, first_epoch, set(np.unique(order).tolist()))
        for (epoch, position), video_id in stand_ins.items():
            rows[epoch - first_epoch, position] = videos.row_of.get(video_id, -1)
        for at, position in np.argwhere(rows < 0).tolist():
            epoch, video_id = first_epoch + at, int(order[at, position])
            missing = stand_ins.get((epoch, position), video_id)
            why = self._why_not(missing, span)
            if self.spec.on_bad_video == OnBadVideo.RAISE or not usable:
                raise BadVideo(
                    f"{why}; task {task.name!r} has drawn it: restore the file; or, to go on without it, set "
                    "on_bad_video: replace and give the task another tag, or forget its draws with `viewcache forget`"
                )
            place = substitute_place(position, video_id, by_video=by_video)
            drawn = draw_substitute(seed, task.name, epoch, place, -1, 0, len(videos))
            rows[at, position] = videos.row_of.get(video_id, drawn)  # the drawn one may be back, its stand-in gone
            replacement = int(videos.ids[rows[at, position]])
            records.append(SubstitutionRow(0, epoch, position, -1, video_id, "replace", why, replacement))
        return videos, rows, records

    def _left_out(self, task: TaskSpec, first_epoch: int, drawn: set[int]) -> list[SubstitutionRow]:
        """One row for each video that a ``skip`` policy keeps out of the generation."""
        span = task.sampling.span
        return [
            SubstitutionRow(0, first_epoch, -1, -1, video.video_id, "skip", self._why_not(video.video_id, span))
            for video in self._videos
            if video.video_id in self._chosen and video.video_id not in drawn and self._is_skipped(video, span)
        ]

    def _is_skipped(self, video: _Video, span: int) -> bool:
        """Whether a policy keeps the video out; one that is whole and was merely added later is not skipped."""
        return not self._usable(video, span) and (
            video.found.status == VideoStatus.OK or self.spec.on_bad_video == OnBadVideo.SKIP
        )

    def _why_not(self, video_id: int, span: int) -> str:
        video = self._by_id.get(video_id)
        if video is None:
            return f"{shown(self._gone.get(video_id, f'video {video_id}'))} is not in {shown(self.spec.uri)} any more"
        if video.found.status != VideoStatus.OK:
            return video.found.error
        if video_id not in self._chosen:
            return f"{video.found.uri} is not selected by where: {self.spec.where!r} any more"
        return f"{video.found.uri} has {video.frames} frames where a clip spans {span}"

    def _arrays(self, videos: list[_Video]) -> Videos:
        found = [video.found for video in videos]
        return Videos(
            ids=np.array([video.video_id for video in videos], np.int64),
            names=tuple(each.name for each in found),
            uris=tuple(each.uri for each in found),
            keys=tuple(each.key for each in found),
            words=np.array([address_word(each.name) for each in found], np.uint64),
            frames=np.array([video.frames for video in videos], np.int64),
            height=np.array([video.size[0] for video in videos], np.int64),
            width=np.array([video.size[1] for video in videos], np.int64),
        )

    def one(self, name: str) -> tuple[int, Scanned]:
        """The id and the file of a name.

        Raises:
            ViewNotFound: no video has that name.
        """
        video = self._by_name.get(name)
        if video is None:
            first = ", ".join(repr(each.found.name) for each in self._videos[:3])
            raise ViewNotFound(f"no video {name!r} in {self.spec.uri}; it has {len(self)}: {first}, …")
        return video.video_id, replace(video.found, index=self.index(video.video_id) if video.blob else None)

    def by_name(self, video_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same ids in the order of names; those of files that are gone last."""
        asked = set(video_ids.tolist())
        there = [video.video_id for video in self._videos if video.video_id in asked]
        return np.array([*there, *sorted(asked.difference(there))], np.int64)

    def names(self) -> list[str]:
        """Names of all files, sorted."""
        return [video.found.name for video in self._videos]

    def index_blob(self, video_id: int) -> bytes:
        """The packet index of a video, serialized."""
        return self._by_id[video_id].blob

    def _parsed(self, video_id: int) -> VideoIndex:
        video = self._by_id[video_id]
        if not video.blob:
            raise BadVideo(video.found.error)
        return VideoIndex.from_bytes(video.blob)

    @property
    def classes(self) -> tuple[str, ...]:
        """The distinct text labels, sorted; a label's number is its place here. Empty if labels are numbers or none."""
        return self._classes

    def labels(self, video_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The class number of each video; -1 where it has no label."""
        return np.array([self._number(self._by_id[int(each)].found.label) for each in video_ids], np.int64)

    def _number(self, label: object) -> int:
        if label is None:
            return -1
        if self._classes:
            return self._classes.index(str(label))
        assert isinstance(label, int)  # _classes is empty for whole numbers only
        return label


def _classes(labels: list[object]) -> tuple[str, ...]:
    given = [label for label in labels if label is not None]
    if all(isinstance(label, int) and not isinstance(label, bool) for label in given):
        return ()
    return tuple(sorted({str(label) for label in given}))


def _column(values: list[object]) -> pa.Array:
    """An Arrow column; one of mixed kinds becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])
