"""The commands that check and repair: verify, doctor, gc, forget, db upgrade."""

import argparse
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import add_where
from viewcache.api.cli.terminal import Terminal
from viewcache.api.text import counted, size

if TYPE_CHECKING:
    from viewcache.api.audit.evidence import Evidence

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe these commands to the parser."""
    verify = commands.add_parser(
        "verify", help="check every stored object, that every draw is there exactly once, and that draws are uniform"
    )
    add_where(verify)
    verify.add_argument("--dry-run", action="store_true", help="only report; damaged objects stay")
    verify.add_argument("--plot", metavar="FILE", help="draw orders, starts, crops and frames: FILE.png or FILE.html")
    verify.add_argument("--json", action="store_true", help="the findings as JSON")
    verify.set_defaults(command=_verify)

    doctor = commands.add_parser(
        "doctor", help="python, libraries, store, lock, disk: ok, warn or fail, and what to do"
    )
    add_where(doctor)
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    doctor.set_defaults(command=_doctor)

    collector = commands.add_parser(
        "gc", help="remove objects that no plan needs any more, and what dead processes left; nothing else"
    )
    add_where(collector)
    collector.add_argument("--quarantined", action="store_true", help="also damaged files that were moved aside")
    collector.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    collector.add_argument("--json", action="store_true", help="the answer as JSON")
    collector.set_defaults(command=_collect)

    forget = commands.add_parser(
        "forget", help="drop a task's draws and plans, so that its name can mean something else"
    )
    forget.add_argument("where", metavar="CONFIG|DIR", help="a YAML file, or a cache's folder")
    forget.add_argument("task", metavar="TASK", help="the task's tag")
    forget.add_argument("--dry-run", action="store_true", help="only say what would be dropped")
    forget.add_argument("--json", action="store_true", help="the answer as JSON")
    forget.set_defaults(command=_forget)

    database = commands.add_parser("db", help="the catalog's database")
    actions = database.add_subparsers(title="actions", metavar="ACTION", required=True)
    upgrade = actions.add_parser("upgrade", help="bring an older catalog to this release's schema")
    add_where(upgrade)
    upgrade.add_argument("--dry-run", action="store_true", help="only say from which schema to which")
    upgrade.add_argument("--json", action="store_true", help="the answer as JSON")
    upgrade.set_defaults(command=_upgrade)


def _verify(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.audit.verify import verify
    from viewcache.api.config.find import locate

    draw = None
    if arguments.plot is not None:
        from viewcache.api.audit.plots import plotter

        draw = plotter(arguments.plot)
    with terminal.progress("checking objects") as bar:
        found = verify(locate(arguments.where), repair=not arguments.dry_run, progress=bar.at)
    if terminal.json:
        terminal.data(found.as_dict())
    else:
        terminal.show(
            f"{counted(found.objects, 'object')} of {size(found.bytes)} checked, {len(found.damaged)} damaged"
        )
        nothing = "" if found.epochs else ": nothing was drawn yet"
        terminal.show(f"{counted(found.epochs, 'drawn epoch')} checked, {len(found.draws)} with mistakes{nothing}")
        for quality in found.quality:
            terminal.say(quality.describe())
        if found.evidence.tasks:
            _show_evidence(found.evidence, terminal)
    if draw is not None:
        draw(found.evidence)
        terminal.say(f"drawn in {arguments.plot}")
    for line in (*found.damaged, *found.draws, *found.evidence.errors, *found.orphans):
        terminal.say(line)
    if found.damaged:
        terminal.say(
            "left as they are (--dry-run)" if arguments.dry_run else "dropped: they are made again when they are needed"
        )
    return 1 if found.wrong else 0


def _show_evidence(evidence: "Evidence", terminal: Terminal) -> None:
    from viewcache.api.audit.uniformity import SURE

    head, rows = evidence.check_table()
    if rows:
        checks = counted(sum(check.p is not None for task in evidence.tasks for check in task.checks), "test")
        terminal.table(head, rows, f"randomness: p of {checks}, adjusted by Holm; below {SURE:g} is an error")
    if evidence.untested:
        terminal.say(evidence.untested)
    head, rows = evidence.diversity_table()
    if rows:
        terminal.table(head, rows, "distinct frames, and the share that was selected often, beside independent draws")


def _doctor(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.upkeep.doctor import doctor
    from viewcache.api.upkeep.doctor_cache import Health
    from viewcache.errors import ConfigError, NotFound

    try:
        located, problem = locate(arguments.where), None
    except (ConfigError, NotFound) as error:
        if arguments.where is not None and isinstance(error, NotFound):
            raise
        # The machine can be looked at without a cache.
        located, problem = None, error
    findings = doctor(located, problem)
    if terminal.json:
        terminal.data({"findings": [finding.as_dict() for finding in findings]})
    else:
        for finding in findings:
            terminal.show(finding.line)
    return 1 if any(finding.level == Health.FAIL for finding in findings) else 0


def _collect(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.upkeep.gc import collected

    found = collected(locate(arguments.where), quarantined=arguments.quarantined, dry_run=arguments.dry_run)
    if terminal.json:
        terminal.data(found.as_dict() | {"dry_run": arguments.dry_run})
        return 0
    verb = "would remove" if arguments.dry_run else "removed"
    for each in found.tiers:
        where = f" from the {each.tier.name} tier" if len(found.tiers) > 1 else ""
        terminal.show(f"{verb} {counted(each.objects, 'object')} of {size(each.bytes)}{where}")
    terminal.show(f"{verb} {counted(len(found.unfinished), 'unfinished file')} of dead processes")
    if found.quarantined:
        ask = "" if arguments.quarantined else "; kept: --quarantined removes them"
        terminal.show(f"{counted(len(found.quarantined), 'file')} that could not be read and were moved aside{ask}")
    if found.unplanned:
        terminal.say(
            f"the catalog was rebuilt, and what these tasks are still to read is not known yet: "
            f"{', '.join(found.unplanned)}. Objects stay until `viewcache run` has opened each with its configuration, "
            "or `viewcache forget` has forgotten it"
        )
    elif found.waiting:
        terminal.say(
            "the catalog was rebuilt, and no run has planned again since: objects stay until `viewcache run` has"
        )
    return 0


def _forget(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.upkeep.owned import owned_cache
    from viewcache.errors import NotFound

    with owned_cache(locate(arguments.where), writable=not arguments.dry_run) as owned:
        catalog = owned.catalog
        known = {row.name: row for row in catalog.load_tasks()}
        if arguments.task not in known:
            raise NotFound(f"no task {arguments.task!r} in this catalog; it has {', '.join(sorted(known)) or 'none'}")
        task = known[arguments.task]
        dropped = {
            "task": task.name,
            "draws": catalog.count_places(task.task_id, 0, max(task.epochs, 1) - 1),
            "generations": len(catalog.load_generations(task.task_id)),
            "dry_run": arguments.dry_run,
        }
        if not arguments.dry_run:
            catalog.forget_task(task.name)
    if terminal.json:
        terminal.data(dropped)
    else:
        verb = "would forget" if arguments.dry_run else "forgot"
        terminal.show(
            f"{verb} task {task.name!r}: {counted(int(dropped['draws']), 'draw')}, "
            f"{counted(int(dropped['generations']), 'generation')}; its objects stay until they are evicted"
        )
    return 0


def _upgrade(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache import migrations
    from viewcache.api.config.find import locate
    from viewcache.api.upkeep.doctor import revision_of
    from viewcache.api.upkeep.owned import owner_lock
    from viewcache.catalog.opening import upgrade_catalog

    located = locate(arguments.where)
    before, after = revision_of(located.catalog), migrations.HEAD
    if not arguments.dry_run:
        with owner_lock(located, exclusive=True):
            after = upgrade_catalog(located.catalog)
    if terminal.json:
        terminal.data({"before": before, "after": after, "dry_run": arguments.dry_run})
    elif before == after:
        terminal.show(f"the catalog is at {after}, as this release wants it")
    else:
        terminal.show(f"{'would upgrade' if arguments.dry_run else 'upgraded'} the catalog from {before} to {after}")
    return 0
