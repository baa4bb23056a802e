"""Keeps near what a scan had to read whole of a video that lies far away, so that no job fetches it again.

The scanning process writes nothing; it hands the bytes over. Whether a file is worth its room is decided later, with
all else that is known: until then it may leave like what nobody wants. So only room that is to spare is taken.
"""

import logging

import numpy as np

from viewcache.catalog import Catalog
from viewcache.errors import ViewcacheError
from viewcache.materializer.choices import Durability
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.recording import key_found
from viewcache.materializer.dataset.scan import Keep
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.kept import about
from viewcache.materializer.retention.chosen import KeepSettings
from viewcache.materializer.retention.near import file_recipe
from viewcache.materializer.spec import CacheSpec
from viewcache.materializer.storage.found import adopt, copy_row
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.store import ArrayMeta, LocalTier, scan_object, write_object

__all__ = ["ScannedFiles", "keeps_scanned"]

_log = logging.getLogger("viewcache.dataset")

SPARE = 2
"""One part of so many of the budget stays free for what is known to be needed."""


def keeps_scanned(cache: CacheSpec, catalog: Catalog, tier: LocalTier, ledger: Ledger) -> Keep | None:
    """Who takes in files of a cache that were scanned; None where no files are kept, see `KeepSettings`."""
    if not KeepSettings.of(cache).keeps_files:
        return None
    return ScannedFiles(catalog, tier, ledger, durable=cache.durability == Durability.DURABLE).keep


class ScannedFiles:
    """Takes files in. Thread-safe, as its parts are."""

    def __init__(self, catalog: Catalog, tier: LocalTier, ledger: Ledger, *, durable: bool) -> None:
        """Keep in the local tier; ``durable`` as for `write_object`."""
        self._catalog, self._tier, self._ledger, self._durable = catalog, tier, ledger, durable

    def keep(self, file: Found, found: Scanned) -> None:
        """Keep a file whose bytes came with what was found of it, if there is room to spare."""
        if found.facts is None or len(found.content) != found.facts.stamp.size:
            return
        video = key_found(file, found)
        recipe = file_recipe(video, found.facts.stamp)
        room = self._tier.free_bytes - self._tier.budget_bytes // SPARE
        reservation = None if self._ledger.has(recipe.key) or recipe.bound > room else self._tier.reserve(recipe.bound)
        if reservation is None:
            return
        try:
            meta = ArrayMeta(recipe.shape, recipe.chunk_shape, "raw", about(file.path, video, found.facts.stamp))
            content = np.frombuffer(found.content, np.uint8)
            written = write_object(self._tier.root, recipe.key, content, meta, durable=self._durable)
            whole = scan_object(self._tier.root, written.physical)
            ids, _ = adopt(self._catalog, [whole])
        except ViewcacheError as error:
            reservation.release()
            _log.warning("a file that was scanned is not kept: %s", error, extra={"action": "not_kept"})
            return
        if written.existed and self._ledger.has(recipe.key):
            reservation.release()  # another scan of the file was faster
            return
        copy = Copy(ids[recipe.key], recipe.key, whole.stored, whole.bytes, self._tier.name)
        reservation.commit(whole.bytes)
        self._ledger.found([(copy, copy_row(copy.object_id, self._tier.name, whole))])
