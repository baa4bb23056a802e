"""A line of a journal may be somebody else's text: it can only tell what a journal tells.

None that was acknowledged is lost, whatever fails behind it.
"""

import base64
import errno
import json
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from viewcache.catalog import Catalog, statements
from viewcache.catalog.files import CatalogFiles
from viewcache.catalog.journal import FORMAT, Journal, Line, encode, read_lines
from viewcache.catalog.packing import FEWEST, expand, pack
from viewcache.errors import Broken, Full, NotFound

HOME = Path(statements.__file__).parent / "sql" / "queries"


def line(**step: object) -> Line:
    """A line of one step."""
    return Line("writer", 1, json.dumps({"by": "writer", "ticket": 1, "run": [step]}).encode())


@pytest.mark.parametrize("name", ["delete_policies", "delete_all_leases", "write_setting", "read_tasks"])
def test_only_what_a_journal_tells_is_carried_out(name: str) -> None:
    """Other statements of the catalog are none of its business."""
    with pytest.raises(Broken, match="is no statement of a journal"):
        line(do=name).steps()


def test_no_other_file_is_run(tmp_path: Path) -> None:
    """A name is no path: neither a line nor anything else reaches a file outside the catalog's own folder."""
    (tmp_path / "evil.sql").write_text("-- Evil.\ndrop table task")
    name = os.path.relpath(tmp_path / "evil", HOME)
    with pytest.raises(Broken, match="is no statement"):
        line(do=name).steps()
    for path in (name, str(tmp_path / "evil")):
        with pytest.raises(NotFound, match="no query named"):
            statements.load(path, "duckdb")


@pytest.mark.parametrize("count", [2, 10**15, -(10**15), "many", None])
def test_rows_that_are_not_there_take_no_memory(count: object) -> None:
    """The number of rows is that of the column that tells them all."""
    with pytest.raises(Broken, match="cannot be understood"):
        line(do="insert_draws", n=count, rows={"task_id": 1, "epoch": 0, "position": 0, "video_id": 1}).steps()


BIGINT, INTEGER = pa.int64(), pa.int32()


@pytest.mark.parametrize("kind", [BIGINT, INTEGER], ids=str)
@pytest.mark.parametrize("count", [0, 1, FEWEST - 1, FEWEST, 5000])
def test_numbers_come_back_as_they_were(kind: pa.DataType, count: int) -> None:
    """Whether they are packed, all equal, or few."""
    least = -(2**31) if kind == INTEGER else -(2**63)
    for values in ([7] * count, list(range(count)), [(least + k * k) * (k % 2) for k in range(count)]):
        column = pa.chunked_array([pa.array(values, kind)], kind)
        written = json.loads(json.dumps(pack(column)))
        assert expand(written, count, kind).to_pylist() == values
        assert isinstance(written, dict) == (count >= FEWEST and len(set(values)) > 1)


def test_other_values_are_listed() -> None:
    """What is no number, and numbers of which some are missing."""
    for kind, values in ((pa.string(), [f"video {k}" for k in range(100)]), (BIGINT, [*range(99), None])):
        column = pa.chunked_array([pa.array(values, kind)], kind)
        assert pack(column) == values
        assert expand(values, 100, kind).to_pylist() == values


def packed(numbers: int) -> str:
    """A packed column of as many zeros."""
    return base64.b64encode(zlib.compress(bytes(8 * numbers))).decode()


@pytest.mark.parametrize(
    "text", [packed(99), packed(101), packed(10**7), "no base 64", "QUJD", packed(100)[:-8], 7, None], ids=repr
)
def test_a_packed_column_that_is_not_what_it_says(text: object) -> None:
    """Too few, too many, cut, or somebody else's."""
    rows: dict[str, object] = {"task_id": 1, "epoch": 0, "position": {"packed": text}, "video_id": 1}
    with pytest.raises(Broken, match="cannot be understood"):
        line(do="insert_draws", n=100, rows=rows).steps()
    with pytest.raises(Broken, match="cannot be understood"):
        line(do="insert_draws", n=10**15, rows=rows | {"task_id": [1] * 100}).steps()


HEAD: dict[str, object] = {"journal": "a name", "format": FORMAT, "since": {}, "base": 0}
NO_TICKETS: tuple[object, ...] = ([], {"w": "x"}, {"w": -1}, {"w": 2**63}, {"w": True})
NO_SIZES: tuple[object, ...] = (None, "0", -1, 1.5)


@pytest.mark.parametrize(
    "forged",
    [
        *({key: value for key, value in HEAD.items() if key != missing} for missing in HEAD),
        *(HEAD | {"since": since} for since in NO_TICKETS),
        *(HEAD | {"base": base} for base in NO_SIZES),
        HEAD | {"journal": 7},
        {"by": "w", "ticket": 2**63, "run": []},
        [HEAD],
        "text",
    ],
    ids=str,
)
@pytest.mark.parametrize("lost", [False, True], ids=["kept", "lost"])
def test_a_forged_head_is_no_journal(tmp_path: Path, forged: object, lost: bool) -> None:
    """A line whose checksum is right but that no release wrote: the file is kept aside, and the cache opens."""
    Catalog.open(tmp_path).close()
    layout = CatalogFiles(tmp_path)
    layout.journal.write_bytes(encode(forged))  # type: ignore[arg-type]
    if lost:
        layout.database.unlink()
    Catalog.open(tmp_path).close()
    (aside,) = tmp_path.glob(f"{layout.journal.name}.quarantined-*")
    assert aside.read_bytes() == encode(forged)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000, b'{"by":"w","ticket":' + b"9" * 5000 + b',"run":[]}', b"\xff"])
def test_a_line_that_is_no_json_is_damage(tmp_path: Path, text: bytes) -> None:
    """Nothing that a file may hold is a raw error when it is read."""
    path = tmp_path / "journal"
    path.write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    assert [line for _, line in read_lines(path)] == [None]


def tickets(path: Path) -> list[int | None]:
    """Which transactions a journal tells of; None where a line is damaged."""
    return [each.ticket if isinstance(each, Line) else None for _, each in read_lines(path)]


def unable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be cut off a file."""

    def fail(_: int, __: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "ftruncate", fail)


@contextmanager
def full_after(path: Path, more: int) -> Iterator[None]:
    """A disk that takes so many bytes more of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """One that tells of one transaction."""
    journal = Journal(tmp_path / "journal")
    journal.append("w", 1, [])
    yield journal
    journal.close()


def test_a_line_that_could_not_be_taken_back_costs_no_other(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off before the next line is written; when that one fails too, what was committed stays."""
    whole = journal.size
    journal.append("w", 2, [])
    with monkeypatch.context() as patched:
        unable(patched)
        journal.take_back(whole)
        with pytest.raises(Broken, match="Input/output error; nothing new can be drawn"):
            journal.append("w", 3, [])
        assert tickets(journal.path) == [1, 2]
    journal.append("w", 4, [])
    with full_after(journal.path, 5), pytest.raises(Full):
        journal.append("w", 5, [])
    journal.append("w", 6, [])
    assert tickets(journal.path) == [1, 4, 6]
    assert journal.size == journal.path.stat().st_size


def test_no_line_follows_a_torn_one(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full disk left of a line, and could not be cut off, is gone before the next one is written."""
    with monkeypatch.context() as patched, full_after(journal.path, 5):
        unable(patched)
        with pytest.raises(Full):
            journal.append("w", 2, [])
        with pytest.raises(Broken):
            journal.append("w", 3, [])
    assert tickets(journal.path) == [1, None]
    journal.append("w", 4, [])
    assert tickets(journal.path) == [1, 4]
