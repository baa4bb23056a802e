"""Several readers of one task: what any of them still needs is needed, as soon as the first of them needs it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.invented import plan_of, task_of, videos_of
from viewcache.materializer.planning.order import Order
from viewcache.materializer.planning.recipe import VideoSource
from viewcache.materializer.scheduling.demand import Board
from viewcache.materializer.scheduling.generation import ActiveGeneration
from viewcache.materializer.scheduling.keeping import Keeping
from viewcache.materializer.scheduling.seats import IDLE_S, SeatKey, Seats
from viewcache.materializer.scheduling.work import Position, RowState

VIDEOS, SAMPLES, BATCH, EPOCHS, ITERATIONS = 7, 2, 3, 2, 3


def generation() -> ActiveGeneration:
    """Epochs 2 and 3 of a task; the last batch of an epoch has one video."""
    plan = plan_of(task_of("t", 4, 2, samples=SAMPLES, batch=BATCH), videos_of(VIDEOS), epochs=EPOCHS, number=1)
    order = Order(np.tile(np.arange(VIDEOS), (EPOCHS, 1)), np.full(EPOCHS, VIDEOS))
    return ActiveGeneration(plan, order, 1, np.arange(len(plan)), lambda *_: [VideoSource("", "", "", b"", 1)])


POSITIONS = st.builds(Position, st.integers(1, 4), st.integers(0, ITERATIONS - 1), st.sampled_from([0.25, 1.0, 8.0]))
READERS = st.lists(POSITIONS, min_size=1, max_size=4)


def due_in_s(active: ActiveGeneration, readers: list[Position], row: int) -> float | None:
    """When a row is needed, by the definition: the soonest over the readers that have not had its batch."""
    epoch, position, _ = active.place(row)
    batch = epoch * ITERATIONS + position // BATCH
    seats = [(batch - each.epoch * ITERATIONS - each.iteration) * each.pace_s for each in readers]
    return min((each for each in seats if each >= 0), default=None)


@given(moves=st.lists(READERS, min_size=1, max_size=4))
def test_a_row_is_due_when_the_first_reader_needs_it(moves: list[list[Position]]) -> None:
    """Wherever readers are and come from, behind one another or in other generations."""
    active = generation()
    for readers in moves:
        active.at(*readers)
        for row in range(len(active)):
            expected = due_in_s(active, readers, row)
            if expected is not None:
                assert active.due_in_s(row) == expected
            assert active.to_come()[row] == (active.place(row)[:2] >= first_place(readers))
        key = active.key(0)
        needs = [due_in_s(active, readers, row) for row in active.rows_of(key)]
        assert active.next_due_in_s(key) == min((each for each in needs if each is not None), default=None)


def test_a_longer_epoch_before_makes_nothing_late() -> None:
    """Videos were removed since: a reader who is far on in an epoch of more batches has had none of these."""
    active = generation()
    active.at(Position(1, 3 * ITERATIONS, 1.0))
    assert [active.due_in_s(row) for row in (0, BATCH * SAMPLES)] == [0.0, 1.0]


def first_place(readers: list[Position]) -> tuple[int, int]:
    """Epoch and position from which on some reader needs everything."""
    slowest = min(readers, key=lambda each: each.place)
    return slowest.epoch, slowest.iteration * BATCH


@given(moves=st.lists(READERS, min_size=1, max_size=4), made=st.sets(st.integers(0, 27)), window=st.integers(1, 9))
def test_what_is_made_next_is_what_is_needed_soonest(moves: list[list[Position]], made: set[int], window: int) -> None:
    """Of what is kept, and of the next few clips of each reader; what they sought before misleads none of them."""
    active = generation()
    kept = np.arange(len(active)) % 3 == 0
    active.keep(Keeping(kept, window, 0))
    for turn, readers in enumerate(moves):
        active.at(*readers)
        for row in made:
            if row % len(moves) == turn:
                active.set_state(row, RowState.READY)
        starts = [active.from_rank_of(each) for each in readers]
        wanted = [
            row
            for row in range(len(active))
            if active.state(row) == RowState.PLANNED
            and row >= min(starts)
            and (kept[row] or any(start <= row < start + window for start in starts))
        ]
        assert all(active.is_soon(row) == any(start <= row < start + window for start in starts) for row in wanted)
        chosen = active.next_planned()
        assert (chosen is None) == (not wanted)
        if chosen is not None:
            assert chosen in wanted
            assert active.due_in_s(chosen) == min(map(active.due_in_s, wanted))
        needed = active.next_needed(window)
        assert [due_s for due_s, _ in needed] == sorted(due_s for due_s, _ in needed)
        near = {row for start in starts for row in range(start, min(start + window, len(active)))}
        assert [key for _, key in needed] == [active.key(row) for row in sorted(sorted(near), key=active.due_in_s)]


def test_looking_moves_nobody_while_somebody_sits() -> None:
    """A read by path counts where nobody sits; whoever stopped may be passed by it."""
    seats = Seats()
    by_path = seats.by_path(0, 1)
    assert by_path is not None
    seats.at(by_path, 1, 2)
    assert seats.by_path(0, 1) is by_path
    seat = seats.sit(SeatKey(), 0, 0)
    assert seats.positions() == (Position(0, 0),), "who takes the seat goes from there"
    assert seats.by_path(0, 1) is None
    seats.rise(seat)
    assert seats.by_path(0, 1) is seat


def test_a_seat_that_is_taken_again_replaces_the_one_before() -> None:
    """The place of a reader that stopped holds nothing back once somebody goes on from elsewhere."""
    seats = Seats()
    first = seats.sit(SeatKey(), 0, 0)
    second = seats.sit(SeatKey(), 3, 1)
    assert len(seats.positions()) == 2
    seats.rise(first)
    assert seats.positions() == (Position(3, 1),)
    assert seats.is_known(second)
    assert not seats.is_known(first)


def test_a_training_of_another_size_takes_the_task_over() -> None:
    """Seats of two ranks count no more when one rank reads all, also if they go on."""
    seats = Seats()
    ranks = [seats.sit(SeatKey(rank, 2), 0, 0) for rank in range(2)]
    assert len(seats.positions()) == 2
    alone = seats.sit(SeatKey(), 1, 0)
    seats.at(ranks[0], 0, 1)
    assert seats.positions() == (Position(1, 0),)
    assert seats.is_known(alone)


@given(
    step_s=st.sampled_from([0.05, 1.0, 90.0]),
    ahead=st.integers(0, 3),
    iterations=st.integers(2, 12),
    anew=st.booleans(),
)
def test_the_pace_is_that_of_who_takes_the_batches(step_s: float, ahead: int, iterations: int, anew: bool) -> None:
    """Whatever a loader reads ahead in each epoch, however short that is, and whether it sits down anew for it."""
    now_s = 0.0
    seats = Seats(lambda: now_s)
    seat = seats.sit(SeatKey())
    paces = []
    for epoch in range(60):
        if anew and epoch:
            seats.rise(seat)
            seat = seats.sit(SeatKey(), epoch)
        for iteration in range(iterations):
            now_s += step_s if iteration > ahead else 0.0
            paces.append(seats.read(seat, epoch, iteration, iterations).pace_s)
        now_s += step_s * min(ahead + 1, iterations)
    settled = np.array(paces[len(paces) // 2 :])
    assert np.all(np.abs(settled - step_s) <= step_s * (ahead + 1) / 16 + 1e-9)


@given(parts=st.integers(2, 4), iterations=st.integers(4, 12))
def test_the_pace_of_parts(parts: int, iterations: int) -> None:
    """Of a DataLoader's workers, also where an epoch's batches are no multiple of them."""
    now_s = 0.0
    seats = Seats(lambda: now_s)
    for epoch in range(40):
        mine = [seats.sit(SeatKey(part=part, parts=parts), epoch, part) for part in range(parts)]
        for iteration in range(iterations):
            now_s += 1.0
            seat = mine[iteration % parts]
            position = seats.read(seat, epoch, iteration, iterations)
            following = iteration + parts
            assert position.place == ((epoch, following) if following < iterations else (epoch + 1, iteration % parts))
        for seat in mine:
            seats.rise(seat)
    assert all(0.7 <= each.pace_s <= 1.3 for each in seats.positions())


def test_a_pause_is_no_pace() -> None:
    """A notebook that reads on after a night had not been training at night."""
    now_s = 0.0
    seats = Seats(lambda: now_s)
    seat = seats.sit(SeatKey())
    for iteration in range(20):
        now_s += 1.0
        seats.read(seat, 0, iteration, 100)
    now_s += 12 * 3600
    seats.rise(seat)
    seat = seats.sit(SeatKey(), 0, 20)
    assert seats.read(seat, 0, 20, 100).pace_s <= 1 + IDLE_S / 16
    for iteration in range(21, 37):
        now_s += 1.0
        seats.read(seat, 0, iteration, 100)
    assert seat.position.pace_s == 1.0


def test_who_reads_a_task_that_was_left_brings_it_back() -> None:
    """Leaving a task forgets its readers, until they ask for a batch."""
    seats = Seats()
    seat = seats.sit(SeatKey(), 0, 1)
    seats.leave()
    assert seats.positions() == ()
    seats.at(seat, 0, 1)
    assert seats.positions() == (Position(0, 1),)


def test_a_task_whose_last_reader_has_just_left_stays_where_it_was() -> None:
    """A batch may be told as read while its reader's process ends: nobody is anywhere then, which is no place."""
    ledger: Any = SimpleNamespace(has=lambda _: False, is_leaving=lambda _: False)
    board, active = Board(ledger), generation()
    board.reached(active, [Position(2, 1, 0.5)])
    board.reached(active, [])
    board.announce([active])
    assert active.from_rank == BATCH * SAMPLES


def test_workers_that_take_turns_need_every_other_batch() -> None:
    """Each of two parts needs the batch after next, and in the next epoch its first; whoever is behind counts."""
    seats = Seats()
    parts = [seats.sit(SeatKey(0, 1, part, 2), 0, part) for part in range(2)]
    assert seats.read(parts[0], 0, 0, ITERATIONS).place == (0, 2)
    assert seats.read(parts[1], 0, 1, ITERATIONS).place == (1, 1)
    assert seats.read(parts[0], 0, 2, ITERATIONS).place == (1, 0)
    assert seats.furthest() == (0, 2)
    assert seats.slowest(parts[1].key) == seats.positions()[1]
