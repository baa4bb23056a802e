"""Meters of a machine, as Linux shows them: read where they can be read, added up, and never a reason to fail."""

from pathlib import Path

import pytest

from viewcache.materializer.telemetry.power import Rapl

RANGE_UJ = 1_000_000


def zone(folder: Path, number: str, name: str, microjoules: int, **also: str) -> Path:
    """A meter below a folder like /sys/class/powercap; returns the file with its count."""
    home = folder / number
    home.mkdir(parents=True)
    (home / "name").write_text(f"{name}\n")
    (home / "max_energy_range_uj").write_text(also.get("most", f"{RANGE_UJ}\n"))
    (home / "energy_uj").write_text(f"{microjoules}\n")
    return home / "energy_uj"


def test_packages_and_memory_add_up(tmp_path: Path) -> None:
    """Two sockets are one package; cores are inside it, the platform is around it, MMIO is the same again."""
    first = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 200)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 50)
    others = [
        zone(tmp_path, "intel-rapl:0:0", "core", 0),
        zone(tmp_path, "intel-rapl:2", "psys", 0),
        zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0),
    ]
    meter = Rapl(tmp_path)
    assert meter
    assert meter.joules() == {"package": 0, "dram": 0}
    first.write_text("300100\n")
    second.write_text("500200\n")
    memory.write_text("100050\n")
    for each in others:
        each.write_text("900000\n")
    assert meter.joules() == {"package": pytest.approx(0.8), "dram": pytest.approx(0.1)}
    assert meter.joules() == {"package": 0, "dram": 0}


def test_a_count_that_begins_anew_goes_on(tmp_path: Path) -> None:
    """After its range it is at zero again; one that does not say its range loses that step, and never falls."""
    count = zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    mute = zone(tmp_path, "intel-rapl:1", "dram", 900_000, most="much")
    meter = Rapl(tmp_path)
    count.write_text("100000\n")
    mute.write_text("100000\n")
    assert meter.joules() == {"package": pytest.approx(0.2), "dram": 0}
    mute.write_text("300000\n")
    assert meter.joules()["dram"] == pytest.approx(0.2)


def test_what_cannot_be_read_is_no_meter(tmp_path: Path) -> None:
    """No folder, a count that only root may read (here: a folder in its place), and words instead of a number."""
    assert not Rapl(tmp_path / "nothing")
    assert Rapl(tmp_path / "nothing").joules() == {}
    locked = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    locked.unlink()
    locked.mkdir()
    zone(tmp_path, "intel-rapl:1", "package-1", 0).write_bytes(b"\xff?")
    assert not Rapl(tmp_path)


def test_a_meter_that_is_away_for_a_while_catches_up(tmp_path: Path) -> None:
    """What it counted meanwhile comes with the next answer."""
    count = zone(tmp_path, "intel-rapl:0", "package-0", 100_000)
    meter = Rapl(tmp_path)
    count.unlink()
    assert meter.joules() == {"package": 0}
    count.write_text("400000\n")
    assert meter.joules() == {"package": pytest.approx(0.3)}
