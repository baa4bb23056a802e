"""Videos, another Python environment, and registries that forget what a test registered."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import encode_folder
from viewcache.materializer.op_workers.crews import end_idle_op_workers
from viewcache.materializer.ops import registry

MADE = Path(sys.prefix) / "op-worker" / "bin" / "python"
"""By `make`, beside the environment of these tests."""
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@pytest.fixture(scope="session")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has NumPy and msgspec, of other versions than ours, and nothing else."""
    if MADE.exists():
        return MADE
    folder = tmp_path_factory.mktemp("other")
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "-qq", "-r", str(REQUIREMENTS)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"no other environment can be made: {done.stderr.strip()[-200:]}")
    return python


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four videos; nobody writes into them."""
    return encode_folder(tmp_path_factory.mktemp("op-workers"), {f"v{k}.mp4": 40 for k in range(4)})


@pytest.fixture(autouse=True)
def own_ops() -> Iterator[None]:
    """What a test registers is forgotten, and the op workers that it started have ended."""
    with registry.own_registrations():
        yield
    end_idle_op_workers()
