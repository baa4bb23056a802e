"""Which objects stay in memory: a fixed part, whatever the order of need, that lies evenly and never takes too much."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.residents import RULES, residents, took
from viewcache.materializer.keys import content_key
from viewcache.materializer.planning.order import draw_epoch
from viewcache.materializer.scheduling.residents import Residents, room_for

ITEMS, BATCH, EPOCHS = 9_984, 64, 6

Objects = dict[str, int]
OBJECTS = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(1, 50), max_size=20)


def chosen(wanted: list[Objects], room: int, there: Objects | None = None) -> Residents:
    """Residents of some generations, of which a few are in memory."""
    found = Residents(({} if there is None else there).get)
    assert found.choose([each.items() for each in wanted], room) == []
    return found


@given(OBJECTS, st.integers(0, 300), st.randoms(use_true_random=False))
def test_the_order_of_need_decides_nothing(objects: Objects, room: int, random: object) -> None:
    """Objects that are named in another order give the same residents, as many as have room, and no more."""
    first = chosen([objects], room)
    names = sorted(objects, key=lambda _: random.random())  # type: ignore[attr-defined]
    again = chosen([{name: objects[name] for name in names}], room)
    assert set(first.keys) == set(again.keys)
    assert first.bytes == sum(objects[key] for key in first.keys) <= room
    left = [size for key, size in objects.items() if key not in first.keys and size <= room]
    assert all(first.bytes + 2 * size > room for size in left)


@given(OBJECTS, st.integers(0, 300), st.data())
def test_what_takes_less_than_it_might_leaves_room_for_others(objects: Objects, room: int, data: st.DataObject) -> None:
    """The bytes of all that was chosen are within the room at every step, and nobody leaves as others join."""
    there: Objects = {}
    found = chosen([objects], room, there)
    while absent := list(found.absent(100)):
        key, before = absent[0], set(found.keys)
        there[key] = data.draw(st.integers(1, objects[key]))
        found.arrived(key, there[key])
        assert before <= set(found.keys)
        assert found.bytes <= room
    assert found.bytes == sum(there.values())
    assert found.choose([objects.items()], room) == []
    assert set(there) == set(found.keys)


def test_less_room_and_another_generation_demote() -> None:
    """Those that are none any more are named; what the next generation wants too stays, and of others what is read now
    comes first. One that is larger than all the room is passed over.
    """
    found = chosen([{"a": 2, "b": 2, "c": 2, "d": 2}], 8)
    assert set(found.keys) == {"a", "b", "c", "d"}
    assert found.choose([{"a": 2, "b": 2, "c": 2, "d": 2}.items()], 5) == ["c", "d"]
    assert found.choose([{"b": 2, "f": 1, "z": 9}.items(), {"a": 2, "e": 1}.items()], 5) == []
    assert (set(found.keys), found.bytes) == ({"a", "b", "f"}, 5)
    assert found.choose([{"e": 1}.items(), {"a": 2}.items()], 3) == ["b", "f"]
    assert found.choose([], 5) == ["a", "e"]
    assert (found.bytes, list(found.absent(9))) == (0, [])


def test_a_large_object_does_not_keep_small_ones_out() -> None:
    """What has no room beside those before it waits; smaller ones behind it have the room until then, in their order,
    and it is chosen as soon as there is room for it.
    """
    there: Objects = {}
    found = chosen([{"a": 60, "b": 60, "c": 20, "d": 20, "e": 20}], 100, there)
    assert (set(found.keys), found.bytes) == ({"a", "c", "d"}, 100)
    there["a"] = 10
    found.arrived("a", 10)
    assert (set(found.keys), found.bytes) == ({"a", "c", "d", "e"}, 70)
    there.update(c=1, d=1, e=1)
    for key in "cde":
        found.arrived(key, 1)
    assert (set(found.keys), found.bytes) == ({"a", "b", "c", "d", "e"}, 73)


def test_all_that_are_absent_are_looked_for_in_turn() -> None:
    """However few are looked for at a time, each has its turn."""
    found = chosen([{str(k): 1 for k in range(7)}], 7)
    seen = [key for _ in range(4) for key in found.absent(2)]
    assert set(seen) == {str(k) for k in range(7)}


@pytest.mark.parametrize(
    ("given", "memory", "batch", "room"),
    [(0, 900, 10, 0), (500, 900, 10, 500), (1000, 900, 10, 900), (None, 900, 10, 820), (None, 900, 500, 450)],
)
def test_the_room_for_them(given: int | None, memory: int, batch: int, room: int) -> None:
    """As configured, as far as memory is filled; else all but eight batches, at least half."""
    assert room_for(given, memory, batch) == room


@pytest.fixture(scope="module")
def order() -> np.ndarray:
    """Six uniform orders of 9,984 items."""
    return np.array([draw_epoch(3, "t", epoch, ITEMS) for epoch in range(EPOCHS)])


@pytest.mark.parametrize("share", [10, 30, 60])
def test_every_epoch_loads_the_rest_and_every_batch_about_as_many(order: np.ndarray, share: int) -> None:
    """N - R loads an epoch, exactly; from batch to batch they vary no more than drawn lots (a binomial) do.

    Of 624 batches a deviation is known to 3 %.
    """
    room = ITEMS * share // 100
    loads = residents(order, room, BATCH)
    assert (loads.sum(axis=1) == ITEMS - room).all()
    assert loads.std() <= 1.06 * np.sqrt(BATCH * share / 100 * (1 - share / 100))


def test_hits_are_constant_over_an_epoch(order: np.ndarray) -> None:
    """Each tenth of an epoch finds within 10 % of the mean in memory; the page cache finds three times as many at one
    end as it should, and next to none at the other.
    """
    room = ITEMS * 3 // 10
    tenths = {}
    for name in ("residents", "page cache (LRU)"):
        hits = (BATCH - RULES[name](order, room, BATCH)).sum(axis=0)
        tenths[name] = np.array([part.sum() for part in np.array_split(hits[:150], 10)]) / hits[:150].sum() * 10
    assert (abs(tenths["residents"] - 1) <= 0.1).all()
    assert tenths["page cache (LRU)"].max() > 3
    assert tenths["page cache (LRU)"].min() < 0.1


def test_a_device_that_is_as_fast_as_its_consumer_is_never_late(order: np.ndarray) -> None:
    """With memory for 30 % the page cache takes 1.36 times as long, the fewest loads 1.26 times, residents 1.00."""
    room = ITEMS * 3 // 10
    constant = BATCH * (1 - room / ITEMS)
    times = {name: took(RULES[name](order, room, BATCH).ravel(), 8, constant) for name in RULES if name[0] in "pBr"}
    assert times["page cache (LRU)"] == pytest.approx(1.355, abs=0.01)
    assert times["Belady"] == pytest.approx(1.26, abs=0.01)
    assert times["residents"] <= 1.005


def test_keys_say_nothing_of_an_order() -> None:
    """Content keys of pictures that were planned one after the other lie at all places of their order."""
    keys = [content_key("aug", bytes([k])) for k in range(200)]
    places = [keys.index(key) for key in sorted(keys)[:60]]
    assert 70 < np.mean(places) < 130
