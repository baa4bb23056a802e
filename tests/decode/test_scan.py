"""Looking into files: complete, by header or by every packet, in processes that a hostile file cannot take along."""

import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clips import FAMILIES, rotate_mp4
from tests.images.small import save_folder
from viewcache.errors import Full
from viewcache.materializer.choices import Media, ProbeMode
from viewcache.materializer.dataset.discover import discover
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.recording import video_key
from viewcache.materializer.dataset.scan import ScanProcess, scan
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.media.stamp import Stamp, stamp_of

pytestmark = pytest.mark.usefixtures("spawned")

MOST = 8192 * 4320
GOOD = ("h264_bframes.mp4", "vp9_hidden.webm", "mpeg4_bframes.avi")


@pytest.fixture
def dataset(family: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder of good videos, one text and one truncated file."""
    folder = tmp_path / "videos"
    (folder / "sub").mkdir(parents=True)
    for name in GOOD:
        (folder / "sub" / name).write_bytes(family(name).read_bytes())
    (folder / "text.mp4").write_text("not a video")
    (folder / "cut.mp4").write_bytes(family("h264_fragmented.mp4").read_bytes()[:6000])
    return folder


def looked(folder: Path, *, full: bool = True, max_pixels: int = MOST, **more: Any) -> dict[str, Scanned]:
    """Path → what was found of each file."""
    probe = ProbeMode.FULL if full else ProbeMode.LAZY
    return {file.path: found for file, found in scan(discover(str(folder)), max_pixels, probe=probe, **more)}


@pytest.mark.parametrize("full", [True, False])
def test_every_file_gets_a_record(dataset: Path, full: bool) -> None:
    """Good videos come with facts, bad ones with a reason that names them, by header and by packets."""
    found = looked(dataset, full=full)
    assert sorted(found) == ["cut.mp4", *(f"sub/{name}" for name in sorted(GOOD)), "text.mp4"]
    good = found["sub/vp9_hidden.webm"]
    assert good.error == ""
    assert good.facts is not None
    assert (good.facts.frames, good.facts.shown_size) == (60, (67, 101))
    assert bool(good.index)  # a container that has no table of its packets
    assert bool(found["sub/h264_bframes.mp4"].index) == full
    bad = found["text.mp4"]
    assert (bad.facts, bad.index) == (None, b"")
    assert bad.error.startswith(f"{dataset / 'text.mp4'}: ")
    assert bad.lasting


def test_a_header_says_what_the_packets_give(family: Callable[[str], Path], tmp_path: Path) -> None:
    """Whatever a header tells enough of has the same facts by its packets, but for the times."""
    by_header = 0
    for name in sorted(FAMILIES):
        path = family(name)
        (header,), (packets,) = (looked(path, full=full).values() for full in (False, True))
        assert header.facts is not None
        assert packets.facts is not None
        by_header += not header.index
        times = header.facts.times or packets.facts.times
        assert header.facts._replace(times=times, damage=packets.facts.damage) == packets.facts, name
    assert by_header >= 7


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_a_header_says_how_a_phone_was_held(family: Callable[[str], Path], tmp_path: Path, degrees: int) -> None:
    """The display matrix of the track turns width and height."""
    path = tmp_path / "held.mp4"
    path.write_bytes(family("h264_bframes.mp4").read_bytes())
    rotate_mp4(path, degrees)
    (header,), (packets,) = (looked(path, full=full).values() for full in (False, True))
    assert header.facts is not None
    assert packets.facts is not None
    assert not header.index
    assert (header.facts.rotation, header.facts.shown_size) == (packets.facts.rotation, packets.facts.shown_size)
    assert header.facts.rotation == -degrees % 360


def test_a_process_that_dies_costs_its_file(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a scanning process ends, its file is bad with the reason, and each of the others gets another process."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    for full in (True, False):
        found = looked(dataset / "sub", full=full, workers=1).values()
        assert [each.error.split(": ")[1] for each in found] == ["the process that indexed it ended with status 1"] * 3


@pytest.fixture
def killed_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Lets a file end each process that is given it; how many files each question was of."""
    give = ScanProcess.give

    def kills(name: str) -> list[int]:
        asked = list[int]()

        def give_and_kill(self: ScanProcess, files: list[Found], *limits: Any, brings: bool = False) -> None:
            asked.append(len(files))
            if any(file.path.endswith(name) for file in files):
                self.process.kill()
                self.process.wait()
            give(self, files, *limits, brings=brings)

        monkeypatch.setattr(ScanProcess, "give", give_and_kill)
        return asked

    return kills


def test_one_of_several_that_kills_its_process(dataset: Path, killed_by: Callable[[str], list[int]]) -> None:
    """Of the files that a process had together only the one that kills it is bad."""
    killed_by(GOOD[1])
    found = looked(dataset / "sub", full=False, workers=1)
    assert {name: found[name].error.partition(": ")[2] for name in GOOD} == {
        GOOD[0]: "", GOOD[1]: "the process that indexed it was killed by SIGKILL", GOOD[2]: ""
    }  # fmt: skip


@pytest.mark.parametrize("full", [True, False])
def test_pictures_are_given_several_at_once(tmp_path: Path, killed_by: Callable[[str], list[int]], full: bool) -> None:
    """Also when all of each is read; if one ends its process, each gets one to itself."""
    names = [f"{k}.png" for k in range(4)]
    folder, asked = save_folder(tmp_path / "images", dict.fromkeys(names, (32, 24))), killed_by("2.png")
    probe = ProbeMode.FULL if full else ProbeMode.LAZY
    answers = scan(discover(str(folder), media=Media.IMAGE), MOST, probe=probe, workers=1)
    errors = {file.path: found.error.partition(": ")[2] for file, found in answers}
    assert errors == dict.fromkeys(names, "") | {"2.png": "the process that indexed it was killed by SIGKILL"}
    assert asked == [4, 1, 1, 1, 1]


def test_too_little_memory_is_a_bad_video(dataset: Path) -> None:
    """A file that needs more memory than a process may take is refused; the scan goes on."""
    found = looked(dataset / "sub", workers=1, memory_bytes=8 << 20)
    assert all(each.error for each in found.values())


def test_a_file_that_takes_too_long_is_given_up(dataset: Path) -> None:
    """A probe past its time limit is killed; the file is bad with the limit in the reason."""
    (found,) = looked(dataset / "sub" / GOOD[0], limit_s=0.0).values()
    assert "could not be indexed in 0 s" in found.error


def children() -> str:
    """The command lines of this process's children, whole: `ps` would cut them where the interpreter's path is long."""
    command = ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "args="]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_leaving_early_ends_the_processes(dataset: Path) -> None:
    """Closing the scan half-way leaves no process behind."""
    found = scan(discover(str(dataset)), MOST, probe=ProbeMode.FULL, workers=2)
    next(found)
    started = "-m viewcache.materializer.dataset.scan_worker"  # the tests' fork servers have the name as an argument
    assert started in children()
    del found
    assert started not in children()


@pytest.mark.parametrize("full", [True, False])
def test_too_large_frames(family: Callable[[str], Path], full: bool) -> None:
    """The dataset's limit of pixels reaches the scanning processes."""
    (found,) = looked(family("h264_bframes.mp4"), full=full, max_pixels=100).values()
    assert "frames of 128x96 have more pixels than max_pixels allows (100)" in found.error


def test_too_many_open_files_are_no_bad_video(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanning process that may open no more files says nothing about a video: no policy may take another for it."""
    give, given = ScanProcess.give, 0

    def give_and_limit(self: ScanProcess, *which: Any, brings: bool = False) -> None:
        nonlocal given
        given += 1
        if given == 2:  # by then it has loaded what it needs
            open_now = len(os.listdir(f"/proc/{self.process.pid}/fd"))
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (open_now, open_now))
        give(self, *which, brings=brings)

    monkeypatch.setattr(ScanProcess, "give", give_and_limit)
    with pytest.raises(Full, match="ulimit -n"):
        looked(dataset, workers=1)


def test_video_keys_are_pinned() -> None:
    """Keys name stored objects, so they never change: of the URI and the etag, else of size and time."""
    assert video_key("/a.mp4", Stamp(5, 7)) == "bc94a9808d9c8a18d386ace292f885a7"
    assert (
        video_key("s3://b/a.mp4", Stamp(5, 7, "e"))
        == video_key("s3://b/a.mp4", Stamp(6, 8, "e"))
        == "f1141510e05b283cc4e4bf78cf944a56"
    )


def test_marks_of_one_kind_are_compared() -> None:
    """An ETag says nothing beside a time that stands in for one: then sizes do, as where one side has no mark."""
    bare, dated = Stamp(5), stamp_of({"size": 5, "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT"})
    later = stamp_of({"size": 5, "Last-Modified": "Thu, 09 Oct 2025 08:53:20 GMT"})
    marked = stamp_of({"size": 5, "ETag": '"e"', "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT"})
    digest = stamp_of({"size": 5, "Content-MD5": "Q2hlY2sgSW50ZWdyaXR5IQ==", "Last-Modified": "never"})
    assert marked == Stamp(5, 0, "e")
    assert digest.etag.startswith("Content-MD5: ")
    for one, other in itertools.combinations([bare, dated, later, marked, digest], 2):
        assert one.same(other) is other.same(one) is ((one, other) != (dated, later))
        assert not one.same(other._replace(size=6))


def limited(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has limited itself."""
    code = f"from viewcache.materializer.limits import limit_worker\nlimit_worker(300 << 20, writes=False)\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = bytearray(1 << 30)", "MemoryError"),
        ("import os\nos.write(os.memfd_create('a'), b'x')", "File too large"),
        ("import os\n[os.open('/dev/null', 0) for _ in range(2000)]", "Too many open files"),
    ],
)
def test_limits_hold(code: str, said: str) -> None:
    """Memory, files and descriptors past a worker's limits are errors of that process."""
    done = limited(code)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_limited_process_says_so() -> None:
    """Ctrl-C is the parent's business, cores are not written, privileges are not gained."""
    done = limited(
        "import resource, signal\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, resource.getrlimit(resource.RLIMIT_CORE))\n"
        "print([line for line in open('/proc/self/status') if line.startswith('NoNewPrivs')])"
    )
    assert done.stdout.splitlines()[0] == "True (0, 0)"
    assert "NoNewPrivs:\\t1" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0
