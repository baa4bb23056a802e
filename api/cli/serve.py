"""The commands that run and end the service of a cache: serve, stop."""

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import add_where
from viewcache.api.cli.terminal import Terminal

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe these commands to the parser."""
    serve = commands.add_parser(
        "serve", help="own a cache for other processes, in the foreground, until Ctrl-C or `viewcache stop`"
    )
    serve.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    serve.add_argument(
        "--idle", type=float, metavar="SECONDS", help="end so long after the last client (default: never)"
    )
    serve.set_defaults(command=_serve)

    stop = commands.add_parser("stop", help="end the service of a cache; its clients start another when they go on")
    add_where(stop)
    stop.add_argument("--if-idle", action="store_true", help="only if no process uses it")
    stop.add_argument("--now", action="store_true", help="kill it; nothing that was made is lost")
    stop.add_argument("--json", action="store_true", help="the answer as JSON")
    stop.set_defaults(command=_stop)


def _serve(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration
    from viewcache.api.service.run import serve
    from viewcache.errors import BadInput

    idle_s = math.inf if arguments.idle is None else arguments.idle
    if not idle_s >= 0:  # nor what is no number
        raise BadInput(f"--idle {idle_s:g}: at least 0 seconds; leave it out to serve until it is ended")
    config = configuration(arguments.config)
    root = Path(config.cache.local.url)

    def ready() -> None:
        terminal.say(f"serving {root} as process {os.getpid()}; Ctrl-C or `viewcache stop` ends it")

    return serve(config, root, idle_s, ready)


def _stop(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.service.stopping import stop

    root = Path(locate(arguments.where, tasks=False).root)
    pid = stop(root, if_idle=arguments.if_idle, now=arguments.now)
    if arguments.json:
        terminal.data({"stopped": pid})
    terminal.say(f"the service of {root}, process {pid}, has ended")
    return 0
