"""What a view costs that was read before: the kernel has its bytes, and asks the process that mounted for none."""

from pathlib import Path

import pytest

from tests.mount.mounted import Mounted, Site, missing, mount
from tests.tiny import single

TURNS = 5
"""Times that it is read again."""

MOST_BYTES, MOST_CALLS = 10_000, 50
"""What the process that mounted may write to the kernel in one turn, and how often it may read or write at all.

Measured: 64 bytes in 6 calls; where the kernel keeps nothing of the view, 16 MB in 280.
"""


def test_a_view_that_is_read_again_comes_from_the_kernel(tmp_path: Path, videos: Path) -> None:
    """Opening and reading 16 MB again costs the process that mounted some calls, and none of the bytes.

    What that takes in time against a plain file, `benchmarks.mount` measures: it is a matter of the machine.
    """
    if lacking := missing():
        pytest.skip(lacking)
    large = [single({"resize": {"shape": [256, 256]}})]
    sampling = {"videos_per_batch": 5, "frames_per_video": 8}
    site = Site.make(tmp_path, videos, augmentation=large, sampling=sampling)
    with site.served(), mount(site) as mounted:
        view = mounted.root / "train/0/0/view"
        before = _written(mounted)
        content = view.read_bytes()
        assert len(content) > 15_000_000
        calls, written = _written(mounted)
        assert written - before[1] >= len(content), "what is counted holds the bytes that are read for the first time"
        for _ in range(TURNS):
            assert view.read_bytes() == content
        calls_again, written_again = _written(mounted)
    assert written_again - written < MOST_BYTES * TURNS
    assert calls_again - calls < MOST_CALLS * TURNS


def _written(mounted: Mounted) -> tuple[int, int]:
    """How often the process that mounted has read and written by system calls, and the bytes that it has written."""
    lines = Path(f"/proc/{mounted.process.pid}/io").read_text(encoding="ascii").splitlines()
    counts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return counts["syscr"] + counts["syscw"], counts["wchar"]
