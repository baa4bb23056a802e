"""`viewcache show`: a batch or a video as a file, from a shell."""

import io
from pathlib import Path

import av
import pytest
from PIL import Image

from tests.cli.site import Site


def test_show_writes_a_sheet(site: Site) -> None:
    """By default a PNG of the first batch in the working folder, whose name is printed; JSON says what is on it."""
    assert site.run("show", "train.yaml").split() == ["train-0-0.png"]
    with Image.open("train-0-0.png") as picture:
        size = list(picture.size)
    found = site.json("show", "train.yaml")
    assert (found["file"], found["sheet"], found["film"]) == ("train-0-0.png", size, 8)
    assert (found["task"], found["epoch"], found["iteration"], found["seed"]) == ("train", 0, 0, 0)
    assert len(found["clips"]) == 4
    assert [step["op"] for step in found["clips"][0]["recipe"]] == ["resize", "random_crop", "flip"]
    assert site.json("show", "--iteration", "1", "--epoch", "1")["file"] == "train-1-1.png", "the configuration is near"
    assert site.json("status")["tasks"][0]["epoch"] is None, "it does not count as read"


@pytest.mark.parametrize("ending", ["gif", "mp4", "webp"])
def test_show_writes_films(site: Site, ending: str) -> None:
    """The ending says what it becomes: eight frames of each clip are eight pictures."""
    file = Path("out") / f"batch.{ending.upper()}"
    file.parent.mkdir()
    assert site.run("show", "--task", "train", "-o", str(file)).split() == [str(file)]
    if ending == "webp":
        with Image.open(io.BytesIO(file.read_bytes())) as webp:
            assert getattr(webp, "n_frames", 1) == 8
    else:
        with av.open(str(file)) as container:
            assert sum(1 for _ in container.decode(video=0)) == 8
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_show_draws_a_video(site: Site) -> None:
    """Its file is named by the video; a clip's window lies in the source's frame of 64x48."""
    found = site.json("show", "--video", "b", "--epoch", "1", "--columns", "4", "--height", "40")
    assert found["file"] == "train-b.png"
    assert found["film"] == found["frames"] == 50
    for clip in found["clips"]:
        assert all(-0.5 <= x <= 64.5 and -0.5 <= y <= 48.5 for x, y in clip["window"])


def test_show_replaces_its_own_file_only_when_it_can(site: Site) -> None:
    """An earlier picture is replaced; a command that fails leaves it as it was."""
    Path("a.png").write_bytes(b"before")
    site.run("show", "--epoch", "7", "-o", "a.png", code=3)
    assert Path("a.png").read_bytes() == b"before"
    site.run("show", "-o", "a.png")
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--epoch", "2"], 3, "epochs 0 to 1"),
        (["--epoch", "-1"], 3, "epochs 0 to 1"),
        (["--iteration", "9"], 3, "iterations 0 to 1"),
        (["--video", "z"], 3, "no video 'z'"),
        (["--task", "val"], 3, "no task 'val'"),
        (["--video", "b", "--iteration", "0"], 2, "a batch or a video, not both"),
        (["-o", "a.tiff"], 2, "allowed: .png, .gif, .webp, .mp4"),
        (["-o", "a"], 2, "the ending says"),
        (["-o", "nowhere/a.png"], 2, "there is no folder nowhere"),
        (["-o", "/proc/a.png"], 5, "cannot write /proc/a.png"),
        (["--columns", "0"], 2, "columns are 1 to 64"),
        (["--height", "4000"], 2, "16 to 1080 pixels"),
        (["--job", "a"], 2, "jobs share a cache"),
        (["none.yaml"], 3, "none.yaml"),
        (["videos"], 2, "needs a configuration"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_show_refuses(site: Site, arguments: list[str], code: int, message: str) -> None:
    """Each with its exit code, what was wrong and what is allowed; nothing is written."""
    error = site.json("show", *arguments, code=code)["error"]
    assert message in str(error["message"])
    assert not list(site.folder.glob("*.png"))
