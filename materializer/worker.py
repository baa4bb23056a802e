"""The body of a worker process: take a job, make its objects, say so, wait for the next.

A job that arrives in the middle of another goes first: a reader waits for it. The other is paused, not given up.

Run by the pool as `python -m viewcache.materializer.worker FD MEMORY_BYTES PARENT [OP_MODULE…]`; it ends when the
other side of FD closes or the process PARENT ends.
"""

import sys
from multiprocessing.connection import Connection

from viewcache.materializer import ops
from viewcache.materializer.job import Job, Made, Report
from viewcache.materializer.limits import limit_worker
from viewcache.materializer.make import make

__all__ = ["main"]


def serve(connection: Connection) -> None:
    """Run jobs until the connection closes."""
    while True:
        said = _hear(connection)
        if isinstance(said, Job):  # else a request to yield that arrived after its job was done
            _run(connection, said)


def _run(connection: Connection, job: Job) -> None:
    def pause() -> bool:
        """Do what came meanwhile; True when this job shall give up the rest."""
        while connection.poll():
            said = _hear(connection)
            if isinstance(said, Job):
                _run(connection, said)
            elif said == job.number:
                return True
        return False

    for said in make(job, pause):
        _say(connection, (job.number, said))


def _hear(connection: Connection) -> Job | int:
    try:
        said: Job | int = connection.recv()
    except (EOFError, OSError):
        raise SystemExit(0) from None  # not an error that the job below could take for its own
    return said


def _say(connection: Connection, what: tuple[int, Made | Report]) -> None:
    try:
        connection.send(what)
    except OSError:
        raise SystemExit(0) from None  # the owner is gone


def main() -> None:
    """Set the limits, then serve."""
    fd, memory_bytes, parent = (int(each) for each in sys.argv[1:4])
    op_modules = sys.argv[4:]
    limit_worker(memory_bytes, parent=parent)
    ops.load_modules(op_modules)
    serve(Connection(fd))


if __name__ == "__main__":
    main()
