"""The YAML reader: YAML 1.2 scalars, places, and nothing outside the safe subset."""

import json
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from viewcache.api.config.yaml_subset import MAX_BYTES, MAX_DEPTH, MAX_NODES, Node, from_python, read_file, read_text
from viewcache.errors import ConfigError, NotFound
from viewcache.materializer.spec import Place

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\ufeff\uffff\ufffe"), max_size=20
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def one(text: str) -> Node:
    """The value of the key `a` of a text with one document."""
    (node,) = read_text(text)
    assert isinstance(node.value, dict)
    return node.value["a"]


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("", None),
        ("~", None),
        ("Null", None),
        ("None", "None"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2024-02-30", "2024-02-30"),
        ("+5", 5),
        ("-0", 0),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("'8'", "8"),
        ('"no"', "no"),
        ("|-\n  8", "8"),
        ("<<", "<<"),
        ("=", "="),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written: str, means: object) -> None:
    """An unquoted scalar is null, a boolean or a number only in the spellings of the YAML 1.2 core schema."""
    value = one(f"a: {written}\n").value
    assert (value, type(value)) == (means, type(means))


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_json_is_read_as_it_is(value: dict[str, object]) -> None:
    """Any JSON document is read to the values that it holds, so that configurations can be written by programs."""
    (node,) = read_text(json.dumps(value, ensure_ascii=False, indent=1))
    assert node.plain() == value


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_python_values_become_the_nodes_of_their_yaml(value: dict[str, object]) -> None:
    """A mapping is read as the file with the same content would be, without lines."""
    assert from_python(value).plain() == value
    assert from_python(value).place == Place("<mapping>")


def test_every_value_and_key_knows_its_line_and_column() -> None:
    """Lines and columns are counted from 1, in characters, of the place where a value or key begins."""
    (first, second) = read_text("# a comment\nä: [1, {b: 'c'}]\n---\r\nx:\r\n- y: 1\r\n", "f.yaml")
    assert isinstance(first.value, dict)
    assert first.keys["ä"] == Place("f.yaml", 2, 1)
    items = first.value["ä"].value
    assert isinstance(items, tuple)
    assert [item.place for item in items] == [Place("f.yaml", 2, 5), Place("f.yaml", 2, 8)]
    assert items[1].keys["b"] == Place("f.yaml", 2, 9)
    assert isinstance(second.value, dict)
    assert second.value["x"].value[0].keys["y"] == Place("f.yaml", 5, 3)  # type: ignore[index,union-attr]


def test_a_byte_order_mark_moves_no_column() -> None:
    """A file that an editor saved with a byte order mark reads like one without."""
    assert read_text("\ufeffa: 1") == read_text("a: 1")


def test_empty_documents_are_left_out() -> None:
    """Comments, blank documents and a trailing separator are no configuration."""
    assert read_text("") == read_text("# nothing\n---\n---\n# more\n...\n") == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\na: 2\n", 2, 1, "key 'a' is already given in line 1"),
        ("a: {b: 1, b: 2}\n", 1, 11, "key 'b' is already given in line 1"),
        ("a: &x 1\nb: *x\n", 1, 4, "anchor &x"),
        ("a: *x\n", 1, 4, "alias *x"),
        ("a: !!python/object/apply:os.system [id]\n", 1, 4, "tags are not supported"),
        ("a: !!str 1\n", 1, 4, "tags are not supported"),
        ("a: ! 1\n", 1, 4, "tags are not supported"),
        ("1: a\n", 1, 1, "a key must be a name, got 1, which is one in quotes"),
        ("true: a\n", 1, 1, "a key must be a name, got True, which is one in quotes"),
        ("a: {b: {3: 1}}\n", 1, 9, "a.b: a key must be a name, got 3, which is one in quotes"),
        ("a: [{b: {}, 3: 1}]\n", 1, 13, "a: a key must be a name, got 3"),
        ("? [a]\n: b\n", 1, 3, "a key must be a name, got a list of 1"),
        ("a: .nan\n", 1, 4, "not a finite number"),
        ("a: 1e999\n", 1, 4, "not a finite number"),
        ("a: 18446744073709551616\n", 1, 4, "at most 64 bits"),
        ("a: " + "9" * 5000 + "\n", 1, 4, "too long"),
        ("a: b\nc: \x07\n", 2, 4, "U+0007"),
        ('a: "\\0"\n', 1, 4, "U+0000"),
        ('a: "\\ud800"\n', 1, 0, "not YAML"),
        ("a: [1, 2\n", 2, 1, "not YAML"),
        ("a:\n\t- b\n", 2, 1, "not YAML"),
        ("a: b: c\n", 1, 5, "not YAML"),
        ("a: 'b\n", 2, 1, "not YAML"),
        ("[" * 40 + "\n", 1, 33, "nested deeper than 32 levels"),
    ],
)
def test_what_is_outside_the_subset_is_refused_at_its_place(text: str, line: int, column: int, words: str) -> None:
    """Each construct that is no part of the subset is a ConfigError that names it, with line and column."""
    with pytest.raises(ConfigError) as caught:
        read_text(text)
    assert words in str(caught.value)
    assert caught.value.line == line
    assert column in (0, caught.value.column)


def test_caps_hold_to_the_value() -> None:
    """A file at a cap is read and one above it is refused: bytes, depth and number of values."""
    read_text("# " + "x" * (MAX_BYTES - 2))
    with pytest.raises(ConfigError, match="longer than 1048576 bytes"):
        read_text("# " + "x" * (MAX_BYTES - 1))
    with pytest.raises(ConfigError, match="longer than 1048576 bytes"):
        read_text("#" + "ä" * (MAX_BYTES // 2))
    read_text("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ConfigError, match="nested deeper"):
        read_text("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    read_text("[" + "1," * (MAX_NODES - 1) + "]")
    with pytest.raises(ConfigError, match="more than 20000 values"):
        read_text("[" + "1," * MAX_NODES + "]")


@pytest.mark.parametrize("bomb", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000, "a: &a [*a]"])
def test_nesting_bombs_are_refused_at_once(bomb: str) -> None:
    """Text that would nest without end is refused by the caps, not by the interpreter's stack."""
    with pytest.raises(ConfigError):
        read_text(bomb)


def _outcome(text: str) -> object:
    try:
        return read_text(text)
    except ConfigError:
        return ConfigError


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has only the pure parser")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_both_parsers_of_pyyaml_give_the_same_nodes(path: Path) -> None:
    """Values and places do not depend on whether PyYAML was built with libyaml."""
    fast = read_text(path.read_text("utf-8"))
    assert read_text(path.read_text("utf-8"), loader=yaml.SafeLoader) == fast


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A missing file is NotFound; a folder, pipe, device, foreign encoding or too long file is a ConfigError."""
    with pytest.raises(NotFound, match=r"absent\.yaml does not exist"):
        read_file(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match=r"not a regular file|Is a directory"):
        read_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="not a regular file"):
            read_file(path)
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: ä\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: is not UTF-8 text \(byte 8\)"):
        read_file(tmp_path / "latin.yaml")
    (tmp_path / "long.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="longer than"):
        read_file(tmp_path / "long.yaml")
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_file(tmp_path / name)


def test_python_values_that_yaml_has_not_are_refused() -> None:
    """Other types, keys that are not text, infinite numbers and values inside themselves are ConfigErrors."""
    knot: dict[str, object] = {}
    knot["again"] = knot
    for value in (
        {1: 2},
        {"a": b"x"},
        {"a": {1, 2}},
        {"a": math.nan},
        {"a": 2**64},
        {"a": "\0"},
        {"a": object()},
        knot,
    ):
        with pytest.raises(ConfigError):
            from_python(value)
    assert from_python({"a": Path("/x"), "b": (1, 2)}).plain() == {"a": "/x", "b": [1, 2]}


def test_credentials_are_masked_where_a_value_is_shown() -> None:
    """A value that looks like a URL or connection string with a password is never repeated in a message."""
    for text in ("s3://AKIA:hunter2@bucket/x", "host=db password=hunter2", "https://x/?sig=hunter2"):
        assert "hunter2" not in Node(text, Place()).shown()
