"""What the store has and the catalog does not tell of: objects describe themselves, and are given rows by that.

Whatever an object says is looked at before it is believed, since another program may have written it.
"""

import logging
import math
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from viewcache.catalog import Catalog, schemas
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import CopyRow
from viewcache.errors import ChunkDamaged
from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.planning.packs import pack_key, pack_layout
from viewcache.store import FoundObject, Tier
from viewcache.store.format import ELEMENT_BYTES

__all__ = ["adopt", "copy_row", "pack_parts", "scan_each", "scan_orphans"]

_log = logging.getLogger("viewcache.recover")

_KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)
"""What the kind of an object and the key of its video look like."""


def scan_each(tier: Tier, physicals: Sequence[str]) -> list[FoundObject | ChunkDamaged]:
    """What each of several objects says of itself, or what is wrong with it."""

    def look(physical: str) -> FoundObject | ChunkDamaged:
        try:
            return tier.scan(physical)
        except ChunkDamaged as damage:
            return damage.with_traceback(None)  # it would hold what was read

    return tier.each(look, physicals)


def scan_orphans(tier: Tier, physicals: Sequence[str]) -> tuple[list[FoundObject], list[str]]:
    """Objects that no row tells of: those that are whole and describe themselves, and the places of the others."""
    found: list[FoundObject] = []
    broken: list[str] = []
    for physical, each in zip(physicals, scan_each(tier, physicals), strict=True):
        try:
            if isinstance(each, ChunkDamaged):
                raise each
            _described(0, each)
        except ChunkDamaged as damage:
            _log.warning("an object that was not whole is deleted: %s", damage, extra={"action": "delete"})
            broken.append(physical)
        else:
            found.append(each)
    return found, broken


def adopt(catalog: Catalog, found: list[FoundObject]) -> tuple[dict[str, int], int]:
    """Give objects that no row tells of their ids, by key; and say how many the catalog did not know until now."""
    with catalog.naming:
        known = catalog.objects_by_key([each.key for each in found])
        ids = dict(zip(known["key"].to_pylist(), known["object_id"].to_pylist(), strict=True))
        fresh = [each for each in found if each.key not in ids]
        if fresh:
            first = catalog.next_object_id(len(fresh))
            ids |= {each.key: first + k for k, each in enumerate(fresh)}
            rows = [_described(ids[each.key], each) for each in fresh]
            catalog.adopt_objects(pa.Table.from_pylist(rows, schema=schemas.FOUND))
        if parts := [row for each in found for row in pack_parts(ids[each.key], each)]:
            # Of known ones too: who adopted them before may have been killed in the middle.
            catalog.record_packs(pa.Table.from_pylist(parts, schema=schemas.PACK_PART))
    return ids, len(fresh)


def _described(object_id: int, found: FoundObject) -> dict[str, object]:
    """What an object says of itself; its cost is a guess until a plan names it.

    Raises:
        ChunkDamaged: it says something that no object of ours says, so another program wrote it.
    """
    attributes, cost = found.meta.attributes, CostModel()
    frames, recipe = attributes.get("frames"), attributes.get("recipe", [])
    kind, video_key = attributes.get("kind", "clip"), attributes.get("video_key", "")
    if not all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in (kind, video_key)):
        raise ChunkDamaged(f"{found.physical}: kind or video_key in its attributes is not a plain word")
    if not (isinstance(recipe, list) and all(isinstance(step, dict) for step in recipe)):
        raise ChunkDamaged(f"{found.physical}: the recipe in its attributes is not a list of steps")
    if frames is not None and not (isinstance(frames, list) and all(map(_is_frame, frames))):
        raise ChunkDamaged(f"{found.physical}: the frames in its attributes are not a list of frame numbers")
    list(pack_parts(object_id, found))
    size = found.meta.raw_bytes
    return {
        "object_id": object_id,
        "key": found.key,
        "kind": kind,
        "video_key": video_key,
        "depth": len(recipe),
        "est_bytes": size,
        # Native planes at 4:2:0: one and a half bytes a pixel.
        "cost_s": size / 1.5 * cost.decode_s_per_pixel if kind == ObjectKind.FRAMES else size * cost.make_s_per_byte,
        "shape": "x".join(
            map(str, (*found.meta.shape[:-1], found.meta.shape[-1] // ELEMENT_BYTES[found.meta.element]))
        ),
        "frame_list": frames,
    }


def pack_parts(object_id: int, found: FoundObject) -> Iterator[dict[str, object]]:
    """Which pictures a pack says that it has; of other objects nothing.

    Raises:
        ChunkDamaged: it says something that no pack of ours says.
    """
    if found.meta.attributes.get("kind") != ObjectKind.PACK:
        return
    parts, chunk = found.meta.attributes.get("parts"), found.meta.chunk[0]
    if not (isinstance(parts, list) and all(isinstance(part, dict) for part in parts)) or len(found.meta.shape) != 1:
        raise ChunkDamaged(f"{found.physical}: a pack without a list of parts")
    rows: list[dict[str, object]] = []
    sizes: list[int] = []
    for place, part in enumerate(parts):
        key, image, first, shape = (part.get(name) for name in ("key", "video_key", "offset", "shape"))
        if not all(isinstance(text, str) and _KEY.fullmatch(text) for text in (key, image)):
            raise ChunkDamaged(f"{found.physical}: the keys of part {place} are not content keys")
        if not (isinstance(shape, list) and shape and all(map(_is_frame, shape)) and math.prod(shape)):
            raise ChunkDamaged(f"{found.physical}: part {place} does not say how large its picture is")
        sizes.append(math.prod(shape))
        rows.append({"object_id": object_id, "place": place, "key": key, "video_key": image, "first_byte": first})
    layout = pack_layout(sizes) if sizes else None
    if layout is None or (chunk, found.meta.shape[0]) != (layout.chunk_bytes, layout.bytes):
        raise ChunkDamaged(f"{found.physical}: its pictures do not lie in it as in packs")
    if found.key != pack_key([str(row["key"]) for row in rows]) or [row["first_byte"] for row in rows] != [
        *layout.firsts
    ]:
        raise ChunkDamaged(f"{found.physical}: it is not the pack of the pictures that it names")
    yield from rows


def _is_frame(value: object) -> bool:
    """Whether something is a number of a frame, or a side of a picture."""
    return type(value) is int and 0 <= value < 1 << 31


def copy_row(object_id: int, tier: str, found: FoundObject) -> CopyRow:
    """The catalog's row of a copy that was found."""
    return CopyRow(
        object_id=object_id,
        tier=tier,
        physical=found.physical,
        bytes=found.bytes,
        codec=found.meta.codec,
        chunk_rows=found.meta.chunk[0],
        table_blob=found.table.to_bytes(),
        crc=found.table.digest(),
    )
