"""``view://`` for fsspec: every library that opens URLs reads views, and none of them can write (SAND Table 1).

This is the face alone; what lies where is the business of `tree`. The class is synchronous, because reading is a copy
out of the store or a wait for the dispatcher; asynchronous clients such as Zarr's run it in threads.
"""

import os
import re
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from fsspec.spec import AbstractFileSystem

from viewcache.api.config.find import ENVIRONMENT, NAME
from viewcache.api.service.opening import open as open_cache
from viewcache.api.session.opened import OpenCache, open_caches
from viewcache.api.views.tree import Entry, ViewTree
from viewcache.errors import BadInput, Misuse, NotFound, ReadOnly

__all__ = ["ViewFileSystem", "find_cache"]

_QUERY = re.compile(r"\?[a-z]+=[^/]*$")
_opening = threading.RLock()
_trees: dict[OpenCache, ViewTree] = {}


def find_cache(where: str | None = None) -> OpenCache:
    """The cache that a URL means.

    Args:
        where: a configuration file, or the store's folder of a cache that is open in this process. None = the cache
            that was opened last in this process, else the configuration named by ``VIEWCACHE``, else the nearest
            ``viewcache.yaml`` upward from the working folder.

    Returns:
        An open cache. One that had to be opened stays open until the process ends.

    Raises:
        WrongProcess: the cache was opened before a fork.
        Misuse: there is none of all that.
        ViewcacheError: what `viewcache.open` raises.
    """
    with _opening:
        caches = open_caches()
        if where is None and caches:
            return caches[0]
        where = where or os.environ.get(ENVIRONMENT) or _nearest()
        if where is None:
            raise Misuse(
                "no cache is open in this process: open one by viewcache.open(...), or name a configuration by the "
                f"storage option cache=, by {ENVIRONMENT} in the environment or by a {NAME} here or above"
            )
        path = os.path.abspath(where)
        for cache in caches:
            if path in cache.config.files or path == os.path.abspath(cache.config.cache.local.url):
                return cache
        return open_cache(Path(path))


def _nearest() -> str | None:
    here = Path.cwd()
    return next((str(each / NAME) for each in (here, *here.parents) if (each / NAME).is_file()), None)


def _tree_of(cache: OpenCache) -> ViewTree:
    """The tree of a cache, kept as long as the cache is open."""
    with _opening:
        tree = _trees.get(cache)
        if tree is None:
            still_open = open_caches()
            for each in [each for each in _trees if each not in still_open]:
                del _trees[each]
            tree = _trees[cache] = ViewTree(cache)
        return tree


class ViewFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The views of a cache as read-only files; see docs/paths.md.

    Listing forces and records draws but decodes nothing; opening a file and reading its head makes no pixels either.
    Frames after augmentation are listed below their frame, ``ls("train/cat/frame3")``, although that is a file.
    """

    protocol = "view"
    root_marker = ""

    def __init__(self, cache: str | os.PathLike[str] | None = None, **storage_options: Any) -> None:
        """Show one cache, or the one that is open whenever something is asked.

        Args:
            cache: a configuration file, or the folder of the store; see `find_cache`.
            **storage_options: fsspec's own.

        Raises:
            BadInput: ``cache`` is not a path.
        """
        if cache is not None and not isinstance(cache, str | os.PathLike):
            raise BadInput(f"cache={cache!r}: give the path of its configuration, or of the folder of its store")
        super().__init__(**storage_options)
        self._where = None if cache is None else os.fspath(cache)

    @property
    def _tree(self) -> ViewTree:
        return _tree_of(find_cache(self._where))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return [each.lstrip("/") for each in stripped] if isinstance(stripped, list) else stripped.lstrip("/")

    # Names ---------------------------------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What lies in a folder; a file is listed as itself.

        Raises:
            BadUrl: no path has this form.
            ViewNotFound: there is no such thing; the message has the valid range.
        """
        entries = self._tree.children(self._strip_protocol(path))
        return [_info(entry) for entry in entries] if detail else [entry.path for entry in entries]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, size, type and, under ``view``, the metadata: see `ViewTree.describe`. No pixel is made for it."""
        path = self._strip_protocol(path)
        tree = self._tree
        return _info(tree.entry(path)) | {"view": tree.describe(path)}

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether a path names something."""
        return self._entry(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether it is a folder."""
        entry = self._entry(path)
        return entry is not None and entry.is_folder

    def isfile(self, path: str) -> bool:
        """Whether it is a file."""
        entry = self._entry(path)
        return entry is not None and not entry.is_folder

    def _entry(self, path: str) -> Entry | None:
        try:
            return self._tree.entry(self._strip_protocol(path))
        except (NotFound, BadInput):
            return None

    def size(self, path: str) -> int | None:
        """Bytes of a file, known before anything is made."""
        return self._tree.entry(self._strip_protocol(path)).size or 0

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """As fsspec says; a question mark that begins a query (``?epoch=``) is no wildcard.

        Raises:
            BadUrl: a path with a query, of a form that there is not.
            ViewNotFound: a path with a query names one thing, which there is not; fsspec asks here before it opens it.
        """
        path = path if path.endswith("/") else self._strip_protocol(path)
        if not _QUERY.search(path):
            return super().glob(path, maxdepth=maxdepth, **kwargs)
        self._tree.entry(path)
        return {path: self.info(path)} if kwargs.get("detail") else [path]

    # Bytes ---------------------------------------------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **kwargs: Any) -> IO[bytes]:
        if mode != "rb":
            self._refuse(path)
        return self._tree.open(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a file or of a range, counted as slices are; makes no more than the range needs."""
        return self._tree.read(self._strip_protocol(path), start, end)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes]:
        """Ranges of several files; single frames of one video are decoded together."""
        if isinstance(paths, list):
            self._tree.make([self._strip_protocol(path) for path in paths])
        parts: list[bytes] = super().cat_ranges(paths, starts, ends, max_gap, on_error, **kwargs)
        return parts

    def ukey(self, path: str) -> str:
        """A hash that is equal exactly while the path's bytes are: caches may rely on it."""
        return self._tree.identity(self._strip_protocol(path))

    def modified(self, path: str) -> datetime:
        """The source's own time, or when the view's generation was planned."""
        return self._tree.modified(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        """The same as `modified`: what a path means never changes."""
        return self.modified(path)

    # Nothing can be written ----------------------------------------------------------------------------------------

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        """Every method that would change something.

        Raises:
            ReadOnly: always; an OSError with EROFS.
        """
        what = f" ({args[0]!r})" if args else ""
        raise ReadOnly(f"view:// is read-only{what}: views are made from videos and a configuration; change those")

    mkdir = makedirs = rmdir = rm = rm_file = _rm = touch = pipe = pipe_file = _refuse
    put = put_file = copy = cp_file = mv = write_bytes = write_text = start_transaction = _refuse


def _info(entry: Entry) -> dict[str, Any]:
    return {"name": entry.path, "size": entry.size or 0, "type": "directory" if entry.is_folder else "file"}
