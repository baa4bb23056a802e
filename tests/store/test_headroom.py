"""How much memory may still be taken: the least of what the machine and every control group above leave."""

from pathlib import Path

import pytest

from viewcache.store.headroom import Headroom, headroom

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine of 1,000 MiB, 600 of them available, in the kernel's words."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(
        "MemTotal:  1024000 kB\nMemFree: 100 kB\nMemAvailable:  614400 kB\nHugePages_Total: 0\n"
    )
    return folder


def _group(folder: Path, names: tuple[str, str], most: str, used: int, files: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{most}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {size}\n" for name, size in files.items()))


def test_the_machine_alone(proc: Path, tmp_path: Path) -> None:
    """Without control groups it is the machine's memory, less the share that is left to others."""
    found = headroom(proc, tmp_path / "none")
    assert found == Headroom(1000 * MIB, 600 * MIB)
    assert found.grantable == 600 * MIB - 1000 * MIB // 32


def test_version_2(proc: Path, tmp_path: Path) -> None:
    """The tightest of the groups above counts; file contents that the kernel can drop are no loss; max is no limit."""
    (proc / "self" / "cgroup").write_text("0::/outer/inner\n")
    names = "memory.max", "memory.current"
    _group(tmp_path / "outer" / "inner", names, "max", 5, {})
    assert headroom(proc, tmp_path) == Headroom(1000 * MIB, 600 * MIB)
    files = {"anon": 7, "active_file": 10 * MIB, "inactive_file": 20 * MIB}
    _group(tmp_path / "outer", names, str(100 * MIB), 60 * MIB, files)
    assert headroom(proc, tmp_path) == Headroom(100 * MIB, 70 * MIB)
    _group(tmp_path / "outer" / "inner", names, str(50 * MIB), 60 * MIB, {})
    assert headroom(proc, tmp_path) == Headroom(50 * MIB, 0)


def test_version_1(proc: Path, tmp_path: Path) -> None:
    """The older layout, with the memory's own hierarchy and its number for "no limit"."""
    (proc / "self" / "cgroup").write_text("9:name=systemd:/\n4:cpu,memory:/box\n0::/\n")
    names = "memory.limit_in_bytes", "memory.usage_in_bytes"
    _group(tmp_path / "memory", names, "9223372036854771712", 5, {})
    files = {"active_file": 0, "total_active_file": 3 * MIB}  # its own, and with those of the groups below
    _group(tmp_path / "memory" / "box", names, str(100 * MIB), 60 * MIB, files)
    assert headroom(proc, tmp_path) == Headroom(100 * MIB, 43 * MIB)


def test_a_silent_system(tmp_path: Path) -> None:
    """Where nothing is said, nothing is claimed to be known."""
    assert headroom(tmp_path / "proc", tmp_path / "groups") is None


def test_this_machine() -> None:
    """The real files are understood."""
    found = headroom()
    assert found is not None
    assert 0 < found.available <= found.total
