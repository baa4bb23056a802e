"""The keys of ``cache.op_workers``: programs that serve operations in processes of their own."""

from viewcache.api.config.kinds import Key, KeySection

__all__ = ["OP_WORKER", "OP_WORKERS"]

OP_WORKERS = Key(
    "op_workers",
    "workers",
    "Op workers by name: each serves operations of yours with the libraries of another Python environment. Only the "
    "configuration that starts the cache names them; docs/op-workers.md says more.",
    (),
    "none",
    section="op_worker",
)
"""Of the section ``cache``."""

OP_WORKER = KeySection(
    "op_worker",
    "cache.op_workers.NAME",
    "One op worker: `python` with `modules`, or a `command`.",
    (
        Key(
            "python",
            "url",
            "The Python of the environment, which needs NumPy and msgspec: a path, seen from the file's folder, or a "
            "name that is looked up in PATH.",
            None,
            "must be given, or `command`",
        ),
        Key(
            "modules",
            "modules",
            "Modules that it imports, each with a list `OPS` of operations.",
            (),
            "must be given with `python`",
        ),
        Key("path", "folders", "Folders where it finds them, if they are not installed there.", (), "none"),
        Key(
            "command",
            "texts",
            "Instead of `python`: a program and its arguments that speak the protocol of op workers.",
            (),
            "none",
        ),
        Key(
            "packages",
            "texts",
            "Installed packages that the result depends on. Their versions enter the keys of what is stored, so that "
            "another version makes it anew.",
            (),
            "none",
        ),
        Key(
            "timeout",
            "number",
            "Seconds for one call, which is for at most sixteen frames; then its process is replaced.",
            10.0,
            least=0.1,
            most=3600,
        ),
        Key("memory", "size", "Most private memory of each of its processes.", 4 << 30, "4 GiB"),
    ),
)
"""One op worker."""
