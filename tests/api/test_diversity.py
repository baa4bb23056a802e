"""What sharing costs in diversity, counted from recorded clips."""

import numpy as np
import pytest

from tests.api.recorded_clips import clips_of, footage_of, made_clips, row_of
from tests.plan.plans import plan_of, task_of, videos_of
from viewcache.api.audit import diversity as module
from viewcache.api.audit.diversity import compare
from viewcache.api.audit.recorded import RecordedClips


def joined(parts: list[RecordedClips]) -> RecordedClips:
    """Generations of one task, one after the other."""
    epoch, sample, video, start = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("epoch", "sample", "video", "start")
    )
    return RecordedClips(parts[0].task, epoch, sample, video, np.arange(len(start)), start, ())


def test_reuse_is_that_of_figure_19() -> None:
    """SlowFast and MAE, 10 epochs, k = 5: 59.6 % of the selected frames come 4 times or more, 12.2 % independently.

    Distinct frames of both in an epoch: 32 a video, and 46 independently.
    """
    videos = videos_of(400, frames=300)
    clips = []
    for tag, frames, stride in (("slowfast", 32, 2), ("mae", 16, 4)):
        task = task_of(tag=tag, frames=frames, stride=stride, samples=1, batch=8)
        clips.append(joined([clips_of(plan_of(task, videos, epochs=5, number=k)) for k in range(2)]))
    both = compare(clips, [0, 0], footage_of(videos), 10)
    assert both.tasks == ("slowfast", "mae")
    assert (both.videos, both.clips) == (400, 8000)
    assert both.recorded.often == pytest.approx(0.596, abs=0.02)
    assert both.independent.often == pytest.approx(0.1225, abs=0.015)
    assert both.recorded.per_epoch / 400 == pytest.approx(32.0, abs=0.5)
    assert both.independent.per_epoch / 400 == pytest.approx(46.0, abs=0.5)
    alone = compare(clips[:1], [0], footage_of(videos), 10)
    assert alone.recorded.per_epoch == alone.independent.per_epoch == 400 * 32
    assert alone.recorded.ever < alone.independent.ever


def test_counts_are_those_of_a_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of the same epochs under other numbers; a frame that a clip repeats counts once for it."""
    one = made_clips(row_of("one", 3, 2), np.array([[0, 2]]), first_epoch=4)  # 0 2 4, 2 4 6
    nothing = np.zeros(2, np.int64)
    epochs = np.array([0, 1])
    two = RecordedClips(
        row_of("two", 3, 1), epochs, nothing, nothing, epochs, np.array([-1, 4]), ((0, 1, 1),)
    )  # 0 1, 4 5 6
    footage = footage_of(videos_of(1, frames=40))
    both = compare([one, two], [0, 4], footage, 2)
    assert both.recorded.per_epoch == (4 + 4) / 2
    assert both.recorded.ever == 6
    assert list(both.recorded.times) == [2, 3, 1]
    monkeypatch.setattr(module, "OFTEN", 2)
    assert both.recorded.often == 4 / 6
    assert sum(times * (k + 1) for k, times in enumerate(both.independent.times)) == pytest.approx(11)


def test_some_videos_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound a sample is counted and scaled; shares stay, numbers come near."""
    videos = videos_of(600, frames=[60, 90, 200] * 200)
    clips = clips_of(plan_of(task_of(samples=1, batch=8), videos, epochs=5))
    whole = compare([clips], [0], footage_of(videos), 5)
    monkeypatch.setattr(module, "MOST_VIDEOS", 200)
    part = compare([clips], [0], footage_of(videos), 5)
    assert (part.videos, part.clips) == (whole.videos, whole.clips) == (600, 3000)
    assert part.recorded.ever == pytest.approx(whole.recorded.ever, rel=0.1)
    assert part.recorded.per_epoch == pytest.approx(whole.recorded.per_epoch, rel=0.02)
    assert part.recorded.often == pytest.approx(whole.recorded.often, abs=0.1)
