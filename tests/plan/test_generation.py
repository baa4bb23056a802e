"""A generation's plan: which clips there are, where they lie, and what their keys depend on."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.plans import plan_of, task_of, videos_of
from tests.tiny import single
from viewcache.errors import BadInput
from viewcache.materializer.dataset.texts import Keys, Texts
from viewcache.materializer.planning.plan import GenerationPlan
from viewcache.materializer.planning.resolve import resolve_stream


def keys(plan: GenerationPlan) -> dict[tuple[int, int, int], str]:
    """(epoch, video, sample) → content key."""
    at = zip(plan.epoch.tolist(), plan.video.tolist(), plan.sample.tolist(), strict=True)
    return dict(zip(at, plan.hex_keys, strict=True))


@given(
    count=st.integers(1, 30),
    batch=st.integers(1, 8),
    samples=st.integers(1, 4),
    epochs=st.integers(1, 4),
    number=st.integers(0, 3),
    drop_last=st.booleans(),
)
def test_rows_are_the_batches_in_order(
    count: int, batch: int, samples: int, epochs: int, number: int, drop_last: bool
) -> None:
    """Batches follow one another without gap or overlap; every row knows its epoch, iteration, position and number."""
    if drop_last and count < batch:
        return
    task = task_of(batch=batch, samples=samples, drop_last=drop_last)
    plan = plan_of(task, videos_of(count), epochs=epochs, number=number)
    full = count // batch
    assert plan.iterations == full + (0 if drop_last or count % batch == 0 else 1)
    end = 0
    for epoch in range(plan.first_epoch, plan.last_epoch + 1):
        for iteration in range(plan.iterations):
            rows = plan.rows(epoch, iteration)
            assert rows.start == end
            end = rows.stop
            assert len(rows) == samples * (batch if iteration < full else count % batch)
            for row in rows:
                assert (plan.epoch[row], plan.iteration[row]) == (epoch, iteration)
                assert plan.seq[row] == epoch * plan.iterations + iteration
                assert plan.row(epoch, int(plan.position[row]), int(plan.sample[row])) == row
    assert end == len(plan)


@given(frames=st.integers(1, 60), count=st.integers(1, 20), stride=st.integers(1, 8))
def test_frames_lie_in_the_video(frames: int, count: int, stride: int) -> None:
    """A clip's frames are the stride apart; past the end of a short video the last repeats, or the first follows."""
    for policy in ("clamp", "loop"):
        task = task_of(frames=count, stride=stride, samples=3, on_short_video=policy)
        plan = plan_of(task, videos_of(4, frames=frames), grid=stride)
        numbers = plan.frames(np.arange(len(plan)))
        free = plan.start[:, None] + stride * np.arange(count)
        assert np.array_equal(numbers, np.minimum(free, frames - 1) if policy == "clamp" else free % frames)
        if frames >= (count - 1) * stride + 1:
            assert np.array_equal(numbers, free)


def test_a_plan_is_a_function_of_what_it_is_given() -> None:
    """Planned again, everything is equal, keys too; another seed gives other starts."""
    task, videos = task_of(), videos_of(9)
    one, two, other = plan_of(task, videos), plan_of(task, videos), plan_of(task, videos, seed=1)
    assert one.hex_keys == two.hex_keys
    assert np.array_equal(one.start, two.start)
    assert not np.array_equal(one.start, other.start)


def test_keys_tell_clips_apart() -> None:
    """No two clips of a generation with long videos have one key, and a key has 32 hex digits."""
    plan = plan_of(task_of(), videos_of(50, frames=5000), epochs=3)
    assert len(set(plan.hex_keys)) == len(plan)
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in plan.hex_keys)


def test_a_changed_video_changes_its_own_keys_only() -> None:
    """Keys depend on the video's content key: one new version leaves the clips of all other videos alone."""
    task, videos = task_of(), videos_of(6)
    changed = replace(videos, keys=Keys.of([*videos.keys[:2], "0" * 32, *videos.keys[3:]]))
    before, after = keys(plan_of(task, videos)), keys(plan_of(task, changed))
    assert {at for at in before if before[at] != after[at]} == {at for at in before if at[1] == 2}


def test_a_moved_dataset_keeps_its_draws() -> None:
    """Random numbers hang on names: under another path the same frames are drawn, in other objects."""
    task, videos = task_of(), videos_of(6)
    uris, keys = Texts.of("/else" + uri for uri in videos.uris), Keys.of(key[::-1] for key in videos.keys)
    moved = replace(videos, uris=uris, keys=keys)
    before, after = plan_of(task, videos), plan_of(task, moved)
    assert np.array_equal(before.start, after.start)
    assert np.array_equal(before.resolved.rows, after.resolved.rows)
    assert not set(before.hex_keys) & set(after.hex_keys)


@given(rows=st.sets(st.integers(0, 23), min_size=1, max_size=6), by=st.integers(1, 5))
def test_a_substitute_takes_one_place_only(rows: set[int], by: int) -> None:
    """Other videos for some clips leave every other clip as it was, and are what the place would have drawn itself."""
    plan = plan_of(task_of(), videos_of(6))
    at = np.array(sorted(rows))
    changed = plan.substituted(at, (plan.video[at] + by) % 6)
    kept = np.setdiff1d(np.arange(len(plan)), at)
    assert np.array_equal(plan.keys[kept], changed.keys[kept])
    assert not np.any(plan.keys[at] == changed.keys[at])
    assert changed.substituted(at, plan.video[at]).hex_keys == plan.hex_keys


def test_videos_of_different_sizes_are_refused_by_name() -> None:
    """Clips of one batch have one size; where they would not, the message names two videos, their sizes and a cure."""
    task = task_of([single({"resize": {"short_side": 36}})])
    with pytest.raises(BadInput, match=r"'v0001' gives 54x36 and 'v0000' gives 36x48; end with a crop"):
        plan_of(task, videos_of(2, height=[48, 96]))


def test_a_frame_smaller_than_the_crop_names_the_step() -> None:
    """A crop that does not fit says which step, the frame's size and what to do."""
    task = task_of([single({"random_crop": {"shape": [100, 32]}}, into="cut")])
    with pytest.raises(BadInput, match=r"step 'cut': random_crop: a frame of 48x64 .* is smaller than shape"):
        plan_of(task, videos_of(2))


def test_branches_with_different_numbers_of_frames_are_refused() -> None:
    """A branch that drops frames while another does not cannot make a batch; the message shows both."""
    step = {
        "name": "thin",
        "branch_type": "conditional",
        "inputs": ["frame"],
        "outputs": ["a"],
        "branches": [
            {"condition": "epoch < 1", "config": [{"subsample": {"step": 2}}]},
            {"condition": "else", "config": None},
        ],
    }
    with pytest.raises(BadInput, match=r"branches give \(2,\) and \(4,\) frames"):
        plan_of(task_of([step]), videos_of(2))


def test_a_generation_without_clips_is_refused() -> None:
    """Fewer videos than a batch with drop_last leaves nothing to read, and that is said at once."""
    with pytest.raises(BadInput, match="no clips"):
        plan_of(task_of(batch=4, drop_last=True), videos_of(3))


def test_one_clip_alone_draws_what_it_drew_among_all() -> None:
    """A stream of one clip, resolved by itself, has the row and size that the whole plan gave it."""
    task = task_of()
    plan = plan_of(task, videos_of(5))
    for row in range(len(plan)):
        alone = resolve_stream(task[1], 1, "a", 4, plan.clip(row))
        program = plan.program(row)
        assert alone.program == program
        assert alone.row.tolist() == plan.resolved.rows[row, : program.columns].tolist()
        assert (alone.height, alone.width) == plan.shape[-2:]


def test_shared_starts_of_a_generation_stay_close() -> None:
    """Within a generation a sample's starts lie within δ of the video, on one phase of the grid: frames are reused."""
    plan = plan_of(task_of(samples=1, spread=0.2), videos_of(200, frames=407), epochs=5)
    possible = 407 - 7 + 1
    for video in range(200):
        starts = plan.start[plan.video == video]
        assert np.ptp(starts) <= 0.2 * possible + 2
        assert len(set((starts % 2).tolist())) == 1


def test_independent_tasks_share_nothing_and_shared_ones_do() -> None:
    """Two shared tasks of one pipeline make the same clips; an independent one draws its own."""
    videos = videos_of(20)
    one, two = plan_of(task_of(tag="one"), videos), plan_of(task_of(tag="two"), videos)
    alone = plan_of(task_of(tag="alone", coordination="independent"), videos)
    assert Counter(one.hex_keys) == Counter(two.hex_keys)
    assert one.video.tolist() != two.video.tolist()
    assert len(set(one.hex_keys) & set(alone.hex_keys)) < len(one) / 10
