"""The local tier: its budget, its layout, and what it deletes."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disk import counted
from tests.store.objects import Put, pixels
from viewcache import store
from viewcache.errors import BadInput, Broken, Misuse
from viewcache.store.temporary import is_abandoned, temporary_name

BUDGET = 1000
steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "commit", "release", "leave"]), st.integers(1, 700), st.integers(0, 5)),
    max_size=40,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for many generated histories."""
    return tmp_path_factory.mktemp("budget") / "store"


@given(history=steps)
def test_the_budget_holds_at_every_step(root: Path, history: list[tuple[str, int, int]]) -> None:
    """Whatever is reserved, committed and released: never more than the budget, and no byte lost (law 7)."""
    tier = store.LocalTier(root, BUDGET)
    open_ones: list[store.Reservation] = []
    used = 0
    for action, size, which in history:
        if action == "reserve":
            free = tier.free_bytes
            granted = tier.reserve(size)
            assert (granted is not None) == (size <= free)
            open_ones += [granted] if granted else []
        elif open_ones:
            one = open_ones.pop(which % len(open_ones))
            if action == "commit":
                written = min(size, one.bytes)
                used += written
                one.commit(written)
            elif action == "release":
                one.release()
                one.release()
            else:
                with one:
                    pass
        assert tier.used_bytes == used
        assert tier.reserved_bytes == sum(one.bytes for one in open_ones)
        assert tier.used_bytes + tier.reserved_bytes + tier.free_bytes == BUDGET


def test_more_than_reserved_is_an_error_but_counted(tier: store.LocalTier) -> None:
    """A write above its reservation is a bug of the caller's; its bytes are counted all the same."""
    reservation = tier.reserve(10)
    assert reservation is not None
    with pytest.raises(Misuse, match="11 bytes were written under a reservation of 10"):
        reservation.commit(11)
    assert (tier.used_bytes, tier.reserved_bytes) == (11, 0)
    with pytest.raises(Misuse, match="makes no sense"):
        tier.reserve(0)


def test_counted_bytes_are_the_bytes_on_disk(tier: store.LocalTier, put: Put) -> None:
    """Bound, written, measured and freed bytes agree with the file system's."""
    meta = store.ArrayMeta((4, 300), (1, 300), "zstd1")
    reservation = tier.reserve(store.bound_bytes(meta, "b" * 32))
    assert reservation is not None
    with reservation:
        written = store.write_object(tier.root, "b" * 32, pixels((4, 300)), meta)
        reservation.commit(written.bytes)
    other = put(pixels((3, 50)))
    assert dict(tier.iter_objects())[written.physical] == written.bytes
    tier.settle(tier.measure())
    freed = tier.delete(other.physical)
    assert tier.used_bytes == written.bytes == tier.measure()
    assert freed > 150
    assert tier.delete(other.physical) == 0


def test_an_object_goes_though_the_temporary_folder_is_gone(tier: store.LocalTier, put: Put) -> None:
    """After somebody removed part of the store its bytes are not given back while they lie there."""
    written = put(pixels((3, 50)))
    tier.settle(tier.measure())
    Path(tier.root, "tmp").rmdir()
    assert tier.delete(written.physical) > 150
    assert not list(tier.iter_objects())
    assert tier.used_bytes == tier.measure() == 0


def test_sweep_keeps_living_writers(tier: store.LocalTier) -> None:
    """Leftovers of dead processes go; the folder of a writer at work stays until its pid is named as dead.

    What has another name is not ours, and stays.
    """
    meta = store.ArrayMeta((1, 500), (1, 500), "raw")
    dead = Path(tier.root, "tmp", f"{'a' * 32}.{2**22 + 1}.5-abcdef")
    dead.mkdir()
    (dead / "c.0.0").write_bytes(bytes(70))
    left = counted(dead)
    Path(tier.root, "tmp", "junk").write_bytes(bytes(30))
    with store.ObjectWriter(tier.root, "c" * 32, meta) as writer:
        assert tier.sweep() == left
        assert len(os.listdir(Path(tier.root, "tmp"))) == 2
        assert tier.sweep(dead_pid=os.getpid()) > 500
        assert os.listdir(Path(tier.root, "tmp")) == ["junk"]
        writer.abort()


@pytest.mark.parametrize("name", ["tmp", "objects"])
def test_nothing_is_deleted_behind_a_link(tmp_path: Path, name: str) -> None:
    """A link in the place of one of the store's folders is refused at the start, and not followed if it comes later."""
    precious = tmp_path / "precious" / f"{'a' * 32}.{2**22 + 1}.5-abcdef"
    precious.parent.mkdir()
    precious.write_bytes(b"a picture")
    tier = store.LocalTier(tmp_path / "store", 1 << 30)
    (tmp_path / "store" / name).rmdir()
    (tmp_path / "store" / name).symlink_to(precious.parent)
    assert (tier.sweep(), list(tier.iter_objects())) == (0, [])
    with pytest.raises(BadInput, match="is a link to another folder"):
        store.LocalTier(tmp_path / "store", 1 << 30)
    assert precious.read_bytes() == b"a picture"


def test_a_store_without_its_marker_is_recognized(tier: store.LocalTier, put: Put) -> None:
    """Only what a store makes lies there, so the marker was deleted, and comes back; not beside a foreign name."""
    stored = put(pixels((1, 9)))
    marker, folder = Path(tier.root, store.MARKER), Path(tier.root, "tmp", f"{'a' * 32}.{2**22 + 1}.5-abcdef")
    folder.mkdir()
    marker.unlink()
    put(pixels((1, 9), 1))
    assert marker.is_file()
    marker.unlink()
    store.LocalTier(tier.root, 1 << 30).verify(stored.physical)
    marker.unlink()
    Path(tier.root, "objects", "ab").mkdir(exist_ok=True)
    Path(tier.root, "objects", "ab", "letters").write_text("x")
    with pytest.raises(BadInput, match="holds 'objects/ab/letters' but no"):
        store.LocalTier(tier.root, 1 << 30)


def test_a_pid_that_came_round_again_is_dead() -> None:
    """A temporary folder belongs to a process, not to its number."""
    name = Path(temporary_name("a" * 32)).name
    assert not is_abandoned(name)
    key, pid, rest = name.split(".")
    start, nonce = rest.split("-")
    assert is_abandoned(f"{key}.{pid}.{int(start) + 1}-{nonce}")


def test_layout_is_private_and_reopens(tmp_path: Path) -> None:
    """The folder is ours alone (0700), says its format, and opens again beside other files."""
    root = tmp_path / "a" / "store"
    root.mkdir(parents=True)
    (root / "catalog.duckdb").write_text("not ours to mind")
    store.LocalTier(root, 1)
    assert json.loads((root / store.MARKER).read_text()) == {"viewcache_store": store.FORMAT}
    for name in ("objects", "tmp"):
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o700
    store.LocalTier(tmp_path / "new", 1)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    store.LocalTier(root, 1)
    assert (root / "catalog.duckdb").exists()


def test_a_death_while_making_the_layout_is_harmless(tmp_path: Path) -> None:
    """A start that died before, or just after, the marker is finished by the next start."""
    (tmp_path / f"{store.MARKER}.0123abcd").write_text("{")
    store.LocalTier(tmp_path, 1)
    assert sorted(os.listdir(tmp_path)) == ["objects", "tmp", store.MARKER]
    os.rmdir(tmp_path / "tmp")
    store.LocalTier(tmp_path, 1)
    assert (tmp_path / "tmp").is_dir()


@pytest.mark.parametrize("name", ["objects", "tmp", "zarr.json"])
def test_foreign_folders_are_refused(tmp_path: Path, name: str) -> None:
    """A folder with such names that is not ours is refused untouched: we would delete in it."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis").write_text("x")
    with pytest.raises(BadInput, match="not a viewcache store"):
        store.LocalTier(tmp_path, 1)
    assert os.listdir(tmp_path) == [name]
    assert os.listdir(tmp_path / name) == ["thesis"]


@pytest.mark.parametrize("text", ['{"viewcache_store": 2}', "{}", "[]", "junk", "[" * 100_000])
def test_other_formats_are_refused(tmp_path: Path, text: str) -> None:
    """A marker of another format, or none at all, is refused with what to do."""
    (tmp_path / store.MARKER).write_text(text)
    with pytest.raises(BadInput, match="another folder"):
        store.LocalTier(tmp_path, 1)


def test_a_file_in_place_of_the_root(tmp_path: Path) -> None:
    """A root that cannot be a folder is named."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(Broken, match="cannot make a store"):
        store.LocalTier(tmp_path / "file", 1)


def test_what_a_store_lies_in_is_not_made(tmp_path: Path) -> None:
    """A missing folder above it is mostly that of a disk that is not mounted: nothing is written in its place."""
    with pytest.raises(BadInput, match=f"the folder {tmp_path}/disk/a does not exist; mount the disk"):
        store.LocalTier(tmp_path / "disk" / "a" / "cache", 1)
    assert not os.listdir(tmp_path)


def test_a_store_is_made_where_a_link_says(tmp_path: Path) -> None:
    """Also there nothing is made of what it would lie in."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "cache")
    with pytest.raises(BadInput, match=f"cannot make the store {link}: the folder {tmp_path}/disk does not exist"):
        store.LocalTier(link, 1)
    (tmp_path / "disk").mkdir()
    assert store.LocalTier(link, 1).used_bytes == 0
    assert (tmp_path / "disk" / "cache").is_dir()


def test_strangers_are_neither_listed_nor_deleted(tier: store.LocalTier, put: Put) -> None:
    """Only places that the store makes are objects; no other path can be deleted through it."""
    stored = put(pixels((1, 9)))
    Path(tier.root, "objects", "readme.txt").write_text("x")
    Path(tier.root, "objects", "zz").mkdir()
    Path(tier.root, stored.physical).with_name("stranger").mkdir()
    assert [physical for physical, _ in tier.iter_objects()] == [stored.physical]
    for physical in ("objects", "../x", "objects/zz", f"{stored.physical}/.."):
        with pytest.raises(Misuse):
            tier.delete(physical)
