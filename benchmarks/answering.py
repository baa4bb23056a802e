"""A worker that decodes nothing: it answers each job at once, with objects that really lie in the store.

It is the worker of the product in all else (the socket, pausing, giving up, limits), so that what a job costs its owner
is what it costs in use.
"""

from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from viewcache.materializer.clock import Clock
from viewcache.materializer.workers import worker
from viewcache.materializer.workers.job import Job, Made, Report
from viewcache.store import ArrayMeta

__all__ = ["answer"]


def answer(job: Job, pause: Callable[[], bool]) -> Iterator[Made | Report]:
    """Write every object of a job, black, in the order in which they are due; see `make`."""
    clock, left = Clock(laps=job.laps), [recipe.key for recipe in job.clips]
    for recipe in job.clips:
        meta = ArrayMeta(recipe.shape, recipe.chunk_shape, recipe.codec, {"video": job.name})
        written = job.target.write(recipe.key, np.zeros(recipe.shape, np.uint8), meta)
        clock.lap("store")
        left.remove(recipe.key)
        yield Made(recipe.key, written, *clock.take())
        if pause():
            break
    seconds, span = clock.take()
    yield Report(seconds, returned=tuple(left), span=span)


if __name__ == "__main__":
    with mock.patch.object(worker, "make", answer):
        worker.main()
