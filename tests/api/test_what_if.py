"""`viewcache plan --budget`: predictions beside real runs, and what is said when there is nothing to predict.

Counts are compared, not seconds: the reader waits until nothing is left to be made ahead, which is what a very slow
consumer does in the simulation.
"""

from pathlib import Path
from typing import Any

import pytest

import viewcache
from tests.tiny import config, encode_folder, single
from viewcache.api.cli.tables import WHAT_IF_HEADS, what_if_lines, what_if_rows
from viewcache.api.config.load import load
from viewcache.api.preview.plan import previews
from viewcache.api.preview.what_if import Question, what_if
from viewcache.api.text import duration
from viewcache.catalog.records import ProgressRow
from viewcache.errors import BadInput

SLOW = 1e6
VIDEOS, SAMPLES, EPOCHS, GENERATION = 12, 2, 6, 3
GENERATION_BYTES = VIDEOS * SAMPLES * GENERATION * 21_000
"""What the clips of a generation take at most, metadata included."""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve videos of 40 to 51 frames."""
    return encode_folder(tmp_path_factory.mktemp("what-if"), {f"v{k:02}.mp4": 40 + k for k in range(VIDEOS)})


def asked(store: Path, videos: Path, budget: int, epochs: int = EPOCHS) -> dict[str, Any]:
    """A task of two generations of three epochs, or more."""
    cache = {"budget": budget, "epochs_per_generation": GENERATION}
    return config(store, videos, cache=cache, epochs=epochs)


@pytest.mark.parametrize("part", [1.0, 0.4])
def test_predicted_counts_are_those_of_a_real_run(tmp_path: Path, videos: Path, part: float) -> None:
    """Hits of each epoch agree but for one batch, decoded packets to 12 %: they were 1 to 8 % apart in 40 runs.

    They do not agree exactly because two things depend on timing in a real run: which of two videos is decoded first
    when both are wanted, and how much of the budget the bytes promised to running jobs take at that moment. On a busy
    machine one run in six decodes a fifth more, so that up to three are made.
    """
    budget = int(GENERATION_BYTES * part)
    (predicted,) = what_if(load(asked(tmp_path, videos, budget)), Question((budget,), SLOW, prefetch=0)).budgets
    expected = [rate * VIDEOS * SAMPLES for rate in predicted.hit_rates]
    for turn in range(3):
        hits, packets = counted(asked(tmp_path / f"store {turn}", videos, budget))
        if packets == pytest.approx(predicted.packets, rel=0.12):
            break
    assert packets == pytest.approx(predicted.packets, rel=0.12)
    assert hits == pytest.approx(expected, abs=4)


def counted(given: dict[str, Any]) -> tuple[list[int], int]:
    """Hits of each epoch, and decoded packets, of a run that reads a batch once all is made that is wanted."""
    with viewcache.open(given) as cache:
        reader, hits = cache.task("train"), []
        for epoch in range(EPOCHS):
            before = reader.spent.hits
            for iteration in range(reader.iterations(epoch)):
                reader.read(epoch, iteration)
                cache.owner.look_ahead.wait_idle()  # it has been decided what is kept
                assert cache.owner.dispatcher is not None
                assert cache.owner.dispatcher.wait_idle(60)
            hits.append(reader.spent.hits - before)
        assert cache.owner.dispatcher is not None
        return hits, cache.owner.dispatcher.tally.frames["packets"]


def test_room_for_a_generation_is_enough_to_decode_once(tmp_path: Path, videos: Path) -> None:
    """The least budget is found between one batch and two generations, and more than it is never worse."""
    budgets = tuple(int(GENERATION_BYTES * part) for part in (0.1, 0.5, 3))
    found = what_if(load(asked(tmp_path, videos, 10**9)), Question(budgets, SLOW))
    assert found.searched
    assert found.least_bytes is not None
    assert 0.5 * GENERATION_BYTES < found.least_bytes < 2 * GENERATION_BYTES
    again = what_if(load(asked(tmp_path, videos, 10**9)), Question((found.least_bytes,), SLOW))
    assert again.budgets[0].packets == found.once_packets == found.budgets[-1].packets < found.budgets[1].packets
    assert found.budgets[-1].kept == "all clips"
    assert "nothing of" in found.budgets[0].kept
    assert found.budgets[0].read_bytes > found.budgets[-1].read_bytes > 0


def test_the_least_budget_is_sought_where_it_can_be(tmp_path: Path, videos: Path) -> None:
    """Between what was too little and what was enough of the budgets that were asked about; each simulation is told."""
    told: list[tuple[int, int]] = []

    def simulations(*parts: float) -> tuple[int, int | None]:
        told.clear()
        question = Question(tuple(int(GENERATION_BYTES * part) for part in parts), SLOW)
        given = load(asked(tmp_path, videos, 10**9))
        found = what_if(given, question, simulating=lambda: lambda done, total, _: told.append((done, total)))
        assert [done for done, _ in told] == [*range(1, len(told) + 1)]
        assert told[-1][0] == told[-1][1]
        return len(told), found.least_bytes

    widely, least = simulations(0.1)
    assert least is not None
    part = least / GENERATION_BYTES
    narrowly, again = simulations(0.8 * part, 1.05 * part)
    assert again is not None
    assert 0.8 * least < again <= 1.05 * least
    assert narrowly < widely


def test_hits_of_the_first_epoch_do_not_fall_where_all_is_made_ahead(tmp_path: Path, videos: Path) -> None:
    """They depend on the budget through what is there, and not through which job comes first, if nobody hurries.

    Where the loader reads ahead they may fall as the budget grows (docs/what-if.md), though nobody waits longer.
    """
    budgets = tuple(int(GENERATION_BYTES * part) for part in (0.2, 0.3, 0.5, 0.8, 1.2, 3))
    given = load(asked(tmp_path, videos, 10**9, epochs=30))
    slow = what_if(given, Question(budgets, SLOW, epochs=3, prefetch=0)).budgets
    hits = [each.hits_first for each in slow]
    assert hits == sorted(hits)
    ahead = what_if(given, Question(budgets, 0.1, epochs=3)).budgets
    assert [each.stalls[0] for each in ahead] == pytest.approx([ahead[0].stalls[0]] * len(budgets), abs=0.02)


def test_too_small_a_budget_is_an_error_of_its_row(tmp_path: Path, videos: Path) -> None:
    """It says what one batch takes; the other budgets are predicted all the same."""
    found = what_if(load(asked(tmp_path, videos, 10**9)), Question((1000, 10**9)))
    small, large = found.budgets
    assert "the minimum is 134720" in small.error
    assert what_if_rows(found)[0][1] == small.error
    assert not large.error
    assert large.hits_later is not None


def test_late_epochs_are_what_plan_says(tmp_path: Path, videos: Path) -> None:
    """For each budget an epoch of the first generation, the tenth and the hundredth; more room never costs more."""
    budgets = tuple(int(GENERATION_BYTES * part) for part in (0.3, 0.6, 1.2, 3, 30))
    found = what_if(load(asked(tmp_path, videos, 10**9, epochs=120)), Question(budgets, SLOW, epochs=6))
    for each, row in zip(found.budgets, what_if_rows(found), strict=True):
        (keep,) = previews(load(asked(tmp_path, videos, each.budget_bytes, epochs=120)), [0]).keeps
        assert dict(keep.horizon.epoch_s) == each.epoch_s
        assert list(each.epoch_s) == [1, 10, 100]
        assert row[-3:] == tuple(map(duration, each.epoch_s.values()))
    late = [each.epoch_s[100] for each in found.budgets]
    assert late == sorted(late, reverse=True)
    assert late[-1] < late[0]


def test_a_training_without_late_epochs_has_none(tmp_path: Path, videos: Path) -> None:
    """Of one generation nothing comes behind; of two, no tenth epoch does, and all clips fit."""
    for epochs in (GENERATION, EPOCHS):
        found = what_if(load(asked(tmp_path, videos, 10**9, epochs=epochs)), Question((10**9,), SLOW))
        assert list(found.budgets[0].epoch_s) == [1]
        assert found.budgets[0].kept == "all clips"
        assert len(what_if_rows(found)[0]) == len(WHAT_IF_HEADS)


def test_the_pace_of_the_last_run_is_taken(tmp_path: Path, videos: Path) -> None:
    """Without --pace it is the measured one; with it, the given one."""
    given = asked(tmp_path, videos, 10**9)
    with viewcache.open(given) as cache:
        task_id = cache.task("train").task_id
        cache.catalog.advance(ProgressRow(task_id, 0, 1, 0, 6, 0.25))
    assert what_if(load(given), Question((10**9,))).paces_s == {"train": 0.25}
    assert what_if(load(given), Question((10**9,), 2.0)).paces_s == {"train": 2.0}


def test_tasks_that_share_videos_decode_them_once(tmp_path: Path, videos: Path) -> None:
    """Two tasks of one pace draw together and need hardly more packets than one; drawn apart they would need twice."""
    one = asked(tmp_path / "one", videos, 10**9)
    other = {**one["dataset"], "tag": "other", "augmentation": [single({"resize": {"shape": [24, 24]}})]}
    two = {"cache": {**one["cache"], "store": str(tmp_path / "two")}, "dataset": [one["dataset"], other]}
    alone = what_if(load(one), Question((10**9,), SLOW)).budgets[0].packets
    together = what_if(load(two), Question((10**9,), SLOW))
    assert together.uses == 2 * VIDEOS * SAMPLES * EPOCHS
    assert together.budgets[0].packets < 1.2 * alone


def with_audio(given: dict[str, Any]) -> dict[str, Any]:
    """The same task, with audio that takes more bytes than its clips."""
    return given | {"dataset": given["dataset"] | {"audio": {"rate": 16_000, "seconds": 2.0}}}


def test_audio_takes_room_and_time(tmp_path: Path, videos: Path) -> None:
    """Its bytes count in every budget, so what fits without it does not with it; and its work counts as work."""
    silent = asked(tmp_path / "silent", videos, 10**9)
    audio_bytes = VIDEOS * SAMPLES * GENERATION * 2 * 16_000 * 4
    without, with_it = (
        what_if(load(each), Question((2 * GENERATION_BYTES, 2 * (GENERATION_BYTES + audio_bytes)), SLOW))
        for each in (silent, with_audio(asked(tmp_path / "heard", videos, 10**9)))
    )
    assert without.budgets[0].kept == "all clips" != with_it.budgets[0].kept
    assert with_it.budgets[1].kept == "all clips"
    assert with_it.budgets[1].most_bytes > without.budgets[1].most_bytes + audio_bytes
    assert with_it.budgets[1].decode_s > without.budgets[1].decode_s
    assert without.least_bytes is not None
    assert with_it.least_bytes is not None
    assert with_it.least_bytes > without.least_bytes + audio_bytes / 2


def test_only_some_epochs(tmp_path: Path, videos: Path) -> None:
    """The first epochs are simulated with the rest of their generation, and the lines say so."""
    found = what_if(load(asked(tmp_path, videos, 10**9)), Question((10**9,), SLOW, epochs=2))
    assert found.epochs == GENERATION
    assert f"{GENERATION} epochs of {EPOCHS}" in what_if_lines(found)[0]


@pytest.mark.parametrize(
    ("budgets", "pace", "epochs", "what"),
    [("10GB,much", None, None, "'much'"), ("1GB", -1.0, None, "--pace"), ("1GB", None, 0, "--epochs")],
)
def test_questions_are_checked(budgets: str, pace: float | None, epochs: int | None, what: str) -> None:
    """A wrong option is named with what would do."""
    with pytest.raises(BadInput, match=what):
        Question.of(budgets, pace, epochs)


def test_sizes_are_sorted_and_asked_once() -> None:
    """The table goes from the least budget to the largest."""
    assert Question.of("2GB, 1GB,1000MB", None, None).budgets == (10**9, 2 * 10**9)
