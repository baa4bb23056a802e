"""``cache.op_workers`` of a configuration: which programs serve operations, and that they do.

Like ``op_modules``, they are code that the owner of the cache names; a task cannot name any. They are started when the
configuration is loaded, because only they know the parameters of their operations, and never by `lint` without --scan.
"""

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

from viewcache.api.config.entries import Entries
from viewcache.api.config.keys import NAME, SECTIONS
from viewcache.api.config.problems import Problems
from viewcache.api.config.steps import told
from viewcache.api.config.values import local_path
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import BadInput, ConfigCode, OpWorkerFailed
from viewcache.materializer.spec import OpWorkerSpec

__all__ = ["op_workers_of", "read_op_workers"]


def read_op_workers(cache: Entries, folder: str, *, start: bool) -> tuple[OpWorkerSpec, ...]:
    """Read and check the section, and learn from each op worker what it serves.

    Args:
        cache: the entries of ``cache``.
        folder: where relative paths start.
        start: whether programs may be started; if not, their operations stay unknown.

    Raises:
        ConfigError: a key is wrong, a program is not there, or does not serve what can be used.
    """
    parts = [cache.problems.part(partial(_read, name, entries, folder, start)) for name, entries in _each(cache)]
    if parts and not (start and all(parts)):
        cache.problems.ops_missing.add("op_workers")
    return tuple(part.value for part in parts)


def op_workers_of(node: Node, folder: str) -> tuple[OpWorkerSpec, ...]:
    """What ``cache.op_workers`` of a document says; nothing is started.

    Raises:
        ConfigError: a key is wrong, or a program is not there.
    """
    cache = Node({"op_workers": node}, node.place, {"op_workers": node.place})
    return read_op_workers(Entries(cache, SECTIONS["cache"], "cache", Problems()), folder, start=False)


def _each(cache: Entries) -> Iterator[tuple[str, Entries]]:
    if not cache.has("op_workers"):
        return
    node = cache.child("op_workers")
    if not isinstance(node.value, dict):
        message = f"cache.op_workers must be a mapping from names to op workers, got {node.shown()}"
        raise node.error(ConfigCode.WRONG_TYPE, message)
    for name, each in node.value.items():
        if not re.fullmatch(NAME, name):
            message = (
                f"cache.op_workers: {name!r} cannot be the name of an op worker; it is of letters, digits, . _ and -"
            )
            raise error_at(node.keys[name], ConfigCode.WRONG_FORMAT, message)
        yield name, Entries(each, SECTIONS["op_worker"], f"cache.op_workers.{name}", cache.problems)


def _read(name: str, entries: Entries, folder: str, start: bool) -> OpWorkerSpec:
    plain = entries.values("python", "modules", "path", "command", "packages", "timeout", "memory")
    spec = OpWorkerSpec(
        name,
        _command(entries, plain, folder),
        plain["modules"],
        plain["packages"],
        plain["timeout"],
        plain["memory"],
    )
    if start:
        _start(entries, spec)
    return spec


def _command(entries: Entries, plain: dict[str, Any], folder: str) -> tuple[str, ...]:
    python, command = plain["python"], plain["command"]
    if (python is None) == (not command):
        message = f"{entries.label} needs either python, with modules, or a command"
        raise entries.node.error(ConfigCode.MISSING_KEY, message)
    if command and plain["path"]:
        message = f"{entries.label}.path is for python; a command finds its modules itself"
        raise error_at(entries.place("path"), ConfigCode.MISPLACED_KEY, message)
    if command:
        return (_program(entries, "command", command[0], folder), *command[1:])
    if not plain["modules"]:
        raise entries.node.error(ConfigCode.MISSING_KEY, f"{entries.label} needs the key modules: {_DOC['modules']}")
    from viewcache.materializer.op_workers.process import python_command  # who has none need not load what runs them

    folders = tuple(os.path.normpath(os.path.join(folder, each)) for each in plain["path"])
    for each in folders:
        if not os.path.isdir(each):
            raise error_at(
                entries.place("path"), ConfigCode.OP_WORKER, f"{entries.label}.path: there is no folder {each}"
            )
    return python_command(_program(entries, "python", python, folder), folders)


def _program(entries: Entries, key: str, written: str, folder: str) -> str:
    """The absolute path of a program, with links as they are: that of a virtual environment is one."""
    path = local_path(written, folder) if os.sep in written else shutil.which(written)
    if path is None or os.path.isdir(path) or not os.access(path, os.X_OK):
        message = (
            f"{entries.label}.{key}: there is no program {path or written}; make the environment, for instance by "
            "`python -m venv FOLDER` and `FOLDER/bin/python -m pip install numpy msgspec`, or correct the path"
        )
        raise error_at(entries.place(key), ConfigCode.OP_WORKER, message)
    return os.path.abspath(path)


def _start(entries: Entries, spec: OpWorkerSpec) -> None:
    from viewcache.materializer.op_workers.crews import load_op_worker

    try:
        load_op_worker(spec)
    except (BadInput, OpWorkerFailed) as error:
        place = entries.place("command" if entries.has("command") else "python")
        raise error_at(place, ConfigCode.OP_WORKER, f"{entries.label}: {told(error)}") from error


_DOC = {key.name: key.doc for key in SECTIONS["op_worker"].keys}
