"""The command line: ``viewcache COMMAND …``; the other modules of this folder hold the commands.

A command gets its arguments and a terminal, answers with an exit code, and loads what it needs when it runs, so that
``--help`` is there at once. Errors become one line on stderr and one of the codes below; they are a public interface.
"""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from viewcache import __version__
from viewcache.api.cli import care, demo, evict, init, look, make, mount, page, profile, serve, show
from viewcache.api.cli.arguments import Parser, asks_for_json, in_one_line
from viewcache.api.cli.terminal import Terminal
from viewcache.api.permission import refused
from viewcache.errors import BadInput, BadVideo, Broken, Busy, CatalogBusy, ConfigError, NotFound, ViewcacheError

__all__ = ["EXIT_CODES", "exit_code", "main", "parser"]

EXIT_CODES = {
    0: "ok",
    1: "problems were found: in a configuration, a video, a stored object, a comparison",
    2: "bad input: arguments, a configuration, a query",
    3: "not found: a file, a cache, a dataset, a task",
    4: "busy: another process holds the cache, or a wait was over",
    5: "broken: the machine or the cache itself; `viewcache doctor` says more",
    130: "interrupted; nothing is lost, the same command goes on",
}
"""What the process ends with."""

_BY_ERROR: tuple[tuple[type[ViewcacheError], int], ...] = (
    (BadInput, 2),
    (NotFound, 3),
    (BadVideo, 1),
    (Busy, 4),
    (Broken, 5),
)

_EPILOG = "exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())


def exit_code(error: BaseException) -> int:
    """The code that a command ends with when this error ends it: by the groups of the error tree."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), 5)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets ``command``, the function that runs it."""
    top = Parser(
        prog="viewcache",
        description="Video preprocessing, planned ahead and cached as views of a training run.",
        epilog=_EPILOG,
    )
    top.add_argument("--version", action="version", version=f"viewcache {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (init, make, profile, demo, look, show, page, care, evict, serve, mount):
        group.add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; None = those of the process.

    Returns:
        One of `EXIT_CODES`.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    terminal = Terminal(json=asks_for_json(words))
    try:
        arguments = parser().parse_args(words)
    except BadInput as wrong:
        return _told(wrong, terminal, words)
    before = signal.getsignal(signal.SIGTERM)
    try:
        # A job scheduler's way of saying Ctrl-C.
        signal.signal(signal.SIGTERM, _interrupt)
        code = _done(arguments, terminal)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        message = "interrupted; what was made is kept, and the same command goes on from there"
        if terminal.json:
            terminal.data({"error": {"kind": "interrupted", "message": message}})
        terminal.say(message)
        return exit_code(interrupt)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CatalogBusy as busy:
        return _told(_explained(busy), terminal, words)
    except ViewcacheError as error:
        return _told(error, terminal, words)
    except Exception as error:
        if (told := refused(error)) is not None:
            return _told(told, terminal, words)
        traceback.print_exc()
        if terminal.json:
            terminal.data({"error": {"kind": "unexpected", "message": f"{type(error).__name__}: {error}"}})
        terminal.say(f"viewcache: unexpected {type(error).__name__}; please report it with the lines above")
        return exit_code(error)
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


def _done(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Do what was asked; a service that has outlived its clients and is in the way is ended first."""
    try:
        return int(arguments.command(arguments, terminal))
    except CatalogBusy as busy:
        from viewcache.api.service.watching import end_idle

        if not end_idle(busy):
            raise
    return int(arguments.command(arguments, terminal))


def _told(error: ViewcacheError, terminal: Terminal, words: Sequence[str]) -> int:
    if terminal.json:
        about: dict[str, object] = {"kind": error.kind, "message": str(error)}
        if isinstance(error, ConfigError):
            about |= {"code": str(error.code), "file": error.file, "line": error.line, "column": error.column}
        terminal.data({"error": about})
    terminal.say(f"viewcache: {in_one_line(str(error), words)}")
    return exit_code(error)


def _explained(busy: CatalogBusy) -> CatalogBusy:
    from viewcache.api.service.watching import explained

    return explained(busy, besides=os.getpid())


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
