"""The command that shows a cache as files: mount."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import refuse_lone_configuration
from viewcache.api.cli.terminal import Terminal

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    mount = commands.add_parser(
        "mount",
        help="show the views of a cache as read-only files below a folder, until Ctrl-C or `fusermount3 -u DIR`",
    )
    mount.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    mount.add_argument("folder", metavar="DIR", help="an empty folder")
    mount.add_argument("--job", metavar="NAME", help="whose batches it shows, of several equal trainings")
    mount.set_defaults(command=_mount)


def _mount(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration
    from viewcache.api.mount.run import mount

    if not arguments.config:
        refuse_lone_configuration(arguments.folder, "DIR", "mount")
    config = configuration(arguments.config)
    over = mount(config, Path(arguments.folder), job=arguments.job, say=terminal.say)
    left = "" if over else "; files of it that are open give an error for all that the system does not have of them yet"
    terminal.say(f"{arguments.folder} is unmounted{left}")
    if not over:
        sys.stdout.flush()
        os._exit(0)  # libfuse waits for those files to be closed, and only the end of the process closes them
    return 0
