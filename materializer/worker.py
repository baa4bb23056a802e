"""The body of a worker process: take a job, make its objects, say so, wait for the next.

Run by the pool as `python -m viewcache.materializer.worker FD MEMORY_BYTES PARENT [OP_MODULE…]`; it ends when the
other side of FD closes or the process PARENT ends.
"""

import sys
from multiprocessing.connection import Connection

from viewcache.materializer import ops
from viewcache.materializer.job import Job
from viewcache.materializer.limits import limit_worker
from viewcache.materializer.make import make

__all__ = ["main"]


def serve(connection: Connection) -> None:
    """Run jobs until the connection closes."""
    while True:
        try:
            said = connection.recv()
        except (EOFError, OSError):
            return
        if not isinstance(said, Job):
            continue  # a request to yield that arrived after its job was done

        def must_yield() -> bool:
            return connection.poll() and connection.recv() == "yield"

        for made_or_report in make(said, must_yield):
            connection.send(made_or_report)


def main() -> None:
    """Set the limits, then serve."""
    fd, memory_bytes, parent = (int(each) for each in sys.argv[1:4])
    op_modules = sys.argv[4:]
    limit_worker(memory_bytes, parent=parent)
    ops.load_modules(op_modules)
    serve(Connection(fd))


if __name__ == "__main__":
    main()
