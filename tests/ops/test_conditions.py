"""Conditions: parsed by their own grammar, evaluated like the words say, with errors that show the character."""

import string
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.errors import BadInput
from viewcache.materializer.planning.conditions import evaluate, parse_condition

NUMBERS = st.one_of(st.integers(-50, 200).map(str), st.decimals(-50, 200, places=2).map(lambda d: format(d, "f")))
TERMS = st.one_of(st.sampled_from(["iteration", "epoch"]), NUMBERS)
COMPARISONS = st.builds(" ".join, st.tuples(TERMS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), TERMS))
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(lambda a: f"not ({a})"),
        inner.map(lambda a: f"({a})"),
        st.tuples(inner, inner).map(lambda p: f"{p[0]} and {p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"{p[0]} or {p[1]}"),
    ),
    max_leaves=8,
)
ITERATIONS, EPOCHS = np.arange(-60, 210, 7), np.arange(-60, 210, 7)[:, None]


def by_python(text: str, iteration: int, epoch: int) -> bool:
    """Python's own grammar agrees with ours on such texts, once numbers have no leading zeros; only tests may eval."""
    return bool(eval(text, {"__builtins__": {}}, {"iteration": iteration, "epoch": epoch}))


@given(EXPRESSIONS)
def test_conditions_mean_what_python_means(text: str) -> None:
    """For any combination of comparisons, and, or, not and parentheses, the truth is that of the same Python text."""
    got = evaluate(text, ITERATIONS, EPOCHS)
    want = [[by_python(text, i, e) for i in ITERATIONS.tolist()] for e in EPOCHS.ravel().tolist()]
    assert got.tolist() == want


@given(EXPRESSIONS)
def test_canonical_text_is_stable_and_means_the_same(text: str) -> None:
    """Parsing the canonical text gives the same text and the same truth, so it can stand in a definition."""
    condition = parse_condition(text)
    again = parse_condition(condition.text)
    assert again.text == condition.text
    assert np.array_equal(again.evaluate(ITERATIONS, EPOCHS), condition.evaluate(ITERATIONS, EPOCHS))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("iteration<1000", "iteration < 1000"),
        (" ( epoch >= 05.50 ) ", "epoch >= 5.5"),
        ("epoch > 3.0 and (iteration < 5 and epoch != -0)", "epoch > 3 and iteration < 5 and epoch != 0"),
        ("epoch > 3 and (iteration < 5 or epoch == .5)", "epoch > 3 and (iteration < 5 or epoch == 0.5)"),
        ("(epoch > 3 and iteration < 5) or epoch == 9", "epoch > 3 and iteration < 5 or epoch == 9"),
        ("not(epoch > 3)", "not epoch > 3"),
        ("not (epoch > 3 or epoch < 1)", "not (epoch > 3 or epoch < 1)"),
        (" else ", "else"),
    ],
)
def test_spellings_have_one_canonical_text(written: str, canonical: str) -> None:
    """Spaces, needless parentheses and spellings of numbers do not make another condition."""
    assert parse_condition(written).text == canonical


def test_else_holds_everywhere() -> None:
    """``else`` is the arm that is always true; which arm comes first is the caller's business."""
    condition = parse_condition("else")
    assert condition.is_else
    assert condition.evaluate(np.arange(3), 0).tolist() == [True] * 3
    assert not parse_condition("epoch > 1").is_else


def test_evaluation_is_vectorized() -> None:
    """Arrays of iterations and epochs broadcast to an array of truths."""
    assert evaluate("iteration >= 2 and epoch == 1", np.arange(4), np.array([[0], [1]])).tolist() == [
        [False] * 4,
        [False, False, True, True],
    ]


@pytest.mark.parametrize(
    ("text", "character", "match"),
    [
        ("", 1, "found the end"),
        ("iteraton < 3", 1, "did you mean iteration"),
        ("EPOCH < 3", 1, "did you mean epoch"),
        ("epoch", 6, "expected a comparison after epoch"),
        ("epoch < ", 9, "found the end"),
        ("epoch = 3", 7, "'=' is not part"),
        ("epoch < 3 epoch", 11, "unexpected 'epoch'"),
        ("(epoch < 3", 11, r"expected '\)'"),
        ("epoch < 3)", 10, r"unexpected '\)'"),
        ("else or epoch < 3", 6, "unexpected 'or'"),
        ("epoch < 3 or else", 14, "found 'else'"),
        ("__import__('os')", 1, "."),
        ("epoch < 1e9", 10, "unexpected 'e9'"),
        ("epoch < 12345678901234567", 9, "more than 15 characters"),
        ("(" * 40 + "epoch < 3" + ")" * 40, 33, "nested deeper than 32"),
        ("not " * 40 + "epoch < 3", 129, "nested deeper than 32"),
    ],
)
def test_errors_show_the_character(text: str, character: int, match: str) -> None:
    """A wrong condition names the character, what was found there, and what is allowed."""
    with pytest.raises(BadInput, match=match) as caught:
        parse_condition(text)
    if match != ".":
        assert f"character {character}:" in str(caught.value)
    assert "allowed: iteration, epoch" in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, True, "epoch < 3 or " * 200 + "epoch < 3"])
def test_not_a_condition_at_all(value: object) -> None:
    """A value that is no text, or far too long a one, is refused with what is allowed."""
    with pytest.raises(BadInput, match="condition"):
        parse_condition(cast(str, value))


@given(st.text(alphabet=string.printable + "≤∞", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Whatever is written, the answer is a condition or BadInput, never another error and never running code."""
    try:
        parse_condition(text)
    except BadInput as error:
        assert repr(text) in str(error)  # noqa: PT017 - most texts are wrong, some are right
