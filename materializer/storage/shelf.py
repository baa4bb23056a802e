"""The copies in one tier by key, of which those that the catalog had at the start become objects when somebody asks.

They stay columns of numbers and text, since making an object of Python with its chunk table of each would be most of
the work of a start, and few of them are asked for.
"""

from collections.abc import Iterator, KeysView
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from viewcache.catalog import Catalog
from viewcache.catalog.kinds import ObjectKind
from viewcache.catalog.records import CopyRow
from viewcache.store import ChunkTable, Stored, Written, physical_of
from viewcache.store.format import ELEMENT_BYTES
from viewcache.store.tier import LOCAL

__all__ = ["Copy", "Shelf", "written_row"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One object in one tier."""

    object_id: int
    key: str
    stored: Stored
    """What the tier's reader wants."""
    bytes: int
    """That it takes there."""
    tier: str = LOCAL


def written_row(object_id: int, tier: str, written: Written, tick: int) -> CopyRow:
    """The catalog's row of a copy that was just written."""
    return CopyRow(
        object_id=object_id,
        tier=tier,
        physical=written.physical,
        bytes=written.bytes,
        codec=written.codec,
        chunk_rows=written.chunk_rows,
        table_blob=written.table,
        crc=written.crc,
        created_tick=tick,
        access_tick=tick,
    )


class Shelf:
    """A mapping of keys to copies. The ledger's lock guards it."""

    def __init__(self, tier: str, rows: pa.Table | None = None) -> None:
        """Take over what the catalog has of a tier, as ``read_stored`` gives it but for ``physical``."""
        self.tier = tier
        self._rows = rows
        self.recorded_keys: list[str] = [] if rows is None else rows["key"].to_pylist()
        """Of the rows that were taken over, in their order."""
        self._copies: dict[str, Copy | int] = {key: row for row, key in enumerate(self.recorded_keys)}
        """A number is the row of a copy that nobody has asked for."""

    @classmethod
    def recorded(cls, catalog: Catalog, tier: str) -> "Shelf":
        """All that the catalog has of a tier."""
        rows = catalog.query("read_stored", tier=tier).drop_columns(["physical"])  # which is said by the key
        for name in ("kind", "shape", "codec"):  # of which there are few
            rows = rows.set_column(rows.column_names.index(name), name, rows[name].dictionary_encode())
        return cls(tier, rows)

    @property
    def recorded_bytes(self) -> int:
        """That the rows which were taken over count."""
        return 0 if self._rows is None else pc.sum(self._rows["bytes"]).as_py() or 0

    @property
    def recorded_ids(self) -> list[int]:
        """Of the objects of those rows."""
        return [] if self._rows is None else self._rows["object_id"].to_pylist()

    def get(self, key: str) -> Copy | None:
        """The copy of an object; always the same object as long as it lies there."""
        found = self._copies.get(key)
        if isinstance(found, int):
            found = self._copies[key] = self._copy(key, found)
        return found

    def __contains__(self, key: object) -> bool:
        """Whether an object lies there."""
        return key in self._copies

    def __len__(self) -> int:
        """How many do."""
        return len(self._copies)

    def __iter__(self) -> Iterator[Copy]:
        """All copies; none is kept for being looked at."""
        for key, found in self._copies.items():
            yield self._copy(key, found) if isinstance(found, int) else found

    def keys(self) -> KeysView[str]:
        """What lies there."""
        return self._copies.keys()

    def put(self, copy: Copy) -> None:
        """It lies there now."""
        self._copies[copy.key] = copy

    def remove(self, key: str) -> None:
        """It lies there no more."""
        del self._copies[key]

    def _copy(self, key: str, row: int) -> Copy:
        assert self._rows is not None
        kind, shape, codec, table = (self._rows[name][row].as_py() for name in ("kind", "shape", "codec", "table_blob"))
        *lead, width = map(int, shape.split("x"))
        if kind == ObjectKind.AUDIO:  # the catalog has elements, the store bytes
            width *= ELEMENT_BYTES["float32"]
        stored = Stored(
            physical_of(key),
            (*lead, width),
            self._rows["chunk_rows"][row].as_py(),
            codec,
            ChunkTable.from_bytes(table),
        )
        size, object_id = self._rows["bytes"][row].as_py(), self._rows["object_id"][row].as_py()
        return Copy(object_id, key, stored, size, self.tier)
