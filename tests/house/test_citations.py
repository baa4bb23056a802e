"""What is cited can be found: documents of this repository, laws by their number, design notes, and the five papers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOMS, ROOT, short

PAPERS = ("SAND", "JOADER", "Liquid", "DDLP", "Fastensor")
STANDARDS = ("YAML",)
NUMBERED = r"\b([A-Z]{4,})(?:\.md)?(?:'s)?(?:,? §\d|,? row \d|,? F\d| Alg| \d\.\d)"
"""A work in capitals, and a place in it."""
LAWS = (ROOT / "docs" / "laws.md").read_text()
FOLDERS = (*ROOMS, "src", "tests", "docs", "benchmarks", "examples")
HERE = Path(__file__)


def _texts() -> Iterator[tuple[Path, str]]:
    """Every text of ours that may cite something."""
    files = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    for path in sorted(files):
        if path.suffix in {".py", ".md", ".sql", ".yaml"} and path.is_file() and path != HERE:
            yield path, path.read_text()


TEXTS = dict(_texts())


def _found(pattern: str) -> Iterator[tuple[str, "re.Match[str]"]]:
    for path, text in TEXTS.items():
        for match in re.finditer(pattern, text):
            yield f"{short(path)}:{text[: match.start()].count(chr(10)) + 1}: {match[0]}", match


def test_documents_that_are_named_are_there() -> None:
    """A name that ends in .md is a file of this repository, seen from its root, docs/, or where it is named."""
    lost = []
    for path, text in TEXTS.items():
        for name in re.findall(r"docs/[\w./-]+\.md\b|\b[A-Z][\w-]*\.md\b", text):
            folders = (ROOT, ROOT / "docs", path.parent)
            if not any((folder / name).exists() for folder in folders):
                lost.append(f"{short(path)}: {name}")
    assert not lost


def test_sections_are_those_of_the_papers() -> None:
    """A section, row or finding with a number belongs to a paper or a standard; other works are named in words."""
    assert not [where for where, match in _found(NUMBERED) if match[1] not in {*PAPERS, *STANDARDS}]


def test_the_papers_are_in_the_bibliography() -> None:
    """Each has its entry with a venue and a year."""
    text = (ROOT / "docs" / "bibliography.md").read_text()
    entries = dict(re.findall(r"^\*\*(\w+)\.\*\* (.*?)(?=^\*\*|\Z)", text, re.MULTILINE | re.DOTALL))
    assert tuple(entries) == PAPERS
    assert all(re.search(r"\b20\d\d\b", entry) for entry in entries.values())


def test_laws_are_numbered_and_have_tests() -> None:
    """docs/laws.md has the laws 1, 2, 3, … in order, and names for each the tests that check it."""
    laws = re.findall(r"^## (\d+)\. .*?$(.*?)(?=^## |\Z)", LAWS, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in laws] == list(range(1, len(laws) + 1))
    for number, text in laws:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", text)
        assert tests, f"law {number} names no test"
        assert all((ROOT / test).exists() for test in tests), f"law {number} names a test that is not there"


def test_laws_and_notes_that_are_cited_are_there() -> None:
    """`law 7` is a heading of docs/laws.md, and `docs/design/0012` or `note 0012` a file of docs/design/."""
    laws = set(re.findall(r"^## (\d+)\. ", LAWS, re.MULTILINE))
    assert not [where for where, match in _found(r"\b[Ll]aws? (\d+)\b") if match[1] not in laws]
    notes = {path.name[:4] for path in (ROOT / "docs" / "design").glob("*.md")}
    assert not [where for where, match in _found(r"(?:docs/design/|\b[Nn]ote )(\d{4})\b") if match[1] not in notes]


@pytest.mark.parametrize("text", ["OUTLINE F12", "OUTLINE §8.3", "OUTLINE.md §2.1", "OUTLINE 1.3"])
def test_the_pattern_finds_what_it_is_for(text: str) -> None:
    """Each form in which a document that nobody has was cited."""
    assert re.search(NUMBERED, text)
