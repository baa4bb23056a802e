"""lint against the videos and the catalog: what a run would refuse is an error, at the place of its key."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import viewcache
from tests.cli.site import CONFIG, Site
from tests.clips import encode
from viewcache.errors import BadInput, BudgetTooSmall, ConfigError, DatasetNotFound
from viewcache.materializer.planning import size

DATASET = "  video_dataset_path: ./videos\n"


def only(site: Site, *arguments: str) -> dict[str, object]:
    """The one problem that lint finds, which must be an error; with its line and column as ``at``."""
    answer = site.json("lint", *arguments, code=1)
    assert answer["errors"] == 1
    (problem,) = answer["problems"]
    assert problem["level"] == "error"
    return {**problem, "at": (problem["place"]["line"], problem["place"]["column"])}


def test_scan_refuses_a_budget_below_one_batch(site: Site) -> None:
    """What run ends with is an error at the key, with the same minimum; without a scan the sizes are not known."""
    site.edit("64MB", "50kB")
    with pytest.raises(BudgetTooSmall) as caught:
        viewcache.open(site.config)
    found = only(site, "--scan")
    assert (found["kind"], found["at"]) == ("budget_too_small", (3, 3))
    assert found["message"] == str(caught.value)
    site.edit("50kB", str(caught.value.minimum))
    site.run("lint", "--scan")


def test_scan_finds_the_budget_of_a_tier(site: Site) -> None:
    """A budget that is written with its tier has its place there."""
    site.edit("  store: ./cache\n  budget: 64MB\n", "  store:\n  - url: ./cache\n    budget: 50kB\n")
    assert only(site, "--scan")["at"] == (4, 5)


def test_scan_refuses_a_definition_that_was_drawn_otherwise(made: Site) -> None:
    """A changed task whose draws are recorded is refused by run, so it is an error, and nothing is forgotten."""
    made.edit("frame_stride: 2", "frame_stride: 1")
    found = only(made, "--scan")
    assert (found["kind"], found["at"]) == ("bad_input", (7, 3))
    assert "`viewcache run` would refuse this" in str(found["message"])
    assert str(found["message"]).count("task 'train'") == 1
    with pytest.raises(BadInput, match="train"):
        viewcache.open(made.config)


@pytest.mark.parametrize("arguments", [(), ("--scan",)])
@pytest.mark.parametrize("where", ["frames >", "drop table videos", "frames > 3; drop table video", "frames, fps"])
def test_lint_refuses_what_is_no_condition(site: Site, where: str, arguments: tuple[str, ...]) -> None:
    """It is told by its syntax alone, which no video must be looked at for; an unknown column takes a scan."""
    site.edit(DATASET, f"{DATASET}  where: {where!r}\n")
    found = only(site, *arguments)
    assert (found["kind"], found["at"]) == ("bad_input", (10, 3))
    assert str(found["message"]).startswith(f"task 'train': where: {where!r} is not a condition (")


@pytest.mark.parametrize(
    ("where", "kind", "words"),
    [
        ("length > 3", "bad_input", "task 'train': where: 'length > 3' is not a condition on the columns"),
        ("frames > 1000", "bad_input", "task 'train': where: 'frames > 1000' selects none of 3 videos"),
    ],
)
def test_scan_places_a_bad_where(site: Site, where: str, kind: str, words: str) -> None:
    """A condition that is none, or that nothing meets, is a problem at its key; the task is named once."""
    site.edit(DATASET, f"{DATASET}  where: {where}\n")
    site.run("lint")
    found = only(site, "--scan")
    assert (found["kind"], found["at"]) == (kind, (10, 3))
    assert str(found["message"]).startswith(words)


@pytest.mark.parametrize("arguments", [(), ("--scan",)])
@pytest.mark.parametrize(
    ("table", "kind", "words"),
    [
        (None, "dataset_not_found", "no such table"),
        ("clip,label\na.mp4,x\n", "bad_input", "has no column 'video'"),
        ("video,label\nz.mp4,x\n", "bad_input", "none of its 1 rows names a file"),
    ],
)
def test_lint_places_bad_labels(
    site: Site, arguments: tuple[str, ...], table: str | None, kind: str, words: str
) -> None:
    """A label table that is missing or does not fit is a problem at its key, also without a scan."""
    if table is not None:
        Path("labels.csv").write_text(table)
    site.edit(DATASET, f"{DATASET}  labels: ./labels.csv\n")
    found = only(site, *arguments)
    assert (found["kind"], found["at"]) == (kind, (10, 3))
    assert words in str(found["message"])


TABLE = "video,label,person,weight,set\na.mp4,x,p,1,one\nb.mp4,y,q,-2,one\nshort.mp4,x,,3,two\n"


@pytest.mark.parametrize("arguments", [(), ("--scan",)])
@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ("split: {val: 0.001}\n  part: val", "split", "leaves the part 'val' empty"),
        ("split: {val: 0.5, by: person}\n  part: val", "split", "split: column 'person' has no value for 'short'"),
        ("split: {val: 0.5, by: persons}\n  part: val", "split", "split: the label table has no column 'persons'"),
        ("part: three\n  split: {column: set}", "part", "part: 'three' of the split by column 'set' has no video"),
        ("where: weight < 0\n  part: two\n  split: {column: set}", "part", "has no video; it has 'one'"),
        ("weight: weight", "weight", "weight: column 'weight' has -2 for 'b'"),
        ("weight: person", "weight", "weight: column 'person' holds text"),
        ("balance: sets", "balance", "balance: the label table has no column 'sets'"),
        ("mix: {one: 1, three: 2}\n  mix_column: set", "mix", "names no share for 'two'"),
        ("classes: [x, z]", "classes", "'y' is a label of the table and not among"),
        ("fields: [weigth]", "fields", "fields: the label table has no further column 'weigth'"),
    ],
)
def test_lint_reads_the_label_table(site: Site, arguments: tuple[str, ...], keys: str, key: str, words: str) -> None:
    """What does not fit the table is told at its key, as opening tells it, with and without a scan."""
    Path("labels.csv").write_text(TABLE)
    site.edit(DATASET, f"{DATASET}  labels: ./labels.csv\n  {keys}\n")
    at = next(number for number, line in enumerate(site.config.read_text().splitlines(), 1) if f"  {key}:" in line)
    with pytest.raises(BadInput) as opened:
        viewcache.open(site.config)
    found = only(site, *arguments)
    assert (found["kind"], found["at"], found["message"]) == (
        "bad_input",
        (at, 3),
        str(opened.value).partition(": ")[2],
    )
    assert words in str(found["message"])


@pytest.mark.parametrize("arguments", [(), ("--scan",)])
@pytest.mark.parametrize(
    ("url", "cure"),
    [("htp://foo/bar", "did you mean http?"), ("zzzzz://foo/bar", "fsspec.available_protocols() lists those")],
)
def test_a_scheme_that_nobody_knows(site: Site, arguments: tuple[str, ...], url: str, cure: str) -> None:
    """It is told at its key without a network, and by whoever opens the cache; one that is known is not asked."""
    site.edit(DATASET, f"  video_dataset_path: {url}\n")
    found = only(site, *arguments)
    assert (found["kind"], found["at"]) == ("dataset_not_found", (9, 3))
    said = f"{url}: fsspec has no file system for {url.partition(':')[0]}://; {cure}"
    assert said in str(found["message"])
    with pytest.raises(DatasetNotFound, match=re.escape(said)):
        viewcache.open(site.config)
    site.edit(url, "s3://no-such-bucket/videos")
    assert site.json("lint")["errors"] == 0


@pytest.mark.parametrize("arguments", [(), ("--scan",)])
@pytest.mark.parametrize(("form", "row"), [("csv", "line 3"), ("jsonl", "line 2"), ("parquet", "data row 2")])
def test_a_class_number_below_0_is_refused(site: Site, arguments: tuple[str, ...], form: str, row: str) -> None:
    """-1 in a batch is no label, so a table says that by an empty cell; one that `where` leaves out does not matter."""
    if form == "csv":
        Path("labels.csv").write_text("video,label\na.mp4,2\nb.mp4,-1\nshort.mp4,-3\n")
    elif form == "jsonl":
        numbers = {"a.mp4": 2, "b.mp4": -1, "short.mp4": -3}
        lines = [json.dumps({"video": video, "label": label}) for video, label in numbers.items()]
        Path("labels.jsonl").write_text("\n".join(lines))
    else:
        table = pa.table({"video": ["a.mp4", "b.mp4", "short.mp4"], "label": [2, -1, -3]})
        parquet.write_table(table, "labels.parquet")
    site.edit(DATASET, f"{DATASET}  labels: ./labels.{form}\n  where: label is not null\n")
    with pytest.raises(BadInput, match=f"labels.{form}: label in {row} is -1; whole numbers are class numbers"):
        viewcache.open(site.config)
    assert f"label in {row} is -1" in str(only(site, *arguments)["message"])
    site.edit("label is not null", "label >= 0")
    assert site.json("lint", *arguments)["errors"] == 0
    with viewcache.open(site.config) as cache:
        assert set(cache.read("train", 0, 0).label.tolist()) == {2}


@pytest.mark.parametrize(
    ("head", "keys", "warned"),
    [
        ("video,class", "", True),
        ("video,class", "classes: [x, y]\n  where: \"class = 'x'\"", True),
        ("video,class", "label_column: class", False),
        ("video,class", "fields: [class]", False),
        ("video,end_s", "", False),
        ("video,label", "", False),
    ],
)
def test_a_table_without_labels_is_worth_a_word(site: Site, head: str, keys: str, warned: bool) -> None:
    """Most likely its column has another name; a table of segments or of further columns needs none."""
    Path("labels.csv").write_text(f"{head}\na.mp4,1\nb.mp4,1\nshort.mp4,1\n")
    site.edit(DATASET, f"{DATASET}  labels: ./labels.csv\n  {keys}\n")
    told = [problem for problem in site.json("lint")["problems"] if problem["kind"] == "no_labels"]
    assert [each["level"] for each in told] == ["warning"] * warned
    if warned:
        assert "label_column says which column has them: 'class', 'video'" in told[0]["message"]


@pytest.mark.parametrize(
    "keys",
    [
        "split: {val: 0.4, seed: 1}\n  part: train",
        "split: {val: 0.4, by: person, seed: 1}\n  part: train\n  where: person is not null",
        "weight: weight\n  where: weight > 0",
        "weight: weight\n  where: weight > 0 and frames > 1",
        "classes: [x]\n  where: label = 'x'",
        "mix: {x: 1, y: 2}\n  mix_column: label",
    ],
)
def test_lint_finds_nothing_in_a_table_that_fits(site: Site, keys: str) -> None:
    """What is asked of chosen videos is asked of those; what only headers could tell is left to opening."""
    Path("labels.csv").write_text(TABLE)
    site.edit(DATASET, f"{DATASET}  labels: ./labels.csv\n  {keys}\n")
    viewcache.open(site.config).close()
    before = sorted(site.folder.rglob("*"))
    assert site.json("lint")["errors"] == 0
    assert sorted(site.folder.rglob("*")) == before, "lint writes nothing"


def test_scan_tries_the_eviction_policy(site: Site) -> None:
    """What ``run`` would refuse is an error at its name, and a warning of a plan, told once; others may be wrong."""
    (site.folder / "p").mkdir()
    (site.folder / "p" / "mine.sql").write_text("selec object_id from candidates")
    site.edit("  workers: 1\n", "  workers: 1\n  eviction: {folder: ./p, policy: mine}\n")
    assert site.json("lint")["errors"] == 0, "nothing of the user's runs"
    found = only(site, "--scan")
    assert (found["kind"], found["at"]) == ("bad_input", (6, 27))
    assert "eviction policy mine" in str(found["message"])
    assert "cannot be used" in str(found["message"])
    with pytest.raises(BadInput, match="cannot be used"):
        viewcache.open(site.config)
    for command in (("plan",), ("run", "--dry-run")):
        site.run(*command)
        assert site.words.count("`viewcache run` would refuse this: eviction policy mine") == 1
    site.edit("policy: mine", "policy: lru")
    assert site.json("lint", "--scan")["errors"] == 0


def test_a_store_on_a_disk_that_is_not_mounted(site: Site) -> None:
    """What ``run`` would refuse is an error at the store's key without a scan, and a warning of a plan, told once."""
    site.edit("store: ./cache", "store: ./disk/cache")
    told = f"cannot make the store {site.folder}/disk/cache: the folder {site.folder}/disk does not exist; mount"
    for options in ([], ["--scan"]):
        found = only(site, *options)
        assert (found["kind"], found["at"]) == ("bad_input", (2, 3))
        assert str(found["message"]).startswith(told)
    with pytest.raises(BadInput, match=told):
        viewcache.open(site.config)
    site.run("plan")
    assert site.words.count(f"`viewcache run` would refuse this: {told}") == 1
    (site.folder / "disk").mkdir()
    assert site.json("lint", "--scan")["errors"] == 0
    site.run("plan")
    assert "would refuse" not in site.words


def test_a_link_to_a_disk_that_is_not_mounted_as_the_store(site: Site) -> None:
    """It may lie where a store is made that no key names: then the file is named."""
    site.edit("  store: ./cache\n", "")
    (site.folder / ".viewcache").symlink_to(site.folder / "disk" / "cache")
    found = only(site)
    assert found["at"] == (0, 0)
    assert f"the folder {site.folder}/disk does not exist" in str(found["message"])
    assert site.run("lint", code=1).startswith(f"{site.config}: error: cannot make the store ")


def test_a_link_to_itself_as_the_store(site: Site) -> None:
    """It is an error at the store's key, and a finding of doctor; no plan is made for it."""
    site.store.symlink_to(site.store)
    found = only(site)
    assert (found["kind"], found["code"], found["at"]) == ("config", "store", (2, 10))
    assert "Too many levels of symbolic links" in str(found["message"])
    told = f"{site.config}:2:10: cache.store: {site.store} cannot be looked at: Too many levels of symbolic links"
    assert told in site.run("doctor", str(site.config), code=1)
    site.run("plan", str(site.config), code=2)
    assert told in site.words


def test_lint_places_a_missing_dataset(site: Site) -> None:
    """A folder that is not there is a problem at its key."""
    site.edit("./videos", "./nowhere")
    found = only(site)
    assert (found["kind"], found["at"]) == ("dataset_not_found", (9, 3))


def test_scan_goes_on_after_a_task_that_cannot_be_opened(site: Site) -> None:
    """Each task has its own problem: one without a folder, one with a bad condition, one whose budget is too small."""
    _, _, task = CONFIG.partition("dataset:\n")
    files = {
        "lost.yaml": task.replace("./videos", "./nowhere"),
        "picky.yaml": task.replace(DATASET, f"{DATASET}  where: no_such_column = 1\n"),
    }
    for name, text in files.items():
        Path(name).write_text("dataset:\n" + text.replace("tag: train", f"tag: {name[:-5]}"))
    site.edit("64MB", "50kB")
    answer = site.json("lint", *files, "train.yaml", "--scan", code=1)
    found = [(Path(each["place"]["file"]).name, each["level"], each["kind"]) for each in answer["problems"]]
    assert found == [
        ("lost.yaml", "error", "dataset_not_found"),
        ("picky.yaml", "error", "bad_input"),
        ("train.yaml", "error", "budget_too_small"),
    ]


def test_scan_without_a_task_finds_nothing(site: Site) -> None:
    """A file that holds only the cache's settings has no videos to look at."""
    site.config.write_text("cache: {store: ./cache}\n")
    site.run("lint", "--scan")
    assert "no problem" in site.words


def test_scan_tells_of_a_replaced_file_as_its_policy_says(made: Site) -> None:
    """A file with other content than when it was drawn is an error where the policy is to raise, else a warning."""
    with viewcache.open(made.config) as cache:
        task = cache.task("train").task
        for iteration in range(task.iterations(0)):
            cache.read("train", 0, iteration)
        cache.read("train", 1, 0)
    replaced = sorted(Path("videos").iterdir())[0]
    encode(replaced, frames=37, size=(64, 48))
    found = only(made, "--scan")
    assert (found["level"], found["kind"]) == ("error", "bad_input")
    assert f"{replaced.name} has other content than when task 'train' drew it" in str(found["message"])
    (preview,) = made.json("plan")["tasks"]
    assert [" read show" in change for change in preview["changes"]] == [True], "what was drawn is not forgotten"
    made.edit(DATASET, f"{DATASET}  on_changed_video: warn\n")
    answer = made.json("lint", "--scan")
    assert [(each["level"], each["kind"]) for each in answer["problems"]] == [("warning", "changed_video")]


def test_scan_refuses_a_bad_video_as_its_policy_says(site: Site) -> None:
    """A file that cannot be decoded is an error where the policy is to raise, else only a warning."""
    Path("videos/torn.mp4").write_bytes(b"not a video")
    answer = site.json("lint", "--scan", code=1)
    assert [(each["level"], each["kind"]) for each in answer["problems"]] == [
        ("error", "bad_video"),
        ("warning", "bad_video"),
    ]
    site.edit(DATASET, f"{DATASET}  on_bad_video: skip\n")
    answer = site.json("lint", "--scan")
    assert [(each["level"], each["kind"]) for each in answer["problems"]] == [("warning", "bad_video")]


def test_scan_refuses_a_plan_that_would_not_fit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation of more clips than a plan may hold is refused by run before anything is recorded, and by lint."""
    with monkeypatch.context() as small:
        small.setattr(size, "MOST_CLIPS", 5)
        found = only(site, "--scan")
        assert (found["kind"], found["code"], found["at"]) == ("config", "plan_too_large", (7, 3))
        with pytest.raises(ConfigError, match="a plan holds at most 5"):
            viewcache.open(site.config)
    site.edit("frame_stride: 2", "frame_stride: 1")  # would be refused, had the first definition been recorded
    viewcache.open(site.config).close()
