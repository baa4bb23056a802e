"""A process that may take no more memory fails on good files: then nothing is said about the file."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clips import encode

SIZE = (1920, 1080)
SCRIPT = """
import resource, sys
import numpy as np
from viewcache.errors import BadVideo, Full
from viewcache.materializer.limits import left_bytes
from viewcache.materializer.media.decode import DecodeStats, decode
from viewcache.materializer.media.probe import probe

path, spoiled, allowed = sys.argv[1], sys.argv[2], int(sys.argv[3])
index = probe(path)
for _ in decode(path, index, np.arange(1)):
    pass
_, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
taken = (1 << 40) - left_bytes()
resource.setrlimit(resource.RLIMIT_DATA, (int(taken) + allowed, hard))
held, stats, taken = [], DecodeStats(), []
try:
    while allowed < 1 << 30:  # what was freed before and is kept for later is no room either
        taken.append(bytearray(1 << 20))
except MemoryError:
    del taken[-8:]

def tried(what):
    try:
        what()
    except (Full, BadVideo) as failed:
        held.clear()  # to have memory for the words
        print(type(failed).__name__, failed)
    else:
        print("fine")

def decodes():
    for _, frame in decode(path, index, np.arange(index.frames), stats=stats):
        held.append(frame)  # as who makes a clip of many large frames

tried(decodes)
assert not stats.failed, stats.failed
tried(lambda: probe(path))
print(bool(probe(spoiled).damage) if allowed > 1 << 30 else "")
"""


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A good file, and one of which a packet is spoiled."""
    folder = tmp_path_factory.mktemp("large")
    good = encode(folder / "good.mp4", frames=24, size=SIZE, options={"preset": "ultrafast", "refs": "8"})
    spoiled = encode(folder / "spoiled.mp4", frames=24, size=(64, 48))
    data = bytearray(spoiled.read_bytes())
    at = data.index(b"mdat") + 4
    data[at + len(data[at:]) // 2 : at + len(data[at:]) // 2 + 40] = bytes(40)
    spoiled.write_bytes(data)
    return good, spoiled


@pytest.mark.parametrize("allowed", [32 << 20, 2 << 30], ids=["little", "enough"])
def test_it_is_no_damage(clips: tuple[Path, Path], allowed: int) -> None:
    """It is said what is missing and what to do; with enough of it all is decoded, and damage is called damage."""
    if resource.getrlimit(resource.RLIMIT_DATA)[1] != resource.RLIM_INFINITY:
        pytest.skip("this process has a limit of its own")
    asked = [sys.executable, "-c", SCRIPT, *map(str, clips), str(allowed)]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    decoded, probed, damaged = ran.stdout.splitlines()
    if allowed > 1 << 30:
        assert (decoded, probed, damaged) == ("fine", "fine", "True")
    else:
        for said in (decoded, probed):
            assert said.startswith("TooLittleMemory ")
            assert "good.mp4: too little memory to decode it" in said
            assert "raise cache.memory" in said


ARRAYS = """
import resource, sys
import numpy as np
from viewcache.errors import Full
from viewcache.materializer.limits import left_bytes
from viewcache.materializer.media.reaching import blame_the_process

_, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
resource.setrlimit(resource.RLIMIT_DATA, (int((1 << 40) - left_bytes()) + (80 << 20), hard))
try:
    np.empty((3, 4320, 7680), np.uint8)
except MemoryError as error:
    failed = error
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))  # as if much was freed on the way here
try:
    blame_the_process("a.mp4", failed)
except Full as full:
    print(full)
try:
    np.empty(1 << 60, np.uint8)
except MemoryError as error:
    blame_the_process("a.mp4", error)
print("asked for by a header")
"""


def test_a_picture_without_memory_says_nothing_of_the_file() -> None:
    """Not even where there is memory again when that is looked at; an array as damaged headers claim is damage."""
    if resource.getrlimit(resource.RLIMIT_DATA)[1] != resource.RLIM_INFINITY:
        pytest.skip("this process has a limit of its own")
    ran = subprocess.run([sys.executable, "-c", ARRAYS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told, damage = ran.stdout.splitlines()
    assert told.startswith("a.mp4: too little memory to decode it, there were no 100 MB for one of its pictures; raise")
    assert damage == "asked for by a header"


LOOK = """
import resource, sys
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset.scan_worker import look
from viewcache.materializer.limits import left_bytes, limit_worker

_, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
allowed = int((1 << 40) - left_bytes()) + (48 << 20)  # and the decoder is still to be loaded
if sys.argv[2] == "shell":
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    allowed = 2 << 30
limit_worker(allowed, writes=False)
found = look(sys.argv[1], 1 << 25, ProbeMode.FULL)
print(found.of_video, found.error)
"""


@pytest.mark.parametrize("whose", ["shell", "scan"])
def test_a_scan_calls_bad_what_takes_more_than_everybody_allows(clips: tuple[Path, Path], whose: str) -> None:
    """Where a shell or a batch system allows less it is no fact about the file."""
    asked = [sys.executable, "-c", LOOK, str(clips[0]), whose]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = {"shell": "too little memory to decode it", "scan": "takes more memory than a scanning process may have"}
    assert ran.stdout.startswith(f"{whose == 'scan'} ")
    assert said[whose] in ran.stdout
