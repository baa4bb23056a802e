"""The command that measures what devices and cores give: profile."""

import argparse
from typing import TYPE_CHECKING

from viewcache.api.cli.terminal import Terminal

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]

SECONDS = 20.0
"""Of measuring, unless another number is given."""


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    profile = commands.add_parser(
        "profile",
        help="measure what this machine's device and cores give, and which share of images is best kept as pictures",
        description=(
            "Read images and kept pictures cold, decode and crop them, keep them in each codec, and run whole "
            "pipelines of at most 5 of 11 mixes; print all 11 with what binds, and record what devices give and what "
            "work takes, with which plans reckon from then on."
        ),
    )
    profile.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    profile.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"how long to measure, about (default {SECONDS:g})"
    )
    profile.add_argument(
        "--tier", default="local", metavar="TIER", help="where kept pictures lie (default local, the only one so far)"
    )
    profile.add_argument("--dry-run", action="store_true", help="say what would be measured, measure nothing")
    profile.add_argument("--json", action="store_true", help="the answer as JSON")
    profile.set_defaults(command=_profile)


def _profile(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration
    from viewcache.api.profile.profile import check_seconds, prepared, profile
    from viewcache.api.profile.told import HEADS, dry_lines, profile_lines, profile_rows, profile_title

    check_seconds(arguments.seconds)
    with terminal.progress("looking at images") as bar:
        config = configuration(arguments.config)
        wanted = prepared(config, arguments.tier, progress=bar.at, dry_run=arguments.dry_run)
    if arguments.dry_run:
        if terminal.json:
            terminal.data(wanted.as_dict() | {"seconds": arguments.seconds, "dry_run": True})
        else:
            for line in dry_lines(wanted, arguments.seconds):
                terminal.show(line)
        return 0
    with terminal.progress("measuring") as bar:
        found = profile(wanted, arguments.seconds, bar)
    if terminal.json:
        terminal.data(found.as_dict())
        return 0
    terminal.table(HEADS, profile_rows(found), profile_title(found))
    for line in profile_lines(found):
        terminal.show(line)
    return 0
