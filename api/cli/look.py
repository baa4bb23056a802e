"""The commands that look and change nothing: status, sql, lint."""

import argparse
import csv
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.arguments import refuse_lone_configuration
from viewcache.api.cli.terminal import UNCOUNTED, Terminal
from viewcache.api.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from viewcache.api.config.find import Located
    from viewcache.api.config.settings import Differing

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]

_WHERE = (
    "a YAML file, or a cache's folder (default: $VIEWCACHE, the nearest viewcache.yaml, or the only YAML file here)"
)

_MOST_S, _MOST_ROWS = 86_400, 10**9
"""Of the limits of a query: a day, and more rows than are of use."""


def add_commands(commands: "Commands") -> None:
    """Describe these commands to the parser."""
    status = commands.add_parser("status", help="tasks, progress, objects by state, budget, what reading waits for")
    status.add_argument("where", nargs="?", metavar="CONFIG|DIR", help=_WHERE)
    status.add_argument("--json", action="store_true", help="the answer as JSON")
    status.set_defaults(command=_status)

    sql = commands.add_parser("sql", help="ask the catalog one SELECT, also while another process trains")
    sql.add_argument("where", nargs="?", metavar="CONFIG|DIR", help=_WHERE)
    sql.add_argument("query", metavar="QUERY", help="one SELECT over the relations of docs/catalog.md")
    form = sql.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="columns and rows as JSON")
    form.add_argument("--csv", action="store_true", help="rows as CSV, with a line of names")
    sql.add_argument("--seconds", type=float, default=10.0, metavar="S", help="most time for the query (default 10)")
    sql.add_argument("--rows", type=int, default=10_000, metavar="N", help="most rows (default 10000)")
    sql.add_argument("--wait", type=float, default=10.0, metavar="S", help="most time for a snapshot (default 10)")
    sql.set_defaults(command=_sql)

    lint = commands.add_parser("lint", help="every problem of a configuration, with file, line and column")
    lint.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    lint.add_argument("--scan", action="store_true", help="look at the videos too, and find what `run` would refuse")
    lint.add_argument("--full", action="store_true", help="as --scan, at every packet of every video")
    lint.add_argument("--json", action="store_true", help="the problems as JSON")
    lint.set_defaults(command=_lint)


def _status(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from msgspec import to_builtins

    from viewcache.api.cli.cost import cost_lines
    from viewcache.api.cli.tables import client_table, status_tables
    from viewcache.api.config.find import locate
    from viewcache.api.queries.status import status
    from viewcache.api.service.watching import stats_of

    located = locate(arguments.where, tasks=False)
    service = stats_of(Path(located.root))
    found = status(located.catalog, None if service is None else service.in_memory)
    differs = [] if service is None else _unlike(arguments.where, located, service.settings)
    if terminal.json:
        told = None if service is None else to_builtins(service)
        terminal.data({**found.as_dict(), "service": told, "differs": [asdict(each) for each in differs]})
        return 0
    shown = status_tables(found)
    nothing = ["nothing yet"] * len(shown)
    if service is not None:
        shown.append(client_table(service))
        nothing.append("none now")
    for (title, columns, rows), none in zip(shown, nothing, strict=True):
        if rows:
            terminal.table(columns, rows, title)
        else:
            terminal.show(f"{title}: {none}")
    for line in cost_lines(found):
        terminal.show(line)
    terminal.say(f"seen: {found.seen}")
    if not found.counts_memory:
        terminal.say(UNCOUNTED)
    for each in differs:
        terminal.say(f"warning: {each.told(located.root)}")
    return 0


def _unlike(where: str | None, located: "Located", running: "Mapping[str, str]") -> "list[Differing]":
    """What a configuration that was named, or is near, says otherwise than the service that runs; no folder does."""
    from viewcache.api.config.documents import texts_of, unlike
    from viewcache.api.config.find import nearest

    return [] if located.config is None else unlike(texts_of(where or nearest()), located.config, running)


def _sql(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import locate
    from viewcache.api.queries.ask import ask
    from viewcache.catalog import QueryLimits
    from viewcache.errors import BadInput

    if not 0 < arguments.seconds <= _MOST_S:
        raise BadInput(f"--seconds {arguments.seconds:g} is out of range: more than 0, and at most {_MOST_S}")
    if not 0 < arguments.rows <= _MOST_ROWS:
        raise BadInput(f"--rows {arguments.rows} is out of range: from 1 to {_MOST_ROWS}")
    if not 0 <= arguments.wait <= _MOST_S:
        raise BadInput(f"--wait {arguments.wait:g} is out of range: from 0 to {_MOST_S}")
    if arguments.where is None:
        refuse_lone_configuration(arguments.query, "QUERY", "sql")
    limits = QueryLimits(seconds=arguments.seconds, rows=arguments.rows)
    where = locate(arguments.where, tasks=False).catalog
    answer = ask(where, arguments.query, limits, wait_s=arguments.wait)
    if arguments.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    elif terminal.json:
        terminal.data(
            {
                "columns": answer.columns,
                "rows": answer.rows,
                "truncated": answer.truncated,
                "source": answer.source,
                "as_of_s": answer.as_of_s,
                "owner": answer.owner,
            }
        )
    else:
        terminal.table(answer.columns, answer.rows)
    more = f"; only the first {counted(len(answer.rows), 'row')}, there are more" if answer.truncated else ""
    terminal.say(f"seen: {answer.seen}{more}")
    return 0


def _lint(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import nearest
    from viewcache.api.preview.lint import Level, lint

    with terminal.progress("looking at files") as bar:
        scan = arguments.scan or arguments.full
        problems = lint(arguments.config or [str(nearest())], scan=scan, full=arguments.full, progress=bar.at)
    errors = sum(problem.level == Level.ERROR for problem in problems)
    if terminal.json:
        terminal.data({"errors": errors, "problems": [problem.as_dict() for problem in problems]})
    else:
        for problem in problems:
            terminal.show(printable(problem.text))
        warnings = counted(len(problems) - errors, "warning")
        terminal.say(f"{counted(errors, 'error')}, {warnings}" if problems else "no problem found")
    return 1 if errors else 0
