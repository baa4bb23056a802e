"""Start a process that serves this one at the end of a socket: a worker, or a scanner."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["import_path", "start_child"]


def start_child(module: str, fd: int, *arguments: str) -> "subprocess.Popen[bytes]":
    """Run `python -m module FD arguments…`.

    It imports from where this process does, so that it finds operations beside the user's script, and from nowhere
    else: the folder that a person stands in must not provide modules.

    Args:
        module: to run.
        fd: the child's end of a socket pair; the caller closes it.
        arguments: after the descriptor.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(fd), *arguments],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": import_path()},
    )


def import_path() -> str:
    """Where this process imports from, for ``PYTHONPATH``: absolute, and without a working folder that is gone."""
    return os.pathsep.join(_absolute_paths())


def _absolute_paths() -> Iterator[str]:
    for each in sys.path:
        with suppress(FileNotFoundError):
            yield os.path.abspath(each)
