"""The commands that show a cache while it is used: page, in a browser, and top, in a terminal."""

import argparse
import signal
import sys
import threading
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import add_where
from viewcache.api.cli.terminal import Terminal
from viewcache.api.signals import handled

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe these commands to the parser."""
    page = commands.add_parser(
        "page", help="show tasks, tiers, evictions, errors and batches in a browser, read-only, until Ctrl-C"
    )
    add_where(page)
    page.add_argument("--port", type=int, default=8686, metavar="N", help="of 127.0.0.1 (default 8686; 0 = any)")
    page.set_defaults(command=_page)

    top = commands.add_parser("top", help="show the same in a terminal, until q or Ctrl-C")
    add_where(top)
    top.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between two looks (default 2)")
    top.add_argument("--once", action="store_true", help="look once, as where stdout is no terminal")
    top.add_argument("--json", action="store_true", help="look once, and print all that is shown as JSON")
    top.set_defaults(command=_top)


def _page(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.page.server import PageServer

    located = locate(arguments.where)
    server = PageServer(located, arguments.port)
    # An exception would be passed over where it comes while Python frees an object, as the thread of a request.
    told = threading.Event()
    try:
        with handled((signal.SIGINT, signal.SIGTERM), lambda *_: told.set()):
            terminal.show(server.url)
            terminal.say(
                f"showing {located.root} to who has this address, until Ctrl-C; looking makes and moves nothing"
            )
            server.serve(told.is_set)
    finally:
        server.close()
    return 0


def _top(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from msgspec import to_builtins

    from viewcache.api.cli.top import show_once, watch
    from viewcache.api.config.find import locate
    from viewcache.api.page.gather import gather
    from viewcache.api.page.watcher import LEAST_S, Watcher
    from viewcache.errors import BadInput

    if not LEAST_S <= arguments.interval <= 3600:
        raise BadInput(f"--interval {arguments.interval:g}: from {LEAST_S:g} to 3600 seconds; each look costs some CPU")
    located = locate(arguments.where, tasks=False)
    if arguments.json:
        terminal.data(to_builtins(gather(located)))
        return 0
    if arguments.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        show_once(gather(located))
        return 0
    watcher = Watcher(located)
    try:
        watch(watcher, arguments.interval)
    finally:
        watcher.close()
    return 0
