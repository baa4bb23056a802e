"""Labels and columns from tables and folder names, and the predicate that chooses by them."""

import os
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from viewcache.catalog.confined import QueryLimits
from viewcache.errors import BadInput, DatasetNotFound, QueryRefused
from viewcache.materializer.dataset.labels import Labels, labels_for
from viewcache.materializer.dataset.predicate import matching

PATHS = ["cats/a.mp4", "cats/b.mp4", "dogs/a.mkv", "dogs/c d.mp4"]


def written(folder: Path, text: str) -> str:
    """A CSV file of this text."""
    path = folder / "labels.csv"
    path.write_text(text)
    return str(path)


def by_video(count: int, said: Labels) -> list[tuple[object, dict[str, object]]]:
    """Label and further columns of each of so many videos, as a table of one row a video has them."""
    out: list[tuple[object, dict[str, object]]] = [(None, {}) for _ in range(count)]
    for at, video in enumerate(said.video.tolist()):
        out[video] = said.label[at].as_py(), {name: said.column(name)[at].as_py() for name in said.others}
    return out


def labels_of(count: int, said: Labels) -> list[object]:
    """The label of each of so many videos."""
    return [label for label, _ in by_video(count, said)]


def test_folder_names() -> None:
    """The parent folder is the label; a video at the top has none."""
    assert labels_of(5, labels_for([*PATHS, "x.mp4"], "folders")) == ["cats", "cats", "dogs", "dogs", None]
    assert labels_of(4, labels_for(PATHS, None)) == [None] * 4


def test_csv(tmp_path: Path) -> None:
    """Videos are found by path, stem, name or unique file name; numbers are numbers; empty fields are missing."""
    table = written(
        tmp_path, "video,label,weight,note\ncats/a.mp4,1,0.5,x\n./dogs/a,2,,y\ndogs.-c.20d,3,2,\nb.mp4,4,1,z\n"
    )
    got = by_video(4, labels_for(PATHS, table))
    assert [label for label, _ in got] == [1, 4, 2, 3]
    assert got[2][1] == {"weight": None, "note": "y"}
    assert got[3][1] == {"weight": 2.0, "note": None}


def test_names_that_could_mean_two(tmp_path: Path) -> None:
    """A file name that two videos share labels neither."""
    table = written(tmp_path, "video,label\na.mp4,1\nb.mp4,2\na,3\n")
    assert labels_of(5, labels_for([*PATHS, "x/a.mp4"], table)) == [None, 2, None, None, None]


def test_parquet_and_other_columns(tmp_path: Path) -> None:
    """A Parquet table keeps its types; the columns' names are the user's."""
    table = pa.table({"id": ["cats/a", "cats/b"], "class": ["x", "y"], "ok": [True, False], "n": [1, 2]})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path)
    got = by_video(4, labels_for(PATHS, str(path), "id", "class"))
    assert [label for label, _ in got] == ["x", "y", None, None]
    assert got[0][1] == {"ok": True, "n": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\na,1\n", "has no column 'video'; it has 'name', 'label'"),
        ("video,label\ncats/a,1\ncats/a.mp4,2\n", "line 3 names 'cats/a.mp4' again"),
        ("video,label\nnope,1\n", "none of its 1 rows names a file.*'nope', the first file is 'cats/a.mp4'"),
        ("video,label\ncats/a\n", "line 2 of the table has 1 fields, the first line 2"),
        ("video,video\na,b\n", "names a column twice"),
        ('video,label\n"cats/a,1\n', "neither a UTF-8 CSV nor a Parquet or JSON lines table"),
    ],
)
def test_tables_that_do_not_fit(text: str, message: str, tmp_path: Path) -> None:
    """What is wrong with a table is said with the value and the place."""
    with pytest.raises(BadInput, match=message):
        labels_for(PATHS, written(tmp_path, text))


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("l.csv", "video,label,start_s\ncats/a,1,0\ncats/b,1,soon\n", "line 3"),
        ("l.csv", 'video,label,start_s\ncats/a,"1\n2",0\ncats/b,1,soon\n', "data row 2"),
        ("l.csv", "video,label,start_s\n\ncats/a,1,0\ncats/b,1,soon\n", "data row 2"),
        ("l.jsonl", '{"video": "cats/a", "start_s": "0"}\n{"video": "cats/b", "start_s": "soon"}\n', "line 2"),
        ("l.jsonl", '{"video": "cats/a", "start_s": "0"}\n\n{"video": "cats/b", "start_s": "soon"}', "data row 2"),
    ],
)
def test_a_row_is_named_by_its_line(file: str, text: str, place: str, tmp_path: Path) -> None:
    """As an editor counts, where each row is a line of the file; else it is said that rows of data are counted."""
    (tmp_path / file).write_text(text)
    with pytest.raises(BadInput, match=f"start_s in {place} is 'soon'"):
        labels_for(PATHS, str(tmp_path / file))


def test_a_line_of_other_length_is_named(tmp_path: Path) -> None:
    """Also behind rows that take several lines."""
    with pytest.raises(BadInput, match="line 5 of the table has 3 fields, the first line 2"):
        labels_for(PATHS, written(tmp_path, 'video,label\n\ncats/a,"1\n2"\ncats/b,1,3\n'))


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing table, and one that is damaged."""
    with pytest.raises(DatasetNotFound, match=r"gone\.csv: no such table"):
        labels_for(PATHS, str(tmp_path / "gone.csv"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(BadInput, match="neither"):
        labels_for(PATHS, str(tmp_path / "bad.parquet"))
    (tmp_path / "latin.csv").write_bytes("video,label\ncaf\xe9,1\n".encode("latin-1"))
    with pytest.raises(BadInput, match="UTF-8"):
        labels_for(PATHS, str(tmp_path / "latin.csv"))


def test_a_table_is_a_regular_file_of_a_sane_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is not waited for, a device without an end not read, and a huge file not taken into memory."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "endless.csv"):
        with pytest.raises(BadInput, match=rf"labels .*{name} is not a regular file"):
            labels_for(PATHS, str(tmp_path / name))
    monkeypatch.setattr("viewcache.materializer.dataset.table.MOST_BYTES", 10)
    fsspec.filesystem("memory").pipe("/labels.csv", b"video,label")
    for url in (written(tmp_path, "video,label"), "memory://labels.csv"):
        with pytest.raises(BadInput, match="is too large: at most 10 bytes"):
            labels_for(PATHS, url)


VIDEOS = pa.table({"name": ["a", "b", "c"], "label": [1, 2, None], "fps": [25.0, 30.0, 12.5]})


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("label > 1 or fps < 20", [False, True, True]),
        ("label <> 1", [False, True, False]),
        ("name in ('a', 'c') and fps between 20 and 30", [True, False, False]),
        ("true", [True, True, True]),
        ("regexp_matches(name, '^[bc]$')", [False, True, True]),
    ],
)
def test_where(where: str, chosen: list[bool]) -> None:
    """Any SQL condition over the columns; NULL is no."""
    assert matching(VIDEOS, where).tolist() == chosen


def test_where_over_no_videos() -> None:
    """An empty table is no error."""
    assert matching(VIDEOS.slice(0, 0), "fps > 1").tolist() == []


@pytest.mark.parametrize(
    "where",
    [
        "nope = 1",
        "",
        "true; drop table videos",
        "1 = 1) union select 1",
        "name in (select file from glob('/etc/*'))",
        "exists (from read_text('/etc/passwd'))",
        "exists (from 'https://127.0.0.1:1/x.parquet')",
        "exists (from VIDEOS)",
        "name = getenv('PATH')",
        "exists (select * from duckdb_secrets() where false) or nope",
    ],
)
def test_where_is_only_a_condition(where: str) -> None:
    """A predicate reaches no file, network, Python variable or second statement; the message lists the columns."""
    with pytest.raises(BadInput, match="is not a condition on the columns name, label, fps"):
        matching(VIDEOS, where)


def test_where_has_a_time_limit() -> None:
    """An endless predicate ends."""
    with pytest.raises(QueryRefused, match="took more than"):
        matching(VIDEOS, "(select count(*) from range(100000000000) a, range(1000000) b) > 1", QueryLimits(seconds=0.2))


def test_where_has_a_memory_limit() -> None:
    """One that would fill the memory ends, however fast it is; it runs in a process of its own."""
    with pytest.raises(QueryRefused, match=r"where: .* memory"):
        matching(VIDEOS, "len(list_transform(range(200000000), x -> repeat('ab', 10000))) > 1 and fps > 0")


def test_where_changes_no_settings() -> None:
    """The database of a predicate is its own: the process's default connection keeps what it had."""
    import duckdb

    before = duckdb.execute("select current_setting('enable_external_access')").fetchall()
    assert np.array_equal(matching(VIDEOS, "fps > 20"), [True, True, False])
    assert duckdb.execute("select current_setting('enable_external_access')").fetchall() == before


@pytest.mark.parametrize("text", ["", "video,label\n"])
def test_a_table_without_rows_is_refused(text: str, tmp_path: Path) -> None:
    """It would leave every video without a label, silently."""
    table = tmp_path / "labels.csv"
    table.write_text(text)
    with pytest.raises(BadInput, match="has no rows; leave labels out"):
        labels_for(["a.mp4"], str(table))


def test_a_label_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A misspelt name must not leave every video without a label; the default may be missing."""
    table = written(tmp_path, "video,class\ncats/a.mp4,1\n")
    with pytest.raises(BadInput, match="has no column 'clas'; it has 'video', 'class'"):
        labels_for(PATHS, str(table), label_column="clas")
    assert by_video(4, labels_for(PATHS, str(table)))[0][1] == {"class": 1}


def test_a_twin_that_comes_later_does_not_take_a_label(tmp_path: Path) -> None:
    """A row that named a video goes on to name it when a file of the same stem is added."""
    table = tmp_path / "labels.csv"
    table.write_text("video,label\ncats/a,1\nb,2\n")
    paths = ["cats/a.mkv", "cats/a.mp4", "dogs/b.mkv", "dogs/b.mp4"]
    names = ["cats.-a..mkv", "cats.-a", "dogs.-b", "dogs.-b..mp4"]
    assert labels_of(4, labels_for(paths, str(table), names=names)) == [None, 1, 2, None]
