"""A test that is skipped in CI is a test that nobody runs: the rule of tests/skips.py, run on a small suite."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

FORBIDDEN = {
    "by_call": "import pytest\ndef test_it(): pytest.skip('no strace here')",
    "by_fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('no server')\ndef test_it(f): pass",
    "by_module": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass",
    "by_mark": "import pytest\n@pytest.mark.skipif(True, reason='not here')\ndef test_it(): pass",
}
ALLOWED = {
    "allowed": "import pytest\n@pytest.mark.skip(reason='needs a GPU')\ndef test_it(): pass",
    "expected": "import pytest\n@pytest.mark.xfail(reason='not yet')\ndef test_it(): assert False",
    "passing": "def test_it(): pass",
}


def _run(folder: Path, suite: dict[str, str], ci: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text("from tests import skips\ndef pytest_configure(config): skips.watch(config)\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    for name, text in suite.items():
        (folder / f"test_{name}.py").write_text(f"{text}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist.plugin", *options, str(folder)],
        cwd=folder,
        env={
            **os.environ,
            "CI": ci,
            "PYTEST_ADDOPTS": "",
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },  # they load slowly
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("processes", ["0", "2"])
def test_ci_fails_on_skips_that_nobody_allowed(tmp_path: Path, processes: str) -> None:
    """With CI=true a skip by call, fixture, module or mark fails a run without failures, and each is named once.

    In whichever process it was skipped.
    """
    done = _run(tmp_path, FORBIDDEN | ALLOWED, "true", "-n", processes)
    assert done.returncode == 1, done.stdout
    named = done.stdout[done.stdout.index("ALLOWED_SKIPS") :]
    assert [named.count(f"test_{name}.py") for name in FORBIDDEN] == [1] * len(FORBIDDEN)
    assert not [name for name in ALLOWED if f"test_{name}.py" in named]


def test_ci_passes_with_allowed_skips(tmp_path: Path) -> None:
    """A reason on the list, and an expected failure, are no silent skips."""
    done = _run(tmp_path, ALLOWED, "true")
    assert done.returncode == 0, done.stdout
    assert "ALLOWED_SKIPS" not in done.stdout


def test_elsewhere_a_skip_is_fine(tmp_path: Path) -> None:
    """On a developer's machine that lacks something the suite still passes."""
    assert _run(tmp_path, FORBIDDEN | ALLOWED, "").returncode == 0
