"""What differs between two definitions, in the words of the configuration."""

from pathlib import Path

import pytest

from tests.images.small import config as image_config
from tests.tiny import AUGMENTATION, config, single
from viewcache.api.config.load import load
from viewcache.materializer.planning.redefined import changed_keys, refused_keys


def definition(**dataset: object) -> str:
    """Of the tiny task, with some keys."""
    found = load(config(Path("/store"), Path("/videos"), **dataset))  # type: ignore[arg-type] # one of the keywords
    return found.canonical(found.tasks[0])


def image_definition(on_bad_image: str, **sampling: object) -> str:
    """Of a task of images that differs in some keys."""
    found = load(image_config(Path("/store"), Path("/pictures"), sampling=sampling, on_bad_image=on_bad_image))
    return found.canonical(found.tasks[0])


def test_keys_of_images_are_called_as_they_are_written() -> None:
    """A task of images has no key of a name with `video`, but for those that both have."""
    told = refused_keys(image_definition("raise"), image_definition("skip", samples_per_image=2, images_per_batch=3))
    assert 'on_bad_image ("raise" before, "skip" now)' in told
    assert "sampling.images_per_batch (2 before, 3 now)" in told
    assert "sampling.samples_per_image (1 before, 2 now)" in told


FLIP = {"flip": {"flip_prob": 0.5}}
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
    "an operation that comes": (
        {"augmentation": [single({"resize": {"short_side": 36}}, CROP, FLIP, "grayscale")]},
        'augmentation[0].config[3] (not set before, {"grayscale": {"prob": 1.0}} now)',
    ),
    "one that comes before others": (
        {"augmentation": [single("grayscale", {"resize": {"short_side": 36}}, CROP, FLIP)]},
        'augmentation[0].config[0] (not set before, {"grayscale": {"prob": 1.0}} now)',
    ),
    "one that goes": (
        {"augmentation": [single({"resize": {"short_side": 36}}, FLIP)]},
        'augmentation[0].config[1] ({"random_crop": {"shape": [32, 32]}} before, not set now)',
    ),
    "a step that comes": (
        {"augmentation": [*AUGMENTATION, single("grayscale", of="a", into="b")]},
        "augmentation[1] (not set before, {",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_key_is_named_with_both_values(what: str) -> None:
    """As it is written, at its place; what a release did not have is not set."""
    changed, told = CHANGES[what]
    found = changed_keys(f"{definition()} epochs_per_generation=2", f"{definition(**changed)} epochs_per_generation=2")
    assert told in found
    assert bool(found) == bool(told)


LONG = "".join(f"(frames > {number}) and " for number in range(20))
LONG_VALUES: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "a text": (
        {"where": f"{LONG}height = 36"},
        {"where": f"{LONG}height = 48"},
        '(frames > 19) and height = 36" before, ',
    ),
    "a text that goes on": (
        {"where": LONG + "true"},
        {"where": LONG + "true and fps > 5"},
        'and true and fps > 5" now',
    ),
    "a list": (
        {"labels": "folders", "classes": [f"class-{number}" for number in range(100)]},
        {"labels": "folders", "classes": [f"class-{number}" for number in range(99)] + ["another"]},
        '"class-98", "class-99"] before, ',
    ),
    "places": (
        {"video_dataset_path": [f"s3://bucket/{number}" for number in range(30)]},
        {"video_dataset_path": [f"s3://bucket/{number}" for number in (*range(25), *range(26, 30))]},
        "s3://bucket/25",
    ),
}


@pytest.mark.parametrize("what", LONG_VALUES)
def test_of_long_values_the_part_that_differs_is_shown(what: str) -> None:
    """They are cut around the first difference, so that both are told from one another."""
    before, after, told = LONG_VALUES[what]
    found = changed_keys(definition(**before), definition(**after))
    assert told in found
    assert len(found) < 400
    old, new = found.partition(" (")[2].split(" before, ")
    assert old != new.removesuffix(" now)")


TO_DTYPE = [*AUGMENTATION, single({"to_dtype": "float32"}, of="a", into="b")]
IN_ITS_STEP = [single({"resize": {"short_side": 36}}, CROP, FLIP, {"to_dtype": "float32"})]
MAY_CHANGE: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "a dtype came": ({}, {"augmentation": TO_DTYPE}),
    "a dtype came in a step": ({}, {"augmentation": IN_ITS_STEP}),
    "a dtype went": ({"augmentation": IN_ITS_STEP}, {}),
    "drop_last went": ({"drop_last": True}, {}),
    "bad videos are errors": ({"on_bad_video": "replace"}, {}),
    "larger frames are allowed": ({"max_pixels": 5000}, {"max_pixels": 10_000}),
    "labels came": ({}, {"labels": "folders"}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize("what", MAY_CHANGE)
def test_a_refusal_names_what_it_is_about(what: str) -> None:
    """Settings that may change under a drawn tag are not listed beside the one that may not."""
    before, after = MAY_CHANGE[what]
    assert not refused_keys(definition(**before), definition(**after))
    told = refused_keys(definition(**before), definition(**after, where="frames > 3"))
    assert told == 'where (null before, "frames > 3" now)'


def test_a_refusal_tells_values_as_they_are() -> None:
    """A policy that may become another one is not shown as that, and labels that may not change are named."""
    assert refused_keys(definition(on_bad_video="replace"), definition(on_bad_video="skip")) == (
        'on_bad_video ("replace" before, "skip" now)'
    )
    assert refused_keys(definition(labels="folders", drop_last=True), definition()) == (
        'labels ("folders" before, null now)'
    )
    grows = {"input_source": "streaming"}
    assert refused_keys(definition(**grows), definition(**grows, labels="folders")) == (
        'labels (null before, "folders" now)'
    )


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
