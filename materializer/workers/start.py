"""Which kind of workers a cache has: processes, or threads of this one."""

from viewcache.errors import Full
from viewcache.materializer.choices import WorkerKind
from viewcache.materializer.op_workers.sources import OpSources
from viewcache.materializer.spec import CacheSpec
from viewcache.materializer.workers.pool import GRACE_S, JobObserver, Pool, WorkerPool

__all__ = ["start_pool"]


def start_pool(cache: CacheSpec, observer: JobObserver | None = None) -> Pool:
    """The workers that a cache's settings ask for; none runs yet.

    Raises:
        Full: the system has no descriptors for it now.
    """
    try:
        return _pool_of(cache, observer)
    except OSError as error:
        raise Full(f"no workers could be started: {error}; close files, or raise the limit (ulimit -n)") from error


def _pool_of(cache: CacheSpec, observer: JobObserver | None) -> Pool:
    sources = OpSources.of(cache)
    if cache.worker_kind == WorkerKind.THREADS:
        from viewcache.materializer.workers.thread_pool import ThreadPool  # it loads the decoder into this process

        return ThreadPool(cache.worker_count, grace_s=GRACE_S + sources.silent_s, observer=observer)
    memory_bytes = max(cache.memory_bytes // cache.worker_count, 1 << 30)
    return WorkerPool(cache.worker_count, memory_bytes=memory_bytes, ops=sources, observer=observer)
