"""A dataset's videos as rows of the catalog: what is known of them from before, what changed, and what is recorded.

A file that is gone keeps its row, so that its name is not given again and its content is recognized.
"""

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.records import EventRow, VideoColumnRow, VideoRow, VideoStatus
from viewcache.errors import BadInput, CatalogDamaged
from viewcache.materializer.dataset.labels import Value
from viewcache.materializer.dataset.scan import Known, Scanned
from viewcache.materializer.media.index import VideoIndex
from viewcache.materializer.media.source import Stamp, shown

__all__ = ["known_files", "record_columns", "record_files"]

_log = logging.getLogger("viewcache.dataset")


def known_files(rows: pa.Table) -> dict[str, Known]:
    """Uri → what an earlier scan found, of the files that were there."""
    out = {}
    for row in rows.to_pylist():
        if row["status"] != VideoStatus.GONE:
            stamp = Stamp(row["size_bytes"] or 0, row["mtime_ns"] or 0, row["etag"] or "")
            out[row["uri"]] = Known(stamp, row["index_blob"] or b"", row["error"] or "")
    return out


def record_files(
    catalog: Catalog,
    dataset_id: int,
    rows: pa.Table,
    scanned: Sequence[Scanned],
    *,
    labelled: bool,
    guarded: Container[str] = (),
) -> tuple[dict[str, int], list[str]]:
    """Record what changed since an earlier scan.

    Args:
        catalog: where.
        dataset_id: of the dataset.
        rows: what the catalog knew of it.
        scanned: its files now, by name.
        labelled: whether the task has labels; without, those of another task on the same files are left alone.
        guarded: tasks that must not be shown other content under the name of a video that they have drawn.

    Returns:
        Uri → id of all files, those that are gone too; and what is to be told of files that were replaced.

    Raises:
        BadInput: a file was replaced that a guarded task has drawn; nothing is recorded then.
    """
    old = {row["uri"]: row for row in rows.to_pylist()}
    labels = {each.uri: _label(each) if labelled else old.get(each.uri, {}).get("label") for each in scanned}
    changed = [each for each in scanned if not each.reused or old[each.uri]["label"] != labels[each.uri]]
    warnings = _warn_of_changed(catalog, old, changed, guarded)
    gone = [row for row in old.values() if row["uri"] not in labels and row["status"] != VideoStatus.GONE]
    catalog.upsert_videos(dataset_id, [*(_row(each, labels[each.uri]) for each in changed), *map(_gone_row, gone)])
    ids = catalog.load_videos(dataset_id)
    return dict(zip(ids["uri"].to_pylist(), ids["video_id"].to_pylist(), strict=True)), warnings


def _label(each: Scanned) -> str | None:
    return None if each.label is None else str(each.label)


def _row(each: Scanned, label: str | None) -> VideoRow:
    index = each.index
    row = VideoRow(
        uri=each.uri,
        name=each.name,
        key=each.key,
        size_bytes=each.stamp.size,
        mtime_ns=each.stamp.mtime_ns,
        etag=each.stamp.etag,
        status=each.status,
        error_kind=each.error_kind or None,
        error=each.error or None,
        label=label,
    )
    if index is None:
        return row
    return replace(
        row,
        frames=index.frames,
        fps=index.fps,
        duration_s=index.duration_s,
        width=index.width,
        height=index.height,
        rotation=index.rotation,
        codec=index.codec,
        pix_fmt=index.pix_fmt,
        color_space=index.color_space_name,
        color_range=index.color_range_name,
        keyframes=index.keyframes,
        gop_max=index.gop_max,
        index_blob=index.to_bytes(),
    )


def _gone_row(row: dict[str, Any]) -> VideoRow:
    """What was known of a file stays known, so that it is recognized should it come back."""
    known = VideoRow(**{each.name: row[each.name] for each in fields(VideoRow) if each.name in row})
    return replace(known, status=VideoStatus.GONE, error_kind=None, error="the file is gone")


def _warn_of_changed(
    catalog: Catalog, old: Mapping[str, Mapping[str, Any]], scanned: Iterable[Scanned], guarded: Container[str]
) -> list[str]:
    """Say which files have other content now than when they were drawn; a warning and a row for each task.

    Raises:
        BadInput: a guarded task has drawn one; nothing is recorded then.
    """
    changed = {old[each.uri]["video_id"]: each.uri for each in scanned if _is_changed(old.get(each.uri), each)}
    drawn = catalog.drawn_among(list(changed)).to_pylist() if changed else []
    warnings = []
    for row in drawn:
        uri = shown(changed[row["video_id"]])
        what = f"{uri} has other content than when task {row['task']!r} drew it, and so have its views"
        if row["task"] in guarded:
            raise BadInput(
                f"{what}: restore the file; or, to go on with the new content, set on_changed_video: warn, give the "
                "task another tag, or forget its draws with `viewcache forget`"
            )
        warnings.append(what)
    for row, what in zip(drawn, warnings, strict=True):
        _log.warning("%s", what, extra={"action": "video_changed"})
        catalog.add_events([EventRow("error", row["task_id"], detail=f"changed_video: {what}")])
    return warnings


def _is_changed(old: Mapping[str, Any] | None, new: Scanned) -> bool:
    """Whether a file that was whole is whole again, with other content."""
    if (
        old is None
        or old["key"] == new.key
        or old["status"] == VideoStatus.BAD
        or new.index is None
        or new.status == VideoStatus.BAD
    ):
        return False
    try:
        return not VideoIndex.from_bytes(old["index_blob"] or b"").same_content(new.index)
    except CatalogDamaged:  # of another release, or lost with its catalog: size and time have to do
        return True


def record_columns(catalog: Catalog, dataset_id: int, columns: Mapping[int, Mapping[str, Value]]) -> None:
    """Record the label table's further columns, by ``video_id``, where they are not what is recorded."""
    names = ("video_id", "name", "text_value", "number_value")
    known: dict[int, set[tuple[object, ...]]] = {}
    for row in catalog.load_video_columns(dataset_id).to_pylist():
        known.setdefault(row["video_id"], set()).add(tuple(row[name] for name in names))
    changed = []
    for video_id, values in columns.items():
        rows = _column_rows(video_id, values)
        if {tuple(getattr(row, name) for name in names) for row in rows} != known.get(video_id, set()):
            changed += rows
    catalog.set_video_columns(changed)


def _column_rows(video_id: int, values: Mapping[str, Value]) -> list[VideoColumnRow]:
    rows = []
    for name, value in values.items():
        if value is not None:
            number = float(value) if isinstance(value, int | float) else None
            rows.append(VideoColumnRow(video_id, name, str(value), number))
    return rows
