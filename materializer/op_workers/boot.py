"""Start an op worker in another Python: `PYTHON -I boot.py FOLDER...`, with the line's descriptor in the environment.

That Python has its own libraries, and viewcache is not among them. This file makes importable, from beside itself, what
an operation is made of, which needs NumPy and msgspec alone, and puts nothing else of ours on the path. It is written
for any Python 3, so that one that is too old can say so.
"""

import importlib.util
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Serve until nobody listens any more; what is missing here is said on stderr, and the exit status is 3."""
    here = "this is Python {}.{} at {}".format(*sys.version_info[:2], sys.executable)
    if sys.version_info < (3, 11):  # noqa: UP036 - it is any Python that the user has
        _refuse(here + ", and operations need 3.11 or newer: name another one, or a command that serves them")
    sys.path[:0] = sys.argv[1:]
    try:
        import msgspec  # noqa: F401 - before anything needs them, to say which one is missing
        import numpy  # noqa: F401
    except ImportError as error:
        _refuse("{}, and {}: run `{} -m pip install numpy msgspec`".format(here, error, sys.executable))  # noqa: UP032
    _provide_viewcache()
    from viewcache.materializer.op_workers.serve import serve

    serve(int(os.environ.pop("VIEWCACHE_OP_WORKER_FD")))


def _refuse(why: str) -> None:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(3)


def _provide_viewcache() -> None:
    """Make `import viewcache` find the package that this file belongs to, whatever is installed here."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("viewcache", path, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["viewcache"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
