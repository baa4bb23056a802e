"""What devices give is known from a profile of this machine, and from nothing else."""

from pathlib import Path

import pytest

from viewcache.catalog import Catalog
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.devices import (
    READ,
    SOURCE,
    Devices,
    devices_of,
    host_of,
    known_devices,
    record_devices,
)
from viewcache.store.tier import LOCAL, REMOTE

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:17 / /mnt/data rw,noatime shared:2 - xfs /dev/sdb1 rw,attr2
31 22 8:33 / /mnt/two\\040words rw - ext4 /dev/sdc1 rw
32 30 0:99 / /mnt/data rw - tmpfs tmpfs rw,size=1g
"""


def read(tier: str, bits: int, size: int, seconds: float) -> IoSampleRow:
    """Measured reads of one size."""
    return IoSampleRow(READ, bits, "", tier, max(1, size >> bits), seconds, size)


def test_a_device_gives_the_ratio_of_sums() -> None:
    """Of all sizes that were read of a tier; other work says nothing, and neither do a few bytes."""
    rows = [
        read(LOCAL, 20, 100 << 20, 1.0),
        read(LOCAL, 15, 50 << 20, 2.0),
        read(REMOTE, 20, 1 << 20, 1.0),
        IoSampleRow("load", 20, "raw", SOURCE, 10, 1.0, 100 << 20, 0.1),
    ]
    assert devices_of(rows) == {LOCAL: 50 << 20}
    assert devices_of([]) == {}


def test_what_was_not_profiled_is_free() -> None:
    """Its bytes take no seconds of any device."""
    devices = Devices({LOCAL: 2e8})
    assert devices.s_per_byte(LOCAL) == pytest.approx(5e-9)
    assert devices.s_per_byte(SOURCE) == 0 == Devices().s_per_byte(LOCAL)


def test_a_profile_is_of_one_machine(tmp_path: Path) -> None:
    """On another one it says nothing but that there is one; a later profile takes its place."""
    with Catalog.open(tmp_path) as catalog:
        assert known_devices(catalog, "here") == Devices()
        record_devices(catalog, [read(LOCAL, 20, 100 << 20, 1.0)], "here", 123.5)
        assert known_devices(catalog, "here") == Devices({LOCAL: 100 << 20}, 123.5)
        assert known_devices(catalog, "there") == Devices(at_s=123.5, other_host=True)
        record_devices(catalog, [read(SOURCE, 17, 30 << 20, 1.0)], "there", 200.0)
        assert known_devices(catalog, "there") == Devices({SOURCE: 30 << 20}, 200.0)


def test_a_machine_is_its_cores_and_the_mount_of_the_store(tmp_path: Path) -> None:
    """Folders of one mount are the same machine; another device, options or file system are not."""

    def of(folder: str, mounts: str = MOUNTS) -> str:
        table = tmp_path / "mounts"
        table.write_text(mounts, "latin-1")
        return host_of(folder, table=str(table))

    assert of("/var/cache") == of("/mnt/database") == of("/")
    assert len({of("/var"), of("/mnt/data/a"), of("/mnt/two words/a")}) == 3
    assert of("/mnt/data") == of("/mnt/data/a")
    assert of("/mnt/data/a") != of("/mnt/data/a", MOUNTS.replace("size=1g", "size=2g"))
    assert of("/mnt/data/a") == of("/mnt/data/a", MOUNTS.replace("attr2", "noattr2"))  # another one lies over it
    assert of("/var", "") == of("/mnt/data", "")
    strange = MOUNTS + "25 22 8:49 / /mnt/donn\xe9es rw - vfat /dev/sdd1 rw\n"
    assert of("/var/cache", strange) == of("/var/cache"), "a name that is no UTF-8 is another's"
    assert host_of(tmp_path) == host_of(tmp_path / "store")
