"""What `viewcache doctor` says of a cache's own: catalog, journal, objects, bucket, what was moved aside, what failed.

Everything that it finds wrong mends itself: the cure names the command that would do it now. Changes nothing.
"""

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from viewcache.api.config.find import Located
from viewcache.api.queries.ask import Answer, ask, ask_all, copy_catalog, owner_of, question
from viewcache.api.text import counted, size
from viewcache.catalog import QueryLimits
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.journal import Line, read_lines
from viewcache.catalog.opening import is_postgresql, journal_of
from viewcache.catalog.private import private_folder
from viewcache.errors import CatalogDamaged, ChunkDamaged, Misuse, NotFound, StoreUnreachable, ViewcacheError
from viewcache.materializer.storage.gc import QUARANTINED
from viewcache.store import open_tier
from viewcache.store.format import check_physical
from viewcache.store.reader import scan_object
from viewcache.store.tier import LOCAL, REMOTE

__all__ = [
    "Finding",
    "Recorded",
    "bucket",
    "clock",
    "damage",
    "damage_of",
    "failures",
    "journal",
    "moved_aside",
    "objects",
]

_FUTURE_S = 60.0
"""A file this much newer than now says that the clock was set back, seconds."""
_REBUILD = "the next `viewcache run` rebuilds it from the journal and the store: no draw and no object is lost"
_ORPHANS = "taken in by the next start after an unclean end, or `viewcache gc`"
_MOST_COMPARED = 500_000
"""Objects."""
_ANSWERS_S = 15.0
"""A bucket that takes longer counts as one that does not answer."""


class Health(StrEnum):
    """How it is with what the doctor looked at."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    level: Health
    about: str
    message: str
    cure: str = ""
    """What to do; empty if nothing."""

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{self.level:4}  {self.about}: {self.message}{f'; {self.cure}' if self.cure else ''}"

    def as_dict(self) -> dict[str, str]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CatalogCopy:
    """A copy of an object, as the catalog has it."""

    tier: str
    physical: str
    bytes: int
    budget: int


class Recorded:
    """What the catalog says, asked once for all checks."""

    def __init__(self, located: Located) -> None:
        """Ask on first use."""
        self._located = located
        self.damaged: CatalogDamaged | None = None
        """Why it says nothing."""

    @cached_property
    def _answers(self) -> dict[str, Answer]:
        """By question; none without a catalog."""
        names = ["status_tiers", "doctor_failures"]
        try:
            return dict(zip(names, ask_all(self._located.catalog, list(map(question, names))), strict=True))
        except NotFound:
            return {}
        except CatalogDamaged as error:
            self.damaged = error
            return {}

    @cached_property
    def copies(self) -> tuple[list[CatalogCopy], bool] | None:
        """The copies, and whether there are more; None while they change, or without a catalog.

        Asked apart: of a large catalog it takes so long that it may be refused, and the others need not be.
        """
        if self.are_changing():
            return None
        try:
            answer = ask(self._located.catalog, question("doctor_copies"), QueryLimits(rows=_MOST_COMPARED))
        except NotFound:
            return None
        except CatalogDamaged as error:
            self.damaged = error
            return None
        rows = [CatalogCopy(str(row[0]), str(row[1]), int(str(row[2])), int(str(row[3]))) for row in answer.rows]
        return rows, answer.truncated

    def are_changing(self) -> bool:
        """Whether somebody makes and deletes objects now; of PostgreSQL that cannot be told."""
        return not is_postgresql(self._located.catalog) and bool(owner_of(self._located.catalog))

    def tiers(self) -> list[dict[str, object]]:
        """Each tier, its budget and what it holds."""
        return self._answers["status_tiers"].dicts() if self._answers else []

    def failures(self) -> list[tuple[object, ...]] | None:
        """(message, seconds since 1970-01-01 UTC), the last first; None without a catalog."""
        return self._answers["doctor_failures"].rows if self._answers else None


def damage(located: Located) -> Finding | None:
    """Whether the database is missing although there was one, or cannot be read; None if it can."""
    if is_postgresql(located.catalog):
        return None
    layout = CatalogFiles(Path(located.catalog))
    if not layout.database.exists():
        traces = layout.journal.exists() or any(Path(located.root).glob("objects/*/*"))
        return Finding(Health.WARN, "catalog", f"{layout.database} is missing", _REBUILD) if traces else None
    if layout.suspect.exists():
        return Finding(Health.FAIL, "catalog", f"a run found {layout.database} damaged", _REBUILD)
    if owner_of(located.catalog):
        return None  # it works
    from viewcache.catalog.duck import DuckEngine

    with private_folder() as folder:
        copy_catalog(located.catalog, folder)
        try:
            engine = DuckEngine(CatalogFiles(folder).database)
            engine.close()
        except CatalogDamaged as error:
            return Finding(Health.FAIL, "catalog", str(error).replace(str(folder), located.catalog), _REBUILD)
    return None


def damage_of(recorded: Recorded, told: Collection[Finding]) -> Iterator[Finding]:
    """Damage of the database that only a question met; nothing if the catalog's own check has told of it."""
    if recorded.damaged is not None and not any((each.about, each.level) == ("catalog", Health.FAIL) for each in told):
        yield Finding(Health.FAIL, "catalog", str(recorded.damaged))


def journal(located: Located) -> Iterator[Finding]:
    """Whether what was drawn is written twice."""
    path = journal_of(located.catalog, located.root)
    if not path.exists():
        yield Finding(
            Health.WARN, "journal", f"{path.name} is not there", "the next run writes it anew from the catalog"
        )
        return
    lines = [line for _, line in read_lines(path)]
    whole = sum(isinstance(line, Line) for line in lines)
    if None in lines[:-1]:
        cure = "the next run writes it anew from the catalog and keeps the old one aside"
        yield Finding(Health.WARN, "journal", f"{counted(lines.count(None), 'line')} of {path.name} are damaged", cure)
    else:
        yield Finding(Health.OK, "journal", f"{counted(whole, 'line')}, {size(path.stat().st_size)}")


def moved_aside(located: Located) -> Iterator[Finding]:
    """Files that could not be read."""
    names = sorted(path.name for path in Path(located.root).glob(QUARANTINED))
    if names:
        cure = "`viewcache gc --quarantined` removes them when they have been looked at"
        yield Finding(Health.WARN, "quarantine", f"{', '.join(names)} could not be read and were moved aside", cure)


def objects(located: Located, recorded: Recorded) -> Iterator[Finding]:
    """Whether the catalog and the store's folder tell the same; nothing is compared while a run changes both."""
    if (copies := recorded.copies) is None:
        return
    rows, truncated = copies
    if truncated:
        yield Finding(
            Health.OK, "objects", f"more than {len(rows)}", "`viewcache gc --dry-run` compares all with the store"
        )
        return
    known = {row.physical: row.bytes for row in rows if row.tier == LOCAL}
    there, foreign = _walked(Path(located.root))
    orphans, missing = there - known.keys(), known.keys() - there
    broken = [physical for physical in orphans if not _is_whole(located.root, physical)]
    if orphans:
        what = f"{counted(len(orphans), 'object')} without a row, of which {len(broken)} are not whole"
        yield Finding(Health.OK, "orphans", what, _ORPHANS)
    if missing:
        what = f"{counted(len(missing), 'row')} without an object"
        yield Finding(
            Health.WARN, "missing", what, "made again when they are read; somebody deletes in the store's folder"
        )
    if foreign:
        what = f"{', '.join(foreign[:3])}{' and more' if len(foreign) > 3 else ''} in objects/ are not viewcache's"
        yield Finding(Health.WARN, "foreign", what, "they are left alone and not counted; move them elsewhere")
    used, budget = sum(known.values()), max((row.budget for row in rows if row.tier == LOCAL), default=0)
    if used > budget:
        yield Finding(
            Health.WARN, "budget", f"{size(used)} of {size(budget)} are used", "the next start evicts the rest"
        )
    elif not (orphans or missing):
        yield Finding(Health.OK, "objects", f"{counted(len(there), 'object')} of {size(used)}, each with its row")


def bucket(recorded: Recorded) -> Iterator[Finding]:
    """Whether the bucket of the last run answers, and has what the catalog says; that only while nobody changes it."""
    url = next((str(row["url"]) for row in recorded.tiers() if row["tier"] == REMOTE), None)
    if url is None:
        return
    began = time.monotonic()
    try:
        tier = open_tier(REMOTE, url, 1, _ANSWERS_S, make=False)
    except ViewcacheError as error:
        goes_on = "a training that runs goes on without it: what lies there is made again"
        yield Finding(Health.FAIL, "bucket", str(error), goes_on if isinstance(error, StoreUnreachable) else "")
        return
    try:
        yield Finding(Health.OK, "bucket", f"{url} answers, in {time.monotonic() - began:.2f} s")
        if (copies := recorded.copies) is None or copies[1]:
            return
        known = {row.physical for row in copies[0] if row.tier == REMOTE}
        there = {physical for physical, _ in tier.iter_objects()}
        if recorded.are_changing():  # a run has begun meanwhile
            return
    finally:
        tier.close()
    if orphans := there - known:
        yield Finding(Health.OK, "bucket orphans", f"{counted(len(orphans), 'object')} without a row", _ORPHANS)
    if missing := known - there:
        what = f"{counted(len(missing), 'row')} without an object"
        yield Finding(
            Health.WARN, "bucket missing", what, "made again when they are read; somebody deletes in the bucket"
        )
    if known == there:
        yield Finding(Health.OK, "bucket objects", f"{counted(len(there), 'object')}, each with its row")


def _walked(root: Path) -> tuple[set[str], list[str]]:
    """Places of objects, and of other things among them."""
    places: set[str] = set()
    foreign: list[str] = []
    top = root / "objects"
    for path in sorted(top.glob("*/*")) if top.is_dir() else []:
        physical = path.relative_to(root).as_posix()
        try:
            check_physical(physical)
            places.add(physical)
        except Misuse:
            foreign.append(physical)
    return places, foreign


def _is_whole(root: str, physical: str) -> bool:
    try:
        scan_object(root, physical)
    except ChunkDamaged:
        return False
    return True


def failures(recorded: Recorded) -> Iterator[Finding]:
    """What went wrong last, as the catalog recorded it."""
    if (rows := recorded.failures()) is None:
        return
    if rows:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(str(rows[0][1]))))
        cure = 'all: viewcache sql "select * from errors"'
        yield Finding(Health.WARN, "errors", f"{len(rows)} kinds, the last at {when}: {str(rows[0][0])[:200]}", cure)
    else:
        yield Finding(Health.OK, "errors", "none are recorded")


def clock(located: Located) -> Iterator[Finding]:
    """Whether the clock was set back: times in the catalog then overlap. No batch depends on the clock."""
    folder = Path(located.root)
    names = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    ahead = max((os.stat(path).st_mtime for path in names), default=0.0) - time.time()
    if ahead > _FUTURE_S:
        cure = "set the clock; batches do not depend on it, times in `viewcache status` do"
        yield Finding(Health.WARN, "clock", f"a file in {folder} is {ahead:.0f} s newer than now", cure)
    else:
        yield Finding(Health.OK, "clock", "no file is from the future")
