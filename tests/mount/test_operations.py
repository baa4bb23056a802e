"""What is asked for a request of the kernel, and what is answered from memory."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from viewcache.api.mount.errnos import Refused
from viewcache.api.mount.files import OpenFiles
from viewcache.api.mount.operations import Operations
from viewcache.api.mount.readers import Readers
from viewcache.api.mount.requests import Requests
from viewcache.api.service.attached import AttachedCache
from viewcache.api.views.tree import Entry, ViewTree


class _Counted(ViewTree):
    """A tree that counts what it is asked for."""

    asked = 0

    def entry(self, path: str) -> Entry:
        self.asked += 1
        return super().entry(path)


@pytest.fixture
def tree(cache: AttachedCache) -> _Counted:
    """The tree behind the callbacks."""
    return _Counted(cache)


@pytest.fixture
def said() -> list[str]:
    """What people are told."""
    return []


@pytest.fixture
def operations(cache: AttachedCache, tree: _Counted, said: list[str]) -> Iterator[Operations]:
    """The callbacks, without a kernel."""
    requests = Requests(lambda: False)
    readers = Readers(cache, requests.later, said.append)
    yield Operations(tree, OpenFiles(tree, readers), readers, requests, lambda: 0, said.append)
    requests.end()


@pytest.mark.parametrize("folder", ["/train/dogs.-v8", "/train/0"])
def test_looking_at_a_listing_asks_little(operations: Operations, tree: _Counted, folder: str) -> None:
    """Who looks at each entry of a folder asks for the folder and for its time, not for each entry."""
    number = operations.opendir(folder)
    names = [name for name, _, _ in operations.readdir(folder, number) if not name.startswith(".")]
    operations.releasedir(folder, number)
    facts = [operations.getattr(f"{folder}/{name}") for name in names]
    assert len(facts) >= 5
    assert tree.asked <= 2
    assert {each.get("st_size") for each in facts} == {tree.entry(f"{folder[1:]}/{name}").size for name in names}


def test_the_same_error_is_told_once(operations: Operations, said: list[str]) -> None:
    """A loop over something broken fills no terminal; what is merely not there is no news."""
    for _ in range(3):
        with pytest.raises(Refused):
            operations.getattr("/train/0/0/view?rank=5&world=6")
        with pytest.raises(Refused):
            operations.getattr("/train/77")
    assert len(said) == 1
    assert said[0].startswith("train/0/0/view?rank=5&world=6: ")


def test_metadata_is_asked_anew_once_a_view_is_made(
    operations: Operations, tree: _Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making a view may put another video in a bad one's place: what was told before counts no more."""
    told = iter([{"label": [1]}, {"label": [2]}])
    monkeypatch.setattr(tree, "describe", lambda _: next(told))
    monkeypatch.setattr(tree, "identity", lambda _: "same")
    assert [operations.getxattr("/train/0/0/view", "user.viewcache.label") for _ in range(2)] == [b"[1]", b"[1]"]
    handle = SimpleNamespace(fh=0, keep_cache=0, direct_io=0)
    operations.open("/train/0/0/view", handle)
    assert operations.getxattr("/train/0/0/view", "user.viewcache.label") == b"[2]"
    operations.release("/train/0/0/view", handle)
