"""What the arguments of all commands have in common: the parser, and what several commands take."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from viewcache.errors import BadInput

__all__ = ["Parser", "add_where", "asks_for_json", "in_one_line", "refuse_lone_configuration"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are of our error tree, so that they end a command as all others do.

    The options of a command may stand between its other arguments, too.
    """

    _intermixes = False
    """Whether options between arguments are being understood just now, for which argparse calls this parser again."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What is understood and what is not, of a command with its options anywhere.

        Alone, argparse gives up all arguments that may be left out when an option comes: of `sql x.yaml --rows 5 QUERY`
        it takes `x.yaml` for the query. What it understands alone keeps its meaning. It cannot look for the options
        first where there are subcommands; they are parsers like this one, and do so themselves.
        """
        known, unknown = super().parse_known_args(args, namespace)
        if not unknown or self._intermixes or self._subparsers is not None:
            return known, unknown
        self._intermixes = True
        try:
            return self.parse_known_intermixed_args(args)
        finally:
            self._intermixes = False

    def error(self, message: str) -> NoReturn:
        """Show the usage.

        Raises:
            BadInput: always; it says what is wrong with the arguments.
        """
        self.print_usage(sys.stderr)
        raise BadInput(f"{message}; `{self.prog} --help` says what it takes")


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
