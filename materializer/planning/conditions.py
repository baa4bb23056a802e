"""Conditions of conditional branches: a tiny grammar of its own, parsed to a tree and never evaluated as code (law 10).

    condition  = "else" | or
    or         = and {"or" and}
    and        = not {"and" not}
    not        = "not" not | comparison | "(" or ")"
    comparison = term ("<" | "<=" | ">" | ">=" | "==" | "!=") term
    term       = "iteration" | "epoch" | number

The canonical text (single spaces, fewest parentheses, shortest numbers) is what enters a task's definition, so that two
spellings of one condition are one condition.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from viewcache.errors import BadInput
from viewcache.suggest import did_you_mean

__all__ = ["Condition", "evaluate", "parse_condition"]

MAX_LENGTH = 1000
"""Longest condition in characters."""
MAX_DIGITS = 15
"""Longest number in characters: such a number is exact as an int64 and as a float64."""
MAX_DEPTH = 32
"""Deepest nesting of parentheses and ``not``."""

NAMES = ("iteration", "epoch")
_WORDS = (*NAMES, "and", "or", "not", "else")
_COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_TOKEN = re.compile(r"\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+))|(?P<word>[A-Za-z_]\w*)|(?P<sign>[<>=!]=|[<>()]))")
_ALLOWED = "allowed: iteration, epoch, numbers, < <= > >= == !=, and, or, not, parentheses, or else alone"


@dataclass(frozen=True, slots=True)
class _Compare:
    left: str
    sign: str
    right: str


@dataclass(frozen=True, slots=True)
class _Not:
    part: "_Node"


@dataclass(frozen=True, slots=True)
class _Join:
    word: str
    """``and`` or ``or``."""
    parts: tuple["_Node", ...]


_Node = _Compare | _Not | _Join


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition; equal conditions have equal ``text``."""

    text: str
    """Canonical text, or ``else``."""
    root: _Node | None
    """None for ``else``."""

    @property
    def is_else(self) -> bool:
        """True for the arm that is taken when no other is."""
        return self.root is None

    def evaluate(self, iteration: int | np.ndarray, epoch: int | np.ndarray) -> NDArray[np.bool_]:
        """Say where the condition holds.

        Args:
            iteration: iteration numbers.
            epoch: epoch numbers, broadcasting with ``iteration``.

        Returns:
            Boolean array of the broadcast shape; all True for ``else`` (order of the arms is the caller's).
        """
        iterations, epochs = np.broadcast_arrays(np.asarray(iteration), np.asarray(epoch))
        if self.root is None:
            return np.ones(iterations.shape, dtype=np.bool_)
        truth = _evaluate(self.root, {"iteration": iterations, "epoch": epochs})
        return np.broadcast_to(truth, iterations.shape).copy()  # a comparison of two numbers has no shape of its own


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        BadInput: the text, the character where it goes wrong, and what is allowed.
    """
    if not isinstance(text, str):
        raise BadInput(f"condition: got {text!r}; allowed: a text such as 'iteration < 1000'")
    if len(text) > MAX_LENGTH:
        raise BadInput(f"condition: {len(text)} characters; allowed: at most {MAX_LENGTH}")
    parser = _Parser(text)
    root = None if parser.take("else") else parser.any_of(0)
    parser.end()
    return Condition("else" if root is None else _text(root), root)


def evaluate(text: str, iteration: int | np.ndarray, epoch: int | np.ndarray) -> NDArray[np.bool_]:
    """Parse a condition (once per text) and say where it holds; see ``Condition.evaluate``."""
    return _parsed(text).evaluate(iteration, epoch)


_parsed = lru_cache(maxsize=256)(parse_condition)


class _Parser:
    """Recursive descent over a list of (token, character position)."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        self.next = 0
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self._error(at, f"{text[at]!r} is not part of a condition")
            assert match.lastgroup is not None  # one of the three groups matched
            self.tokens.append((match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()

    def take(self, *wanted: str) -> str | None:
        """Consume the next token if it is one of those wanted."""
        token = self._peek()[0]
        if token not in wanted:
            return None
        self.next += 1
        return token

    def any_of(self, depth: int) -> _Node:
        """Or."""
        return self._joined("or", self._all_of, depth)

    def end(self) -> None:
        """Everything must have been read."""
        token, at = self._peek()
        if token:
            raise self._error(at, f"unexpected {token!r}")

    def _all_of(self, depth: int) -> _Node:
        return self._joined("and", self._negation, depth)

    def _joined(self, word: str, part: Callable[[int], _Node], depth: int) -> _Node:
        parts = [part(depth)]
        while self.take(word):
            parts.append(part(depth))
        # (a and b) and c is a and b and c: one canonical text
        flat = [leaf for node in parts for leaf in _leaves(node, word)]
        return flat[0] if len(flat) == 1 else _Join(word, tuple(flat))

    def _negation(self, depth: int) -> _Node:
        if depth >= MAX_DEPTH:
            raise self._error(self._peek()[1], f"nested deeper than {MAX_DEPTH}")
        if self.take("not"):
            return _Not(self._negation(depth + 1))
        if self.take("("):
            inner = self.any_of(depth + 1)
            if not self.take(")"):
                raise self._error(self._peek()[1], "expected ')'")
            return inner
        left = self._term()
        sign = self.take(*_COMPARE)
        if sign is None:
            raise self._error(self._peek()[1], f"expected a comparison after {left}")
        return _Compare(left, sign, self._term())

    def _term(self) -> str:
        token, at = self._peek()
        if token in NAMES:
            self.next += 1
            return token
        if token[:1].isdigit() or token[:1] in ("-", "."):
            if len(token) > MAX_DIGITS:
                raise self._error(at, f"{token!r} has more than {MAX_DIGITS} characters")
            self.next += 1
            return _number_text(token)
        hint = did_you_mean(token, _WORDS) if token not in _WORDS else ""
        found = repr(token) if token else "the end"
        raise self._error(at, f"expected iteration, epoch or a number, found {found}" + (f"; {hint}" if hint else ""))

    def _peek(self) -> tuple[str, int]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("", len(self.text))

    def _error(self, at: int, what: str) -> BadInput:
        return BadInput(f"condition {self.text!r}, character {at + 1}: {what}; {_ALLOWED}")


def _leaves(node: _Node, word: str) -> tuple[_Node, ...]:
    return node.parts if isinstance(node, _Join) and node.word == word else (node,)


def _number_text(token: str) -> str:
    """Shortest text of a number: 010.50 becomes 10.5 and 3.0 becomes 3."""
    sign, digits = ("-", token[1:]) if token.startswith("-") else ("", token)
    whole, _, part = digits.partition(".")
    short = (whole.lstrip("0") or "0") + ("." + part.rstrip("0") if part.rstrip("0") else "")
    return short if short == "0" else sign + short


def _text(node: _Node) -> str:
    if isinstance(node, _Compare):
        return f"{node.left} {node.sign} {node.right}"
    if isinstance(node, _Not):
        inner = _text(node.part)
        return f"not ({inner})" if isinstance(node.part, _Join) else f"not {inner}"
    return f" {node.word} ".join(
        f"({_text(part)})" if isinstance(part, _Join) and node.word == "and" else _text(part) for part in node.parts
    )


def _evaluate(node: _Node, values: dict[str, np.ndarray]) -> NDArray[np.bool_]:
    if isinstance(node, _Compare):
        return np.asarray(_COMPARE[node.sign](_value(node.left, values), _value(node.right, values)))
    if isinstance(node, _Not):
        return ~_evaluate(node.part, values)
    join = np.logical_and if node.word == "and" else np.logical_or
    return np.asarray(reduce(join, [_evaluate(part, values) for part in node.parts]))


def _value(term: str, values: dict[str, np.ndarray]) -> np.ndarray:
    if term in NAMES:
        return values[term]
    return np.asarray(float(term) if "." in term else int(term))
