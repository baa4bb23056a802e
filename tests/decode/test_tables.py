"""Label tables as columns: their three formats, the types of their columns, and the classes of their labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from viewcache.errors import BadInput
from viewcache.materializer.dataset.classes import Classes, class_names, separated
from viewcache.materializer.dataset.fields import Fields
from viewcache.materializer.dataset.labels import has_segments, labels_for
from viewcache.materializer.dataset.predicate import matching
from viewcache.materializer.dataset.table import read_table, typed
from viewcache.materializer.field_values import Ragged, as_lists, filled_field

PATHS = ["a.mp4", "b.mp4", "c.mp4"]
ROWS: list[dict[str, Any]] = [
    {"video": "a", "label": "x", "note": "2020-01-02", "n": 1, "share": 1, "on": True, "boxes": [[1, 2], [3, 4.5]]},
    {"video": "b", "label": "y", "note": None, "n": 2, "share": 2.5, "on": False, "boxes": []},
    {"video": "c", "label": "x", "note": "é", "n": 3, "share": None, "on": True, "boxes": [[5, 6]]},
]


def json_lines(folder: Path, rows: list[dict[str, Any]], name: str = "t.jsonl") -> str:
    """A JSON lines table of these rows."""
    path = folder / name
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    return str(path)


def parquet(folder: Path, **columns: object) -> str:
    """A Parquet table of these columns."""
    pyarrow.parquet.write_table(pa.table(columns), folder / "t.parquet")
    return str(folder / "t.parquet")


def fields_of(table: str, *names: str, grows: bool = False) -> Fields:
    """Columns of a table for the three videos."""
    found = labels_for(PATHS, table)
    rows = np.full(len(PATHS), -1, np.int64)
    rows[found.video] = found.rows
    return Fields(found.table, rows, found.others, names, grows=grows)


def fields(table: str, *names: str, grows: bool = False) -> dict[str, Any]:
    """Columns as a batch of all three videos has them."""
    return dict(fields_of(table, *names, grows=grows).values(np.arange(3)))


def test_blanks_in_a_header(tmp_path: Path) -> None:
    """A blank behind the comma is no part of a column's name in a CSV, so two names may be one, which is refused."""
    path = tmp_path / "t.csv"
    path.write_text("video, label, start_s ,\tn\na,x,1,2\n")
    assert read_table(str(path)).column_names == ["video", "label", "start_s", "n"]
    assert has_segments(str(path))
    assert labels_for(PATHS, str(path)).label.to_pylist() == ["x"]
    path.write_text("video,label, label\na,x,y\n")
    with pytest.raises(BadInput, match="names a column twice, blanks around names aside: video, label, label"):
        read_table(str(path))


def test_names_that_differ_in_their_capitals_alone() -> None:
    """SQL cannot tell them apart: a condition that has such a name is refused, others are taken."""
    table = pa.table({"label": ["x", "y"], "LABEL": ["p", "q"], "n": [1, 2]})
    with pytest.raises(BadInput, match=r"'LABEL' and 'label' are one name in SQL.*rename the column"):
        matching(table, "Label = 'p'")
    assert matching(table, "n = 2").tolist() == [False, True]


def test_json_lines(tmp_path: Path) -> None:
    """A table of objects is one whatever it is called; a text that looks like a time stays as written."""
    for name in ("t.jsonl", "t.csv"):
        table = read_table(json_lines(tmp_path, ROWS, name))
        assert table.to_pylist() == ROWS
    assert table["n"].type == pa.int64()
    assert table["share"].type == pa.float64()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"video": "a", "n": 1}\n{"video": "b", "n": "x"}',
            "values of one type in each column.*number.*string in line 2$",
        ),
        ('\n{"video": "a"}\r\n\n{"video": "b", "video": "c"}\n', "was specified twice in line 4$"),
        ('{"video": "a"}\n{"video": ', "no JSON lines table"),
        ('{"video": "a", "n": [1]}\n{"video": "b", "n": 1}', "values of one type in each column"),
    ],
)
def test_json_lines_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    """Columns of mixed types and broken lines are refused with what is wrong and where."""
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(BadInput, match=rf"t\.jsonl: .*{message}"):
        read_table(str(tmp_path / "t.jsonl"))


def test_types_of_parquet(tmp_path: Path) -> None:
    """Numbers keep their precision; what is neither text, number nor a list of these is shown as text."""
    import datetime
    import decimal

    table = read_table(
        parquet(
            tmp_path,
            video=["a"],
            small=pa.array([7], pa.uint8()),
            half=pa.array([np.float16(0.5)], pa.float16()),
            single=pa.array([0.5], pa.float32()),
            huge=pa.array([2**64 - 1], pa.uint64()),
            day=[datetime.date(2020, 1, 2)],
            cost=[decimal.Decimal("1.50")],
            kind=pa.array(["k"]).dictionary_encode(),
            inside=[{"x": 1}],
        )
    )
    assert [str(each) for each in table.schema.types] == [
        "large_string", "int64", "float", "float", *["large_string"] * 5,
    ]  # fmt: skip
    assert table.to_pylist()[0] == {
        "video": "a", "small": 7, "half": 0.5, "single": 0.5, "huge": str(2**64 - 1), "day": "2020-01-02",
        "cost": "1.50", "kind": "k", "inside": "{'x': 1}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "", "-2"], pa.int64(), [1, None, -2]),
        (["1", "2.5"], pa.float64(), [1.0, 2.5]),
        (["1", "x"], pa.large_string(), ["1", "x"]),
        (["1" * 30, "2"], pa.large_string(), ["1" * 30, "2"]),
    ],
)
def test_types_of_csv(cells: list[str], kind: pa.DataType, values: list[object]) -> None:
    """A column is of whole numbers, numbers or text; more digits than a number has stay a text."""
    found = typed(cells)
    assert (found.type, found.to_pylist()) == (kind, values)


# Fields ---------------------------------------------------------------------------------------------------------------


def test_forms_of_fields(tmp_path: Path) -> None:
    """Numbers are arrays, text is text, lists of one length are arrays, others are values and offsets."""
    rows = [row | {"xy": [k, k + 1], "tags": ["t"] * k} for k, row in enumerate(ROWS)]
    found = fields(json_lines(tmp_path, rows), "note", "n", "share", "on", "boxes", "xy", "tags")
    assert found["note"] == ("2020-01-02", None, "é")
    assert found["n"].dtype == np.int64
    assert found["n"].tolist() == [1, 2, 3]
    assert found["share"].dtype == np.float64
    assert np.array_equal(found["share"], [1.0, 2.5, np.nan], equal_nan=True)
    assert found["on"].tolist() == [True, False, True]
    assert found["xy"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert found["tags"] == ((), ("t",), ("t", "t"))
    boxes = found["boxes"]
    assert boxes.offsets.tolist() == [0, 2, 2, 3]
    assert boxes.values.tolist() == [[1, 2], [3, 4.5], [5, 6]]
    assert {name: as_lists(each) for name, each in found.items()} == {
        name: [row[name] for row in rows] for name in found
    }


def test_values_come_in_any_order_and_again(tmp_path: Path) -> None:
    """Each clip has what its video's row says, also where a video comes twice or has no row."""
    table = json_lines(tmp_path, [ROWS[0] | {"share": 1.5}, ROWS[2]])
    found = fields_of(table, "note", "share", "boxes").values(np.array([2, 1, 2, 0]))
    assert {name: as_lists(each) for name, each in found.items()} == {
        "note": ["é", None, "é", "2020-01-02"],
        "share": [None, None, None, 1.5],
        "boxes": [[[5, 6]], [], [[5, 6]], [[1, 2], [3, 4.5]]],
    }


def test_the_form_is_that_of_the_table(tmp_path: Path) -> None:
    """Videos whose lists happen to have one length have the form that all have; a growing table settles on ragged."""
    rows = [*ROWS, {"video": "elsewhere", "n": 4, "boxes": [[1, 1]] * 7}]
    one = [row | {"boxes": [[1, 2]]} for row in rows[:3]]
    assert isinstance(fields(json_lines(tmp_path, [*one, rows[3]]), "boxes")["boxes"], Ragged)
    assert fields(json_lines(tmp_path, one), "boxes")["boxes"].shape == (3, 1, 2)
    assert isinstance(fields(json_lines(tmp_path, one), "boxes", grows=True)["boxes"], Ragged)
    fixed = parquet(tmp_path, video=["a", "b"], at=pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)))
    found = fields(fixed, "at", grows=True)["at"]
    assert (found.dtype, found.shape) == (np.float32, (3, 2))
    assert np.array_equal(found, np.array([[1, 2], [np.nan] * 2, [np.nan] * 2]), equal_nan=True)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.nulls(3), "has no value in any row"),
        (pa.array([[[1], [2, 3]], [[4]], []]), r"lists of different lengths \(1, 2\)"),
        (pa.array([[1, None], [2], []]), "an element that is null"),
        (pa.array([["x", None], [], []]), "an element that is null"),
        (pa.array([[["x"]], [], []]), "at most lists of texts"),
    ],
)
def test_columns_that_fit_no_batch(column: pa.Array, message: str, tmp_path: Path) -> None:
    """What cannot become arrays is refused when the cache is opened, with the column's name."""
    with pytest.raises(BadInput, match=rf"fields: column 'odd' .*{message}"):
        fields(parquet(tmp_path, video=["a", "b", "c"], odd=column), "odd")


def test_a_field_that_is_not_there(tmp_path: Path) -> None:
    """The message lists what there is, which is neither the videos' names nor the labels."""
    with pytest.raises(BadInput, match="no further column 'captoin'; it has 'note', 'n', 'share', 'on', 'boxes'"):
        fields(json_lines(tmp_path, ROWS), "captoin")


def test_whole_numbers_have_no_missing_value(tmp_path: Path) -> None:
    """A chosen video without one is refused by name; one that is not chosen is not asked."""
    found = fields_of(json_lines(tmp_path, ROWS[:2]), "n", "note")
    found.check(np.array([True, True, False]), ["a", "b", "c"], 1)
    with pytest.raises(BadInput, match=r"column 'n' has no value for 'c', and whole numbers .* where: n is not null"):
        found.check(np.array([True, True, True]), ["a", "b", "c"], 1)
    none = fields_of(json_lines(tmp_path, ROWS[:1]), "n")
    with pytest.raises(BadInput, match=r"no value for 'b' and 1 more, and"):
        none.check(np.array([True, True, True]), ["a", "b", "c"], 1)


def test_a_batch_of_fields_has_a_bound(tmp_path: Path) -> None:
    """Megabytes for each clip are refused: they would not fit into what a service hands over."""
    found = fields_of(json_lines(tmp_path, [{"video": "a", "text": "x" * 100_000}]), "text")
    found.check(np.array([True, True, True]), ["a", "b", "c"], 80)
    with pytest.raises(BadInput, match="a batch of 100 clips has up to 10000000 bytes of text"):
        found.check(np.array([True, True, True]), ["a", "b", "c"], 100)


def test_filling_up() -> None:
    """A short batch is filled with zeros, empty texts and empty lists; its values stay."""
    ragged = filled_field(Ragged(np.ones((3, 4)), np.array([0, 1, 3])), 4)
    assert isinstance(ragged, Ragged)
    assert ragged.offsets.tolist() == [0, 1, 3, 3, 3]
    assert filled_field(("x", None), 3) == ("x", None, "")
    assert filled_field((("x",), ()), 3) == (("x",), (), ())
    assert as_lists(filled_field(np.array([True]), 2)) == [True, False]


# Classes --------------------------------------------------------------------------------------------------------------


def classes(labels: list[object], *names: str) -> Classes:
    """The classes of some labels, of given names or of their own."""
    array = pa.array(labels)
    flat = array.flatten() if pa.types.is_list(array.type) else array
    return Classes(array, names or class_names(flat), given=bool(names))


def test_several_labels_of_a_video() -> None:
    """A row has a one for each class that a video has, however often it is named; none for a video without labels."""
    found = classes([["run", "jump"], [], None, ["run", "run"]])
    assert found.names == ("jump", "run")
    assert found.numbers(np.arange(4)).tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    assert found.numbers(np.arange(4)).dtype == np.float32
    assert [found.of(row) for row in range(4)] == [(0, 1), (), (), (1,)]
    numbers = classes([[2], [0, 2]])
    assert numbers.names == ()
    assert numbers.numbers(np.array([1, 0])).tolist() == [[1, 0, 1], [0, 0, 1]]


def test_labels_between_separators() -> None:
    """Text is parted at the separator, without blanks around; whole numbers are numbers; an empty cell is no label."""
    found = separated(pa.array(["run; jump", "", None, " ", ";", "sit;"]), ";")
    assert found.to_pylist() == [["run", "jump"], None, None, None, [], ["sit"]]
    classes = Classes(found, class_names(found.flatten()))
    assert [classes.of(row) for row in range(len(found))] == [(0, 1), (), (), (), (), (2,)]
    assert separated(pa.array([None, None], pa.large_string()), ";").null_count == 2
    assert separated(pa.array(["1|2", "3"]), "|").to_pylist() == [[1, 2], [3]]
    assert separated(pa.array([1, 23]), "|").to_pylist() == [[1], [23]]
    with pytest.raises(BadInput, match="these are lists already"):
        separated(pa.array([["x"]]), ";")


def test_given_names_decide_the_numbers() -> None:
    """A list of names gives the same numbers whatever labels there are; whole numbers are places in it."""
    assert classes(["sit", "run"], "run", "jump", "sit").numbers(np.arange(2)).tolist() == [2, 0]
    assert classes([2, 0, None], "run", "jump", "sit").numbers(np.arange(3)).tolist() == [2, 0, -1]
    assert classes([20, 10], "10", "20").numbers(np.arange(2)).tolist() == [1, 0], "they are names where all names are"
    assert classes([["sit"], ["run", "sit"]], "run", "jump", "sit").numbers(np.arange(2)).tolist() == [
        [0, 0, 1], [1, 0, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["run", "Sit", "fly"], "'Sit', 'fly' are labels of the table and not among the 3 names .*did you mean sit"),
        ([["run"], ["fly"]], "'fly' is a label of the table and not among"),
        ([0, 3], r"^3 is a label of the table: whole numbers are places .*, from 0 to 2 \('run', 'jump', 'sit'\)$"),
        ([-1], "^-1 is a label of the table: whole numbers are places"),
    ],
)
def test_a_class_list_that_does_not_fit(labels: list[object], message: str) -> None:
    """The labels that are not in it are named; those of videos that are not chosen do not matter."""
    found = classes(labels, "run", "jump", "sit")
    found.check(np.zeros(len(labels), bool))
    with pytest.raises(BadInput, match=message):
        found.check(np.ones(len(labels), bool))


def test_numbers_below_zero_are_no_classes() -> None:
    """Several labels of a video need a place each."""
    with pytest.raises(BadInput, match="labels -3 are below 0"):
        classes([[1, -3]]).check(np.ones(1, bool))
