"""Files that have other content than when their videos were drawn: told apart, refused, told of, or made versions."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.records import EventRow, VideoRow, VideoStatus
from viewcache.errors import BadInput, CatalogDamaged
from viewcache.failpoints import failpoint
from viewcache.materializer.choices import OnChangedVideo
from viewcache.materializer.dataset.known import KnownFiles
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.recording import is_recorded, key_found
from viewcache.materializer.dataset.versions import version_name
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.picture_head import is_picture
from viewcache.materializer.media.source import retired_uri, shown

__all__ = ["ReplacedFiles"]

_log = logging.getLogger("viewcache.dataset")


class ReplacedFiles:
    """The replaced files of one listing."""

    def __init__(self, catalog: Catalog, dataset_id: int, policies: Mapping[str, OnChangedVideo]) -> None:
        """Nothing was replaced yet; ``policies`` as for `list_files`."""
        self.warnings: list[str] = []
        """What is to be told of them."""
        self.versions: set[str] = set()
        """Names that were given to new versions of files."""
        self._catalog = catalog
        self._dataset_id = dataset_id
        self._policies = policies
        self._keeps_versions = OnChangedVideo.VERSION in policies.values()

    def among(self, looked: Sequence[tuple[Found, Scanned]], known: KnownFiles) -> list[tuple[Found, Scanned]]:
        """Those of some files that were looked into that have other content than before."""
        return [each for each in looked if self._is_changed(*each, known)]

    def tell(self, changed: Sequence[tuple[Found, Scanned]], known: KnownFiles) -> list[tuple[Found, Scanned]]:
        """Say which of the replaced files were drawn, and by whom: a warning and a row for each task.

        Returns:
            Those that are to be new videos from now on, see `add_versions`.

        Raises:
            BadInput: a task has drawn one that must not be shown anything else; nothing is recorded then.
        """
        uris = {known.of(file.uri, "video_id"): file.uri for file, _ in changed}
        drawn = self._catalog.drawn_among(list(uris)).to_pylist() if uris else []
        warnings = []
        for row in drawn:
            uri = uris[row["video_id"]]
            other = "another size or time" if is_picture(uri) else "other content"
            what = f"{shown(uri)} has {other} than when task {row['task']!r} drew it"
            if self._policies.get(row["task"]) == OnChangedVideo.RAISE:
                raise BadInput(
                    f"{what}, and so have its views: restore the file; or, to go on with the new content, set "
                    "on_changed_video: version, which keeps what was drawn as far as it is stored, or warn; or give "
                    "the task another tag, or forget its draws with `viewcache forget`"
                )
            then = "it is a new video from now on" if self._keeps_versions else "and so have its views"
            warnings.append(f"{what}, {then}")
        for row, what in zip(drawn, warnings, strict=True):
            _log.warning("%s", what, extra={"action": "video_changed"})
            self._catalog.add_events([EventRow("error", row["task_id"], detail=f"changed_video: {what}")])
        self.warnings += warnings
        ids = {row["video_id"] for row in drawn} if self._keeps_versions else set()
        return [each for each in changed if known.of(each[0].uri, "video_id") in ids]

    def add_versions(
        self, changed: Sequence[tuple[Found, Scanned]], known: KnownFiles, names: Callable[[], Iterable[str]]
    ) -> dict[str, int]:
        """Let files with other content be new videos; the old ones are gone, under their names.

        Args:
            changed: the files.
            known: what is known of them.
            names: gives all names that the dataset's files were given.

        Returns:
            URI → id.
        """
        if not changed:
            return {}
        rows = known.rows_of(file.uri for file, _ in changed).to_pylist()
        taken = {*names(), *self.versions}
        retired, fresh = [], []
        for row, (file, found) in zip(rows, changed, strict=True):
            name = version_name(file.path, taken)
            taken.add(name)
            self.versions.add(name)
            gone = {"uri": retired_uri(row["uri"], row["key"]), "status": VideoStatus.GONE.value, "error_kind": None}
            retired.append(row | gone | {"error": f"the file has other content now: it is the video {name!r}"})
            fresh.append(VideoRow(file.uri, name, key_found(file, found), status=VideoStatus.LISTED))
        table = pa.Table.from_pylist(retired, schema=schemas.VIDEO)
        ids = self._catalog.replace_videos(self._dataset_id, table, fresh)
        failpoint("dataset.versions")
        return {file.uri: video_id for (file, _), video_id in zip(changed, ids, strict=True)}

    def _is_changed(self, file: Found, new: Scanned, known: KnownFiles) -> bool:
        """Whether a file that was whole, and may have been seen, has other content.

        One that cannot be decoded now counts only where the old content shall stay.
        """
        status, key, index_at = (known.of(file.uri, name) for name in ("status", "key", "index_at"))
        left = status in (VideoStatus.BAD, VideoStatus.GONE)
        if (left and not known.was_whole(file)) or is_recorded(file, new):
            return False
        if status == VideoStatus.LISTED and known.of(file.uri, "size_bytes") is not None:
            return False  # nobody has looked into it; of what a lost catalog got from its journal there is no size
        if new.error:
            return self._keeps_versions and new.lasting and index_at is not None
        frames, video_id = (known.of(file.uri, name) for name in ("frames", "video_id"))
        if index_at is None and frames is not None and not is_picture(file.uri) and not self._has_copies(video_id):
            return False  # only its header was read, so nobody has seen a clip of it; of an image nothing else ever is
        blob = None if index_at is None else self._catalog.read_index(index_at, key)
        try:
            before = None if blob is None else VideoIndex.from_bytes(blob)
        except CatalogDamaged:  # of another release
            before = None
        # Without the packets of both, size and time have to do, and these are others.
        return before is None or not new.index or not before.same_content(VideoIndex.from_bytes(new.index))

    def _has_copies(self, video_id: int) -> bool:
        """Whether objects of a video lie anywhere: in a bucket they may have been made by another cache."""
        return bool(self._catalog.copies_of_videos([video_id]).num_rows)
