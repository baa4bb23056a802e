"""Lines of data code: the rule on a script whose lines are known, and the table in docs/examples.md."""

import re

from benchmarks import lines
from tests.house.tree import ROOT

SCRIPT = '''"""A docstring that names viewcache."""

import os
import sys
import torch

import viewcache  # counts: it is used

os.environ["A"] = "1"


def main(config):
    """viewcache."""
    # cache
    model = torch.nn.Linear(1, 1)
    with viewcache.open(config) as cache:  # counts
        loader = cache.loader(
            "train",
        )  # these three count

        for batch in loader:  # counts
            model(batch["video"])
        else:
            print(len(loader))  # counts
    print(sys.argv, os.path.getsize(config))  # counts, and the import of os with it
'''


def test_the_rule() -> None:
    """What names the library or what it made, from its import to the batch; no model, no blank line, no comment."""
    text = SCRIPT.splitlines()
    counted = [text[number - 1].strip() for number in lines.data_lines(SCRIPT)]
    assert counted == [
        "import os",
        "import viewcache  # counts: it is used",
        "with viewcache.open(config) as cache:  # counts",
        "loader = cache.loader(",
        '"train",',
        ")  # these three count",
        "for batch in loader:  # counts",
        "print(len(loader))  # counts",
        "print(sys.argv, os.path.getsize(config))  # counts, and the import of os with it",
    ]


def test_the_table_is_true() -> None:
    """docs/examples.md has the counts of the examples as they are, and each has fewer than ten lines."""
    text = (ROOT / "docs" / "examples.md").read_text()
    told = {
        name: tuple(map(int, counts))
        for name, *counts in re.findall(r"^\| `(\w+\.py)` \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    }
    assert told == lines.rows()
    assert all(row[1] <= lines.MOST < 10 for row in told.values())


def test_every_example_is_told_of() -> None:
    """The list of programs has each file with its command."""
    text = (ROOT / "docs" / "examples.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert re.search(rf"^\| `{path.name}` \| .* \| `.*examples/{path.name} ", text, re.M), path.name


def test_the_table_of_other_loaders_is_true() -> None:
    """docs/coming-from.md counts the code that it shows."""
    text = (ROOT / "docs" / "coming-from.md").read_text()
    told = {
        name: tuple(map(int, counts))
        for name, *counts in re.findall(r"^\| ([\w+ ]+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    }
    assert told == lines.coming_from()
