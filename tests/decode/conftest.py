"""Encoded clips, each made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.clips import encode_family


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The clip of a family of `tests.clips.FAMILIES`, by name; tests do not write to it."""
    folder = tmp_path_factory.mktemp("families")
    return cache(lambda name: encode_family(folder, name))
