"""Loading configurations: the paper's example, defaults, several files, and what every mistake is told."""

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.config.samples import FIGURE_9, refused, single, task
from viewcache.api.config.load import Config, load
from viewcache.api.config.tiers import BUDGET_FRACTION, default_budget
from viewcache.errors import BadInput, ConfigCode, ConfigError, NotFound, ViewNotFound
from viewcache.materializer.ops import registry
from viewcache.materializer.spec import Branch, OpCall, Place


def write(path: Path, text: str) -> Path:
    """A file with that text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_the_papers_example_loads_as_it_is() -> None:
    """SAND's Fig. 9 gives the task that it describes, `None`, quotes and one-element lists included."""
    (found,) = load(FIGURE_9).tasks
    assert (found.name, found.dataset.uri, found.dataset.input_source) == ("train", "/dataset/train", "file")
    assert (found.sampling.videos_per_batch, found.sampling.frame_stride, found.sampling.samples_per_video) == (8, 4, 2)
    resize, conditional, random_step = found.steps
    assert resize.ops == (
        OpCall("resize", (("interpolation", "bilinear"), ("shape", (256, 320)), ("short_side", None))),
    )
    assert [branch.condition for branch in conditional.branches] == ["iteration > 10000", "else"]
    assert [[op.name for op in branch.ops] for branch in conditional.branches] == [["inv_sample"], []]
    assert random_step.branches[1] == Branch((), prob=0.5)
    assert (random_step.inputs, random_step.outputs) == (("augmented_frame_1",), ("augmented_frame_2",))


def test_the_papers_misprint_is_refused_with_the_right_word() -> None:
    """`conditon` is an unknown key, named with its place and the key that was meant."""
    error = refused(FIGURE_9.replace('condition: "iteration', 'conditon: "iteration'))
    assert (error.line, error.column) == (28, 7)
    assert error.reason.startswith(
        "unknown key 'conditon' in dataset.augmentation[1].branches[0]; did you mean condition? known: "
    )


def test_everything_has_a_default_but_what_a_task_is(tmp_path: Path) -> None:
    """A cache of defaults lies beside the file, with half of the free disk and the values of the documentation."""
    path = write(tmp_path / "a" / "train.yaml", json.dumps({"dataset": task()}))
    config = load(path)
    (tier,) = config.cache.tiers
    assert tier.url == str(tmp_path / "a" / ".viewcache")
    free = shutil.disk_usage(tmp_path).free
    assert abs(tier.budget_bytes - free * BUDGET_FRACTION) < 1 << 30
    assert not config.budget_given
    assert (config.cache.catalog, config.cache.durability, config.cache.workers) == ("duckdb", "cache", 0)
    assert 0 < config.cache.memory_bytes <= 8 << 30
    assert config.files == (str(path),)
    (only,) = config.tasks
    assert (only.epochs, only.seed, only.layout, only.steps) == (1, None, "TCHW", ())


def test_an_empty_value_is_the_default() -> None:
    """`labels:` with nothing behind it is as if the key were absent."""
    empty = dict.fromkeys(("labels", "where", "epochs", "seed", "augmentation", "on_bad_video", "max_pixels"))
    assert load({"dataset": task(**empty)}).tasks == load({"dataset": task()}).tasks
    without, given = load({"dataset": task()}), load({"cache": None, "dataset": task()})
    (tier,) = without.cache.tiers
    assert [each.url for each in given.cache.tiers] == [tier.url]
    # Its budget is of what the disk has free just then, which others change.
    assert replace(given.cache, tiers=without.cache.tiers) == without.cache


def test_relative_paths_start_at_the_file_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store, videos and labels are seen from their own file's folder, or from the working directory."""
    text = json.dumps({"dataset": task(video_dataset_path="../videos/*.mp4", labels="labels.csv")})
    cache = write(tmp_path / "settings" / "cache.yaml", "cache: {store: ./objects}\n")
    train = write(tmp_path / "jobs" / "train.yaml", text)
    config = load([cache, str(train)])
    assert config.cache.tiers[0].url == str(tmp_path / "settings" / "objects")
    assert config.tasks[0].dataset.uri == str(tmp_path / "videos" / "*.mp4")
    assert config.tasks[0].dataset.labels == str(tmp_path / "jobs" / "labels.csv")
    monkeypatch.chdir(tmp_path)
    here = load({"dataset": task(video_dataset_path="./videos/")})
    assert (here.tasks[0].dataset.uri, here.cache.tiers[0].url) == (f"{tmp_path}/videos", f"{tmp_path}/.viewcache")
    assert load(text + "\n").tasks[0].dataset.uri == f"{tmp_path.parent}/videos/*.mp4"


def test_urls_stay_as_they_are_written() -> None:
    """A URL of another file system is kept, `file://` is the path behind it, and `folders` is a word, not a path."""
    for written, kept in (("s3://bucket/v", "s3://bucket/v"), ("file:///v/x", "/v/x"), ("simplecache::s3://b/v",) * 2):
        assert load({"dataset": task(video_dataset_path=written)}).tasks[0].dataset.uri == kept
    assert load({"dataset": task(labels="folders")}).tasks[0].dataset.labels == "folders"
    assert load({"dataset": task(labels="s3://b/l.parquet")}).tasks[0].dataset.labels == "s3://b/l.parquet"


def test_several_files_documents_and_lists_make_several_tasks(tmp_path: Path) -> None:
    """Tasks come from lists, documents and files alike, in their order."""
    first = write(tmp_path / "1.yaml", f"dataset: {json.dumps([task(tag='a'), task(tag='b')])}\n---\n# nothing\n")
    second = write(tmp_path / "2.yaml", f"cache: {{seed: 3}}\n---\ndataset: {json.dumps(task(tag='c'))}\n")
    config = load([first, second, {"dataset": task(tag="d")}])
    assert [each.name for each in config.tasks] == ["a", "b", "c", "d"]
    assert (config.cache.seed, config.files) == (3, (str(first), str(second)))
    assert config.task("c") is config.tasks[2]
    with pytest.raises(ViewNotFound, match="no task 'e' in this configuration; known: a, b, c, d"):
        config.task("e")


def test_what_may_be_given_once_is_refused_twice(tmp_path: Path) -> None:
    """A second `cache`, and a second task with the same tag, are named with the place of the first."""
    first = write(tmp_path / "1.yaml", f"cache: {{seed: 3}}\ndataset: {json.dumps(task())}\n")
    cache = write(tmp_path / "2.yaml", "\ncache:\n")
    assert load([first, cache]).cache.seed == 3
    cache = write(tmp_path / "2.yaml", "\ncache: {}\n")
    error = refused([first, cache])
    assert str(error) == f"{cache}:2:1: cache is given once only; it is already at {first}:1"
    again = write(
        tmp_path / "3.yaml",
        "dataset:\n  tag: train\n  video_dataset_path: x\n  sampling: {videos_per_batch: 1, frames_per_video: 1}\n",
    )
    assert str(refused([first, again])) == f"{again}:2:8: the tag 'train' is already that of the task at {first}:2"


TOO_LARGE = ("10000PB", "1" * 39 + "B", 2**63)


@pytest.mark.parametrize(
    ("written", "size"),
    [("200GB", 200 * 10**9), ("1.5TiB", 3 * 2**39), (1000, 1000), ("1000", None), ("512 mb", 512 * 10**6), ("1B", 1),
     ("0.4B", None), ("200G", None), ("-1GB", None), (0, None), (-5, None), (1.5, None), (True, None),
     ("9000PB", 9 * 10**18), ("10000PB", None), ("1" * 39 + "B", None), ("٣GB", None),
     (2**63, None)],
)  # fmt: skip
def test_sizes(written: object, size: int | None) -> None:
    """Sizes are bytes or have a decimal or binary unit; anything else is refused with the forms."""
    source = {"cache": {"budget": written}, "dataset": task()}
    if size is None:
        text = str(refused(source))
        assert "cache.budget must be a size such as 200GB, 1.5TiB or a number of bytes, got" in text
        assert ("; it is too large, at most 9223372036854775807 bytes are possible" in text) == (written in TOO_LARGE)
    else:
        assert load(source).cache.tiers[0].budget_bytes == size
        assert load(source).budget_given


@pytest.mark.parametrize("key", ["inputs", "outputs", "classes", "video_dataset_path"])
def test_an_empty_list_says_that_one_is_needed(key: str) -> None:
    """Of streams, classes and places there is at least one, which is said of a list of none."""
    step = single("frame", "a", "grayscale")
    dataset = task(labels="folders", augmentation=[step])
    (step if key in step else dataset)[key] = []
    assert "got a list of 0; at least one is needed" in str(refused({"dataset": dataset}))


@pytest.mark.parametrize(
    ("written", "mix"),
    [("auto", None), (None, None), (0, 0.0), (0.3, 0.3), (1, 1.0), ("0.3", "got"), (1.5, "three of ten")],
)
def test_the_share_that_is_kept(written: object, mix: float | str | None) -> None:
    """A number from 0 to 1, or `auto`; what a rule chooses by itself has no share."""
    source = {"cache": {"mix": written}, "dataset": task()}
    if isinstance(mix, str):
        assert mix in str(refused(source))
        return
    assert load(source).cache.mix == mix
    source["cache"] = {"mix": written, "keep": "leaves"}
    if mix is None:
        assert load(source).cache.mix is None
    else:
        assert "cache.keep: leaves chooses that by itself" in str(refused(source))


def test_a_default_budget_does_not_shrink_with_every_start(tmp_path: Path) -> None:
    """What the store has taken counts as free for its own budget; a budget that was given never changes."""
    config = load({"cache": {"store": str(tmp_path / "new" / "deep")}, "dataset": task()})
    fuller = config.with_used_bytes(1 << 40)
    assert abs(fuller.cache.tiers[0].budget_bytes - default_budget(str(tmp_path), 1 << 40)) < 1 << 30
    assert fuller.cache.tiers[0].budget_bytes > config.cache.tiers[0].budget_bytes + (1 << 38)
    given = load({"cache": {"budget": "1GB"}, "dataset": task()})
    assert given.with_used_bytes(1 << 40) is given


def test_a_list_of_one_tier_is_a_store(tmp_path: Path) -> None:
    """The form with tiers gives the same as the short one, with a codec and its own budget."""
    config = load({"cache": {"store": [{"url": str(tmp_path), "budget": "1GB", "codec": "lz4"}]}, "dataset": task()})
    (tier,) = config.cache.tiers
    assert (tier.url, tier.budget_bytes, tier.codec, config.budget_given) == (str(tmp_path), 10**9, "lz4", True)


def test_tiers_are_put_in_order(tmp_path: Path) -> None:
    """Memory, folder and object store may be listed in any order; each keeps its budget and codec."""
    store = [
        {"url": "s3://bucket/cache/", "budget": "2TB", "codec": "zstd1"},
        {"url": str(tmp_path)},
        {"url": "memory://", "budget": "4GB", "residents": "3GB"},
    ]
    config = load({"cache": {"store": store, "budget": "1GB"}, "dataset": task()})
    assert [(tier.name, tier.url, tier.budget_bytes, tier.codec) for tier in config.cache.tiers] == [
        ("memory", "memory://", 4 * 10**9, "auto"),
        ("local", str(tmp_path), 10**9, "auto"),
        ("remote", "s3://bucket/cache", 2 * 10**12, "zstd1"),
    ]
    assert config.cache.local is config.cache.tiers[1]
    assert [tier.residents for tier in config.cache.tiers] == [3 * 10**9, None, None]


@pytest.mark.parametrize(("said", "residents"), [("auto", None), (None, None), (0, 0), ("1GiB", 1 << 30)])
def test_residents_of_the_memory_tier(said: Any, residents: int | None) -> None:
    """As much as the window leaves, none, or a size."""
    store = [{"url": "a"}, {"url": "memory://", "budget": "4GB", "residents": said}]
    assert load({"cache": {"store": store}, "dataset": task()}).cache.tiers[0].residents == residents


def test_a_store_that_cannot_be_is_refused() -> None:
    """Without one local folder, with two tiers of a kind, or without a budget, the error says what to write."""
    for store, words in (
        ("s3://bucket/cache", "needs a local folder, in which objects are made; write a list, store: [{url: ./cache"),
        ([{"url": "a"}, {"url": "b"}], "cache.store has two local tiers; it takes one of a kind"),
        ([], "lists no local folder"),
        ([{"url": "s3://b/x", "budget": "1GB"}], "lists no local folder"),
        ([{"url": "a"}, {"url": "s3://b/x"}], "the remote tier s3://b/x needs a budget of its own"),
        ([{"url": "a"}, {"url": "memory://"}], "the memory tier memory:// needs a budget of its own"),
        ([{"url": "a"}, {"url": "memory://x"}], "the memory tier's URL is memory://, without a name"),
        ([{"url": "a", "residents": "1GB"}], "residents are of the memory tier alone; remove the key from a"),
        (
            [{"url": "a"}, {"url": "memory://", "budget": "1GB", "residents": "2GB"}],
            "residents of 2000000000 bytes are more than the tier's budget of 1000000000",
        ),
        ([{"url": "a"}, {"url": "nosuch://x"}], "no tier can lie behind nosuch://"),
        ([{"url": "a"}, {"url": "simplecache::s3://x/y"}], "no tier can lie behind simplecache::s3://"),
        ([{"url": "a"}, {"url": "s3://key:secret@bucket/x"}], "has a password in its URL"),
        ([{"budget": "1GB"}], "cache.store[0] needs the key url"),
        (7, "must be a path, or a list of tiers, got 7"),
    ):
        assert words in str(refused({"cache": {"store": store}, "dataset": task()}))
    both = {"budget": "1GB", "store": [{"url": "a", "budget": "1GB"}]}
    assert "the budget is given here and as cache.budget" in str(refused({"cache": both}))


def test_catalogs_of_other_kinds_are_refused() -> None:
    """Only DuckDB and PostgreSQL; a string that may hold a password is not shown, a mere word is."""
    for catalog in ("mysql://db/x", "host=db password=hunter2", "DuckDB", "sqlite", "postgres://db/x"):
        given = f", got {catalog!r}" if catalog.isalpha() else ""
        assert str(refused({"cache": {"catalog": catalog}})) == (
            f"<mapping>: cache.catalog must be duckdb or a postgresql:// URL{given}"
        )
    assert load({"cache": {"catalog": "postgresql://me@db:5432/x?sslmode=verify-full"}}).tasks == ()


def test_a_trace_is_a_file_that_may_be_replaced(tmp_path: Path) -> None:
    """It starts at the file's folder; what is no local ``.json`` or ``.json.gz`` is refused at its place."""
    path = tmp_path / "train.yaml"
    path.write_text(f"cache:\n  trace: out/run.json.gz\ndataset: {json.dumps(task())}\n")
    assert load(path).cache.trace == str(tmp_path / "out" / "run.json.gz")
    assert load({"dataset": task()}).cache.trace is None
    for wrong in ("videos/a.mp4", "s3://bucket/run.json", "run.gz"):
        path.write_text(f"cache:\n  trace: {wrong}\ndataset: {json.dumps(task())}\n")
        with pytest.raises(ConfigError, match=rf"train.yaml:2:10: cache.trace is a local file .* got '{wrong}'"):
            load(path)


def test_a_store_must_be_a_folder_apart_from_the_videos(tmp_path: Path) -> None:
    """A file in the store's place or above it, and videos inside it, are refused; a store beside or below is not."""
    write(tmp_path / "file", "")
    for place in ("file", "file/cache", "file/far/below"):
        said = str(refused({"cache": {"store": str(tmp_path / place)}, "dataset": task()}))
        assert f"cache.store is a folder, but {tmp_path / 'file'} is a file" in said
    for videos in ("/a/store", "/a/store/videos", "/a/store/*.mp4"):
        source = {"cache": {"store": "/a/store"}, "dataset": task(video_dataset_path=videos)}
        assert "lie inside the cache's store /a/store" in str(refused(source))
    for videos in ("/a", "/a/store2", "s3://a/store"):
        load({"cache": {"store": "/a/store"}, "dataset": task(video_dataset_path=videos)})


@pytest.mark.parametrize("budget", [None, "1MB"])
@pytest.mark.parametrize(
    ("name", "why"), [("x" * 300, "File name too long"), ("loop", "Too many levels"), ("loop/cache", "Too many levels")]
)
def test_a_store_that_no_folder_can_be(tmp_path: Path, name: str, why: str, budget: str | None) -> None:
    """A name that is too long, and a link that leads to itself, are told where the store is written."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    cache = {"store": str(tmp_path / name)} | ({} if budget is None else {"budget": budget})
    error = refused({"cache": cache, "dataset": task()})
    assert error.code == ConfigCode.STORE
    assert f"cache.store: {tmp_path / name} cannot be looked at: {why}" in str(error)


def test_only_named_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in `cache.op_modules` brings its operations; one that fails is a ConfigError at its name."""
    write(tmp_path / "ops_for_config_test.py", (
        "from viewcache.materializer.ops import FrameOp\n"
        "class Halve(FrameOp):\n"
        "    name = 'halve_for_config_test'\n"
        "    def parse(self, value):\n"
        "        return {'list': (('x', [1]),), 'fail': 1 / 0 if value == 'fail' else (('x', 1),)}[value]\n"
        "    def apply(self, params, row, frame):\n"
        "        return frame // 2\n"
        "OPS = [Halve]\n"
    ))  # fmt: skip
    write(tmp_path / "broken_for_config_test.py", "raise SystemError('on import')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def source(module: str, value: str) -> str:
        step = single("frame", "a", {"halve_for_config_test": value})
        return f"cache:\n  op_modules: [{module}]\ndataset: {json.dumps(task(augmentation=[step]))}\n"

    error = refused(source("broken_for_config_test", "x"))
    assert str(error) == (
        "<string>:2:16: cache.op_modules: broken_for_config_test failed when it was imported: SystemError: on import"
    )
    with registry.own_registrations():
        assert "failed on its parameters: TypeError" in str(refused(source("ops_for_config_test", "list")))
        assert "failed on its parameters: ZeroDivisionError" in str(refused(source("ops_for_config_test", "fail")))
    assert "holds names of modules" in str(refused({"cache": {"op_modules": ["../x"]}}))
    assert "cannot be imported" in str(refused({"cache": {"op_modules": ["no_such_module_here"]}}))


def test_a_source_is_a_path_text_or_mapping(tmp_path: Path) -> None:
    """Nothing, an empty file and other types are refused; a missing file is NotFound."""
    assert "holds neither cache: nor dataset:" in str(refused([]))
    assert "holds neither cache: nor dataset:" in str(refused(write(tmp_path / "e.yaml", "# later\n")))
    assert "must be a mapping, got a list of 1" in str(refused("- a\n"))
    with pytest.raises(BadInput, match=r"^source=5, of type int: name a path, YAML text or a mapping"):
        load([5])  # type: ignore[list-item]
    with pytest.raises(NotFound):
        load(os.fspath(tmp_path / "absent.yaml"))


def canonical(source: Any) -> str:
    """The definition of the only task."""
    config = load(source)
    return config.canonical(config.tasks[0])


def test_a_definition_does_not_depend_on_how_it_is_written() -> None:
    """Order of keys and of steps, spelling, places, names of steps and given defaults leave the definition as it is."""
    first, second = single("frame", "a", {"resize": {"shape": [8, 8]}}), single("a", "b", {"flip": {}})
    text = canonical({"dataset": task(augmentation=[first, second])})
    assert json.loads(text)["steps"][1]["ops"] == [
        {"name": "flip", "params": [["direction", "horizontal"], ["flip_prob", 0.5]]}
    ]
    changes: dict[str, Any] = {
        "augmentation": [second | {"name": "n"}, first | {"inputs": ["frame"]}],
        "drop_last": False,
    }
    shuffled = dict(random.Random(3).sample(list(task(**changes).items()), len(task(**changes))))
    for same in (shuffled, task(**changes, seed=0), task(**changes, epochs=7, layout="CTHW"), task(**changes, tag="x")):
        assert canonical({"dataset": same}) == text
    assert canonical("\n\ndataset:\n  " + json.dumps(task(**changes)) + "\n") == text


CHANGES: list[dict[str, Any]] = [
    {"seed": 2},
    {"drop_last": True},
    {"on_short_video": "loop"},
    {"on_bad_video": "skip"},
    {"where": "fps > 20"},
    {"video_dataset_path": "/other"},
    {"sampling": {"videos_per_batch": 2, "frames_per_video": 4, "spread": 0.1}},
    {"augmentation": []},
    {"augmentation": [single("frame", "a", {"flip": {"flip_prob": 0.1}})]},
]


def test_a_definition_changes_with_the_meaning_of_a_path() -> None:
    """Whatever decides what a path means is in the definition: also the cache's seed, where the task has none."""
    base: dict[str, Any] = {"dataset": task(augmentation=[single("frame", "a", {"flip": {}})])}
    texts = [canonical(base), canonical(base | {"cache": {"seed": 1}})]
    texts += [canonical({"dataset": base["dataset"] | changes}) for changes in CHANGES]
    assert len(set(texts)) == len(texts)
    with_own = {"cache": {"seed": 9}, "dataset": base["dataset"] | {"seed": 2}}
    assert canonical(with_own) == texts[2]


def test_a_task_knows_its_places_but_does_not_compare_by_them() -> None:
    """Places serve messages only: equal tasks from different lines are equal and hash alike."""
    one, other = load(FIGURE_9), load("# moved\n" + FIGURE_9)
    assert one.tasks == other.tasks
    assert hash(one.tasks) == hash(other.tasks)
    assert one.tasks[0].steps[0].ops[0].place == Place("<string>", 20, 7)
    assert other.tasks[0].place == Place("<string>", 4, 3)
    assert isinstance(one, Config)
    assert one.graph(one.tasks[0]).final == "augmented_frame_2"


@pytest.mark.parametrize(("written", "read"), [("auto", None), (True, True), (False, False)])
def test_whether_videos_lie_far_away(written: object, read: bool | None) -> None:
    """Three words, and whichever it is a task's definition stays: it decides no view."""
    with_it, without = (load({"dataset": task(**more)}) for more in ({"remote": written}, {}))
    assert with_it.tasks[0].dataset.remote is read
    assert without.tasks[0].dataset.remote is None
    assert with_it.canonical(with_it.tasks[0]) == without.canonical(without.tasks[0])


def test_another_word_for_it_is_refused() -> None:
    """The message says which there are."""
    assert "auto, true or false" in refused({"dataset": task(remote="far")}).reason
