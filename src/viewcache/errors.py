"""Every error that viewcache raises, grouped by what the caller does next.

Each class has a stable, append-only ``kind`` (for logs, ``--json`` and tests) and is also the builtin that
people expect, so ``except FileNotFoundError`` works. This module imports nothing of viewcache: every folder may use it.

    ViewcacheError                     kind                  next step
    ├── BadInput (ValueError)          bad_input             correct what was given
    │   ├── ConfigError                config                correct the YAML at file, line, column
    │   ├── BadUrl                     bad_url               correct the view:// path
    │   ├── BudgetTooSmall             budget_too_small      raise the budget to the named minimum
    │   ├── QueryRefused               query_refused         send one SELECT
    │   ├── UnknownOption (TypeError)  unknown_option        leave it out, or set it where the message says
    │   └── MissingExtra (ImportError) missing_extra         install the named extra
    ├── NotFound (FileNotFoundError)   not_found             ask for what is there (the message says the range)
    │   ├── DatasetNotFound            dataset_not_found     correct the dataset's path or labels
    │   └── ViewNotFound               view_not_found        correct task, epoch, iteration, video or frame
    ├── BadVideo (ValueError)          bad_video             repair or remove the file, or set on_bad_video
    ├── Busy (OSError)                 busy                  wait, or go to the process that holds it
    │   ├── CatalogBusy                catalog_busy          stop the named process, or read its snapshot
    │   ├── SeatTaken                  seat_taken            read as another rank or job, or end the named process
    │   ├── ServiceDown                service_down          read the service's log, which the message names
    │   └── Timeout (TimeoutError)     timeout               try again, or raise the limit
    ├── Broken (RuntimeError)          broken                run `viewcache doctor`; data is rebuilt, never served wrong
    │   ├── ChunkDamaged               chunk_damaged         nothing: the object is rebuilt
    │   ├── CatalogDamaged             catalog_damaged       nothing is lost: rebuild it from the store
    │   ├── CatalogVersion             catalog_version       `viewcache db upgrade`, or a newer viewcache
    │   ├── WorkerDied                 worker_died           read the named worker's reason; its job was repeated
    │   ├── OpFailed                   op_failed             correct your operation: the message ends with its own error
    │   ├── OpWorkerFailed             op_worker_failed      read what it said last, in the message
    │   ├── SourceUnreachable (ConnectionError) source_unreachable  check network and disk, and read again
    │   ├── StoreUnreachable (ConnectionError)  store_unreachable  check network, bucket and credentials
    │   └── Full (OSError)             full                  free disk space; what is stored stays readable
    └── Misuse (RuntimeError)          misuse                correct the calling code
        ├── Closed                     closed                open the cache again
        ├── UnsupportedPlatform (ImportError)  unsupported_platform  use Linux
        ├── ReadOnly (OSError)         read_only             read views; nothing can be written to them
        ├── ServiceVersion             service_version       end the service of another version: `viewcache stop`
        └── WrongProcess               wrong_process         open the cache in this process
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

__all__ = [
    "BadInput",
    "BadUrl",
    "BadVideo",
    "Broken",
    "BudgetTooSmall",
    "Busy",
    "CatalogBusy",
    "CatalogDamaged",
    "CatalogVersion",
    "ChunkDamaged",
    "Closed",
    "ConfigCode",
    "ConfigError",
    "DatasetNotFound",
    "Full",
    "MissingExtra",
    "Misuse",
    "NotFound",
    "OpFailed",
    "OpWorkerFailed",
    "QueryRefused",
    "ReadOnly",
    "SeatTaken",
    "ServiceDown",
    "ServiceVersion",
    "SourceUnreachable",
    "StoreUnreachable",
    "Timeout",
    "UnknownOption",
    "UnsupportedPlatform",
    "ViewNotFound",
    "ViewcacheError",
    "WorkerDied",
    "WrongProcess",
    "is_unforeseen",
    "within_limits",
]

URL_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure",
    "http": "http", "https": "http",
}  # fmt: skip
"""A URL's scheme → the extra whose packages reach it."""


class ViewcacheError(Exception):
    """Base of all errors of viewcache; ``kind`` never changes once released."""

    kind = "error"

    def __str__(self) -> str:
        """The message alone: OSError and KeyError would otherwise decorate it."""
        return str(self.args[0]) if self.args else self.kind


class BadInput(ViewcacheError, ValueError):
    """Something the caller gave is wrong; the message names it and what is allowed."""

    kind = "bad_input"


class ConfigCode(StrEnum):
    """What is wrong with a configuration, for programs; docs/errors.md describes each. Append, never change."""

    UNREADABLE_FILE = "unreadable_file"
    NOT_YAML = "not_yaml"
    UNSUPPORTED_YAML = "unsupported_yaml"
    TOO_LARGE = "too_large"
    EMPTY_CONFIGURATION = "empty_configuration"
    DUPLICATE_KEY = "duplicate_key"
    UNKNOWN_KEY = "unknown_key"
    MISPLACED_KEY = "misplaced_key"
    MISSING_KEY = "missing_key"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    WRONG_FORMAT = "wrong_format"
    UNKNOWN_CHOICE = "unknown_choice"
    CREDENTIALS = "credentials"
    GIVEN_TWICE = "given_twice"
    STORE = "store"
    VIDEOS_IN_STORE = "videos_in_store"
    UNTRUSTED_VIDEOS = "untrusted_videos"
    OTHER_CACHE = "other_cache"
    EVICTION = "eviction"
    OP_MODULE = "op_module"
    OP_WORKER = "op_worker"
    UNKNOWN_OP = "unknown_op"
    OP_PARAMETERS = "op_parameters"
    CONDITION = "condition"
    PROBABILITIES = "probabilities"
    MISSING_ELSE = "missing_else"
    STEP_STREAMS = "step_streams"
    STREAM_MADE_TWICE = "stream_made_twice"
    UNKNOWN_STREAM = "unknown_stream"
    GRAPH_CYCLE = "graph_cycle"
    UNREAD_STREAM = "unread_stream"
    READ_OP_ORDER = "read_op_order"
    PLAN_TOO_LARGE = "plan_too_large"
    MISSING_ENCODER = "missing_encoder"


class ConfigError(BadInput):
    """A YAML file is wrong at a place.

    Attributes:
        code: what is wrong, a stable word.
        file: path as the user gave it, or ``<string>``.
        line: 1-based, 0 when the whole file is meant.
        column: 1-based, 0 when the whole line is meant.
    """

    kind = "config"

    def __init__(self, code: ConfigCode, message: str, file: str = "<string>", line: int = 0, column: int = 0):
        """Prefix the message with ``file:line:column``, as compilers do, so that editors can jump there."""
        self.code, self.reason, self.file, self.line, self.column = code, message, file, line, column
        place = file + (f":{line}" if line else "") + (f":{column}" if line and column else "")
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[ConfigCode, str, str, int, int]]:
        """Pickle by the constructor's own arguments."""
        return type(self), (self.code, self.reason, self.file, self.line, self.column)


class BadUrl(BadInput):
    """A ``view://`` path cannot be read; the message shows the forms."""

    kind = "bad_url"


class BudgetTooSmall(BadInput):
    """The budget cannot hold what one batch needs.

    Attributes:
        minimum: the smallest budget that would do, in bytes.
    """

    kind = "budget_too_small"

    def __init__(self, message: str, minimum: int):
        """Keep the minimum beside the message."""
        self.minimum = minimum
        super().__init__(message, minimum)


class QueryRefused(BadInput):
    """The SQL door takes exactly one SELECT; this was something else, or over a limit."""

    kind = "query_refused"


class UnknownOption(BadInput, TypeError):
    """A function has no such option; the message says where people set what it means elsewhere."""

    kind = "unknown_option"


class MissingExtra(BadInput, ImportError):
    """An optional dependency is not installed; the message has the pip command."""

    kind = "missing_extra"

    @classmethod
    def of_url(cls, what: str, scheme: str, missing: ImportError) -> "MissingExtra":
        """Of what lies behind URLs of a scheme, when fsspec lacks the package for them."""
        extra = URL_EXTRAS.get(scheme)
        install = f"pip install 'viewcache[{extra}]'" if extra else f"install what it needs ({missing})"
        return cls(f"{what} needs a further package: {install}")


class NotFound(ViewcacheError, FileNotFoundError):
    """What was asked for does not exist; the message says what does."""

    kind = "not_found"

    def __init__(self, message: str):
        """Carry ENOENT, as a FileNotFoundError of the operating system does."""
        super().__init__(message)
        self.errno = errno.ENOENT


class DatasetNotFound(NotFound):
    """A dataset's folder, glob, URL or label file is not there or holds no video."""

    kind = "dataset_not_found"


class ViewNotFound(NotFound):
    """No such task, epoch, iteration, video, frame or depth."""

    kind = "view_not_found"


class BadVideo(ViewcacheError, ValueError):
    """A video cannot be decoded; the message names the file."""

    kind = "bad_video"


class Busy(ViewcacheError, OSError):
    """Somebody else holds what is needed."""

    kind = "busy"


class CatalogBusy(Busy):
    """Another process owns the catalog.

    Attributes:
        pid: the holder's process id, 0 if it could not be read.
        folder: of the store, or empty where that is not known.
    """

    kind = "catalog_busy"

    def __init__(self, message: str, pid: int = 0, folder: str = ""):
        """Keep the holder's pid and the folder beside the message."""
        super().__init__(message)
        self.pid = pid
        self.folder = folder


class SeatTaken(Busy):
    """Another process reads as this rank of this task."""

    kind = "seat_taken"


class ServiceDown(Busy):
    """The service of a cache does not run, and cannot be started or is not to be."""

    kind = "service_down"


class Timeout(Busy, TimeoutError):
    """A bounded wait ended."""

    kind = "timeout"


class Broken(ViewcacheError, RuntimeError):
    """The cache's own state or machinery failed; data is rebuilt, never served wrong."""

    kind = "broken"


class ChunkDamaged(Broken):
    """Stored bytes are missing, short or fail their checksum. Reads catch it and rebuild."""

    kind = "chunk_damaged"


class CatalogDamaged(Broken):
    """The catalog file cannot be opened or replayed, or an order is not the one that it has the digest of."""

    kind = "catalog_damaged"


class CatalogVersion(Broken):
    """The catalog's schema revision is not the one this release works with."""

    kind = "catalog_version"


class WorkerDied(Broken):
    """A worker process died or hung on one job more often than it is repeated."""

    kind = "worker_died"


class OpFailed(Broken):
    """An operation of the user's own raised an error, or gave something that is no frame or clip."""

    kind = "op_failed"


class OpWorkerFailed(Broken):
    """An operation of an op worker crashed, hung or gave nonsense on a clip, or its program cannot be started.

    Attributes:
        of_clip: whether the clip is to blame, and others may be well.
    """

    kind = "op_worker_failed"

    def __init__(self, message: str, *, of_clip: bool = False):
        """Keep beside the message what it is about."""
        super().__init__(message)
        self.of_clip = of_clip


class SourceUnreachable(Broken, ConnectionError):
    """A network or a disk does not give a file of the dataset just now; nothing is said about its content."""

    kind = "source_unreachable"


class StoreUnreachable(Broken, ConnectionError):
    """A remote store does not answer, or does not let us; what lies there is neither lost nor damaged.

    Attributes:
        refused: it answered that it does not let us: nothing was done, and it may do other things.
    """

    kind = "store_unreachable"
    refused: bool = False


class Full(Broken, OSError):
    """The disk is full, or a limit on files or memory was hit."""

    kind = "full"

    def __init__(self, message: str):
        """Carry ENOSPC, as an OSError of the operating system does."""
        super().__init__(message)
        self.errno = errno.ENOSPC


class Misuse(ViewcacheError, RuntimeError):
    """The API was called in a way it does not allow."""

    kind = "misuse"


class Closed(Misuse):
    """The handle was closed."""

    kind = "closed"


class UnsupportedPlatform(Misuse, ImportError):
    """This operating system lacks what a cache is built on, such as locks on files that end with their process."""

    kind = "unsupported_platform"


class ReadOnly(Misuse, OSError):
    """Views are made from videos; nothing can be written, renamed or removed below ``view://``."""

    kind = "read_only"

    def __init__(self, message: str):
        """Carry EROFS, as an OSError of the operating system does."""
        super().__init__(message)
        self.errno = errno.EROFS


class ServiceVersion(Misuse):
    """The service that runs is of a viewcache that speaks another protocol."""

    kind = "service_version"


class WrongProcess(Misuse):
    """A handle was used in a forked child; database and store handles do not survive a fork."""

    kind = "wrong_process"


def is_unforeseen(error: BaseException) -> bool:
    """Whether a log needs the traceback: the words of our errors and of the system's, a full disk say, are enough."""
    return not isinstance(error, ViewcacheError | OSError)


@contextmanager
def within_limits(doing: str) -> Iterator[None]:
    """Tell of a process that may open no more files as of anything else that is full.

    Args:
        doing: what cannot be done then, as the message begins.

    Raises:
        Full: a descriptor was needed, and none is free.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise Full(f"{doing}: {error.strerror}; close files, or raise the limit (ulimit -n)") from error
        raise
