"""What lies at each path below ``view://``: names, sizes, metadata and bytes of one open cache's views.

Listing asks the plan only: it forces and records the draw of what it lists, but decodes nothing.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from viewcache.api.port import TaskHandle
from viewcache.api.session.opened import OpenCache
from viewcache.api.views.about import about_audio, about_batch, about_video, plain_label, shape_of
from viewcache.api.views.paths import AT, NodeKind, ViewPath, parse_path
from viewcache.api.views.payload import Payload, PayloadFile, SourceFile, npy_head
from viewcache.api.views.zarr_group import view_group
from viewcache.errors import Broken, NotFound, ViewcacheError, ViewNotFound
from viewcache.materializer.media.far_files import open_far
from viewcache.materializer.media.source import is_local, local_path
from viewcache.materializer.reading.batch import Buffers
from viewcache.materializer.reading.values import FrameRequest, VideoInfo

__all__ = ["Entry", "ViewTree"]

GROUPS = 8
"""Zarr groups whose files are remembered, since a client asks for one file after the other."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder."""

    path: str
    """Without ``view://``."""
    size: int | None = None
    """Bytes; None for a folder."""

    @property
    def is_folder(self) -> bool:
        """Whether it holds others."""
        return self.size is None


class _SharedBuffers(Buffers):
    """Buffers for the files that any thread opens."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def take(self, shape: Sequence[int]) -> NDArray[np.uint8]:
        with self._lock:
            return super().take(shape)


class ViewTree:
    """The views of one open cache as files and folders. Thread-safe."""

    def __init__(self, cache: OpenCache) -> None:
        """Show ``cache``."""
        self._cache = cache
        self._lock = threading.Lock()
        self._buffers = _SharedBuffers()
        self._groups: dict[ViewPath, tuple[object, dict[str, Payload]]] = {}

    # Names and sizes -----------------------------------------------------------------------------------------------

    def entry(self, path: str) -> Entry:
        """What a path names.

        Raises:
            BadUrl: no path has this form.
            ViewNotFound: there is no such thing; the message has the valid range.
        """
        where = parse_path(path)
        if where.kind == NodeKind.VIDEO:
            return self._video_entry(path, where)
        if where.kind == NodeKind.FOLDER:
            self._check_folder(where)
            return Entry(path)
        if where.kind == NodeKind.ZARR:
            files = self._group(where)
            if where.inside in files:
                return Entry(path, files[where.inside].size)
            if where.inside and not any(name.startswith(where.inside + "/") for name in files):
                arrays = ", ".join(name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json"))
                raise ViewNotFound(f"{path}: nothing is there; the group's arrays are {arrays}")
            return Entry(path)
        return Entry(path, self._payload(where).size)

    def children(self, path: str) -> list[Entry]:
        """What lies in a folder, by name; a frame is followed by itself after each augmentation step.

        Raises:
            BadUrl: no path has this form.
            ViewNotFound: there is no such thing.
        """
        entry, where = self.entry(path), parse_path(path)
        found = {} if entry.is_folder else {entry.path: entry}
        prefix = path + "/" if path else ""
        for name, size in self._names(where, entry):
            found.setdefault(prefix + name, Entry(prefix + name, size))
        return sorted(found.values(), key=lambda each: each.path)

    def _names(self, where: ViewPath, entry: Entry) -> Iterator[tuple[str, int | None]]:
        """Name and size of everything in a folder."""
        if where.kind == NodeKind.ZARR:
            prefix = where.inside + "/" if where.inside else ""
            for name, file in self._group(where).items():
                if name.startswith(prefix) and entry.is_folder:
                    first, _, more = name.removeprefix(prefix).partition("/")
                    yield first, None if more else file.size
        elif where.kind == NodeKind.FRAME:
            yield from self._augmented(where)
        elif len(where.parts) == 0:
            for task in self._cache.tasks:
                yield task, None
        elif len(where.parts) == 1:
            yield from self._in_task(self._cache.task(where.task))
        elif len(where.parts) == 2 and entry.is_folder:
            yield from self._in_video_or_epoch(self._cache.task(where.task), where.parts[1])
        elif len(where.parts) == 3 and entry.is_folder and where.parts[2] != AT:  # times cannot be listed
            yield "view", self._payload(parse_path("/".join((*where.parts, "view")))).size
            yield "view.zarr", None
            if self._cache.task(where.task).audio_shape is not None:
                yield "audio", self._payload(parse_path("/".join((*where.parts, "audio")))).size

    def _in_task(self, task: TaskHandle) -> Iterator[tuple[str, int | None]]:
        for epoch in range(task.epochs):
            yield str(epoch), None
        for video in task.videos():
            if video.frames:
                yield video.name, None
            if video.stamp.size:
                yield video.name + video.extension, video.stamp.size

    def _in_video_or_epoch(self, task: TaskHandle, name: str) -> Iterator[tuple[str, int | None]]:
        video = task.find_video(name)
        if video is not None and video.frames:
            size = _npy_size((3, video.height, video.width))
            for number in range(video.frames):
                yield f"frame{number}", size
        if _is_epoch(task, name):
            for iteration in range(task.iterations(int(name))):
                yield str(iteration), None

    def _augmented(self, where: ViewPath) -> Iterator[tuple[str, int | None]]:
        task = self._cache.task(where.task)
        for depth in task.depths():
            try:
                frame = task.describe_frame(FrameRequest(where.video, where.frame, depth, at_s=where.at_s))
            except ViewNotFound:
                return  # the video is not drawn in this generation
            yield f"aug{depth}", _npy_size(frame.shape)

    def _check_folder(self, where: ViewPath) -> None:
        if not where.parts:
            return
        task = self._cache.task(where.task)
        if len(where.parts) == 3 and where.parts[2] == AT:
            task.video(where.parts[1])
        elif len(where.parts) == 3:
            task.check_iteration(int(where.parts[1]), int(where.parts[2]))
        elif len(where.parts) == 2 and not _is_epoch(task, where.parts[1]):
            if where.parts[1].isdecimal() and task.find_video(where.parts[1]) is None:
                task.generation_of(int(where.parts[1]))
            task.video(where.parts[1])

    def _video_entry(self, path: str, where: ViewPath) -> Entry:
        """A name with a dot: the folder of a video whose name has one, or a source file."""
        if self._cache.task(where.task).find_video(where.video) is not None:
            return Entry(path)
        return Entry(path, self._source(where).stamp.size)

    def _source(self, where: ViewPath) -> VideoInfo:
        """The video whose file a path with an extension names."""
        name, _, extension = where.video.rpartition(".")
        video = self._cache.task(where.task).video(name)
        if video.extension != "." + extension:
            raise ViewNotFound(f"the file of video {name!r} is {name}{video.extension}; asked for {where.video}")
        if not video.stamp.size:
            raise ViewNotFound(f"{where.video} cannot be read: {video.error}")
        return video

    # Bytes ---------------------------------------------------------------------------------------------------------

    def open(self, path: str) -> IO[bytes]:
        """A seekable file with ``size``.

        Raises:
            ViewNotFound: nothing is there, or it is a folder.
        """
        where = parse_path(path)
        if where.kind == NodeKind.VIDEO and not self.entry(path).is_folder:
            found = self._source(where)
            if is_local(found.uri):
                return SourceFile(local_path(found.uri), found.stamp)
            return open_far(found.uri)
        return cast(IO[bytes], PayloadFile(self.payload(path), path))

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of a file, or a range as Python's slices count; makes no more than the range needs."""
        where = parse_path(path)
        if where.kind == NodeKind.VIDEO and not self.entry(path).is_folder:
            first, last, _ = slice(start, end).indices(self._source(where).stamp.size)
            with self.open(path) as file:
                file.seek(first)
                return file.read(max(0, last - first))
        try:
            return self.payload(path).read(start, end)
        except NotFound as missing:
            if where.kind != NodeKind.ZARR or where.inside not in self._group(where):
                raise
            # A Zarr client takes "not found" for zeros; a promised chunk that cannot be made must not look like that.
            raise Broken(f"{path}: {missing}") from missing

    def make(self, paths: Iterable[str]) -> None:
        """Have single frames made together, a video at a time; what fails is left for whoever reads it."""
        wanted: dict[str, list[FrameRequest]] = {}
        for path in paths:
            try:
                where = parse_path(path)
                if where.kind in (NodeKind.FRAME, NodeKind.AUG):
                    wanted.setdefault(where.task, []).append(_request(where))
            except (ViewcacheError, OSError):
                continue
        for task, requests in wanted.items():
            if len(requests) > 1:
                try:
                    self._cache.task(task).frames(requests)
                except ViewcacheError:
                    continue

    def payload(self, path: str) -> Payload:
        """What a file that is not a source's holds: its head, and the rows of pixels that are made when they are read.

        Raises:
            ViewNotFound: nothing is there, or it is a folder.
        """
        where = parse_path(path)
        if self.entry(path).is_folder:
            raise ViewNotFound(f"{path} is a folder; list it to see the files in it")
        return self._group(where)[where.inside] if where.kind == NodeKind.ZARR else self._payload(where)

    def _payload(self, where: ViewPath) -> Payload:
        if where.kind == NodeKind.VIEW:
            return self._batch(where)
        if where.kind == NodeKind.AUDIO:
            return self._audio(where)
        task, request = self._cache.task(where.task), _request(where)
        shape = task.describe_frame(request).shape
        return Payload(npy_head(shape), 1, int(np.prod(shape)), lambda rows: task.frames([request])[0])

    def _batch(self, where: ViewPath) -> Payload:
        assert where.epoch is not None  # a view's path has one
        task, epoch = self._cache.task(where.task), where.epoch
        count, *clip = shape_of(task.shape(epoch, where.iteration, where.rank, where.world), task.layout)

        def load(which: range) -> NDArray[np.uint8]:
            if len(which) < count:
                return task.clips(epoch, where.iteration, which, where.rank, where.world)
            batch = task.read(epoch, where.iteration, where.rank, where.world, self._buffers)
            assert batch is not None  # only a cancelled read gives none
            return batch.video

        return Payload(npy_head((count, *clip)), count, int(np.prod(clip)), load)

    def _audio(self, where: ViewPath) -> Payload:
        assert where.epoch is not None  # a view's path has one
        task, epoch, iteration = self._cache.task(where.task), where.epoch, where.iteration
        shape = task.audio_shape
        if shape is None:
            raise ViewNotFound(f"{where}: task {where.task!r} has no audio; give dataset.audio a rate")
        count = task.shape(epoch, iteration, where.rank, where.world)[0]
        first = where.clip or 0
        if first >= count:
            raise ViewNotFound(f"{where}: it has clips 0 to {count - 1}")

        def load(which: range) -> NDArray[np.uint8]:
            chosen = range(first + which.start, first + which.stop)
            return task.audio(epoch, iteration, chosen, where.rank, where.world).view(np.uint8)

        if where.clip is not None:
            return Payload(npy_head(shape, "<f4"), 1, 4 * int(np.prod(shape)), load)
        return Payload(npy_head((count, *shape), "<f4"), count, 4 * int(np.prod(shape)), load)

    def _group(self, where: ViewPath) -> dict[str, Payload]:
        """Files of a view's Zarr group."""
        assert where.epoch is not None  # a view's path has one
        task, epoch, iteration = self._cache.task(where.task), where.epoch, where.iteration
        version = task.version(epoch, iteration)
        key = ViewPath(NodeKind.ZARR, where.parts[:4], where.task, epoch=epoch, iteration=iteration)
        with self._lock:
            known = self._groups.get(key)
        if known is not None and known[0] == version:  # a clip that had to be replaced gives another
            return known[1]
        batch = task.describe(epoch, iteration)
        files = view_group(
            batch,
            shape_of(batch.video.shape, task.layout),
            lambda which: task.clips(epoch, iteration, which),
            lambda which: task.audio(epoch, iteration, which).view(np.uint8),
        )
        with self._lock:
            self._groups[key] = version, files
            while len(self._groups) > GROUPS:
                del self._groups[next(iter(self._groups))]
        return files

    # What is known of it -------------------------------------------------------------------------------------------

    def describe(self, path: str) -> dict[str, Any]:
        """Metadata of what a path names, as plain values (SAND's getxattr): ``kind`` and, by kind, what it shows.

        Frames, views and groups have ``shape``, ``dtype``, ``index`` (video ids), ``videos``, ``label``, ``frame``,
        ``time_s`` (seconds) and ``keys`` (of the objects); lists have one element per clip. Views and groups also have
        ``fields``, further columns of the label table by name. A folder says what a loop over it needs: ``epochs``,
        ``iterations``, ``classes``. No pixel is made for it.
        """
        where = parse_path(path)
        if self.entry(path).is_folder and where.kind != NodeKind.ZARR:
            return {"kind": NodeKind.FOLDER} | self._describe_folder(where)
        if where.kind == NodeKind.VIDEO:
            return {"kind": NodeKind.VIDEO} | about_video(where.task, self._source(where))
        if where.kind in (NodeKind.FRAME, NodeKind.AUG):
            return self._describe_single(where)
        assert where.epoch is not None  # a view's path has one
        task = self._cache.task(where.task)
        batch, layout = task.describe(where.epoch, where.iteration, where.rank, where.world), task.layout
        of_all = about_audio(batch, layout, where.clip) if where.kind == NodeKind.AUDIO else about_batch(batch, layout)
        return {"kind": where.kind, "rank": where.rank, "world": where.world} | of_all

    def _describe_folder(self, where: ViewPath) -> dict[str, Any]:
        if not where.parts:
            return {"tasks": list(self._cache.tasks)}
        task = self._cache.task(where.task)
        about: dict[str, Any] = {"task": where.task}
        if len(where.parts) == 1:
            return about | {
                "epochs": task.epochs,
                "iterations": task.iterations(0),
                "videos_per_batch": task.videos_per_batch,
                "samples_per_video": task.samples_per_video,
                "layout": task.layout,
                "classes": list(task.classes),
            }
        video = task.find_video(where.parts[1]) if len(where.parts) == 2 else None
        if video is not None:
            about |= about_video(where.task, video)
        if where.parts[2:] == (AT,):
            return about
        if len(where.parts) == 3 or _is_epoch(task, where.parts[1]):
            about |= {"epoch": int(where.parts[1]), "iterations": task.iterations(int(where.parts[1]))}
        return about | ({"iteration": int(where.parts[2])} if len(where.parts) == 3 else {})

    def _describe_single(self, where: ViewPath) -> dict[str, Any]:
        frame = self._cache.task(where.task).describe_frame(_request(where))
        about = {
            "kind": where.kind,
            "task": where.task,
            "shape": list(frame.shape),
            "dtype": "uint8",
            "index": [frame.video_id],
            "videos": [frame.video],
            "label": [plain_label(frame.label)],
            "frame": [frame.frame],
            "time_s": [frame.time_s],
            "keys": [frame.key],
        }
        if where.kind == NodeKind.AUG:
            return about | {"depth": frame.depth, "recipe": list(frame.recipe)}
        return about | {"depths": list(self._cache.task(where.task).depths())}

    def identity(self, path: str) -> str:
        """Text that is equal exactly while a path's bytes are: a hash of the content keys behind it."""
        about = self.describe(path)
        entry = self.entry(path)
        parts = [about["kind"], str(parse_path(path)), str(entry.size), *about.get("keys", ())]
        return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    def modified(self, path: str) -> datetime:
        """When what a path names came to be: a source's own time, or when a view's generation was planned.

        Raises:
            ViewNotFound: nothing is there, or it is a folder of many times.
        """
        where, entry = parse_path(path), self.entry(path)
        if entry.is_folder and where.kind != NodeKind.ZARR:
            raise ViewNotFound(f"{path} is a folder; only files have a time")
        task = self._cache.task(where.task)
        if where.kind == NodeKind.VIDEO:
            video = self._source(where)
        elif where.kind in (NodeKind.FRAME, NodeKind.AUG):
            video = task.video(where.video)
        else:
            assert where.epoch is not None  # a view's path has one
            return datetime.fromtimestamp(task.planned_at(where.epoch), UTC)
        return datetime.fromtimestamp(video.stamp.mtime_ns / 1e9, UTC)


def _request(where: ViewPath) -> FrameRequest:
    depth = where.depth if where.kind == NodeKind.AUG else None
    clip = where.epoch, where.sample, where.output
    return FrameRequest(where.video, where.frame, depth, *clip, where.at_s, where.item)


def _is_epoch(task: TaskHandle, name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name and int(name) < task.epochs


def _npy_size(shape: tuple[int, ...]) -> int:
    return len(npy_head(shape)) + int(np.prod(shape))
