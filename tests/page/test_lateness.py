"""Whether a batch will be late: from what is missing before it, and from how fast clips are made."""

from viewcache.api.page.lateness import due_in_s, judged, pace_of
from viewcache.api.page.overview import DueBatch, Pace, Place, Sample, Verdict
from viewcache.materializer.scheduling.seats import IDLE_S

WORK = {"decode": (900, 3.0), "convert": (90, 0.5), "augment": (9, 0.25), "store": (10, 0.25)}
"""Ten objects for four seconds of work."""


def batch(ahead: int, ready: int, due_s: float | None, task: str = "t") -> DueBatch:
    """One of four clips."""
    return DueBatch(
        task, 0, ahead, ahead, 4, ready, 4 - ready, drawn=True, due_s=due_s, ready_s=None, verdict=Verdict.UNKNOWN
    )


def place(pace_s: float | None, seen_s: float) -> Place:
    """A reader."""
    return Place(0, 0, 0, 0, pace_s, seen_s)


def test_pace_is_measured_where_clips_are_made() -> None:
    """Of the last half minute, however long the page was open before."""
    samples = [Sample(0.0, 0, 0), Sample(100.0, 0, 500), Sample(110.0, 0, 530)]
    assert pace_of(samples, WORK, 2) == Pace(3.0, measured=True)


def test_pace_is_estimated_where_none_are() -> None:
    """By what an object has cost so far, on all workers; not at all where nothing was ever made."""
    assert pace_of([Sample(0.0, 0, 10), Sample(5.0, 0, 10)], WORK, 2) == Pace(5.0, measured=False)
    assert pace_of([Sample(0.0, 0, 0)], {}, 2) == Pace(None, measured=False)


def test_what_is_due_needs_a_reader() -> None:
    """The slowest reader's pace counts; a task that nobody has read for a while is due at no time."""
    assert due_in_s(3, [place(0.5, 100.0), place(2.0, 99.0)], 101.0) == 6.0
    assert due_in_s(3, [place(0.5, 100.0)], 101.0 + IDLE_S) is None
    assert due_in_s(3, [place(10.0, 100.0)], 101.0 + IDLE_S) == 30.0
    assert due_in_s(3, [place(None, 100.0)], 100.0) is None
    assert due_in_s(0, [], 100.0) is None


def test_what_is_missing_before_counts() -> None:
    """Two tasks' batches are made in the order in which they are due: the second waits for the first one's clips."""
    batches = [batch(1, 1, 2.0), batch(0, 4, 0.0), batch(2, 3, 4.0, "u"), batch(0, 0, 1.0, "u")]
    found = judged(batches, Pace(2.0, measured=True), owned=True)
    assert [(each.due_s, each.ready_s, each.verdict) for each in found] == [
        (0.0, 0.0, Verdict.READY),
        (1.0, 2.0, Verdict.LATE),
        (2.0, 3.5, Verdict.LATE),
        (4.0, 4.0, Verdict.IN_TIME),
    ]


def test_nothing_is_promised_that_is_not_known() -> None:
    """Of a cache that nobody has open, without a pace, or without a reader: not known, unless all is there."""
    batches = [batch(0, 4, 0.0), batch(1, 0, 2.0)]
    for pace, owned in ((Pace(2.0, measured=True), False), (Pace(None, measured=False), True)):
        assert [each.verdict for each in judged(batches, pace, owned=owned)] == [Verdict.READY, Verdict.UNKNOWN]
    unknown = judged(batches, Pace(2.0, measured=True), owned=True, counts_memory=False)
    assert [each.verdict for each in unknown] == [Verdict.READY, Verdict.UNKNOWN], "what is missing may lie in memory"
    (found,) = judged([batch(1, 0, None)], Pace(2.0, measured=True), owned=True)
    assert (found.ready_s, found.verdict) == (2.0, Verdict.UNKNOWN)
