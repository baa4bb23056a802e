"""Law 1: each task sees each of its videos exactly once per epoch, whatever is resumed, shared out or evicted."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import open_cache, pixels, places, sql
from viewcache.errors import BadInput
from viewcache.materializer.choices import Media
from viewcache.materializer.reading.batch import Batch, check_shares, rank_share


@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 9),
    samples=st.integers(1, 3),
    epochs=st.integers(1, 4),
    drop_last=st.booleans(),
)
def test_a_plan_holds_each_video_once_per_epoch(
    count: int, batch: int, samples: int, epochs: int, drop_last: bool
) -> None:
    """Every epoch has each (video, sample) once; drop_last leaves out what does not fill a batch, and no more."""
    if drop_last and count < batch:
        return
    plan = plan_of(task_of(batch=batch, samples=samples, drop_last=drop_last), videos_of(count), epochs=epochs)
    seen = Counter(zip(plan.epoch.tolist(), plan.video.tolist(), plan.sample.tolist(), strict=True))
    assert set(seen.values()) == {1}
    videos = count // batch * batch if drop_last else count
    assert len(seen) == epochs * videos * samples


@given(videos=st.integers(1, 64), samples=st.integers(1, 4), world=st.integers(1, 16))
def test_ranks_share_a_batch_without_gap_or_overlap(videos: int, samples: int, world: int) -> None:
    """The ranks' shares, one after the other, are the batch; they differ by one video at most.

    None is empty, or the batch is refused.
    """
    if videos < world:
        with pytest.raises(BadInput, match=f"{videos} videos cannot be shared by {world} ranks"):
            check_shares(videos, world, Media.VIDEO)
    else:
        check_shares(videos, world, Media.VIDEO)
    clips = range(videos * samples)
    shares = [clips[rank_share(videos, samples, rank, world)] for rank in range(world)]
    assert [clip for share in shares for clip in share] == list(clips)
    sizes = {len(share) for share in shares}
    assert min(sizes) >= samples or videos < world
    assert max(sizes) - min(sizes) <= samples


def once(batches: Mapping[tuple[int, int], Batch], names: set[str], samples: int = 2) -> None:
    """Assert that each epoch shows each video ``samples`` times."""
    for epoch in {epoch for epoch, _ in batches}:
        seen = Counter(name for (at, _), batch in batches.items() if at == epoch for name in batch.videos)
        assert seen == dict.fromkeys(names, samples)


NAMES = {f"v{k}" for k in range(5)}


def test_a_budget_of_one_batch_shows_everything_once(tmp_path: Path, videos: Path) -> None:
    """Under a budget that holds one batch, clips are evicted all the time; each video still comes once per epoch."""
    with open_cache(tmp_path, videos) as cache:
        budget, _ = cache.task("train").task.outline.batch_bound()
    with open_cache(tmp_path, videos, cache={"budget": budget}) as cache:
        once(pixels(cache), NAMES)
        assert cache.tier.used_bytes <= budget
        assert sql(cache, "select count(*) > 0 from evictions") == [(True,)]


def test_an_epoch_read_in_two_runs_is_whole(tmp_path: Path, videos: Path) -> None:
    """What one run reads and what the next goes on with make up the epochs, once each."""
    with open_cache(tmp_path, videos) as cache:
        first = {place: cache.read("train", *place) for place in list(places(cache))[:4]}
    with open_cache(tmp_path, videos, cache={"workers": 2}) as cache:
        rest = {place: cache.read("train", *place) for place in list(places(cache))[4:]}
    once(first | rest, NAMES)


def test_drop_last_drops_the_same_number_from_every_epoch(tmp_path: Path, videos: Path) -> None:
    """With drop_last an epoch has whole batches only, of distinct videos; which one is left out changes."""
    with open_cache(tmp_path, videos, drop_last=True, epochs=8) as cache:
        seen = [{name for i in range(2) for name in cache.read("train", epoch, i).videos} for epoch in range(8)]
        assert [len(names) for names in seen] == [4] * 8
        assert len({frozenset(NAMES - names) for names in seen}) > 1
        with pytest.raises(FileNotFoundError, match="iterations 0 to 1; asked for 2"):
            cache.read("train", 0, 2)


def test_the_catalog_says_the_same(tmp_path: Path, videos: Path) -> None:
    """People who ask in SQL see each video once per epoch in ``draws`` and each clip once in ``uses``."""
    with open_cache(tmp_path, videos) as cache:
        pixels(cache)
        per_epoch = "select epoch, count(*), count(distinct {}) from {} group by epoch order by epoch"
        assert sql(cache, per_epoch.format("video_id", "draws")) == [(epoch, 5, 5) for epoch in range(3)]
        where = "(position, sample)"
        assert sql(cache, per_epoch.format(where, "uses")) == [(epoch, 10, 10) for epoch in range(3)]
