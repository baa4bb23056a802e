"""The remote tier: objects behind an fsspec URL, in a bucket of S3, GCS, Azure or anything that speaks like them.

A bucket has no rename, so an object is published by the order of two conditional requests: the shard first, then
``zarr.json``, which makes it one. A read is one request, straight from the catalog's chunk table. The trade-off: what
came over the network wrong and what lies there wrong look alike, so what fails a check is asked for once more, and the
same wrong bytes twice are damage. See docs/design/0013-remote-tier.md.
"""

import logging
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput, Broken, ChunkDamaged, Full, Misuse, StoreUnreachable
from viewcache.failpoints import failpoint
from viewcache.store.checksum import crc32c
from viewcache.store.fetch import Wanted, came_again
from viewcache.store.format import (
    MAX_METADATA_BYTES,
    METADATA_NAME,
    ArrayMeta,
    ChunkTable,
    aligned,
    check_physical,
    dump_metadata,
    index_size,
    is_physical,
    parse_metadata,
    physical_of,
    remote_entries,
    remote_table,
    shard_name,
)
from viewcache.store.marker import MARKER, MARKER_TEXT, check_format, format_of
from viewcache.store.shard_reader import FoundObject, Stored, check_chunks, flat_rows, locate_chunks
from viewcache.store.shard_writer import Written, bound_bytes, packed_shard, written_of
from viewcache.store.spans import SPAN_BYTES, fill_from, spans_of
from viewcache.store.temporary import TEMPORARY
from viewcache.store.tier import Tier, another

__all__ = ["RemoteTier"]

Bytes = NDArray[np.uint8]
T = TypeVar("T")

_log = logging.getLogger("viewcache.store")

_OBJECTS = "objects"
_OTHERS = {TEMPORARY, METADATA_NAME, ".zgroup", ".zarray"}
"""What makes a prefix somebody else's, or a folder's copy."""
_PREFIX = re.compile(r"[0-9a-f]{2}", re.ASCII)
_OURS = re.compile(r"zarr\.json|c(\.0)+", re.ASCII)
_PUBLISH_ATTEMPTS = 8  # each is lost only to another writer of the same object
_LOOK_BYTES = 64 << 10  # of zarr.json at first: nearly always all of it
_MOST_WHOLE = 1 << 30  # of a shard that is brought whole although nothing is known of it but what it says itself
_LISTINGS = 16  # prefixes that are listed at once


class RemoteTier(Tier):
    """Objects in a bucket, below a prefix that is one cache's own."""

    run_bytes = SPAN_BYTES
    at_once = 16

    def __init__(
        self,
        url: str,
        budget_bytes: int,
        name: str = "remote",
        *,
        deadline_s: float = 60.0,
        stall_s: float = 10.0,
        seed: int | None = None,
        make: bool = True,
        required: bool = True,
    ):
        """Make the store, or accept the one that is there.

        Args:
            url: ``s3://bucket/prefix``, ``gs://…``, ``az://…`` or another fsspec URL. Credentials and the address of
                the service come from the environment or the profile of this process.
            budget_bytes: for the bytes that viewcache writes there.
            name: of the tier in the catalog.
            deadline_s: seconds until a request that is refused or not answered is given up.
            stall_s: seconds without an answer after which one attempt counts as lost.
            seed: of the jitter in the pauses between attempts.
            make: mark what has nothing in it as a store, or nothing but a store's objects; without it, only who writes
                an object writes.
            required: False takes a store that does not answer, as ``away``, until it is first written to or listed.

        Raises:
            BadInput: the URL is not taken, or what lies there is not a store.
            MissingExtra: the file system is not installed.
            StoreUnreachable: no answer within the deadline, if it is required; or a refusal.
        """
        from viewcache.store.client import Client  # asyncio, which processes without a remote tier need not load

        self._client: Client = Client(url, deadline_s=deadline_s, stall_s=stall_s, seed=seed)
        super().__init__(name, url, budget_bytes)
        # One writer at a time for the keys of one prefix: two threads of this process never race for an object.
        self._turns = [threading.Lock() for _ in range(256)]
        self._make = make
        self._arriving = threading.Lock()
        try:
            self._lay_out()
        except StoreUnreachable as error:
            if required or self._client.answers:
                self.close()
                raise
            self.away, self._make = True, False  # a missing marker tells the next start to look it through
            _log.warning("a cache opens without its store %s: %s", url, error, extra={"action": "store_away"})
        except BaseException:
            self.close()
            raise

    def read(self, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None = None) -> None:
        """Read an object, or some of its inner chunks, into ``out``; see `read_into`.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal.
        """
        self._check_process()
        for error in self._fetch([self._wanted(0, stored, out, chunks)]).values():
            raise error

    def read_slots(self, objects: Sequence[Stored], slots: Bytes | Sequence[Bytes]) -> dict[int, ChunkDamaged]:
        """Read whole objects into consecutive slots of one buffer, several at once; see `viewcache.store.read_slots`.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal.
        """
        self._check_process()
        if len(objects) != len(slots):
            raise Misuse(f"{len(objects)} objects were to be read into {len(slots)} slots")
        pairs = zip(objects, slots, strict=True)
        return self._fetch([self._wanted(position, *pair, None) for position, pair in enumerate(pairs)])

    def write(self, key: str, array: Bytes | Iterable[Bytes], meta: ArrayMeta, *, durable: bool = False) -> Written:
        """Write and publish one object; see `Tier.write`. What a service acknowledges is durable, always.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal.
        """
        self._arrive()
        started, physical = time.perf_counter(), physical_of(key)
        table, shard = packed_shard(key, array, meta)
        text = dump_metadata(meta, key, table.digest(), remote_entries(table, secrets.token_hex(8)))
        with self._turns[int(key[:2], 16)]:
            found = self._publish(physical, f"{physical}/{meta.shard_name}", shard, text)
        mine = FoundObject(key, physical, meta, table, len(shard) + len(text))
        return written_of(found or mine, time.perf_counter() - started, existed=found is not None)

    def scan(self, physical: str) -> FoundObject:
        """Learn of an object from the tier alone, by two small requests; see `scan_object`."""
        self._arrive()
        text, meta, digest = self._metadata(physical)
        table = remote_table(text)
        path = f"{physical}/{meta.shard_name}"
        if table is None:
            if self._client.call(self._client.files(physical)).get(path, 0) > _MOST_WHOLE:
                raise ChunkDamaged(
                    f"{path} has no chunk table and more than {_MOST_WHOLE} bytes, too many to be checked"
                )
            return self._whole(physical, text, meta, digest)
        if table.digest() != digest or len(table.offsets) != meta.chunks:
            raise ChunkDamaged(f"{physical}: the chunk table in {METADATA_NAME} is not of these chunks")
        end = max(place + aligned(size) for place, size in zip(table.offsets, table.sizes, strict=True))
        if end > bound_bytes(meta, check_physical(physical)):
            raise ChunkDamaged(f"{physical}: the chunk table in {METADATA_NAME} points outside any shard of its shape")

        def check(index: bytes) -> None:
            if index != table.index_bytes():
                raise ChunkDamaged(f"{path}: its index is not the one that {METADATA_NAME} was written with")

        # One byte more than the index, so that a longer shard is noticed.
        self._look(path, end, end + index_size(meta.chunks) + 1, check)
        return FoundObject(check_physical(physical), physical, meta, table, end + index_size(meta.chunks) + len(text))

    def describe(self, stored: Stored) -> ArrayMeta:
        """See `Tier.describe`; one request, since the digest in ``zarr.json`` is that of the chunk table."""
        self._check_process()
        _, meta, digest = self._metadata(stored.physical)
        found = FoundObject(check_physical(stored.physical), stored.physical, meta, stored.table, 0)
        if digest != stored.table.digest() or found.stored != stored:
            raise another(self.url, stored)
        return meta

    def verify(self, physical: str, table: ChunkTable | None = None) -> FoundObject:
        """Read every byte of an object and check it, by two requests; see `verify_object`."""
        self._arrive()
        found = self._whole(physical, *self._metadata(physical))
        if table is not None and table != found.table:
            raise ChunkDamaged(f"{physical} is whole but not what the catalog has: its chunk table differs")
        return found

    def iter_objects(self) -> Iterator[tuple[str, int]]:
        """All ``(physical, bytes that it takes)``, in no order. A shard without ``zarr.json`` is no object."""
        self._arrive()
        for folder, files in self._folders():
            if f"{folder}/{METADATA_NAME}" in files:
                yield folder, sum(files.values())

    def delete(self, physical: str, counted: int | None = None) -> int:
        """Remove one object, first what makes it one; see `Tier.delete`.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal; nothing was given back to the budget.
        """
        self._arrive()
        key = check_physical(physical)
        with self._turns[int(key[:2], 16)]:
            size = self._remove(physical)
        size = size if counted is None else counted
        self._give_back(size)
        return size

    def sweep(self, dead_pid: int | None = None) -> int:
        """Remove shards that never became objects; a worker that died left none, as only the owner's process writes.

        Args:
            dead_pid: a worker that the caller saw die: then nothing is asked of the store.

        Returns:
            The bytes removed.
        """
        self._arrive()
        if dead_pid is not None:
            return 0
        removed = 0
        for folder, files in self._folders():
            if f"{folder}/{METADATA_NAME}" not in files:
                with self._turns[int(check_physical(folder)[:2], 16)]:
                    # Listed before: a writer of this process may have made it an object since.
                    if self._client.call(self._client.get(f"{folder}/{METADATA_NAME}", 0, 1)) is None:
                        removed += self._remove(folder)
        return removed

    def hasten(self) -> None:
        """See `Tier.hasten`."""
        self._client.hasten()

    def close(self) -> None:
        """Close connections and end the thread; harmless when it was done, and in a forked child."""
        if os.getpid() == self._pid:
            self._client.close()

    def _wanted(self, position: int, stored: Stored, out: Bytes, chunks: Sequence[int] | slice | None) -> Wanted:
        picks, flat = flat_rows(stored, out, chunks)
        return Wanted(position, stored, picks, flat, spans_of(stored.table, picks))

    def _fetch(self, wanted: Sequence[Wanted]) -> dict[int, ChunkDamaged]:
        """Bring objects, as many at once as the window allows, and check each in this thread as it comes."""
        waiting = deque(wanted)
        under_way: dict[Future[list[bytes | None]], Wanted] = {}
        damaged: dict[int, ChunkDamaged] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < max(1, self._client.window):
                    one = waiting.popleft()
                    under_way[self._client.submit(self._client.get_all(_shard(one.stored), one.spans))] = one
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    one = under_way.pop(future)
                    try:
                        parts = self._client.result(future)
                        if not one.take(f"{self.url}/{_shard(one.stored)}", parts):
                            waiting.appendleft(one)
                    except ChunkDamaged as error:
                        damaged[one.position] = error
        finally:
            for future in under_way:
                future.cancel()
        return damaged

    def _look(self, path: str, start: int, end: int, parse: Callable[[bytes], T]) -> T:
        """Bring a range and take it apart; what is wrong is asked for again, until it is wrong in the same way.

        Raises:
            ChunkDamaged: there is nothing, or what ``parse`` says of it.
            StoreUnreachable: what comes is wrong in a new way each time.
        """
        seen: set[tuple[int, ...]] = set()
        while True:
            data = self._client.call(self._client.get(path, start, end))
            if data is None:
                raise ChunkDamaged(f"{self.url}/{path} is missing")
            try:
                return parse(data)
            except ChunkDamaged:
                if came_again(f"{self.url}/{path}", (crc32c(data),), seen):
                    raise

    def _metadata(self, physical: str) -> tuple[bytes, ArrayMeta, int]:
        """Text, array and digest."""
        key, path = check_physical(physical), f"{physical}/{METADATA_NAME}"

        def parse(text: bytes) -> tuple[bytes, ArrayMeta, int]:
            if len(text) == _LOOK_BYTES:
                text += self._client.call(self._client.get(path, _LOOK_BYTES, MAX_METADATA_BYTES + 1)) or b""
            return text, *parse_metadata(text, key)

        return self._look(path, 0, _LOOK_BYTES, parse)

    def _whole(self, physical: str, text: bytes, meta: ArrayMeta, digest: int) -> FoundObject:
        """Bring a whole shard and check every byte of it."""
        key = check_physical(physical)
        path = f"{physical}/{meta.shard_name}"

        def parse(shard: bytes) -> ChunkTable:
            fill = fill_from(path, [(0, shard)])
            table = locate_chunks(fill, path, meta, digest, 0, len(shard))
            check_chunks(fill, path, table, 0, len(shard) - index_size(meta.chunks))
            return table

        most = bound_bytes(meta, key)  # of the shard and more: a longer one fails its index
        table = self._look(path, 0, most, parse)
        end = max(place + aligned(size) for place, size in zip(table.offsets, table.sizes, strict=True))
        return FoundObject(key, physical, meta, table, end + index_size(meta.chunks) + len(text))

    def _publish(self, physical: str, path: str, shard: bytes, text: bytes) -> FoundObject | None:
        """Make the object; the whole one that was there already, if there was.

        Both requests are conditional. Where the answer to one is lost, asking again finds our own file and looks like
        a conflict: the shard is ours if its bytes are, ``zarr.json`` if the id of our write is in it.
        """
        client, metadata = self._client, f"{physical}/{METADATA_NAME}"
        for _ in range(_PUBLISH_ATTEMPTS):
            made = client.call(client.put(path, shard))
            # Where there is a zarr.json already, it is not ours yet: then that object is looked at.
            if made or (client.call(client.get(metadata, 0, 1)) is None and self._is(path, shard)):
                failpoint("store.shard-written")
                try:
                    if client.call(client.put(metadata, text)) or self._is(metadata, text):
                        return None
                except (Full, StoreUnreachable) as error:
                    if isinstance(error, Full) or error.refused:  # else it may be there
                        self._take_back(physical)
                    raise
            try:
                there, meta, digest = self._metadata(physical)
                found = self._whole(physical, there, meta, digest)
            except ChunkDamaged:
                self._remove(physical)
            else:
                return found if there != text else None
        raise Broken(
            f"object {physical} in {self.url} was replaced by others {_PUBLISH_ATTEMPTS} times; the prefix must be one "
            f"cache's own"
        )

    def _take_back(self, physical: str) -> None:
        """Remove what was made of an object, also by an attempt whose answer was lost."""
        try:
            self._remove(physical)
        except StoreUnreachable as error:
            error.refused = False  # something was done: it lies there
            raise

    def _is(self, path: str, data: bytes) -> bool:
        """Whether exactly this lies there."""
        return self._client.call(self._client.get(path, 0, len(data) + 1)) == data

    def _remove(self, physical: str) -> int:
        """Remove what lies at an object's place, ``zarr.json`` first: without it a shard is nothing. Its bytes."""
        files = _ours(self._client.call(self._client.files(physical)))
        for path in sorted(files, key=lambda path: not path.endswith(METADATA_NAME)):
            self._client.call(self._client.remove(path))
            failpoint("store.mid-delete")
        return sum(files.values())

    def _folders(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Each object's place, and the bytes of each of our files there by path."""
        client = self._client
        prefixes = deque(name for name in client.call(client.names(_OBJECTS)) if _PREFIX.fullmatch(name))
        under_way: deque[Future[dict[str, int]]] = deque()
        while prefixes or under_way:
            while prefixes and len(under_way) < _LISTINGS:
                under_way.append(client.submit(client.files(f"{_OBJECTS}/{prefixes.popleft()}")))
            folders: dict[str, dict[str, int]] = {}
            listed = client.result(under_way.popleft())
            for path, size in _ours(listed).items():
                folders.setdefault(path.rpartition("/")[0], {})[path] = size
            for folder, files in folders.items():
                try:
                    check_physical(folder)
                except Misuse:
                    continue
                yield folder, files

    def _arrive(self) -> None:
        """Look at a store that was away when it was opened, before anything in it is listed or changed.

        Raises:
            StoreUnreachable: it does not answer yet, or what lies there is not ours.
        """
        self._check_process()
        if not self.away:
            return
        with self._arriving:
            try:
                self._lay_out()
            except BadInput as error:
                raise StoreUnreachable(f"{self.url} answers now, but cannot be used: {error}") from None
            self.away = False

    def _lay_out(self) -> None:
        client = self._client
        if client.call(client.get(MARKER, 0, _LOOK_BYTES)) is None:
            self.unmarked = True
            for name in self._not_ours():
                raise BadInput(
                    f"{self.url} holds {name!r} but no {MARKER}, so it is not a viewcache store; name another prefix"
                )
            if not self._make:
                return
            client.call(client.put(MARKER, MARKER_TEXT))
        try:
            version = self._look(MARKER, 0, _LOOK_BYTES, format_of)
        except ChunkDamaged as error:
            raise BadInput(f"{self.url}/{MARKER}: {error}; name another prefix") from None
        check_format(version, f"{self.url}/{MARKER}", "name another prefix")

    def _not_ours(self) -> Iterator[str]:
        """Names of what no store makes. One folder of objects is looked into for all: there may be a million."""
        client = self._client
        names = {*client.call(client.names(""))}
        yield from names & _OTHERS
        folders = client.call(client.names(_OBJECTS)) if _OBJECTS in names else []
        yield from (f"{_OBJECTS}/{folder}" for folder in folders if _PREFIX.fullmatch(folder) is None)
        for folder in folders[:1]:
            inside = (f"{_OBJECTS}/{folder}/{name}" for name in client.call(client.names(f"{_OBJECTS}/{folder}")))
            yield from (path for path in inside if not is_physical(path))


def _shard(stored: Stored) -> str:
    return f"{stored.physical}/{shard_name(len(stored.shape))}"


def _ours(files: Mapping[str, int]) -> dict[str, int]:
    """What we made of the files of objects' folders; anything else is left alone and not counted."""
    return {path: size for path, size in files.items() if _OURS.fullmatch(path.rpartition("/")[2])}
