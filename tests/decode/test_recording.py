"""What is found of files is recorded in batches, the one before while the next one is gathered."""

import threading
from collections.abc import Sequence

import pytest

from viewcache.errors import Full
from viewcache.materializer.dataset.recording import Batches, Behind


def test_the_next_batch_is_gathered_while_one_is_recorded() -> None:
    """Handing on the second waits for the first, so that one is recorded at a time, and in order."""
    recorded, may_end, handed_on = list[int](), threading.Event(), threading.Event()

    def record(batch: Sequence[int]) -> None:
        assert may_end.wait(20)
        recorded.extend(batch)

    def go_on() -> None:
        assert handed_on.wait(20)
        may_end.set()

    other = threading.Thread(target=go_on)
    other.start()
    with Behind[int](record) as behind:
        behind([1, 2])
        assert not recorded, "it was not waited for"
        handed_on.set()
        behind([3])
        assert recorded[:2] == [1, 2]
    other.join()
    assert recorded == [1, 2, 3]


def test_all_is_recorded_when_the_block_ends() -> None:
    """What was gathered last, too, and also where the block ends ill."""
    recorded = list[int]()

    def gather() -> None:
        with Behind[int](recorded.extend) as behind, Batches(behind, 60.0) as batches:
            batches.add([1, 2])
            batches.add([3])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gather()
    assert recorded == [1, 2, 3]


@pytest.mark.parametrize("last", [True, False])
def test_what_recording_met_is_told(last: bool) -> None:
    """To who hands on the next batch, or to the end of the block; batches behind it are not recorded meanwhile."""
    asked = list[Sequence[int]]()

    def record(batch: Sequence[int]) -> None:
        asked.append(batch)
        raise Full("the disk is full")

    with pytest.raises(Full), Behind[int](record) as behind:  # noqa: PT012 - whichever line of it
        behind([1])
        if not last:
            behind([2])
            raise AssertionError("it was told of nothing")
    assert asked == [[1]]
