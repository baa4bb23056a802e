"""Which clips pass through memory, and which leave it: pure functions over what is known and what work costs."""

from hypothesis import given
from hypothesis import strategies as st

from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.cost import LEAST_BYTES, CostModel
from viewcache.materializer.scheduling.passing_rules import Handling, OneUse, handling, leaving

COST = CostModel()
CLIP = OneUse(bytes=5_000_000, unkept=True, uses=1, soon=True, read=True)


def test_what_is_read_once_and_soon_passes() -> None:
    """A clip that is not kept, has one use to come and is about to be read goes through memory."""
    assert handling(CLIP, COST) is Handling.PASS


def test_what_is_kept_or_used_again_is_stored() -> None:
    """Kept clips, clips with several uses or none, and clips of a training that has not begun go to the folder."""
    stored = [
        OneUse(5_000_000, False, 1, True, True),
        *(OneUse(5_000_000, True, uses, True, True) for uses in (0, 2, 3)),
        OneUse(5_000_000, True, 1, True, False),
    ]
    assert {handling(each, COST) for each in stored} == {Handling.STORE}


def test_room_to_spare_keeps_what_was_decoded() -> None:
    """Where the folder has room for all to come, decoded clips are stored; those of kept pictures pass all the same."""
    assert handling(OneUse(5_000_000, True, 1, True, True, None, tight=False), COST) is Handling.STORE
    assert handling(OneUse(5_000_000, True, 1, True, True, 1_000_000, tight=False), COST) is Handling.PASS
    beside = OneUse(5_000_000, True, 1, True, True, None, tight=False, kept_beside=True)
    assert handling(beside, COST) is Handling.PASS, "its pictures will be there"


def test_what_passes_cheaply_later_is_not_made_yet() -> None:
    """A clip that is not needed soon waits if its pictures are kept and little; else it is made with the decode."""
    assert handling(OneUse(5_000_000, True, 1, False, True, 1_000_000), COST) is Handling.LATER
    assert handling(OneUse(5_000_000, True, 1, False, True, 500_000_000), COST) is Handling.STORE
    assert handling(OneUse(5_000_000, True, 1, False, True, None), COST) is Handling.STORE


def test_costs_decide() -> None:
    """Where memory is measured to cost more than the folder, clips are stored."""
    dear = CostModel(store_s_per_byte=1e-10, load_s_per_byte=1e-10, pass_s_per_byte=3e-9)
    assert handling(CLIP, dear) is Handling.STORE
    assert handling(OneUse(5_000_000, True, 1, False, True, 1_000), dear) is Handling.STORE


def test_what_the_owner_does_for_a_stored_clip_counts() -> None:
    """Where the bytes cost about the same both ways a clip passes: a stored one takes rows, a file, and an eviction."""
    alike = CostModel(store_s_per_byte=6.7e-10, load_s_per_byte=2.1e-10, pass_s_per_byte=9.5e-10)
    assert handling(CLIP, alike) is Handling.PASS


def test_the_cost_is_measured() -> None:
    """The rate of passing is what writing and reading there took, and does not touch the folder's rates."""
    size = LEAST_BYTES
    rows = [
        IoSampleRow("store", 22, "raw", "passing", 10, 2.0, size),
        IoSampleRow("load", 22, "raw", "passing", 10, 1.0, size),
    ]
    cost = CostModel.measured(rows)
    assert cost.pass_s_per_byte == 3.0 / size
    assert (cost.store_s_per_byte, cost.load_s_per_byte) == (COST.store_s_per_byte, COST.load_s_per_byte)


DUE = st.none() | st.floats(0, 1000)


@given(
    st.lists(st.tuples(st.integers(), DUE, st.integers(1, 100)), max_size=12), st.integers(1, 500), st.floats(0, 1000)
)
def test_what_is_needed_latest_leaves_first(
    lying: list[tuple[int, float | None, int]], need: int, before_s: float
) -> None:
    """What is needed sooner stays, no more leaves than is asked for, and what stays is needed sooner."""
    numbered = [((k, what), due, size) for k, (what, due, size) in enumerate(lying)]
    gone = leaving(numbered, need, before_s)
    of = {what: (due, size) for what, due, size in numbered}
    may = {what for what, due, _ in numbered if due is None or due > before_s}
    assert set(gone) <= may
    freed = sum(of[what][1] for what in gone)
    assert freed >= need or set(gone) == may, "all that may leave does, if it is needed"
    assert freed - (of[gone[-1]][1] if gone else 0) < need, "no more than that"

    def late(what: tuple[int, int]) -> float:
        due = of[what][0]
        return float("inf") if due is None else due

    assert all(late(left) >= late(stays) for left in gone for stays in may - set(gone))
