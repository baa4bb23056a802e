"""What differs between two definitions, in the words of the configuration."""

from pathlib import Path

import pytest

from tests.tiny import config, single
from viewcache.api.config.load import load
from viewcache.materializer.planning.redefined import changed_keys


def definition(**dataset: object) -> str:
    """Of the tiny task, with some keys."""
    found = load(config(Path("/store"), Path("/videos"), **dataset))  # type: ignore[arg-type] # one of the keywords
    return found.canonical(found.tasks[0])


CROP = {"random_crop": {"shape": [32, 32]}}
CHANGES: dict[str, tuple[dict[str, object], str]] = {
    "nothing": ({}, ""),
    "one key": ({"on_bad_video": "replace"}, 'on_bad_video ("raise" before, "replace" now)'),
    "a key of a later release": (
        {"sampling": {"clips": "center", "samples_per_video": 1}},
        'sampling.clips (not set before, "center" now)',
    ),
    "a parameter": (
        {"augmentation": [single({"resize": {"short_side": 40}}, CROP, {"flip": {"flip_prob": 0.5}})]},
        "augmentation[0].config[0].resize.short_side (36 before, 40 now)",
    ),
    "an operation": (
        {"augmentation": [single({"resize": {"short_side": 36}}, CROP, "grayscale")]},
        'augmentation[0].config[2].flip ({"direction": "horizontal", "flip_prob": 0.5} before, not set now), '
        'augmentation[0].config[2].grayscale (not set before, {"prob": 1.0} now)',
    ),
    "another folder": (
        {"video_dataset_path": "s3://bucket/more"},
        'video_dataset_path ("/videos" before, "s3://bucket/more" now)',
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_key_is_named_with_both_values(what: str) -> None:
    """As it is written, at its place; what a release did not have is not set."""
    changed, told = CHANGES[what]
    found = changed_keys(f"{definition()} epochs_per_generation=2", f"{definition(**changed)} epochs_per_generation=2")
    assert told in found
    assert bool(found) == bool(told)


def test_how_many_epochs_are_planned_at_once() -> None:
    """That follows the definition, and is a key of the cache."""
    found = changed_keys("{} epochs_per_generation=2", "{} epochs_per_generation=30")
    assert found == "cache.epochs_per_generation (2 before, 30 now)"


def test_a_definition_that_nobody_reads_any_more() -> None:
    """One of an early release is no JSON; it is told all the same, and long values are cut."""
    told = changed_keys("x" * 1000, definition())
    assert told.startswith('definition ("xxx')
    assert len(told) < 1500
    assert "sampling (not set before, {" in told
