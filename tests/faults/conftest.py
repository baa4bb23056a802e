"""Clips and undisturbed runs that the tests of faults compare with."""

from pathlib import Path

import pytest

from tests.faults.caches import truth_of
from tests.faults.fixtures import empty_store, no_suspects, store, videos

__all__ = ["empty_store", "no_suspects", "store", "truth", "videos"]


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> dict[tuple[int, int], str]:
    """(epoch, iteration) → digest of the batch, of an undisturbed run."""
    return truth_of(tmp_path_factory.mktemp("truth"), videos)
