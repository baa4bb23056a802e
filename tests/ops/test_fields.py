"""Parameters of operations: one canonical value per meaning, and messages that say what is allowed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.errors import BadInput
from viewcache.materializer.ops import builtin_names, get
from viewcache.materializer.ops.fields import Channels, Choice, FieldKind, Flag, Range, Real, Sides, Whole, WholeRange

YAML_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from(["shape", "prob", "scale", "degrees"])), inner),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("kind", "written", "canonical"),
    [
        (Whole(1, 9), 3, 3),
        (Whole(1, 9, odd=True), 3, 3),
        (Real(0, 1), 1, 1.0),
        (Real(-1, 1), -0.0, 0.0),
        (Flag(), False, False),
        (Choice(("a", "b")), "b", "b"),
        (Choice(("a", "b")), ["b"], "b"),
        (Sides(), 224, (224, 224)),
        (Sides(), [224, 320], (224, 320)),
        (Range(0, 9), 2, (2.0, 2.0)),
        (Range(0, 9), [1, 2.5], (1.0, 2.5)),
        (WholeRange(0, 9), [1, 2], (1, 2)),
        (Channels(0, 1), 0.5, (0.5, 0.5, 0.5)),
        (Channels(0, 255, whole=True), [1, 2, 3], (1, 2, 3)),
    ],
)
def test_equal_meaning_is_equal_value(kind: FieldKind, written: object, canonical: object) -> None:
    """What may be written in several ways has one canonical value and type, which reads back as itself."""
    value = kind.read(written)
    assert value == canonical
    assert repr(value) == repr(canonical)
    assert kind.read(value) == canonical


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Whole(1, 9), [0, 10, 3.0, True, "3", None]),
        (Whole(1, 9, odd=True), [4]),
        (Real(0, 1), [1.1, math.nan, math.inf, False, "1"]),
        (Flag(), [0, 1, "true"]),
        (Choice(("a", "b")), ["c", 1, ["a", "b"], []]),
        (Sides(), [0, [1], [1, 2, 3], [1, 2.0], True, [True, 1], 16385]),
        (Range(0, 9), [[2, 1], [1], 10, True, [math.nan, 1]]),
        (WholeRange(0, 9), [3, [2, 1], [0, 10], [1.0, 2]]),
        (Channels(0, 1), [[1, 1], 2, "x"]),
        (Channels(0, 255, whole=True), [1.5, [1, 2, 3.0]]),
    ],
)
def test_wrong_values_are_refused(kind: FieldKind, wrong: list[object]) -> None:
    """Wrong types, numbers out of bounds, NaN, booleans posing as numbers and reversed ranges are refused."""
    for value in wrong:
        with pytest.raises(ValueError, match=r".*"):
            kind.read(value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("random_crop", {"shape": [0, 224]}, "random_crop: shape is [0, 224]; allowed: [height, width] or one integer"),
        ("random_crop", {}, "random_crop: parameter 'shape' is missing; allowed: [height, width]"),
        (
            "flip",
            {"flip_pob": 0.5},
            "flip: unknown parameter 'flip_pob'; allowed: flip_prob, direction; did you mean flip_prob?",
        ),
        ("flip", {"flip_prob": 2}, "flip: flip_prob is 2; allowed: a number from 0 to 1"),
        (
            "resize",
            {"short_side": 4, "interpolation": "cubic"},
            "resize: interpolation is 'cubic'; allowed: bilinear, bicubic, ",
        ),
        (
            "color_jitter",
            0.4,
            "color_jitter: got 0.4; allowed: a mapping of brightness, contrast, saturation, hue, prob",
        ),
        ("erase", [1], "erase: got [1]; allowed: a mapping"),
    ],
)
def test_messages_say_what_is_wrong_and_what_is_allowed(name: str, value: object, message: str) -> None:
    """Each message names the operation, the parameter, the value and what is allowed."""
    with pytest.raises(BadInput) as caught:
        get(name).parse(value)
    assert str(caught.value).startswith(message)


@given(st.sampled_from(builtin_names()), YAML_VALUES)
def test_any_yaml_is_parsed_or_refused(name: str, value: object) -> None:
    """Whatever YAML stands behind a name, the answer is canonical parameters or BadInput, never another error."""
    op = get(name)
    try:
        params = op.parse(value)
    except BadInput as error:
        assert str(error).startswith(name)  # noqa: PT017 - most values are wrong, some are right
    else:
        assert hash(params) is not None


@pytest.mark.parametrize(("shorthand", "full"), [(224, {"shape": [224, 224]}), ([3, 4], {"shape": [3, 4]})])
def test_a_bare_value_is_the_main_parameter(shorthand: object, full: object) -> None:
    """An operation with one main parameter takes it bare, as SAND writes ``inv_sample: true``."""
    assert get("random_crop").parse(shorthand) == get("random_crop").parse(full)
