"""The command that gives up stored objects by a policy, and lists the policies: evict."""

import argparse
import os
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import add_where
from viewcache.api.cli.terminal import NARROW, Terminal
from viewcache.api.text import counted, size

if TYPE_CHECKING:
    from viewcache.api.upkeep.evict import Evicted
    from viewcache.catalog.policies import Policy

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]

_SHOWN = 50
"""Victims that are shown to people; `--json` has all."""


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    evict = commands.add_parser("evict", help="give up stored objects by a policy, or say which; list the policies")
    add_where(evict)
    evict.add_argument("--policy", metavar="NAME", help="what leaves first (default: the configuration's, else demand)")
    evict.add_argument("--need", metavar="SIZE", help="bytes of the budget that shall be free, such as 10GB")
    evict.add_argument("--tier", choices=("local", "remote"), default="local", help="from which tier (default: local)")
    evict.add_argument("--folder", metavar="DIR", help="policies of your own (default: the configuration's)")
    evict.add_argument("--list", action="store_true", help="only list the policies, each tried on a sample")
    evict.add_argument("--dry-run", action="store_true", help="only say what would leave, and why")
    evict.add_argument("--json", action="store_true", help="the answer as JSON")
    evict.set_defaults(command=_evict)


def _evict(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.config.values import parse_size
    from viewcache.api.upkeep.evict import evict, policies_of, policy_of
    from viewcache.errors import BadInput, NotFound

    folder = os.path.abspath(arguments.folder) if arguments.folder is not None else None
    if arguments.list:
        try:
            located = locate(arguments.where)
        except NotFound:
            if arguments.where is not None:
                raise
            located = None  # the policies can be looked at without a cache
        return _list(*policies_of(located, folder), terminal)
    if arguments.need is None:
        raise BadInput("--need says how many bytes shall be free, such as --need 10GB (or use --list)")
    try:
        need = parse_size(int(arguments.need) if arguments.need.isdecimal() else arguments.need)
    except ValueError:
        raise BadInput(f"--need {arguments.need!r} is no size; write 10GB, 1.5TiB or a number of bytes") from None
    located = locate(arguments.where)
    policy = policy_of(located, arguments.policy, folder)
    done = evict(located, policy, need, tier=arguments.tier, dry_run=arguments.dry_run)
    if terminal.json:
        terminal.data(done.as_dict())
    else:
        _show(done, terminal)
    return 0


def _list(found: list["Policy"], active: str, terminal: Terminal) -> int:
    if terminal.json:
        rows = [
            {
                "name": policy.name,
                "active": policy.name == active,
                "source": policy.source,
                "purpose": policy.purpose,
                "problem": policy.problem,
                "text": policy.text,
            }
            for policy in found
        ]
        terminal.data({"policies": rows})
    else:
        terminal.table(
            ("name", "active", "source", "purpose"),
            [
                (policy.name, "yes" if policy.name == active else "", policy.source, policy.problem or policy.purpose)
                for policy in found
            ],
            width=NARROW,
        )
    return 1 if any(policy.problem for policy in found) else 0


def _show(done: "Evicted", terminal: Terminal) -> None:
    if done.leaves:
        terminal.table(
            ("key", "kind", "video", "bytes", "reason", "policy"),
            [
                (each.key[:12], each.kind, each.video, each.bytes, each.reason, each.policy)
                for each in done.leaves[:_SHOWN]
            ],
        )
    more = len(done.leaves) - _SHOWN
    if more > 0:
        terminal.say(f"and {more} more; --json lists all")
    verb = "would free" if done.dry_run else "freed"
    terminal.show(
        f"{done.policy} {verb} {size(done.bytes)} of the {done.tier} tier with {counted(len(done.leaves), 'object')}; "
        f"{size(max(0, done.free_bytes))} of its budget {'would be' if done.dry_run else 'are'} free"
    )
    if done.free_bytes < done.need_bytes:
        terminal.say(f"{size(done.need_bytes)} were wanted; nothing else may leave")
