"""What a worker does: take a job, make its objects, say so, wait for the next; the same in a process and in a thread.

A job that arrives in the middle of another goes first: a reader waits for it. The other is paused, not given up.

A worker process is run by the pool as `python -m viewcache.materializer.workers.worker FD MEMORY_BYTES PARENT OPS`,
with `OpSources` as text; it ends when the other side of FD closes or the process PARENT ends.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from viewcache.materializer.clock import OTHER
from viewcache.materializer.limits import limit_worker, private_bytes
from viewcache.materializer.op_workers.sources import OpSources
from viewcache.materializer.workers.blocks import make_job
from viewcache.materializer.workers.job import Begun, Job, Made, Report
from viewcache.materializer.workers.post import Post

__all__ = ["Channel", "OtherWork", "main", "serve"]


class Channel(Protocol):
    """A worker's end of what jobs come by, and words about them go by."""

    def poll(self) -> bool:
        """Whether `recv` would return, or raise, at once."""

    def recv(self) -> Any:
        """A `Job`, or the number of one to give up; waits for it.

        Raises:
            EOFError: there will be nothing more.
        """

    def send(self, obj: tuple[int, Begun | Made | Report]) -> None:
        """Say what became of a job.

        Raises:
            OSError: nobody listens any more.
        """


class OtherWork:
    """Core seconds of a worker that no stage is charged with: its start, messages, and what is between stages."""

    def __init__(self, core_s: Callable[[], float]) -> None:
        """Nothing is charged yet; ``core_s`` gives all core seconds of the worker so far."""
        self._core_s = core_s
        self._charged_s = 0.0
        self.jobs = 0
        """Begun, and not over."""

    def added(self, message: Made | Report) -> Made | Report:
        """A message with the rest as one more stage; only if no job is paused, whose stages nobody has heard of yet."""
        cpu_s = message.span.cpu_s
        self._charged_s += sum(cpu_s.values())
        rest = self._core_s() - self._charged_s
        if self.jobs > 1 or rest <= 0:
            return message
        self._charged_s += rest
        return replace(message, span=replace(message.span, cpu_s={**cpu_s, OTHER: rest}))


def serve(channel: Channel, core_s: Callable[[], float] = time.thread_time) -> None:
    """Run jobs until the channel closes; then SystemExit.

    Args:
        channel: jobs come by.
        core_s: all core seconds of this worker so far.
    """
    other = OtherWork(core_s)
    while True:
        message = _receive(channel)
        if isinstance(message, Job):  # else a request to give up a job that was done before it arrived
            _run(channel, message, set(), other)


def _run(channel: Channel, job: Job, cancelled: set[int], other: OtherWork) -> None:
    """Run a job; ``cancelled`` are numbers of jobs to give up, of this one or of those that are paused for it."""

    def pause() -> bool:
        """Do what came meanwhile; True when this job shall give up the rest."""
        while channel.poll():
            message = _receive(channel)
            if isinstance(message, Job):
                _run(channel, message, cancelled, other)
            else:
                cancelled.add(message)
        return job.number in cancelled

    other.jobs += 1
    for message in make_job(job, pause):
        _send(channel, (job.number, message if isinstance(message, Begun) else other.added(message)))
    other.jobs -= 1


def _receive(channel: Channel) -> Job | int:
    try:
        message: Job | int = channel.recv()
    except (EOFError, OSError):
        raise SystemExit(0) from None  # not an error that the job below could take for its own
    return message


def _send(channel: Channel, what: tuple[int, Begun | Made | Report]) -> None:
    try:
        channel.send(what)
    except OSError:
        raise SystemExit(0) from None  # the owner is gone


def main() -> None:
    """Set the limits, then serve."""
    fd, memory_bytes, parent = (int(each) for each in sys.argv[1:4])
    sources = OpSources.from_text(sys.argv[4])
    limit_worker(memory_bytes, parent=parent, children_differ=bool(sources.workers))
    sources.register()
    post = Post(socket.socket(fileno=fd))
    post.send(private_bytes(os.getpid()))  # what jobs take is counted from here
    serve(post, time.process_time)


if __name__ == "__main__":
    main()
