"""Scanning a dataset: complete, incremental, in processes that a hostile file cannot take along."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viewcache.errors import DatasetNotFound, Full
from viewcache.materializer.dataset.scan import Known, Scanned, ScanProcess, scan, video_key
from viewcache.materializer.media.source import Stamp
from viewcache.materializer.spec import DatasetSpec

pytestmark = pytest.mark.usefixtures("spawned")

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


def known_of(records: list[Scanned]) -> dict[str, Known]:
    """What the catalog would remember."""
    return {each.uri: Known(each.stamp, each.index.to_bytes() if each.index else b"", each.error) for each in records}


def test_every_file_gets_a_record(dataset: Path) -> None:
    """Good videos come with an index, bad ones with a reason that names them; progress counts them all."""
    told: list[tuple[int, int, str]] = []
    records = {each.name: each for each in scan(DatasetSpec(str(dataset)), progress=lambda *step: told.append(step))}
    assert sorted(records) == ["cut", "sub.-h264_bframes", "sub.-mpeg4_bframes", "sub.-vp9_hidden", "text"]
    assert [step[:2] for step in told] == [(n, 5) for n in range(1, 6)]
    good = records["sub.-vp9_hidden"]
    assert (good.status, good.error, good.error_kind) == ("ok", "", "")
    assert good.index is not None
    assert (good.index.frames, good.index.shown_size) == (60, (67, 101))
    bad = records["text"]
    assert (bad.status, bad.error_kind, bad.index) == ("bad", "bad_video", None)
    assert bad.error.startswith(f"{dataset / 'text.mp4'}: ")


def test_unchanged_files_are_not_opened(dataset: Path) -> None:
    """A second scan reuses what it knows, of bad files too; changed and new files are indexed again."""
    first = list(scan(DatasetSpec(str(dataset)), workers=1))
    again = {each.name: each for each in scan(DatasetSpec(str(dataset)), known_of(first))}
    assert all(each.reused for each in again.values())
    assert {each.key for each in first} == {each.key for each in again.values()}
    (dataset / "text.mp4").write_bytes((dataset / "sub" / GOOD[0]).read_bytes())
    third = {each.name: each for each in scan(DatasetSpec(str(dataset)), known_of(first), workers=1)}
    assert [name for name, each in third.items() if not each.reused] == ["text"]
    assert third["text"].status == "ok"
    assert third["text"].key != again["text"].key


def test_a_blob_of_another_version_is_replaced(dataset: Path) -> None:
    """An index that this release cannot read is made anew, not an error."""
    spec = DatasetSpec(str(dataset / "sub" / GOOD[0]))
    (record,) = scan(spec)
    (again,) = scan(spec, {record.uri: Known(record.stamp, b"VCIX\x00old")})
    assert not again.reused
    assert again.status == "ok"


def test_a_process_that_dies_costs_its_file(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a scanning process ends, its file is bad with the reason, and each of the others gets another process."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    records = list(scan(DatasetSpec(str(dataset / "sub")), workers=1))
    assert [each.error.split(": ")[1] for each in records] == ["the process that indexed it ended with status 1"] * 3


def test_too_little_memory_is_a_bad_video(dataset: Path) -> None:
    """A file that needs more memory than a process may take is refused; the scan goes on."""
    records = list(scan(DatasetSpec(str(dataset / "sub")), workers=1, memory_bytes=8 << 20))
    assert [each.status for each in records] == ["bad"] * 3


def test_a_file_that_takes_too_long_is_given_up(dataset: Path) -> None:
    """A probe past its time limit is killed; the file is bad with the limit in the reason."""
    (record,) = scan(DatasetSpec(str(dataset / "sub" / GOOD[0])), limit_s=0.0)
    assert record.status == "bad"
    assert "could not be indexed in 0 s" in record.error


def children() -> str:
    """The command lines of this process's children, whole: `ps` would cut them where the interpreter's path is long."""
    command = ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "args="]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_leaving_early_ends_the_processes(dataset: Path) -> None:
    """Closing the scan half-way leaves no process behind."""
    records = scan(DatasetSpec(str(dataset)), workers=2)
    next(records)
    started = "-m viewcache.materializer.dataset.scan_worker"  # the tests' fork servers have the name as an argument
    assert started in children()
    del records
    assert started not in children()


def test_links_that_leave_are_bad_videos(dataset: Path, tmp_path: Path) -> None:
    """They are decided by the policy for bad videos, and never opened."""
    (dataset / "out.mp4").symlink_to(tmp_path / "elsewhere.mp4")
    records = {each.name: each for each in scan(DatasetSpec(str(dataset)))}
    assert "leaves the dataset's folder" in records["out"].error


def test_too_large_frames(family: Callable[[str], Path]) -> None:
    """The dataset's limit of pixels reaches the scanning processes."""
    (record,) = scan(DatasetSpec(str(family("h264_bframes.mp4")), max_pixels=100))
    assert "frames of 128x96 have more pixels than max_pixels allows (100)" in record.error


@pytest.mark.parametrize(("before", "after"), [(100, 20_000), (20_000, 100)])
def test_the_limit_of_pixels_is_that_of_the_task(family: Callable[[str], Path], before: int, after: int) -> None:
    """What a scan with another limit found, of this task or of another, does not stand for this one."""
    uri = str(family("h264_bframes.mp4"))
    (first,) = scan(DatasetSpec(uri, max_pixels=before))
    known = {first.uri: Known(first.stamp, first.index.to_bytes() if first.index else b"", first.error)}
    (again,) = scan(DatasetSpec(uri, max_pixels=after), known)
    assert again.status == ("bad" if after == 100 else "ok")
    assert ("more pixels than max_pixels allows (100)" in again.error) == (after == 100)
    (same,) = scan(DatasetSpec(uri, max_pixels=before), known)
    assert (same.reused, same.error) == (True, first.error)


def test_too_many_open_files_are_no_bad_video(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanning process that may open no more files says nothing about a video: no policy may take another for it."""
    give, given = ScanProcess.give, 0

    def give_and_limit(self: ScanProcess, *which: Any) -> None:
        nonlocal given
        given += 1
        if given == 2:  # by then it has loaded what it needs
            open_now = len(os.listdir(f"/proc/{self.process.pid}/fd"))
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (open_now, open_now))
        give(self, *which)

    monkeypatch.setattr(ScanProcess, "give", give_and_limit)
    with pytest.raises(Full, match="ulimit -n"):
        list(scan(DatasetSpec(str(dataset)), workers=1))


def test_labels_come_with_the_records(dataset: Path, tmp_path: Path) -> None:
    """Label and further columns of the table are on each record."""
    table = tmp_path / "labels.csv"
    table.write_text("video,label,split\nvp9_hidden,7,val\n")
    records = {each.name: each for each in scan(DatasetSpec(str(dataset), labels=str(table)))}
    assert (records["sub.-vp9_hidden"].label, records["sub.-vp9_hidden"].columns) == (7, {"split": "val"})
    assert records["text"].label is None
    with pytest.raises(DatasetNotFound):
        list(scan(DatasetSpec(str(dataset), labels=str(tmp_path / "gone.csv"))))


def test_video_keys_are_pinned() -> None:
    """Keys name stored objects, so they never change: of the URI and the etag, else of size and time."""
    assert video_key("/a.mp4", Stamp(5, 7)) == "bc94a9808d9c8a18d386ace292f885a7"
    assert (
        video_key("s3://b/a.mp4", Stamp(5, 7, "e"))
        == video_key("s3://b/a.mp4", Stamp(6, 8, "e"))
        == "f1141510e05b283cc4e4bf78cf944a56"
    )


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
