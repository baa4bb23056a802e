"""The dependent sampler by itself, as people use it beside their own dataset and loader."""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

from viewcache.errors import BadInput, Closed, Misuse, NotFound
from viewcache.sampling import DependentSampler, JobSampler


def _together(*jobs: JobSampler) -> Iterator[tuple[int, ...]]:
    """One epoch of jobs of one size that take turns."""
    yield from zip(*jobs, strict=True)


def test_jobs_of_one_dataset_load_the_same_at_one_pace() -> None:
    """Two jobs that take turns draw one order, another one each epoch."""
    shared = DependentSampler(100, ahead=8)
    a, b = shared.join("a", epochs=2), shared.join("b", epochs=2)
    first, second = [*_together(a, b)], [*_together(a, b)]
    assert all(x == y for x, y in first + second)
    assert first != second
    assert sorted(x for x, _ in first) == [*range(100)]


@pytest.mark.parametrize("ahead", [1, 2, 7, 64, 1000])
def test_every_epoch_has_every_element_once(ahead: int) -> None:
    """Whatever is drawn ahead, at whatever pace, with jobs that come and go."""
    shared = DependentSampler(60, seed=3, ahead=ahead)
    fast, slow = shared.join("fast", epochs=3), shared.join("slow", range(20, 60))
    steps = iter(slow)
    got: list[int] = []
    for epoch in range(3):
        seen = []
        for element in fast:
            seen.append(element)
            if len(seen) % 3 == 0 and len(got) < 40:
                got.append(next(steps))
            if len(seen) == 30:
                shared.join(f"late{epoch}", range(0, 60, 2))
        assert sorted(seen) == [*range(60)]
        shared.leave(f"late{epoch}")
    assert sorted(got) == [*range(20, 60)]
    with pytest.raises(Misuse, match="has had its 3 epochs"):
        next(iter(fast))


def test_a_slower_job_shares_what_it_draws() -> None:
    """At half the pace, most of what the slower job is handed was handed to the faster one shortly before.

    All cannot be: both orders are uniform. Of equal sizes, 2 - 2 ln 2 = 61 % is expected while the faster one runs.
    """
    shared = DependentSampler(400, ahead=16)
    fast, slow = iter(shared.join("fast")), iter(shared.join("slow"))
    lately: deque[int] = deque(maxlen=40)
    shared_by_both = 0
    for _ in range(200):
        lately.extend(islice(fast, 2))
        shared_by_both += next(slow) in lately
    assert shared_by_both > 110


def test_an_interrupted_epoch_goes_on() -> None:
    """A loop that breaks goes on behind the last element; a new loop takes over from an old one."""
    shared = DependentSampler(30)
    job = shared.join("a")
    old = iter(job)
    begun = [*islice(old, 10)]
    rest = [*job]
    assert sorted(begun + rest) == [*range(30)]
    assert job.epoch == 0
    assert len([*job]) == 30
    assert job.epoch == 1
    assert [*old] == []


def test_state_goes_on_where_it_was() -> None:
    """After a restart each job gets exactly what is left, first what was drawn already."""
    before = DependentSampler(50, seed=1, ahead=8)
    a, b = before.join("a", epochs=2), before.join("b", range(25))
    begun = {"b": [*islice(b, 11)], "a": [*islice(a, 47)]}
    state = before.state_dict()
    after = DependentSampler(50, seed=1, ahead=8)
    after.join("a")
    after.load_state_dict(state)
    assert after.references().tolist() == before.references().tolist()
    waiting = state["jobs"]["b"]["drawn"][0][11:].tolist()
    assert waiting
    assert [*islice(after.job("b"), len(waiting))] == waiting, "what was drawn stays as it was drawn"
    begun["b"] += waiting
    for name, size in (("a", 50), ("b", 25)):
        assert sorted(begun[name] + [*after.job(name)]) == [*range(size)]


@pytest.mark.parametrize("other", [{"elements": 51}, {"elements": 50, "seed": 2}])
def test_a_state_of_something_else_is_refused(other: dict[str, int]) -> None:
    """Another dataset or seed would give other orders under the same names."""
    state = DependentSampler(50).state_dict()
    with pytest.raises(BadInput, match="make one like the other"):
        DependentSampler(**other).load_state_dict(state)


def test_references_count_what_is_still_to_come() -> None:
    """An element that was drawn but not handed out is still needed; one that was handed out is not."""
    shared = DependentSampler(10, ahead=4)
    a, b = shared.join("a"), shared.join("b", [1, 2])
    assert shared.references().tolist() == [1, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    first = next(iter(a))
    counts = shared.references()
    assert counts.sum() == 11
    assert counts[first] == (1 if first in (1, 2) else 0)
    b.leave()
    assert shared.references().sum() == 9


def test_a_data_loader_takes_it() -> None:
    """As the sampler of a DataLoader, with batches, and as an instance of torch's class."""
    data = TensorDataset(torch.arange(40))
    shared = DependentSampler(len(data))
    plain = DataLoader(data, batch_size=8, sampler=shared.join("plain"))
    typed = shared.join("typed").as_torch()
    assert isinstance(typed, Sampler)
    other = DataLoader(data, batch_size=8, sampler=typed)
    assert len(plain) == len(other) == 5
    batches = [*zip(plain, other, strict=True)]
    assert all(torch.equal(a, b) for [a], [b] in batches)
    assert sorted(torch.cat([a for [a], _ in batches]).tolist()) == [*range(40)]


def test_threads_draw_together() -> None:
    """Jobs in threads of their own each get their epochs whole."""
    shared = DependentSampler(300, ahead=16)
    seen: dict[str, list[list[int]]] = {}

    def train(job: JobSampler) -> None:
        seen[job.name] = [[*job] for _ in range(3)]

    threads = [threading.Thread(target=train, args=(shared.join(f"job{k}"),)) for k in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(sorted(epoch) == [*range(300)] for epochs in seen.values() for epoch in epochs)


def test_names_and_elements_are_checked() -> None:
    """What cannot be drawn is said when it is asked for, and the other jobs go on."""
    shared = DependentSampler(10)
    job = shared.join("a")
    for elements, message in [([], "needs elements"), ([0.5], "whole numbers"), ([3, 3], "twice"), ([10], "0 to 9")]:
        with pytest.raises(BadInput, match=message):
            shared.join("b", elements)  # type: ignore[arg-type]  # 0.5 is what is refused
    with pytest.raises(BadInput, match="draws already; let it `leave` first"):
        shared.join("a")
    with pytest.raises(BadInput, match="at least 1"):
        shared.join("b", epochs=0)
    with pytest.raises(BadInput, match="at least 1"):
        DependentSampler(0)
    with pytest.raises(NotFound, match="no job 'b'; there are a"):
        shared.leave("b")
    with pytest.raises(NotFound, match="no job 'b'; there are a"):
        shared.job("b")
    assert shared.jobs == ("a",)
    assert len([*job]) == 10
    job.leave()
    with pytest.raises(Closed, match="has left"):
        next(iter(job))
    assert np.count_nonzero(shared.references()) == 0


@pytest.mark.parametrize("wrong", ["10", 10.5, 0, True, None, range(10), np.arange(3), np.float64(3)])
def test_counts_are_whole_numbers(wrong: Any) -> None:
    """What is no count is refused with the argument and what was given; nothing is taken for a number that is none."""
    with pytest.raises(BadInput, match=r"^elements=.*: (a whole number is needed|at least 1)"):
        DependentSampler(wrong)
    with pytest.raises(BadInput, match=r"^ahead=.*: (a whole number is needed|at least 1)"):
        DependentSampler(10, ahead=wrong)
    if wrong is not None:
        with pytest.raises(BadInput, match=r"^epochs=.*: (a whole number is needed|at least 1)"):
            DependentSampler(10).join("a", epochs=wrong)
    if isinstance(wrong, bool) or not isinstance(wrong, int):
        with pytest.raises(BadInput, match=r"^seed=.*: a whole number is needed"):
            DependentSampler(10, seed=wrong)


def test_numbers_of_numpy_are_taken() -> None:
    """A length or a seed that NumPy computed is as good as Python's own."""
    shared = DependentSampler(np.int64(10), seed=np.uint32(3), ahead=np.int16(4))  # type: ignore[arg-type] # the promise
    assert repr(shared) == "DependentSampler(10 elements, jobs: none)"
    assert len([*shared.join("a", np.arange(4), epochs=np.int64(1))]) == 4  # type: ignore[arg-type] # the same


@pytest.mark.parametrize("name", [3, None, b"a", ("a",)])
def test_a_name_is_a_text(name: Any) -> None:
    """Another name is refused when it comes, and the jobs that are there go on."""
    shared = DependentSampler(10)
    job = shared.join("a")
    with pytest.raises(BadInput, match=rf"^name={re.escape(repr(name))}: text is needed"):
        shared.join(name)
    with pytest.raises(BadInput, match=r"^elements=5: distinct indices are needed"):
        shared.join("b", 5)  # type: ignore[arg-type] # is what is refused
    assert sorted(job) == [*range(10)]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: None,
        lambda state: {},
        lambda state: [state],
        lambda state: state | {"jobs": None},
        lambda state: state | {"jobs": {"a": {}}},
        lambda state: state | {"jobs": {"a": state["jobs"]["a"] | {"drawn": {}}}},
        lambda state: state | {"jobs": {"b": state["jobs"]["a"], "a": state["jobs"]["a"] | {"elements": [99]}}},
        lambda state: state | {"jobs": {"a": state["jobs"]["a"] | {"elements": "x"}}},
    ],
    ids=["none", "empty", "a list", "no jobs", "empty job", "nothing drawn", "foreign element", "text"],
)
def test_what_is_no_state_changes_nothing(change: Callable[[dict[str, Any]], Any]) -> None:
    """It is refused, and the jobs stand where they stood."""
    shared = DependentSampler(10)
    job = shared.join("a")
    first = [*islice(job, 3)]
    with pytest.raises(BadInput, match=r"load_state_dict: |job 'a' needs elements 99"):
        shared.load_state_dict(change(shared.state_dict()))
    assert sorted([*first, *job]) == [*range(10)]
