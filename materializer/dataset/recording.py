"""What was found of files, as rows of the catalog, and the content keys that they go by."""

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from viewcache.catalog import schemas
from viewcache.catalog.records import VideoStatus
from viewcache.errors import BadVideo
from viewcache.materializer.dataset.discover import Found
from viewcache.materializer.media.facts import Scanned, VideoFacts
from viewcache.materializer.media.source import Stamp

__all__ = ["facts_table", "key_found", "video_key"]

_AS_THEY_ARE = tuple(name for name in VideoFacts._fields if name in schemas.FACTS.names)
"""What a file's facts and its row call the same."""
_TIMES = {
    "time_first": "first",
    "time_step": "step",
    "time_numerator": "numerator",
    "time_denominator": "denominator",
}
"""Column → field of `FrameTimes`."""


def video_key(uri: str, stamp: Stamp) -> str:
    """The content key of one version of a file: 32 hex digits of BLAKE2b over its URI and etag, or size and time."""
    version = f"etag:{stamp.etag}" if stamp.etag else f"size:{stamp.size} mtime:{stamp.mtime_ns}"
    text = f"video\0{uri}\0{version}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def key_found(file: Found, found: Scanned) -> str:
    """The content key of what was found: a file may be replaced between the listing and the look into it."""
    return video_key(file.uri, file.stamp if found.facts is None else found.facts.stamp)


def facts_table(
    video_ids: Sequence[int], looked: Sequence[tuple[Found, Scanned]], index_at: Sequence[int | None]
) -> pa.Table:
    """What was found of files, as ``schemas.FACTS``.

    Args:
        video_ids: of each.
        looked: the file as it was listed, and what was found.
        index_at: where its packet index lies, if it has one.
    """
    facts = [found.facts for _, found in looked]
    times = [None if each is None else each.times for each in facts]
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
    columns |= {name: [None if each is None else getattr(each, name) for each in facts] for name in _AS_THEY_ARE}
    columns |= {name: [None if each is None else getattr(each, of) for each in times] for name, of in _TIMES.items()}
    return pa.table(columns, schema=schemas.FACTS)


def _stamp(file: Found, found: Scanned) -> Stamp:
    """The version of the bytes that were read; none where the next look may find something else."""
    if not found.lasting:
        return Stamp(-1)
    return file.stamp if found.facts is None else found.facts.stamp
