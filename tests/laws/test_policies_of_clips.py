"""RandAugment, TrivialAugment and AutoAugment through caches: one meaning of a path, one choice for all frames."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

import viewcache
from tests.tiny import config, open_cache, pixels, same, single
from viewcache.materializer.ops.auto_augment import drawn_words

POLICIES = ["rand_augment", {"trivial_augment_wide": {"interpolation": "bilinear"}}, {"auto_augment": "svhn"}]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_makes_it_and_when_changes_nothing(policy: object, tmp_path: Path, videos: Path) -> None:
    """Read backwards, by two workers or by threads, clips are the same; tasks that share draw the same."""
    steps = [single({"resize": {"shape": [32, 40]}}, policy)]
    with open_cache(tmp_path / "one", videos, augmentation=steps) as cache:
        forward = pixels(cache)
    with open_cache(tmp_path / "two", videos, cache={"workers": 2}, augmentation=steps) as cache:
        backward = {place: cache.read("train", *place) for place in reversed(forward)}
    with open_cache(tmp_path / "three", videos, cache={"worker_kind": "threads"}, augmentation=steps) as cache:
        threads = pixels(cache)
    assert same(forward, backward)
    assert same(forward, threads)


def test_all_frames_get_what_the_recipe_says(tmp_path: Path, videos: Path) -> None:
    """Each frame is the one of a task without the policy, after the recorded primitives, by PIL where it is exact."""
    resize = {"resize": {"shape": [32, 40]}}
    plain = config(tmp_path / "store", videos, tag="plain", augmentation=[single(resize)])
    given = config(tmp_path / "store", videos, augmentation=[single(resize, {"rand_augment": {"num_ops": 1}})])
    exact: dict[str, Callable[[Image.Image], Image.Image]]
    exact = {"equalize": ImageOps.equalize, "auto contrast": ImageOps.autocontrast}
    originals: dict[tuple[int, str, int], NDArray[np.uint8]] = {}
    seen = set()
    with viewcache.open([given, {"dataset": plain["dataset"]}]) as cache:
        for (epoch, _), batch in pixels(cache, "plain").items():
            for name, sample, clip in zip(batch.videos, batch.sample.tolist(), batch.video, strict=True):
                originals[epoch, name, sample] = clip
        for place, batch in pixels(cache).items():
            for recipe, clip in zip(cache.task("train").recipes(*place), batch.video, strict=True):
                drawn: list[Any] = [step["drawn"] for step in recipe.steps if step.get("op") == "rand_augment"]
                word = drawn_words(drawn[0]["op_1"]) if drawn else ""
                seen.add(word.split(" ")[0])
                before = originals[place[0], recipe.video, recipe.sample]
                if not word:
                    assert np.array_equal(clip, before)
                for frame, original in zip(clip, before, strict=True) if word in exact else ():
                    want = exact[word](Image.fromarray(original.transpose(1, 2, 0).copy()))
                    assert np.array_equal(frame.transpose(1, 2, 0), np.asarray(want))
    assert len(seen) > 6, "clips draw apart"
