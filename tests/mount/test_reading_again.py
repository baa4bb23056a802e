"""What a view costs that was read before, against a plain file of the same bytes."""

import os
import time
from pathlib import Path

import pytest

from tests.mount.mounted import Site, missing, mount
from tests.tiny import single

MOST = 8.0
"""Times what the plain file takes. Measured: 3.0 to 4.7; 12 and more where the kernel keeps nothing of the view."""


def test_reading_a_view_again_costs_a_few_plain_reads(tmp_path: Path, videos: Path) -> None:
    """The kernel has its bytes: opening and reading 16 MB again takes a few times what a file beside the store takes.

    The shortest of many turns of each counts: what else the machine does makes both longer, never shorter.
    """
    if lacking := missing():
        pytest.skip(lacking)
    large = [single({"resize": {"shape": [256, 256]}})]
    sampling = {"videos_per_batch": 5, "frames_per_video": 8}
    site = Site.make(tmp_path, videos, augmentation=large, sampling=sampling)
    with site.served(), mount(site) as mounted:
        view, plain = mounted.root / "train/0/0/view", site.store / "plain"
        plain.write_bytes(view.read_bytes())
        room = bytearray(plain.stat().st_size)
        assert len(room) > 15_000_000
        turns = [(_read_s(plain, room), _read_s(view, room)) for _ in range(30)]
        plain.unlink()
    shortest_plain, shortest_view = (min(times) for times in zip(*turns, strict=True))
    assert shortest_view < MOST * shortest_plain


def _read_s(path: Path, room: bytearray) -> float:
    """Seconds to open a file, read all of it into the same memory as before, and close it."""
    begun = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    count = os.preadv(descriptor, [room], 0)
    os.close(descriptor)
    assert count == len(room)
    return time.perf_counter() - begun
