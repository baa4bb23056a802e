"""Segments of a label table: what its rows mean, and which frames lie before a time."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.errors import BadInput
from viewcache.materializer.dataset import table as tables
from viewcache.materializer.dataset.clock import frames_before_even
from viewcache.materializer.dataset.labels import has_segments, labels_for
from viewcache.materializer.media.facts import FrameTimes

PATHS = ["a.mp4", "b.mp4"]


@given(
    st.integers(-5_000, 100_000),
    st.integers(0, 3_000),
    st.sampled_from([(1, 25), (1, 12_800), (1001, 30_000), (1, 90_000), (1, 1_000_000)]),
    st.integers(1, 400),
    st.floats(-10, 200),
    st.integers(-3, 3),
)
def test_frames_before_a_time(
    first: int, step: int, unit: tuple[int, int], frames: int, seconds: float, near: int
) -> None:
    """As many as a comparison with the shown times finds, also at the times of frames themselves and beside them."""
    times = FrameTimes(first, step, *unit)
    shown = times.times_s(np.arange(frames))
    exact = float(shown[abs(int(seconds)) % frames])
    asked = np.array([seconds, exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf), exact + near * 1e-9])
    columns = np.tile(np.array([first, step, *unit]), (len(asked), 1))
    found = frames_before_even(asked, np.full(len(asked), frames), columns)
    assert found.tolist() == [int((shown < each).sum()) for each in asked]


def test_rows_of_a_table(tmp_path: Path) -> None:
    """Rows keep their order and labels; an empty cell leaves an end open; rows of other videos are passed over."""
    path = tmp_path / "l.csv"
    path.write_text("video,start_s,end_s,label,note\nb,1,2.5,x,p\na.mp4,,3,y,q\nelsewhere,0,1,z,r\nb,4,,x,\n")
    said = labels_for(PATHS, str(path))
    assert said.segments is not None
    assert said.video.tolist() == [1, 0, 1]
    assert [each.tolist() for each in said.segments] == [[1, -np.inf, 4], [2.5, 3, np.inf]]
    assert said.label.to_pylist() == ["x", "y", "x"]
    assert {name: said.column(name).to_pylist() for name in said.others} == {"note": ["p", "q", None]}
    assert has_segments(str(path))


def test_parquet_with_other_names(tmp_path: Path) -> None:
    """Columns of whatever name; one of the two is enough; whole numbers are seconds."""
    path = str(tmp_path / "t.parquet")
    pyarrow.parquet.write_table(pa.table({"id": ["a", "a"], "from": [0, 5], "label": [1, 2]}), path)
    said = labels_for(PATHS, path, "id", "label", start_column="from")
    assert said.segments is not None
    assert said.segments[0].tolist() == [0, 5]
    assert said.segments[1].tolist() == [np.inf, np.inf]
    assert has_segments(path, "from")
    assert not has_segments(path)
    with pytest.raises(BadInput, match="has no column 'till'; it has 'id', 'from', 'label'"):
        labels_for(PATHS, path, "id", "label", end_column="till")


def test_tables_without_segments(tmp_path: Path) -> None:
    """Neither a table of one row a video, nor folders, nor what is no table has any."""
    path = tmp_path / "l.csv"
    path.write_text("video,label\na,1\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    for each in (str(path), "folders", None, str(tmp_path / "gone.csv"), str(tmp_path), str(tmp_path / "bad.parquet")):
        assert not has_segments(each)
    path.write_text("video,label,start_s\na,1,0\n")
    assert has_segments(str(path)), "it is looked at again when it has changed"


def test_a_second_row_names_the_columns(tmp_path: Path) -> None:
    """Whoever forgets the times is told of them."""
    path = tmp_path / "l.csv"
    path.write_text("video,label\na,1\nb,2\na.mp4,3\n")
    with pytest.raises(
        BadInput, match=r"line 4 names 'a.mp4' again \('a.mp4'\); one row a file, or say in columns start_s"
    ):
        labels_for(PATHS, str(path))


def test_more_rows_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of more rows than memory is meant for is refused before its columns are unpacked."""
    monkeypatch.setattr(tables, "MOST_ROWS", 3)
    table = pa.table({"video": ["a"] * 4, "start_s": [0.0, 1.0, 2.0, 3.0]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("video,start_s\n" + "a,1\n" * 4)
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(BadInput, match="has 4 rows; at most 3 are read"):
            labels_for(PATHS, str(tmp_path / name))


@pytest.mark.parametrize("value", [True, "soon"])
def test_times_that_are_no_numbers(tmp_path: Path, value: object) -> None:
    """Refused with the row and the value."""
    table = pa.table({"video": ["a", "b"], "end_s": [value, value]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadInput, match=f"end_s in data row 1 is {value!r}; it must be a number of seconds"):
        labels_for(PATHS, str(tmp_path / "t.parquet"))
