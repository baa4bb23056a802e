"""One folder of videos for all laws; it is never written (law 6 watches it)."""

from pathlib import Path

import pytest

from tests.tiny import encode_folder


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos: the last batch of two is short."""
    return encode_folder(tmp_path_factory.mktemp("laws"), {f"v{k}.mp4": 40 + 3 * k for k in range(5)})
