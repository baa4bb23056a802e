"""The example trains through a mount, by eight lines of plain Python for its data."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.mount.mounted import Mounted

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_mount.py"


def test_the_example_trains(shared: Mounted) -> None:
    """One epoch, batch by batch, with a loss for each."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(shared.root), "train"],
        cwd=shared.site.folder, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^batch (\d): \(4, 3, 4, 32, 32\), loss \d+\.\d+$", done.stdout, re.MULTILINE)
    assert lines == ["0", "1", "2", "3", "4"]


def test_its_data_are_eight_lines_of_plain_python() -> None:
    """Those that name the mount or a view, without a line of ours."""
    text = EXAMPLE.read_text()
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert imported == {"json", "os", "sys", "numpy", "torch"}
    words = re.compile(r"\b(folder|training|view|clips|label|iteration)\b")
    body = text[text.index("    classes =") : text.index("\n\nif __name__")]
    data = [line for line in body.splitlines() if words.search(line) and "def step" not in line]
    assert len([line for line in data if "print" not in line and "loss =" not in line]) <= 8
