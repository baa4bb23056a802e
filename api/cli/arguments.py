"""What the arguments of all commands have in common: the parser, and what several commands take."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from viewcache.errors import BadInput

__all__ = ["Parser", "add_where", "asks_for_json", "in_one_line", "refuse_lone_configuration"]


_BEHIND = "\0"
"""Stands before each word behind ``--``, which no argument of a process can hold."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are of our error tree, so that they end a command as all others do.

    The options of a command may stand between its other arguments, too.
    """

    _intermixes = False
    """Whether options between arguments are being understood now, for which argparse may call `parse_known_args`."""

    def __init__(self, **options: Any):
        """As argparse's own."""
        super().__init__(**options)
        self.register("type", None, _without_mark)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What is understood, of a command with its options anywhere; nothing remains.

        Alone, argparse gives up all arguments that may be left out when an option comes: of `sql x.yaml --rows 5 QUERY`
        it takes `x.yaml` for the query. What it understands alone keeps its meaning. It cannot look for the options
        first where there are subcommands; they are parsers like this one, and do so themselves.

        What becomes of ``--`` differs between releases of Python, down to the third number: here the first one ends the
        options, and each word behind it is an argument as it is.

        Raises:
            BadInput: something is not understood; this parser's usage is shown, not that of the command above it.
        """
        if self._intermixes:
            return super().parse_known_args(args, namespace)
        words = sys.argv[1:] if args is None else list(args)
        if self._subparsers is not None:
            known, unknown = super().parse_known_args(words, namespace)
        else:
            end = words.index("--") if "--" in words else len(words)
            behind = [_BEHIND + word for word in words[end + 1 :]]
            known, unknown = super().parse_known_args([*words[: end + 1], *behind], namespace)
            if unknown:
                self._intermixes = True
                try:
                    known, unknown = self.parse_known_intermixed_args([*words[:end], *behind])
                finally:
                    self._intermixes = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, []

    def error(self, message: str) -> NoReturn:
        """Show the usage.

        Raises:
            BadInput: always; it says what is wrong with the arguments.
        """
        self.print_usage(sys.stderr)
        raise BadInput(f"{message.replace(_BEHIND, '')}; `{self.prog} --help` says what it takes")


def _without_mark(word: str) -> str:
    return word.removeprefix(_BEHIND)


def asks_for_json(words: Iterable[str]) -> bool:
    """Whether the answer to these arguments is to be JSON, also if they are wrong; options may be shortened."""
    for word in words:
        if word == "--":
            return False
        if word in ("--json", "--jso", "--js"):
            return True
    return False


def in_one_line(message: str, words: Sequence[str]) -> str:
    """A message in which arguments that have line breaks do not break the line."""
    for word in sorted(words, key=len, reverse=True):
        if "\n" in word:
            message = message.replace(word, word.replace("\n", "\\n"))
    return message


def refuse_lone_configuration(word: str, missing: str, command: str) -> None:
    """Refuse a configuration that stands alone where another argument was to follow it.

    Args:
        word: what was taken for that argument, since it is the only one.
        missing: that argument's name.
        command: as it is written.

    Raises:
        BadInput: the word is a file, or looks like the name of one of ours.
    """
    if os.path.isfile(word) or word.endswith((".yaml", ".yml")):
        name = shlex.quote(word)
        written = f"`viewcache {command} {name} {missing}`"
        raise BadInput(f"{missing} is missing: {name} names a configuration, as in {written}")


def add_where(parser: argparse.ArgumentParser) -> None:
    """Which cache a command is about; see `locate`."""
    parser.add_argument(
        "where",
        nargs="?",
        metavar="CONFIG|DIR",
        help="a YAML file, or a cache's folder (default: as `viewcache status`)",
    )
