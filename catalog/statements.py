"""Named SQL: reads ``sql/queries`` and ``sql/policies``, one statement a file, and says what each takes and gives.

A file opens with comment lines: a purpose, then ``Parameters:``, ``Given:`` and ``Columns:`` where there are any. Where
the databases must differ the file lies in a dialect folder beside the others; nothing is templated. The header is not
decoration: parameters are checked against it and results are cast to its columns, so both databases give equal tables.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from viewcache.errors import BadInput, Broken, Full, NotFound, within_limits

__all__ = ["DIALECTS", "Given", "Statement", "Typed", "load", "load_policy", "names", "policy_names"]

DIALECTS = ("duckdb", "postgresql")

_HOME = Path(__file__).resolve().parent / "sql" / "queries"
_POLICIES = _HOME.with_name("policies")
_TYPES = ("bigint", "integer", "double", "text", "blob", "boolean", "integer[]")
_SECTIONS = ("Parameters", "Given", "Columns")
_NAME = re.compile(r"[a-z0-9_]+", re.ASCII)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Typed:
    """A named value with its SQL type."""

    name: str
    type: str
    """One of bigint, integer, double, text, blob, boolean, integer[]."""


@dataclass(frozen=True, slots=True)
class Given:
    """A relation that the caller hands over with the statement."""

    name: str
    columns: tuple[Typed, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement, ready for one database's driver."""

    name: str
    dialect: str
    purpose: str
    parameters: tuple[Typed, ...]
    given: Given | None
    columns: tuple[Typed, ...]
    """Of the result; empty for a statement that returns none."""
    text: str
    """With the driver's own parameter marks: ``$n`` for DuckDB, ``%(n)s`` for psycopg."""

    @property
    def reads(self) -> bool:
        """Whether it is a SELECT, which changes nothing."""
        return self.text.startswith(("select", "with"))

    def check(self, parameters: Mapping[str, object]) -> None:
        """Refuse parameters that are missing or not known.

        Raises:
            BadInput: naming those that the statement takes.
        """
        wanted = {parameter.name for parameter in self.parameters}
        if wanted != set(parameters):
            raise BadInput(f"query {self.name} takes parameters {sorted(wanted)}, got {sorted(parameters)}")

    def only(self, columns: Sequence[str]) -> "Statement":
        """The same with some of its columns: a database does not work out what nobody asks for."""
        kept = tuple(column for column in self.columns if column.name in columns)
        wanted = ", ".join(column.name for column in kept)
        return replace(self, columns=kept, text=f"select {wanted} from ({self.text}) as {self.name}")


def names() -> list[str]:
    """Every statement's name, sorted."""
    return sorted({path.stem for folder in (_HOME, *(_HOME / d for d in DIALECTS)) for path in folder.glob("*.sql")})


@cache
def load(name: str, dialect: str) -> Statement:
    """The statement of this name, from the dialect's folder if it has one there.

    Raises:
        NotFound: no such statement; the message lists them.
    """
    texts = _texts(_HOME)
    text = (texts.get(f"{dialect}/{name}") or texts.get(name)) if _NAME.fullmatch(name) else None
    if text is not None:
        return _parse(name, dialect, text)
    raise NotFound(f"no query named {name!r}; there are: {', '.join(names())}")


def policy_names() -> tuple[str, ...]:
    """Names of the eviction policies that are shipped, sorted."""
    return tuple(sorted(path.stem for path in _POLICIES.glob("*.sql")))


@cache
def load_policy(name: str, dialect: str) -> Statement:
    """The shipped eviction policy of this name; its file is the same for both databases.

    Raises:
        NotFound: no such policy; the message lists them.
    """
    text = _texts(_POLICIES).get(name)
    if text is None:
        raise NotFound(f"no eviction policy named {name!r}; there are: {', '.join(policy_names())}")
    return _parse(name, dialect, text)


@cache
def _texts(folder: Path) -> Mapping[str, str]:
    """All statements of a folder and of its dialects, read at once: later there may be no descriptor free."""
    why = f"the SQL statements in {folder} cannot be read"
    try:
        with within_limits(why):
            return {
                path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
                for path in folder.rglob("*.sql")
            }
    except Full:
        raise
    except OSError as error:
        raise Broken(f"{why}: {error.strerror}; install viewcache again") from error


def _parse(name: str, dialect: str, source: str) -> Statement:
    lines = source.splitlines()
    header = [line[2:].strip() for line in lines[: _body_start(lines)]]
    body = "\n".join(lines[len(header) :]).strip().rstrip(";")
    sections: dict[str, str] = {"Purpose": ""}
    current = "Purpose"
    for line in header:
        title, colon, rest = line.partition(":")
        if colon and title in _SECTIONS:
            current, line = title, rest.strip()
            sections[current] = ""
        sections[current] = f"{sections[current]} {line}".strip()
    parameters = _typed(name, sections.get("Parameters", ""))
    used = set(_PARAMETER.findall(body))
    if used != {parameter.name for parameter in parameters}:
        raise BadInput(f"{name}.sql: header names parameters {parameters}, the statement uses {sorted(used)}")
    if dialect == "duckdb":
        text = _PARAMETER.sub(r"$\1", body)
    elif parameters:
        text = _PARAMETER.sub(r"%(\1)s", body.replace("%", "%%"))
    else:
        text = body
    columns = _typed(name, sections.get("Columns", ""))
    return Statement(name, dialect, sections["Purpose"], parameters, _given(name, sections), columns, text)


def _body_start(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))


def _given(name: str, sections: dict[str, str]) -> Given | None:
    text = sections.get("Given")
    if text is None:
        return None
    relation, _, columns = text.partition("(")
    return Given(relation.strip(), _typed(name, columns.rstrip(") ")))


def _typed(name: str, text: str) -> tuple[Typed, ...]:
    values = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        column, _, kind = part.lstrip(":").partition(" ")
        if kind not in _TYPES:
            raise BadInput(f"{name}.sql: {part!r} is not 'name type' with a type of {', '.join(_TYPES)}")
        values.append(Typed(column, kind))
    return tuple(values)
