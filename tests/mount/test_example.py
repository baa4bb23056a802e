"""The example trains through a mount."""

import ast
import re
import subprocess
import sys

from tests.house.tree import ROOT
from tests.mount.mounted import Mounted
from viewcache.api.config.load import load

EXAMPLE = ROOT / "examples" / "train_mount.py"


def test_the_example_trains(shared: Mounted) -> None:
    """One epoch, batch by batch, with a loss for each."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(shared.root), "train"],
        cwd=shared.site.folder, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^batch (\d): \(4, 3, 4, 32, 32\), loss \d+\.\d+$", done.stdout, re.MULTILINE)
    assert lines == ["0", "1", "2", "3", "4"]


def test_the_documented_command_names_the_task() -> None:
    """Where the example is documented, its command has the task that its configuration describes."""
    (config,) = load(EXAMPLE.with_name("slowfast.yaml")).tasks
    for text in (EXAMPLE.read_text(), (ROOT / "docs" / "examples.md").read_text()):
        assert re.findall(r"python examples/train_mount\.py DIR (\S+?)`", text) == [config.name]


def test_it_imports_nothing_of_ours() -> None:
    """A program that has never heard of viewcache; tests/bench/test_lines.py counts its lines of data code."""
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(EXAMPLE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert imported == {"collections", "json", "os", "sys", "numpy", "torch"}
