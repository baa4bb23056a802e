"""What `viewcache verify` shows of randomness: tests, diversity, plots."""

import base64
import re
import sys
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import viewcache
from tests.cli.conftest import Template
from tests.cli.site import Site
from viewcache.api.audit import plots
from viewcache.api.audit.diversity import Counts, Diversity
from viewcache.api.audit.evidence import Evidence, TaskEvidence
from viewcache.api.audit.uniformity import Check
from viewcache.catalog import Catalog


@pytest.fixture
def longer(site: Site, template: Template) -> Site:
    """Two tasks over the three videos with everything made, twenty epochs each."""
    return template("longer", site, _make_longer)


def _make_longer(site: Site) -> None:
    site.edit("epochs: 2\n", "epochs: 20\n")
    site.edit("64MB", "64MB\n  keep: leaves\n  eviction: {trim: false}")  # crops are read from stored clips
    site.edit("frames_per_video: 8", "frames_per_video: 4")
    text = site.config.read_text()
    dataset = text[text.index("dataset:") :].replace("tag: train", "tag: other").replace("[32, 32]", "[24, 24]")
    (site.folder / "other.yaml").write_text(dataset)
    site.run("run", "train.yaml", "other.yaml")
    with viewcache.open(["train.yaml", "other.yaml"]) as cache:
        for epoch, iteration in product(range(20), range(2)):  # tasks that draw together draw when they are read
            cache.read("train", epoch, iteration)
            cache.read("other", epoch, iteration)


def test_verify_tells_how_uniform_the_draws_are(longer: Site) -> None:
    """For each task the tests of order, starts and crops with n and p, and the frames beside independent draws."""
    evidence = longer.json("verify", "train.yaml")["evidence"]
    assert not evidence["errors"]
    assert not evidence["untested"]
    names = ["place", "next", "neighbours", "start", "crop rows", "crop columns"]
    for task in evidence["tasks"]:
        checks = {check["about"]: check for check in task["checks"]}
        assert list(checks) == names
        assert checks["neighbours"]["verdict"] == "too few to tell"  # three videos are all neighbours
        for name in ("place", "next", "start", "crop rows", "crop columns"):
            assert checks[name]["p"] > 1e-4
            assert checks[name]["adjusted"] >= checks[name]["p"]
        # Ten generations of three videos, two samples; each clip has one crop.
        assert checks["start"]["n"] == 10 * 3 * 2
        assert checks["crop rows"]["n"] == checks["crop columns"]["n"] == 20 * 3 * 2
    assert [each["tasks"] for each in evidence["diversity"]] == [["train"], ["other"], ["train", "other"]]
    for each in evidence["diversity"]:
        assert each["epochs"] == 10
        for counts in (each["recorded"], each["independent"]):
            assert sum(counts["frames_by_times_selected"]) == pytest.approx(counts["frames"])
            assert 0 < counts["selected_4_times_or_more"] < 1
            assert 0 < counts["frames_per_epoch"] <= counts["frames"] <= 40 + 50 + 12


def test_verify_shows_tables(made: Site) -> None:
    """Of two epochs of three videos little can be said, and that is said."""
    text = made.run("verify")
    assert re.search(r"train +place +6 .*too few to tell", text)
    assert re.search(r"train +2 +3 ", text)
    assert "independent" in text


def test_a_task_that_drew_nothing_is_no_mistake(site: Site) -> None:
    """Opened and closed, nothing made: there is nothing to check, and that is said."""
    with viewcache.open(site.config):
        pass
    answer = site.json("verify")
    assert (answer["objects"], answer["epochs"], answer["draws"]) == (0, 0, [])
    assert {check["verdict"] for task in answer["evidence"]["tasks"] for check in task["checks"]} == {"too few to tell"}
    assert "0 drawn epochs checked, 0 with mistakes: nothing was drawn yet" in site.run("verify")


def test_a_task_that_drew_nothing_hides_no_other(made: Site) -> None:
    """Beside one that was used, an unused task is one of which there is too little to tell."""
    other = made.config.read_text()
    (made.folder / "unused.yaml").write_text(other[other.index("dataset:") :].replace("tag: train", "tag: unused"))
    with viewcache.open([made.config, made.folder / "unused.yaml"]):
        pass
    used, unused = made.json("verify", "train.yaml")["evidence"]["tasks"]
    assert (used["task"], unused["task"]) == ("train", "unused")
    assert used["epochs"] == 2
    assert unused["epochs"] == 0


def test_orders_that_cannot_be_chance_are_an_error(made: Site) -> None:
    """The same order in sixty epochs has exit code 1, though each epoch has each video exactly once."""
    with Catalog.open(made.store) as catalog:
        task = catalog.load_tasks()[0]
        order = catalog.load_draws(task.task_id, 0, 0)["video_id"].to_numpy()
        rows = {
            "task_id": np.full(180, task.task_id),
            "epoch": np.repeat(np.arange(60, dtype=np.int32) + 2, 3),
            "position": np.tile(np.arange(3, dtype=np.int32), 60),
            "video_id": np.tile(order, 60),
        }
        catalog.record_draws(pa.table(rows))
    answer = made.json("verify", code=1)
    assert not answer["draws"]
    assert any("place is not uniform" in line for line in answer["evidence"]["errors"])
    assert "place is not uniform" in made.words


def test_verify_draws_pictures(longer: Site) -> None:
    """A PNG, or a page that needs no other file and has the tables too."""
    longer.json("verify", "train.yaml", "--plot", "draws.png")
    assert "drawn in draws.png" in longer.words
    assert (longer.folder / "draws.png").read_bytes().startswith(b"\x89PNG")
    longer.run("verify", "train.yaml", "--plot", "draws.html")
    page = (longer.folder / "draws.html").read_text()
    assert "<td>crop rows</td>" in page
    assert "<td>train + other</td>" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert base64.b64decode(picture).lstrip().startswith(b"<?xml")


def test_a_plot_is_refused_before_anything_is_read(made: Site) -> None:
    """A wrong ending, a folder that is not there, a library that is missing."""
    made.run("verify", "--plot", "draws.pdf", code=2)
    assert "allowed: .png, .html" in made.words
    made.run("verify", "--plot", "nowhere/draws.png", code=2)
    assert "no folder nowhere" in made.words
    assert "checking" not in made.words


def test_missing_libraries_are_named(longer: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SciPy everything else is checked; without matplotlib there is no plot. Both say what to install."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = longer.json("verify", "train.yaml")
    assert answer["objects"] > 100
    assert not answer["evidence"]["errors"]
    assert "pip install 'viewcache[verify]'" in answer["evidence"]["untested"]
    assert answer["evidence"]["diversity"]
    longer.run("verify", "train.yaml")
    assert "need SciPy" in longer.words
    longer.run("verify", "train.yaml", "--plot", "draws.png", code=2)
    assert "plots need matplotlib" in longer.words


def _evidence(names: tuple[str, ...], crops: bool) -> Evidence:
    density = tuple(0.5 + tenth / 10 for tenth in range(10))
    abouts = ("place", "next", "neighbours", "start", *(("crop rows", "crop columns") if crops else ()))
    drawn = {"start", "crop rows", "crop columns"}
    checks = tuple(
        Check(about, "draws", 1234, "chi-square", 7.5, 0.5678, 0.5678, density if about in drawn else ())
        for about in abouts
    )
    places = tuple(tuple(1 + (row - column) / 20 for column in range(10)) for row in range(10))
    counts = Counts(100.0, 200.0, tuple(100 / (times + 1) for times in range(20)))
    together = (names,) if len(names) > 1 else ()
    return Evidence(
        tuple(TaskEvidence(name, 10, checks, places) for name in names),
        tuple(Diversity(each, 10, 40, 800, counts, counts) for each in (*((name,) for name in names), *together)),
    )


@pytest.mark.parametrize("crops", [True, False])
@pytest.mark.parametrize(
    "names",
    [("train",), ("a-task-with-quite-a-long-name.finetuning_2026", "another-task-with-a-long-name.pretraining")],
)
def test_no_panel_is_empty_and_no_labels_overlap(names: tuple[str, ...], crops: bool) -> None:
    """Every panel of a plot shows something, and no title or label lies on another one, however long the names are."""
    figure = plots.draw_figure(_evidence(names, crops))
    figure.draw_without_rendering()
    per_task = 4 if crops else 3
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert len(panels) == len(names) * per_task + (len(names) > 1)
    assert all(axes.has_data() for axes in figure.axes)
    texts = [
        (text.get_text(), text.get_window_extent())
        for axes in figure.axes
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label)
        if text.get_text()
    ]
    over = [(a, b) for k, (a, first) in enumerate(texts) for b, second in texts[k + 1 :] if first.overlaps(second)]
    assert not over
    width, height = figure.bbox.width, figure.bbox.height
    assert not [a for a, box in texts if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]


def test_a_plot_of_nothing_says_so() -> None:
    """Where nothing was drawn yet there is one line of words and no panel."""
    figure = plots.draw_figure(Evidence((), ()))
    assert not figure.axes
    assert [text.get_text() for text in figure.texts] == ["nothing was drawn yet"]
