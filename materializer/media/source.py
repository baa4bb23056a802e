"""Reach a video's bytes, in a local file or behind any fsspec URL, as ranges or as an opened container.

The file is never trusted: it is opened by descriptor or by ``file:`` + absolute path, with lists of the container
formats and protocols allowed, so that a playlist posing as a video cannot make FFmpeg open another file or the network.
"""

import io
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

from viewcache.errors import BadVideo, SourceUnreachable, ViewcacheError
from viewcache.materializer.media.far_files import far_file
from viewcache.materializer.media.reaching import blame_the_process, failure_of, is_absent, reach
from viewcache.materializer.media.stamp import NO_FILE, Stamp, stamp_of
from viewcache.materializer.places import places_of

if TYPE_CHECKING:
    from av.container import InputContainer

__all__ = [
    "NO_FILE",
    "SMALL_BLOCK",
    "BlockSource",
    "LocalSource",
    "RemoteSource",
    "Source",
    "Stamp",
    "file_of",
    "is_local",
    "local_path",
    "open_container",
    "open_source",
    "retired_uri",
    "said",
    "shown",
    "stamp_now",
]

FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,ogg,asf"
"""FFmpeg demuxers that may run. All of them read one file; none follows a reference to another."""
BLOCK = 1 << 20
"""Bytes that a remote source fetches at once."""
SMALL_BLOCK = 16 << 10
"""The same, for who wants the header alone: of most files it fits."""
BLOCKS = 32
"""Remote blocks kept: a scan looks at most packets twice, and is to fetch most files once."""

_RETIRED = re.compile(r"#content=[0-9a-f]{32}$")
_URL = re.compile(r"\w+://[^\s'\")>]+")


def is_local(uri: str) -> bool:
    """Whether a URI names a file of this machine (a path, or ``file:``)."""
    return "://" not in uri or uri.startswith(("file://", "local://"))


def local_path(uri: str) -> str:
    """The absolute path of a local URI."""
    if "://" in uri:
        uri = unquote(urlsplit(uri).path) if "%" in uri else uri.split("://", 1)[1]
    return os.path.abspath(uri)


def retired_uri(uri: str, key: str) -> str:
    """What stands for the URI of a content that was replaced; ``key`` is its content key, 32 hex digits."""
    return f"{uri}#content={key}"


def file_of(uri: str) -> str:
    """The URI of the file that a content was in: of one that was replaced, that of its successor."""
    return _RETIRED.sub("", uri)


def shown(uri: str) -> str:
    """A URI as it may be shown: without user, password, query and fragment; of a dataset of several places all."""
    if uri.startswith("["):
        return ", ".join(map(shown, places_of(uri)))
    uri = _RETIRED.sub(" (its content of before)", uri)
    if "://" not in uri:
        return uri
    scheme, rest = uri.split("://", 1)
    rest = rest.split("?", 1)[0].split("#", 1)[0] if scheme in ("http", "https") else rest
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rsplit('@', 1)[-1]}{slash}{path}"


def said(failed: BaseException) -> str:
    """What failed in words, with the URLs in them as they may be shown."""
    if isinstance(failed, FileNotFoundError) and failed.__cause__ is not None:
        failed = failed.__cause__  # fsspec says of every URL that it does not get that it is not there
    return f"{type(failed).__name__}: {_URL.sub(lambda url: shown(url[0]), str(failed))}"


class Source:
    """One opened video file; `close` it, or use it as a context manager."""

    def __init__(self, uri: str, stamp: Stamp) -> None:
        self.uri = uri
        self.stamp = stamp
        self.bytes_read = 0
        """Bytes fetched through `read` and `read_many` so far."""
        self.waited_s = 0.0
        """Seconds that a network was waited for so far."""

    def read(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``; fewer only at the end of the file."""
        raise NotImplementedError

    def read_near(self, start: int, size: int) -> bytes:
        """As `read`, where more is wanted from close by soon: of a remote file whole blocks come, and are kept."""
        return self.read(start, size)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several (start, size) ranges; one request each, in parallel where the file system can."""
        return [self.read(start, size) for start, size in ranges]

    def target(self) -> Any:
        """What `av.open` is given."""
        raise NotImplementedError

    def close(self) -> None:
        """Release descriptors; harmless to repeat."""

    def __enter__(self) -> "Source":
        """The source itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()


class LocalSource(Source):
    """A regular file of this machine."""

    def __init__(self, uri: str) -> None:
        self.path = local_path(uri)
        # O_NONBLOCK: a FIFO that poses as a video must not hang the open; it has no effect on a regular file.
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise BadVideo(f"{uri}: not a regular file")
        super().__init__(uri, Stamp(status.st_size, status.st_mtime_ns))

    def read(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``."""
        parts: list[bytes] = []
        while size > 0:
            part = self._pread(size, start)
            if not part:
                break
            parts.append(part)
            start += len(part)
            size -= len(part)
            self.bytes_read += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pread(self, size: int, start: int) -> bytes:
        try:
            return reach(lambda: os.pread(self._fd, size, start))
        except OSError as failed:
            raise _failure(self.uri, "read", failed) from failed

    def target(self) -> str:
        """``file:`` + absolute path: a path that looks like a protocol (``concat:a|b``) stays a path."""
        return "file:" + self.path

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class BlockSource(Source):
    """A file that is read in blocks, of which the last ones are kept for who looks at the same bytes again."""

    def __init__(self, uri: str, stamp: Stamp, block: int) -> None:
        """Fetch nothing yet; ``block`` is how many bytes a block has."""
        super().__init__(uri, stamp)
        self.block_bytes = block
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``."""
        return self.read_many([(start, size)])[0]

    def read_near(self, start: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``start``, by blocks if these are not much more."""
        if size <= 4 * self.block_bytes:
            self._bring(self._numbers(start, min(start + size, self.stamp.size)))
        return self.read(start, size)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several ranges: out of the blocks that are kept, the rest fetched in parallel."""
        clipped = [(start, min(start + size, self.stamp.size)) for start, size in ranges]
        kept = [self._kept(start, end) for start, end in clipped]
        fetched = iter(self._fetch([each for each, part in zip(clipped, kept, strict=True) if part is None]))
        return [next(fetched) if part is None else part for part in kept]

    def block(self, number: int) -> bytes:
        """As many bytes as a block has from ``number`` blocks on, fewer at the end; the last `BLOCKS` are kept."""
        block = self._blocks.get(number)
        if block is None:
            start, end = number * self.block_bytes, min((number + 1) * self.block_bytes, self.stamp.size)
            block = self._fetch([(start, end)])[0] if start < end else b""
            self._keep(number, block)
        else:
            self._blocks.move_to_end(number)
        return block

    def held(self) -> bytes:
        """The whole file, if all of its blocks are kept; else nothing."""
        return self._kept(0, self.stamp.size) or b""

    def target(self) -> "RangeFile":
        """A file object over the kept blocks."""
        return RangeFile(self)

    def _bring(self, numbers: range) -> None:
        """Have blocks that follow each other, with one request for those that are not kept."""
        missing = [number for number in numbers if number not in self._blocks]
        if missing:
            start, end = missing[0] * self.block_bytes, min((missing[-1] + 1) * self.block_bytes, self.stamp.size)
            data = self._fetch([(start, end)])[0]
            for at in range(0, len(data), self.block_bytes):
                self._keep(missing[0] + at // self.block_bytes, data[at : at + self.block_bytes])

    def _keep(self, number: int, block: bytes) -> None:
        self._blocks[number] = block
        if len(self._blocks) > BLOCKS:
            self._blocks.popitem(last=False)

    def _numbers(self, start: int, end: int) -> range:
        """The blocks that hold a range."""
        return range(start // self.block_bytes, -(-end // self.block_bytes))

    def _kept(self, start: int, end: int) -> bytes | None:
        """The bytes of a range whose blocks are all kept."""
        if end <= start:
            return b""
        numbers = self._numbers(start, end)
        if any(number not in self._blocks for number in numbers):
            return None
        return self._of_blocks(start, end)

    def _of_blocks(self, start: int, end: int) -> bytes:
        numbers = self._numbers(start, end)
        whole = b"".join(map(self.block, numbers)) if len(numbers) > 1 else self.block(numbers[0])
        first = numbers[0] * self.block_bytes
        return whole[start - first : end - first]

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of (start, end) ranges."""
        raise NotImplementedError


class RemoteSource(BlockSource):
    """A file behind an fsspec URL, read in ranges; nothing is downloaded whole."""

    def __init__(self, uri: str, block: int = BLOCK) -> None:
        self._fs, self._path = far_file(uri)
        info = self._fs.info(self._path)
        if info.get("type") == "directory":
            raise BadVideo(f"{shown(uri)}: a folder, not a file")
        if info.get("size") is None:
            raise BadVideo(f"{shown(uri)}: the server does not say how large it is, so it cannot be read in ranges")
        super().__init__(uri, stamp_of(info), block)

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of (start, end) ranges, in parallel by file systems that can."""
        if not ranges:
            return []
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        begun = time.monotonic()
        try:
            parts = reach(lambda: self._fs.cat_ranges([self._path] * len(ranges), starts, ends, on_error="raise"))
        except Exception as failed:  # as in open_source
            raise _failure(self.uri, "read", failed) from failed
        finally:
            self.waited_s += time.monotonic() - begun
        self.bytes_read += sum(map(len, parts))
        return [self._exactly(part, start, end) for part, start, end in zip(parts, starts, ends, strict=True)]

    def _exactly(self, part: bytes, start: int, end: int) -> bytes:
        """The bytes of one range; a server that ignores ranges answers with the whole file."""
        if len(part) == self.stamp.size:
            part = part[start:end]
        if len(part) != end - start:
            raise BadVideo(f"{shown(self.uri)}: {len(part)} bytes came for {end - start} from byte {start}")
        return bytes(part)


class RangeFile(io.RawIOBase):
    """A seekable read-only file over a source's blocks."""

    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._block = source.block_bytes
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Position in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; returns the new position in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.stamp.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to ``size`` bytes from the position."""
        left = self._source.stamp.size - self._at if size is None or size < 0 else size
        parts: list[bytes] = []
        while left > 0:
            block = self._source.block(self._at // self._block)
            part = block[self._at % self._block :][:left]
            if not part:
                break
            parts.append(part)
            self._at += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def stamp_now(uri: str) -> Stamp | None:
    """The version of a file as it is now, `NO_FILE` if it is gone; None where that cannot be found out."""
    try:
        if is_local(uri):
            status = os.stat(local_path(uri))
            return Stamp(status.st_size, status.st_mtime_ns)
        fs, path = far_file(uri)
        return stamp_of(fs.info(path))
    except Exception as failed:  # as in open_source
        return NO_FILE if is_absent(failed) else None


def open_source(uri: str, block: int = BLOCK) -> Source:
    """Open a video's bytes.

    Args:
        uri: a local path, ``file://`` or any fsspec URL.
        block: bytes that are fetched at once of a remote file.

    Raises:
        BadVideo: it cannot be opened, or is not a regular file.
        SourceUnreachable: a network or a disk did not give it, several times.
        Full: this process has too many files open.
    """
    try:
        return reach(lambda: LocalSource(uri) if is_local(uri) else RemoteSource(uri, block))
    except BadVideo:
        raise
    except Exception as failed:  # fsspec's file systems raise nearly anything
        raise _failure(uri, "opened", failed) from failed


def _failure(uri: str, what: str, failed: Exception) -> ViewcacheError:
    return failure_of(shown(uri), what, failed, said(failed), is_far=not is_local(uri))


def _refuse(url: str, flags: int, options: dict[str, str]) -> NoReturn:
    """FFmpeg's demuxer wants a second file; no format on our list has a reason to."""
    raise BadVideo(f"the file asks to open another one ({shown(url)!r}); playlists are not videos")


@contextmanager
def open_container(source: Source, looking: Mapping[str, str] | None = None) -> "Iterator[InputContainer]":
    """Open the container of a source, safely (see the module's first lines).

    Args:
        source: the opened file.
        looking: further options of FFmpeg.

    Raises:
        BadVideo: not a video file, or not one of the allowed formats.
        Full: this process has too many files open.
    """
    import av

    options = {**(looking or {}), "protocol_whitelist": "file", "format_whitelist": FORMATS}
    target = source.target()
    # With a path, FFmpeg itself opens the one file, under its whitelists; a callback would be asked for that one too.
    refuse = None if isinstance(target, str) else _refuse
    try:
        container = av.open(target, mode="r", options=options, metadata_errors="replace", io_open=refuse)
    except BadVideo as refused:
        raise type(refused)(f"{shown(source.uri)}: {refused}") from refused
    except SourceUnreachable:
        raise
    except Exception as failed:  # damaged files raise UnicodeDecodeError, IndexError, MemoryError and more (F12)
        if not source.stamp.size:
            raise BadVideo(f"{shown(source.uri)}: an empty file; copy it again") from failed
        blame_the_process(shown(source.uri), failed)
        raise BadVideo(f"{shown(source.uri)}: not a video that can be opened ({failed})") from failed
    with container:
        yield container
