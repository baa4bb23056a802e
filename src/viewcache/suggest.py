"""The nearest known name to one that is not known: the one place that decides what "did you mean" says.

This module imports nothing of viewcache: every folder may use it.
"""

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

__all__ = ["did_you_mean", "suggest"]

_LONGEST = 128
"""Characters of an unknown name that are compared: comparing takes quadratic time."""

_NONE: Mapping[str, str] = MappingProxyType({})


def suggest(wrong: object, known: Iterable[str], elsewhere: Mapping[str, str] = _NONE) -> str | None:
    """Name the known word that was most likely meant.

    Args:
        wrong: what was written; anything but text is near nothing.
        known: the words that are allowed.
        elsewhere: what other libraries call things, in lower case without ``_`` and ``-`` → one of ``known``.

    Returns:
        The word, or None if none is near. Case does not count.
    """
    if not isinstance(wrong, str):
        return None
    word = wrong[:_LONGEST].lower()
    alias = elsewhere.get(word.replace("_", "").replace("-", ""))
    if alias is not None:
        return alias
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word, by_lower, 1)
    return by_lower[near[0]] if near else None


def did_you_mean(wrong: object, known: Iterable[str], elsewhere: Mapping[str, str] = _NONE) -> str:
    """The question to put into a message, such as ``did you mean flip?``; empty if no word is near. See `suggest`."""
    near = suggest(wrong, known, elsewhere)
    return f"did you mean {near}?" if near else ""
