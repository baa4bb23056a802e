"""The entries of one mapping of a configuration: which keys it has, where they are written, and what each is worth."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from viewcache.api.config.keys import SECTIONS, KeySection, hint
from viewcache.api.config.problems import Part, Problems, Refused
from viewcache.api.config.values import READERS, short, wrong
from viewcache.api.config.yaml_subset import Node, error_at
from viewcache.errors import ConfigCode
from viewcache.materializer.spec import Place
from viewcache.suggest import suggest

__all__ = ["Entries"]


_ELSEWHERE = {"batchsize": "videos_per_batch"}
"""What other libraries call a key, see `suggest` → the key."""


class Entries:
    """The entries of one mapping of the file, with the section of the table that they belong to."""

    def __init__(
        self,
        node: Node,
        section: KeySection,
        label: str,
        problems: Problems,
        words: Mapping[str, str] = MappingProxyType({}),
    ):
        """Check the keys: an unknown key, and a required one that is missing, are reported.

        Args:
            node: the value, which must be a mapping.
            section: its keys.
            label: how messages call it, e.g. ``dataset.augmentation[1]``; empty for a document.
            problems: takes what is wrong with these entries.
            words: key → the key that is written in its place here. Whoever asks for the first gets the second, in
                messages too.

        Raises:
            ConfigError: not a mapping.
        """
        if not isinstance(node.value, dict):
            message = f"{label or 'a configuration'} must be a mapping, got {node.shown()}"
            raise node.error(ConfigCode.WRONG_TYPE, message)
        self.node = node
        self.section = section
        self.label = label
        self.problems = problems
        self._given = node.value
        self._words = words
        self._meant: set[str] = set()
        """Keys that an unknown one was most likely meant to be: their values are not known to be missing."""
        self._read: dict[str, Part[Any]] = {}
        known = [key.name for key in section.keys]
        elsewhere = {word: self.written(key) for word, key in _ELSEWHERE.items() if key in known}
        for name in self._given:
            if name not in known:
                where = f"in {label}" if label else "at the top of a configuration"
                message = f"unknown key {short(name)} {where}; {_home(name, known, elsewhere)}"
                problems.report(error_at(node.keys[name], ConfigCode.UNKNOWN_KEY, message))
                self._meant.update(filter(None, [suggest(name, known, elsewhere)]))
        for key in section.keys:
            written = self.written(key.name)
            if key.required and written not in self._given:
                doc = section.key(written).doc
                self._read[written] = problems.part(partial(self.require, written, doc))

    def written(self, name: str) -> str:
        """The key that is written here for a key."""
        return self._words.get(name, name)

    def has(self, name: str) -> bool:
        """Whether the key is given and not empty."""
        name = self.written(name)
        return name in self._given and self._given[name].value is not None

    def require(self, name: str, doc: str, *, empty: bool = False) -> None:
        """Refuse entries that lack a key.

        Args:
            name: of the key.
            doc: what it is for.
            empty: refuse an empty value too.

        Raises:
            ConfigError: the key is not there.
            Refused: it is not there, but the mistake was reported as an unknown key.
        """
        if self.has(name) or (name in self._given and not empty):
            return
        if self.misspelt(name) or name in self._read:
            raise Refused
        raise self.node.error(ConfigCode.MISSING_KEY, f"{self.label} needs the key {name}: {doc}")

    def misspelt(self, name: str) -> bool:
        """Whether an unknown key, which was reported, was most likely meant to be this one."""
        return name in self._meant

    def child(self, name: str) -> Node:
        """The value of a key, unchecked.

        Raises:
            Refused: a required key is not there, which was reported.
        """
        name = self.written(name)
        if name not in self._given:
            raise Refused
        return self._given[name]

    def name_of(self, name: str) -> str:
        """How messages call a key."""
        name = self.written(name)
        return f"{self.label}.{name}" if self.label else name

    def place(self, name: str) -> Place:
        """Where the value of a key is written; the mapping's own place if it is absent."""
        name = self.written(name)
        return self._given[name].place if name in self._given else self.node.place

    def value(self, name: str) -> Any:
        """The checked value of a key, or its default; a wrong value is reported when it is first asked for.

        Returns:
            By kind: text, url, catalog, choice, name, title → str; integer → int; number, decibels → float; flag →
            bool; size → bytes as int; names, columns, modules, texts, folders, urls → tuple of str; classes → the
            same, or a file's path; shares → pairs of str and float. Sections, operations and the store are not values:
            ``child``.

        Raises:
            Refused: the value is wrong, or missing; that was reported.
        """
        written = self.written(name)
        if written not in self._read:
            self._read[written] = self.problems.part(partial(self._checked, name))
        return self._read[written].value

    def values(self, *names: str) -> dict[str, Any]:
        """The checked values of several keys; every wrong one is reported. See `value`.

        Raises:
            Refused: one of them is wrong or missing.
        """
        parts = {name: self.problems.part(partial(self.value, name)) for name in names}
        return {name: part.value for name, part in parts.items()}

    def _checked(self, name: str) -> Any:
        key = self.section.key(self.written(name))
        if not self.has(name):
            if self.section.key(name).required:
                message = f"{self.name_of(name)} is empty; it must be {key.expects()}"
                raise self.child(name).error(ConfigCode.MISSING_KEY, message)
            return key.default
        return READERS[key.kind](self.child(name), key, self.name_of(name))

    def items(self, name: str) -> list[tuple[Node, str]]:
        """The nodes of a list and how messages call each; a single mapping counts as a list of one for ``tasks``."""
        if not self.has(name):
            return []
        node, label = self.child(name), self.name_of(name)
        if isinstance(node.value, tuple):
            return [(item, f"{label}[{number}]") for number, item in enumerate(node.value)]
        if self.section.key(name).kind == "tasks":
            return [(node, label)]
        raise wrong(ConfigCode.WRONG_TYPE, node, self.section.key(name), label)


def _home(name: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    """What to say about an unknown key: which known one is near, or else under which section it belongs."""
    text = hint(name, known, elsewhere)
    if text.startswith("known"):
        for section in SECTIONS.values():
            if section.path and any(key.name == name for key in section.keys):
                return f"it belongs under {section.path}; {text}"
    return text
