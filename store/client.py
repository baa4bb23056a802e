"""Requests to a remote store: any fsspec file system, on a thread of its own, each request retried until its deadline.

What may be repeated is (every request here is harmless when it is done twice), with exponential pauses and full jitter;
how many are under way follows the service (`RequestWindow`). The trade-off: the file system's own retries are turned
off where we know how, so that one clock bounds the whole; after a store was given up each request gets one attempt
until one is answered, so that a service that is down costs a training run one time limit and not one deadline for each
object.
"""

import asyncio
import logging
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar, cast  # fsspec has no types

from viewcache.errors import URL_EXTRAS, BadInput, Closed, Full, MissingExtra, StoreUnreachable
from viewcache.store.quiet import quiet_requests
from viewcache.store.retry import RetryVerdict, judge, pause_s, said
from viewcache.store.window import RequestWindow

__all__ = ["Client", "check_url"]

T = TypeVar("T")

_log = logging.getLogger("viewcache.store")

_URL = re.compile(r"([a-z][a-z0-9+]*)://(/?[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*)/?", re.ASCII)
_SLOWEST = 1 << 20  # bytes a second: an answer that comes slower counts as lost
_CONNECT_S = 5.0
_CLIENTS = ("_s3", "_session", "service_client")  # where s3fs, gcsfs and adlfs have what is to be closed


def check_url(url: str) -> str:
    """The scheme of a store's URL.

    Raises:
        BadInput: it has a user, a password, a query or anything else than plain names; the message does not repeat it,
            since it may hold a secret.
    """
    found = _URL.fullmatch(url)
    if "@" in url:
        raise BadInput(
            "the URL of a store must not have a user or password before '@'; credentials come from the environment or "
            "the profile of this process"
        )
    if found is None or any(part in {".", ".."} for part in found[2].split("/")):
        raise BadInput(
            "the URL of a store must be scheme://bucket/prefix, of letters, digits and . _ = - only, without query; "
            "credentials and addresses of servers come from the environment or the profile of this process"
        )
    return found[1]


class Client:
    """One remote store. Thread-safe; belongs to the process that made it."""

    def __init__(self, url: str, *, deadline_s: float, stall_s: float, seed: int | None = None):
        """Make the file system; nothing is sent yet.

        Args:
            url: of the store, as `check_url` takes it.
            deadline_s: seconds from a request's first attempt until it is given up.
            stall_s: seconds without an answer after which one attempt counts as lost.
            seed: of the pauses' jitter; None for a new one in each process, so that processes do not retry in step.

        Raises:
            BadInput: the URL is not taken, or no file system has its scheme.
            MissingExtra: the file system is not installed.
        """
        self._url, self._deadline_s, self._stall_s = url, deadline_s, stall_s
        self._fs, self._root = _filesystem(url, check_url(url), stall_s)
        self._rng = random.Random(seed)
        self._window = RequestWindow()
        self._under_way = 0
        self._turn = asyncio.Condition()
        self._answers = True
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = self._hurries = False

    @property
    def window(self) -> int:
        """Requests that may be under way now."""
        return self._window.size

    @property
    def answers(self) -> bool:
        """Whether the last request was answered, be it by a refusal; True before the first."""
        return self._answers

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do one of the requests below, and wait for it."""
        future = self.submit(work)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def result(self, future: "Future[T]") -> T:
        """Wait for what `submit` began.

        Raises:
            Closed: the client was closed meanwhile.
        """
        try:
            return future.result()
        except CancelledError:
            raise self._closed_error() from None

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin one of the requests below.

        Raises:
            Closed: the client was closed.
        """
        with self._lock:
            if self._closed:
                work.close()
                raise self._closed_error()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="viewcache-remote", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def hasten(self) -> None:
        """From now on give up a request of which an attempt fails."""
        self._hurries = True

    def close(self) -> None:
        """Give up what is under way, close connections and end the thread; harmless when it was done."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    async def get(self, path: str, start: int, end: int) -> bytes | None:
        """The bytes from ``start`` to before ``end``, fewer where the file ends; None if there is no file.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal.
        """
        # By keyword: the second argument by position is another thing in each file system.
        place = self._place(path)
        done = await self._ask("read", path, end - start, lambda: self._fs._cat_file(place, start=start, end=end))
        return b"" if done is RetryVerdict.SHORT else None if done is RetryVerdict.MISSING else cast("bytes", done)

    async def get_all(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Several ranges of one file at once."""
        return list(await asyncio.gather(*(self.get(path, start, end) for start, end in ranges)))

    async def put(self, path: str, data: bytes) -> bool:
        """Make a file, all of it or nothing; False if there is one, which may be ours: an answer can be lost.

        Raises:
            StoreUnreachable: no answer within the deadline, or a refusal.
            Full: the store has no room.
        """
        place = self._place(path)
        done = await self._ask("write", path, len(data), lambda: self._fs._pipe_file(place, data, mode="create"))
        return done is not RetryVerdict.EXISTS

    async def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        await self._ask("remove", path, 0, lambda: self._fs._rm_file(self._place(path)))

    async def files(self, folder: str) -> dict[str, int]:
        """Bytes of every file below a folder, by path."""
        found = await self._ask("list", folder, 0, lambda: self._fs._find(self._place(folder), detail=True))
        below = cast("Mapping[str, Mapping[str, Any]]", {} if isinstance(found, RetryVerdict) else found)
        named = {self._named(name): int(info.get("size") or 0) for name, info in below.items()}
        return {name: size for name, size in named.items() if name.startswith(f"{folder}/") and not name.endswith("/")}

    async def names(self, folder: str) -> list[str]:
        """Names of the files and folders in a folder, ``""`` for the root; empty where there is none."""
        place = self._place(folder) if folder else self._root
        found = await self._ask("list", folder, 0, lambda: self._fs._ls(place, detail=False))
        paths = cast("Sequence[str]", [] if isinstance(found, RetryVerdict) else found)
        return [path.rstrip("/").rpartition("/")[2] for path in paths if path.strip("/") != place.strip("/")]

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _named(self, place: str) -> str:
        return place.lstrip("/").removeprefix(f"{self._root.lstrip('/')}/")

    async def _ask(self, doing: str, path: str, size: int, request: Callable[[], Awaitable[object]]) -> object:
        """The answer, or a `RetryVerdict` on an error that is an answer too."""
        if (connect := getattr(self._fs, "set_session", None)) is not None:
            await connect()  # of s3fs: it reads many files at first, which is not the service's doing
        until, attempts, once = 0.0, 0, not self._answers
        while True:
            async with self._turn:
                await self._turn.wait_for(lambda: self._under_way < self._window.size)
                self._under_way += 1
            began = time.monotonic()
            until = until or began + self._deadline_s
            try:
                limit = min(until - began, self._stall_s + size / _SLOWEST)
                answer = await asyncio.wait_for(request(), limit)
                error, verdict = None, None
            except Exception as failed:  # file systems raise nearly anything
                if self._closed:
                    raise self._closed_error() from None
                answer, error, verdict = None, failed, judge(failed)
            finally:
                under_way = self._under_way
                self._under_way -= 1
                async with self._turn:
                    self._turn.notify_all()
            if error is None or verdict in {RetryVerdict.MISSING, RetryVerdict.EXISTS, RetryVerdict.SHORT}:
                self._window.answered(time.monotonic() - began, size, under_way)
                self._set_answers(True)
                return answer if error is None else verdict
            if verdict is not RetryVerdict.RETRY:
                raise self._final(doing, path, verdict, error, refused=not attempts) from None
            self._window.failed()
            attempts += 1
            pause = pause_s(attempts - 1, self._rng)
            if once or self._hurries or time.monotonic() + pause >= until:
                self._set_answers(False)
                raise StoreUnreachable(
                    f"cannot {doing} {self._url}/{path}: {said(error)}; {attempts} attempts within "
                    f"{self._deadline_s:g} s; check the network, and the health of the service"
                ) from None
            await asyncio.sleep(pause)

    def _final(
        self, doing: str, path: str, verdict: RetryVerdict | None, error: Exception, *, refused: bool
    ) -> StoreUnreachable | Full:
        """The error for an answer that ends it; ``refused`` if no attempt before it may have done something."""
        if verdict is RetryVerdict.FULL:
            return Full(f"cannot {doing} {self._url}/{path}: {said(error)}; raise the quota or lower the tier's budget")
        refusal = StoreUnreachable(
            f"cannot {doing} {self._url}/{path}: {said(error)}; check the bucket's name, and the credentials and "
            f"permissions of this process (environment or profile)"
        )
        refusal.refused = refused
        return refusal

    def _closed_error(self) -> Closed:
        return Closed(f"the store {self._url} was closed; open it again")

    def _set_answers(self, answers: bool) -> None:
        if answers is not self._answers:
            self._answers = answers
            state = "answers again" if answers else "does not answer; each request is tried once until one is answered"
            _log.warning("the store %s %s", self._url, state, extra={"action": "store_reachable"})

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in _CLIENTS:
            if (opened := getattr(self._fs, name, None)) is not None:
                await opened.close()
        await asyncio.get_running_loop().shutdown_default_executor()


def _filesystem(url: str, scheme: str, stall_s: float) -> tuple[Any, str]:
    """The fsspec file system of a URL, asynchronous, without caches or retries of its own, and the URL's path there."""
    import fsspec
    from fsspec.core import url_to_fs
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    quiet_requests()
    try:
        kind = fsspec.get_filesystem_class(scheme)
        if not kind.async_impl:
            made, root = url_to_fs(url, auto_mkdir=True, **options)
            return AsyncFileSystemWrapper(made, asynchronous=True), root.rstrip("/")
        if URL_EXTRAS.get(scheme) == "s3":
            options["config_kwargs"] = {
                "connect_timeout": min(_CONNECT_S, stall_s),
                "read_timeout": stall_s,
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "max_pool_connections": 64,
            }
        # adlfs has its end closed by a loop at the process's exit, and without one it shows a traceback there.
        made, root = url_to_fs(url, asynchronous=URL_EXTRAS.get(scheme) != "azure", **options)
    except ValueError:
        raise BadInput(f"no file system has URLs that begin with {scheme}://; known are s3, gs and az") from None
    except ImportError as missing:
        raise MissingExtra.of_url(f"a store at {scheme}://", scheme, missing) from None
    made.retries = 1  # of s3fs: attempts, not retries
    return made, root.rstrip("/")
