"""The memory behind open files: bounded, one copy for each piece, and never of two views at once."""

import threading
import weakref

import numpy as np
import pytest

from viewcache.api.mount.files import OpenFiles
from viewcache.api.mount.readers import Readers
from viewcache.api.service.attached import AttachedCache
from viewcache.api.views.tree import ViewTree
from viewcache.errors import Broken
from viewcache.materializer.reading.batch import Buffers

NEVER = threading.Event()


@pytest.fixture
def tree(cache: AttachedCache) -> ViewTree:
    """The tree behind the files."""
    return ViewTree(cache)


def _files(cache: AttachedCache, tree: ViewTree, most_bytes: int) -> OpenFiles:
    return OpenFiles(tree, Readers(cache, lambda work: work(), print), most_bytes)


def test_many_open_files_take_no_more_than_their_bound(cache: AttachedCache, tree: ViewTree) -> None:
    """Those that were read last keep their memory; the others load again, and every byte is right."""
    size = tree.entry("train/0/0/view").size
    assert size is not None
    files = _files(cache, tree, 2 * size)
    paths = [f"train/0/{iteration}/view" for iteration in range(5)]
    opened = [files.open(path, 0, NEVER) for path in paths]
    assert [each.has(200, 10) for each in opened] == [False, False, False, True, True]
    for path, file in zip(paths, opened, strict=True):
        assert bytes(file.read(0, size, NEVER)) == tree.read(path)
    assert [each.has(200, 10) for each in opened] == [False, False, False, True, True]
    for file in opened:
        file.close()
        assert not file.has(200, 10)


def test_memory_that_nobody_uses_is_given_back() -> None:
    """But for what is likely to be used next; what somebody refers to stays."""
    buffers = Buffers()
    arrays = [buffers.take((4, 1000)) for _ in range(5)]
    owners = [weakref.ref(array.base) for array in arrays if array.base is not None]
    del arrays[1:]
    buffers.trim(2)
    assert sum(owner() is not None for owner in owners) == 3
    assert arrays[0].base is owners[0]()


def test_pieces_are_windows(cache: AttachedCache, tree: ViewTree) -> None:
    """A piece of the pixels is no copy; at the end it is shorter, and behind the end it is empty."""
    files = _files(cache, tree, 1 << 30)
    file, whole = files.open("train/0/0/view", 0, NEVER), tree.read("train/0/0/view")
    for offset, size in [(0, 10), (100, 100), (128, 4096), (1000, len(whole)), (len(whole) - 1, 5), (len(whole), 5)]:
        assert bytes(file.read(offset, size, NEVER)) == whole[offset : offset + size]
    one, other = (np.ctypeslib.as_array(file.read(4096, 100, NEVER)) for _ in range(2))
    assert np.shares_memory(one, other)


def test_a_view_that_is_another_one_now(cache: AttachedCache, tree: ViewTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps bytes only while they are the view's, and files that were opened before give no more of them."""
    files = _files(cache, tree, 1 << 30)
    first, again = (files.open("train/0/0/view", 0, NEVER) for _ in range(2))
    assert (first.keeps, again.keeps) == (False, True)
    assert len(first.read(200, 10, NEVER)) == 10
    monkeypatch.setattr(tree, "identity", lambda _: "another")
    assert not files.open("train/0/0/view", 0, NEVER).keeps
    assert not first.has(200, 10)
    with pytest.raises(Broken, match="other clips now"):
        first.read(200, 10, NEVER)


def test_a_view_that_changes_while_its_memory_is_away(
    cache: AttachedCache, tree: ViewTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is loaded again is what was opened, or an error."""
    files = _files(cache, tree, 1)
    first, _second = (files.open(f"train/0/{iteration}/view", 0, NEVER) for iteration in range(2))
    assert not first.has(200, 10)
    monkeypatch.setattr(tree, "identity", lambda _: "another")
    with pytest.raises(Broken, match="other clips now"):
        first.read(200, 10, NEVER)


def test_what_the_kernel_has_is_not_waited_for(
    cache: AttachedCache, tree: ViewTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened again after all of it was read, a view is loaded only if the kernel asks for some of it again."""
    files = _files(cache, tree, 1 << 30)
    whole = tree.read("train/0/0/view")
    file = files.open("train/0/0/view", 0, NEVER)
    assert b"".join(bytes(file.read(at, 4096, NEVER)) for at in range(0, len(whole), 4096)) == whole
    file.close()
    again = files.open("train/0/0/view", 0, NEVER)
    assert again.keeps
    assert not again.has(200, 10)
    assert bytes(again.read(0, len(whole), NEVER)) == whole

    def broken(*_: object) -> None:
        raise Broken("no")

    with monkeypatch.context() as patch:
        patch.setattr(Readers, "read", broken)
        third = files.open("train/0/0/view", 0, NEVER)
        with pytest.raises(Broken, match="no"):
            third.read(0, 10, NEVER)
    assert bytes(third.read(0, len(whole), NEVER)) == whole


def test_what_means_the_present_is_never_kept(cache: AttachedCache, tree: ViewTree) -> None:
    """An augmented frame without an epoch shows the clip that the task has reached, so the kernel keeps nothing."""
    files = _files(cache, tree, 1 << 30)
    assert files.open("train/cats.-v1/frame3/aug1", 0, NEVER).direct
    assert not files.open("train/cats.-v1/frame3/aug1?epoch=0", 0, NEVER).direct
