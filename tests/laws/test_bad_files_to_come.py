"""Laws 1 and 4 beside a bad file that comes: what was drawn stays readable, and that nothing more is drawn is told."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import viewcache
from tests.images.small import config as of_images
from tests.images.small import save_folder
from tests.tiny import config, encode_folder, open_cache, pixels, same
from viewcache.api.cli.main import main
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo
from viewcache.materializer.dataset.changes import FileChange

TOLD = r"from epoch 2 on nothing can be drawn: .*a-bad\.\w+: .*; repair or remove it, or set on_bad_{}: replace$"


@pytest.fixture
def folder(tmp_path: Path, videos: Path) -> Path:
    """The videos, in a folder that the test may change."""
    return Path(shutil.copytree(videos, tmp_path / "videos"))


def bad_ones(cache: Cache) -> list[str]:
    """What is told of bad files."""
    return [str(each) for each in cache.changes("train") if each.change == FileChange.BAD]


def test_a_bad_file_that_comes_is_told_at_each_opening(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, the changes and the warnings, with the file, the epoch and the cure; drawn epochs stay readable."""
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        before = pixels(cache)
    (folder / "a-bad.mp4").write_bytes(b"not a video")
    with open_cache(tmp_path / "s", folder, epochs=2) as cache:
        assert bad_ones(cache) == []  # all epochs are drawn without it
        assert cache.warnings == ()
    for _ in range(2):
        caplog.clear()
        with open_cache(tmp_path / "s", folder, epochs=6) as cache:
            *_, bad = cache.changes("train")
            (warning,) = cache.warnings
            (line,) = [each for each in caplog.records if getattr(each, "action", "") == "files_changed"]
            assert same({place: cache.read("train", *place) for place in before}, before)
            with pytest.raises(BadVideo, match=r"a-bad\.mp4: .*; repair or remove it, or set on_bad_video: replace"):
                cache.read("train", 2, 0)
        assert (bad.change, bad.count, bad.from_epoch) == (FileChange.BAD, 1, 2)
        assert warning == f"task 'train': {bad}"
        assert line.levelno == logging.WARNING
        assert str(bad) in line.getMessage()
        assert re.search(TOLD.format("video"), str(bad))


@pytest.mark.parametrize("cure", ["remove", "repair", "replace"])
def test_what_the_message_says_helps(tmp_path: Path, folder: Path, cure: str) -> None:
    """Each of the ways out that it names is one: nothing is told any more, and training goes on."""
    with open_cache(tmp_path / "s", folder, epochs=6) as cache:
        cache.read("train", 0, 0)
    (folder / "a-bad.mp4").write_bytes(b"not a video")
    with open_cache(tmp_path / "s", folder, epochs=6) as cache:
        assert len(bad_ones(cache)) == 1
    if cure == "remove":
        (folder / "a-bad.mp4").unlink()
    elif cure == "repair":
        encode_folder(folder, {"a-bad.mp4": 44})
    keys = {"on_bad_video": "replace"} if cure == "replace" else {}
    with open_cache(tmp_path / "s", folder, epochs=6, **keys) as cache:  # type: ignore[arg-type] # one of the keywords
        assert bad_ones(cache) == []
        assert cache.warnings == ()
        cache.read("train", 4, 0)


def test_a_new_task_may_choose_among_all_policies(tmp_path: Path, folder: Path) -> None:
    """Nothing is drawn, so opening is an error, and files may be left out."""
    (folder / "a-bad.mp4").write_bytes(b"not a video")
    with pytest.raises(BadVideo, match="or set on_bad_video: skip or replace"):
        open_cache(tmp_path / "s", folder)


def videos_of(tmp_path: Path, videos: Path) -> dict[str, object]:
    """A configuration of videos."""
    return config(tmp_path / "s", Path(shutil.copytree(videos, tmp_path / "in")), epochs=2)


def images_of(tmp_path: Path, _videos: Path) -> dict[str, object]:
    """One of images."""
    return of_images(tmp_path / "s", save_folder(tmp_path / "in"), epochs=2)


@pytest.mark.parametrize(("written", "media"), [(videos_of, "video"), (images_of, "image")])
def test_commands_tell_it(
    tmp_path: Path,
    videos: Path,
    capsys: pytest.CaptureFixture[str],
    written: Callable[[Path, Path], dict[str, object]],
    media: str,
) -> None:
    """`lint --scan` has an error and its exit code, `plan` a warning; beside videos and images that are read."""
    keys = written(tmp_path, videos)
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(keys))
    with viewcache.open(str(file)) as cache:
        cache.read("train", 0, 0)
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 6"))
    (tmp_path / "in" / f"a-bad.{'mp4' if media == 'video' else 'png'}").write_bytes(b"hi")
    capsys.readouterr()
    assert main(["lint", "--scan", "--json", str(file)]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [(each["level"], each["kind"]) for each in problems] == [("error", "bad_video"), ("warning", "bad_video")]
    assert main(["plan", "--json", str(file)]) == 0
    (preview,) = json.loads(capsys.readouterr().out)["tasks"]
    (warning,) = preview["warnings"]
    (change,) = preview["changes"]
    assert change == "1 file was added (a-bad), from epoch 2 on"
    with viewcache.open(str(file)) as cache:
        (told,) = cache.warnings
    assert told == f"task 'train': {warning}" == problems[0]["message"]
    assert re.search(TOLD.format(media), told)
