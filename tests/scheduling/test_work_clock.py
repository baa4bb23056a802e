"""What work costs is measured without what a thread waits for a core."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from select import select

import pytest

from viewcache.materializer.clock import WorkClock, queued_s
from viewcache.materializer.workers.frame import PhaseClock
from viewcache.store.tier import LOCAL, REMOTE

WORK_S = 0.3


def _busy(stop: Event) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while not stop.is_set():
        pass


def _worked() -> tuple[float, float]:
    """(seconds that a clock has, seconds that passed) for so much work on a core that others share."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begun, clock = time.monotonic(), PhaseClock()
    until = time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass
    clock.lap("decode")
    return clock.take()[0]["decode"], time.monotonic() - begun


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="this kernel does not count waiting")
def test_a_busy_machine_does_not_make_work_dearer() -> None:
    """Two others want the same core all the time: the clock has the work, not the waiting."""
    context = get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=_busy, args=(stop,)) for _ in range(2)]
    for each in others:
        each.start()
    try:
        with ThreadPoolExecutor(1) as pool:  # a thread of its own, whose core it chooses
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                measured_s, passed_s = pool.submit(_worked).result()
                if passed_s > 1.5 * WORK_S:  # the others have begun
                    break
    finally:
        stop.set()
        for each in others:
            each.join()
    assert passed_s > 1.5 * WORK_S
    assert WORK_S * 0.9 <= measured_s < WORK_S + (passed_s - WORK_S) / 3


def test_waiting_is_counted_by_thread() -> None:
    """A thread that has just begun has not waited for what others did."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(queued_s()))
    thread.start()
    thread.join()
    assert 0 <= found[0] < 1


def test_a_network_is_waited_for() -> None:
    """Reading from a remote tier costs what it takes; from the others what this machine does for it."""
    clocks = {tier: WorkClock(tier) for tier in (REMOTE, LOCAL)}
    nothing, answer = os.pipe()
    select([nothing], [], [], 0.05)
    for each in (nothing, answer):
        os.close(each)
    took = {tier: clock.took() for tier, clock in clocks.items()}
    assert took[REMOTE][0] > 0.04 > took[REMOTE][1] > 0
    assert took[LOCAL][0] == took[LOCAL][1] < 0.04
