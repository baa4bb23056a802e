"""`viewcache init`: what it writes for a folder is taken by `lint` as it is, and gives batches at once."""

import csv
import os
import re
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.cli.site import Site
from tests.clips import encode, pictures
from tests.images.small import save_folder
from viewcache.api.init.choices import choose
from viewcache.api.init.looking import Looked
from viewcache.materializer.media.facts import VideoFacts
from viewcache.materializer.media.source import Stamp


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Site:
    """An empty working folder, without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIEWCACHE", raising=False)
    return Site(tmp_path, capsys)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 40 frames and 64x48 pixels."""
    return encode(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=40, size=(64, 48))


def spread(clip: Path, *names: str) -> None:
    """The clip under several names below ``videos``."""
    for name in names:
        path = Path("videos") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(clip, path)


def at_rate(path: Path, rate: int, frames: int, size: tuple[int, int]) -> None:
    """Encode a clip of a rate of its own."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for picture in pictures(frames, *size):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def settings(file: str = "viewcache.yaml") -> dict[str, object]:
    """The task that was written."""
    dataset = yaml.safe_load(Path(file).read_text())["dataset"]
    assert isinstance(dataset, dict)
    return dataset


def folders(clip: Path) -> None:
    """Two classes of three videos."""
    spread(clip, *(f"{kind}/{name}.mp4" for kind in ("cats", "dogs") for name in "abc"))


def table(clip: Path) -> None:
    """A CSV beside the folder, with columns that are called otherwise than usual."""
    spread(clip, "a.mp4", "b.mp4", "c.mp4")
    with Path("index.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "path", "action"], [7, "a.mp4", "run"], [8, "b", "jump"], [9, "x", "sit"]])
    Path("notes.csv").write_text("who,what\nme,nothing\n")


def parquet_table(clip: Path) -> None:
    """A Parquet table in the folder itself, whose only other column is the class."""
    spread(clip, "a.mp4", "b.mp4")
    parquet.write_table(pa.table({"clip": ["a", "b"], "kind": [3, 5]}), "videos/labels.parquet")


def rates(_clip: Path) -> None:
    """Videos of 8 to 30 frames a second."""
    Path("videos").mkdir()
    for name, rate, frames in (("a", 8, 40), ("b", 24, 60), ("c", 30, 75)):
        at_rate(Path(f"videos/{name}.mp4"), rate, frames, (96, 64))


def small(_clip: Path) -> None:
    """One tiny video among larger ones, and clips that are shorter than usual."""
    Path("videos").mkdir()
    encode(Path("videos/tiny.mp4"), frames=11, size=(34, 26))
    encode(Path("videos/tall.mkv"), frames=14, size=(48, 96))


def broken(clip: Path) -> None:
    """Three good videos and one that is none."""
    spread(clip, "a.mp4", "b.mp4", "c.mp4")
    Path("videos/bad.mp4").write_bytes(b"no video at all")


def odd_names(clip: Path) -> None:
    """Names that YAML or a shell would take for something else."""
    spread(clip, "it's #1: yes/ä b.mp4", "it's #1: yes/[x].mp4", "- no/c.mp4", "- no/*.mp4")


KINDS: dict[str, tuple[Callable[[Path], None], dict[str, object]]] = {
    "folders": (folders, {"labels": "folders", "on_bad_video": "raise"}),
    "table": (table, {"labels": "./index.csv", "label_video_column": "path", "label_column": "action"}),
    "parquet": (
        parquet_table,
        {"labels": "./videos/labels.parquet", "label_video_column": "clip", "label_column": "kind"},
    ),
    "rates": (rates, {"sampling": {"videos_per_batch": 3, "clip_seconds": 2.5, "fps": 8, "samples_per_video": 1}}),
    "small": (
        small,
        {"sampling": {"videos_per_batch": 2, "frames_per_video": 8, "frame_stride": 1, "samples_per_video": 1}},
    ),
    "broken": (broken, {"on_bad_video": "skip"}),
    "odd_names": (odd_names, {"labels": "folders"}),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_written_works_at_once(here: Site, clip: Path, kind: str) -> None:
    """`lint` has nothing to say, each value has its reason, and the first batch can be read as it was promised."""
    make, wanted = KINDS[kind]
    make(clip)
    assert here.run("init", "videos").split() == ["viewcache.yaml"]
    assert "viewcache plan" in here.words
    assert here.json("lint")["problems"] == []
    found = settings()
    assert {key: found.get(key) for key in wanted} == wanted
    with viewcache.open("viewcache.yaml") as cache:
        batch = cache.read("train", 0, 0)
        names = {video.name: video for video in cache.task("train").videos()}
        assert len(batch.video) == sum(1 for video in names.values() if not video.error)
        heights = {step["op"]: step["drawn"] for step in cache.show("train").facts["clips"][0]["recipe"]}  # type: ignore[index]
        assert batch.video.shape[-1] <= min(heights["resize"].values())
        if kind == "rates":
            assert np.allclose(np.diff(batch.time_s, axis=1), 1 / 8, atol=1 / 24)
        labelled = {"folders": 6, "table": 2, "parquet": 2, "odd_names": 4}.get(kind, 0)
        assert int((batch.label >= 0).sum()) == labelled


def test_every_value_has_a_reason(here: Site, clip: Path) -> None:
    """No key of the file but the frame of its steps stands without a comment, at its end or above it."""
    folders(clip)
    text = here.run("init", "videos", "--dry-run")
    frame = r"(cache|dataset|sampling|augmentation|config|- name|branch_type|inputs|outputs):?"
    lines = [line.strip() for line in text.splitlines()]
    for above, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("#") and not re.match(frame, line):
            assert " # " in line or above.startswith("# "), line
    assert max(map(len, text.splitlines())) <= 110
    assert not Path("viewcache.yaml").exists()


@pytest.mark.parametrize("table", [False, True], ids=["folders", "table"])
def test_images(here: Site, table: bool) -> None:
    """A folder without videos: the same file in the words of images, which works at once."""
    sizes = {f"{kind}/{k}.jpg": (300 + k, 280) for kind in ("cats", "dogs") for k in range(3)}
    save_folder(Path("images"), sizes)
    wanted: dict[str, object] = {"labels": "folders", "on_bad_image": "raise", "epochs": 90}
    if table:
        Path("images/labels.csv").write_text("file,kind\n" + "".join(f"{name},{name[:3]}\n" for name in sizes))
        wanted = {"labels": "./images/labels.csv", "label_image_column": "file", "label_column": "kind"}
    Path("images/bad.png").write_bytes(b"no image")
    found = here.json("init", "images", "--dry-run")
    assert (found["images"], found["looked_at"]) == (7, 7)
    assert "on_bad_image: skip" in str(found["text"])
    Path("images/bad.png").unlink()
    here.run("init", "images")
    assert "written for 6 images" in here.words
    assert here.json("lint")["problems"] == []
    assert {key: settings().get(key) for key in wanted} == wanted
    assert settings()["sampling"] == {"images_per_batch": 6}
    text = Path("viewcache.yaml").read_text()
    assert "video" not in text
    assert "have 300x280 to 302x280 pixels" in text
    with viewcache.open("viewcache.yaml") as cache:
        batch = next(iter(cache.loader("train", framework="numpy")))
        assert batch["image"].shape == (6, 3, 224, 224)
        assert sorted(batch["label"].tolist()) == [0, 0, 0, 1, 1, 1]


def test_one_tiny_image_does_not_decide(here: Site) -> None:
    """Sizes go by nine of ten images: a tiny one among many is enlarged, a note and a comment say so, and it runs."""
    save_folder(Path("images"), {f"{k:02}.png": (300, 200 + k) for k in range(20)} | {"tiny.png": (1, 1)})
    here.run("init", "images")
    assert "1 of 21 images looked into is enlarged, with a short side below 192" in here.words
    assert 'where: "width >= 192 and height >= 192"' in here.words
    text = Path("viewcache.yaml").read_text()
    assert "resize: {short_side: 192}" in text
    assert "the smallest image's short side is 1; nine of ten have 192 or more" in text
    with viewcache.open("viewcache.yaml") as cache:
        assert sorted(cache.read("train", 0, 0).index.tolist()) == list(range(1, 22))
    most = settings() | {"where": "width >= 192 and height >= 192"}
    with viewcache.open({"cache": {"store": "other"}, "dataset": most}) as cache:
        assert len(cache.read("train", 0, 0).index) == 20


def test_it_may_be_written_anywhere(here: Site, clip: Path) -> None:
    """Paths are seen from the file: below its folder they are relative, else absolute; also in the dataset itself."""
    folders(clip)
    Path("configs").mkdir()
    here.run("init", "videos", "-o", "configs/first.yaml")
    assert settings("configs/first.yaml")["video_dataset_path"] == str(here.folder.resolve() / "videos")
    os.chdir("videos")
    here.run("init", ".")
    assert settings()["video_dataset_path"] == "."
    assert here.json("lint", "viewcache.yaml", "../configs/first.yaml", code=1)["errors"] == 2, (
        "both have the tag train"
    )
    assert here.json("lint", "viewcache.yaml")["problems"] == []
    with viewcache.open("viewcache.yaml") as cache:
        assert len(list(cache.task("train").videos())) == 6


def test_tables_that_are_none_are_passed_over(here: Site, clip: Path) -> None:
    """Whatever is called .csv or .parquet in or beside the folder: what names no video stops nothing."""
    spread(clip, "a.mp4", "b.mp4", "c.mp4")
    Path("videos/empty.csv").write_bytes(b"")
    Path("videos/garbage.csv").write_bytes(bytes(range(256)) * 100)
    Path("videos/garbage.parquet").write_bytes(b"PAR1" + bytes(300) + b"PAR1")
    Path("videos/long.csv").write_text("video,label\n" + "x" * 200_000 + ",1\n")
    Path("videos/twice.csv").write_text("video,label\na,1\na,2\nb,1\n")
    Path("videos/few.csv").write_text("video,label\na,1\n")
    Path("videos/folder.csv").mkdir()
    os.mkfifo("pipe.csv")
    assert here.json("init", "videos")["labels"] is None
    assert "labels" not in settings()


def test_a_linked_folder_keeps_its_name(here: Site, clip: Path) -> None:
    """The path that was given is the one that is written, not where a link leads."""
    folders(clip)
    Path("link").symlink_to("videos")
    here.run("init", "link")
    assert settings()["video_dataset_path"] == "./link"
    assert here.json("lint")["problems"] == []


def test_it_never_replaces_a_file(here: Site, clip: Path) -> None:
    """What is there stays as it is, be it a file, a folder or a link that leads nowhere."""
    folders(clip)
    Path("viewcache.yaml").write_text("mine")
    Path("folder.yaml").mkdir()
    Path("link.yaml").symlink_to("nowhere")
    for arguments in ([], ["-o", "folder.yaml"], ["-o", "link.yaml"]):
        error = here.json("init", "videos", *arguments, code=2)["error"]
        assert "there already and is left as it is" in str(error["message"])
    assert Path("viewcache.yaml").read_text() == "mine"
    assert not Path("nowhere").exists()
    assert here.json("init", "videos", "--dry-run")["videos"] == 6, "a dry run writes nothing, so it is not refused"


def test_a_broken_file_is_named(here: Site, clip: Path) -> None:
    """What cannot be decoded is said with its reason, and how the configuration goes on without it."""
    broken(clip)
    found = here.json("init", "videos")
    assert (found["videos"], found["looked_at"], len(found["bad"])) == (4, 4, 1)
    assert "bad.mp4" in found["bad"][0]
    assert "left out by on_bad_video: skip" in here.words
    assert "1 of 4 cannot be decoded and is left out" in Path("viewcache.yaml").read_text()


def test_of_many_files_some_are_looked_into(here: Site, clip: Path) -> None:
    """Of 2,000 videos 128 headers are read, which is said in the file and to the person; the count is of all."""
    spread(clip, *(f"{k % 20:02d}/{k}.mp4" for k in range(2000)))
    found = here.json("init", "videos")
    assert (found["videos"], found["looked_at"], found["labels"]) == (2000, 128, "folders")
    assert "looked into 128 of 2000 videos" in here.words
    text = Path("viewcache.yaml").read_text()
    assert "128 evenly chosen of 2000 videos" in text
    assert "20 classes" in text
    assert here.json("lint")["problems"] == []


def test_parts_of_a_dataset_are_no_classes(here: Site, clip: Path) -> None:
    """Folders that are called train and val are no labels, and the person is told to take one of them."""
    spread(clip, *(f"{part}/{name}.mp4" for part in ("train", "val") for name in "ab"))
    here.run("init", "videos")
    assert "labels" not in settings()
    assert "run init on the one for training" in here.words


def test_one_video_in_each_folder_is_no_class(here: Site, clip: Path) -> None:
    """Folders with a video each, as downloaders make them, are no labels."""
    spread(clip, *(f"{name}/video.mp4" for name in "abcd"))
    here.run("init", "videos")
    assert "labels" not in settings()


def _empty() -> str:
    Path("videos").mkdir()
    Path("videos/readme.txt").write_text("no video")
    return "videos"


def _all_bad() -> str:
    Path("videos").mkdir()
    Path("videos/a.mp4").write_bytes(b"no video")
    return "videos"


def _file() -> str:
    Path("a.mp4").write_bytes(b"")
    return "a.mp4"


def _loop() -> str:
    Path("loop").symlink_to("loop")
    return "loop"


def _not_utf8() -> str:
    os.mkdir(b"\xff")
    return os.fsdecode(b"\xff")


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (lambda: "nowhere", 3, "there is no such folder"),
        (_empty, 3, "holds no videos"),
        (_all_bad, 1, "none of the 1 videos"),
        (_file, 2, "is a file"),
        (_loop, 2, "cannot be read: Too many levels"),
        (_not_utf8, 2, "not UTF-8"),
        (lambda: "s3://bucket/videos", 2, "a local folder"),
    ],
    ids=["missing", "empty", "all_bad", "file", "unreadable", "not_utf8", "url"],
)
def test_folders_without_a_configuration(here: Site, make: Callable[[], str], code: int, message: str) -> None:
    """Each says what is wrong with the folder, and writes nothing."""
    error = here.json("init", make(), code=code)["error"]
    assert message in str(error["message"])
    assert not Path("viewcache.yaml").exists()


def test_a_place_without_a_folder_is_refused(here: Site, clip: Path) -> None:
    """The file's folder is the person's to make; a place that cannot be written says why."""
    folders(clip)
    assert "there is no folder" in str(here.json("init", "videos", "-o", "a/b.yaml", code=2)["error"]["message"])
    assert "cannot write" in str(here.json("init", "videos", "-o", "/proc/b.yaml", code=5)["error"]["message"])


VIDEO = st.tuples(
    st.integers(1, 5000), st.integers(2, 4000), st.integers(2, 4000), st.floats(0.01, 240.0), st.sampled_from([0, 90])
)


@given(videos=st.lists(VIDEO, min_size=1, max_size=40))
def test_choices_fit_any_videos(
    tmp_path_factory: pytest.TempPathFactory, videos: list[tuple[int, int, int, float, int]]
) -> None:
    """Crops fit what is resized, nine of ten videos are not enlarged and as long as a clip, no rate is too low."""
    facts = tuple(
        VideoFacts(Stamp(1), n, w, h, turn, fps, n / fps, "h264", "yuv420p", "", "", 1, 1)
        for n, w, h, fps, turn in videos
    )
    chosen = choose(Looked(Path(), tuple(map(str, range(len(facts)))), facts, ()), tmp_path_factory.getbasetemp())
    assert 1 <= chosen.crop <= chosen.short_side <= 256
    smaller = sum(chosen.short_side > min(each.shown_size) for each in facts)
    assert chosen.smaller == smaller <= len(facts) // 10
    assert chosen.frames >= 1
    assert chosen.budget_bytes >= 10**6
    assert chosen.shorter <= len(facts) // 10 + (chosen.frames == 1) * len(facts)
    if chosen.fps:
        assert 0.001 <= chosen.fps <= 12
        assert chosen.clip_s >= 0.001
        assert chosen.fps <= max(0.001, min(each.fps for each in facts))
    else:
        assert chosen.stride >= 1
        assert chosen.clip_s == 0
