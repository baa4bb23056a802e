"""The table of keys: defaults, kinds, hints; and what is generated from it: JSON Schema and documentation."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.samples import FIGURE_9, single, task
from viewcache.api.config import schema, values
from viewcache.api.config.keys import KINDS, REQUIRED, SECTIONS, STEP_KEYS, Key, KeySection, hint
from viewcache.api.config.load import load
from viewcache.errors import ConfigError
from viewcache.materializer import ops
from viewcache.materializer.sampling import SamplingSpec
from viewcache.materializer.spec import CacheSpec, DatasetSpec, StepSpec, TaskSpec, TierSpec

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
ALL_KEYS = [(section, key) for section in SECTIONS.values() for key in section.keys]
VALIDATOR = jsonschema.Draft202012Validator(schema.json_schema())


def wrapped(section: KeySection, entries: dict[str, Any]) -> dict[str, Any]:
    """A document that is valid but for the given entries of one section."""
    step = single("frame", "a", "grayscale")
    branch = {"prob": 1.0, "config": None}
    forms: dict[str, dict[str, Any]] = {
        "document": {"dataset": task()} | entries,
        "cache": {"cache": {"budget": 1, **entries}},
        "tier": {"cache": {"store": [{"url": "/store", **entries}]}},
        "eviction": {"cache": {"eviction": entries}},
        "power": {"cache": {"power": entries}},
        "op_worker": {"cache": {"op_workers": {"mine": {"command": ["true"], **entries}}}},
        "dataset": {"dataset": task(**entries)},
        "sampling": {"dataset": task(sampling=task()["sampling"] | entries)},
        "audio": {"dataset": task(audio={"rate": 16_000, "seconds": 1.0} | entries)},
        "intermediate": {
            "dataset": task(
                augmentation=[single("frame", "a", {"resize": {"shape": [32, 32]}})], intermediate={"crf": 18} | entries
            )
        },
        "split": {"dataset": task(split={"val": 0.1} | entries, part="val")},
        "step": {"dataset": task(augmentation=[step | entries])},
        "branch": {
            "dataset": task(
                augmentation=[
                    {"branch_type": "random", "inputs": "frame", "outputs": "a", "branches": [branch | entries]}
                ]
            )
        },
    }
    return forms[section.name]


def wrong_values(key: Key) -> list[Any]:
    """Values that a key must refuse, by its kind and bounds."""
    never: list[Any] = (
        [{"a": 1}] if key.kind in ("integer", "number", "flag", "flag_or_auto", "size") or key.choices else []
    )
    by_kind: dict[str, list[Any]] = {
        "text": [5, True, ["x"], "", " "],
        "title": [5, "x" * 129],
        "name": [5, "a b", ".hidden", "ä", "a/b", "x" * 129, "a\n"],
        "names": [5, [], [5], ["a b"], [["a"]]],
        "columns": [5, [5], ["a b"], [["a"]], ["a", "a"]],
        "classes": [5, [], [5], [["x"]], ["a", "a"], ""],
        "modules": ["os", 5, ["os.path/.."], [5]],
        "texts": [5, "x", [5], [["x"]], [""]],
        "folders": [5, "x", [5], ["/no/such/folder"]],
        "workers": [5, "x", ["x"], {"a": 5}, {"a b": {}}, {"a": {}}],
        "choice": ["nonsense", 5, True, ["single"]],
        "integer": ["5", 1.5, True, "five", [5]],
        "number": ["0.5", True, [0.5]],
        "flag": ["yes", "true", 0, 1],
        "decibels": ["45", "dB", True, [45], "-45dB"],
        "flag_or_auto": ["yes", "true", 0, 1, "Auto"],
        "share_or_auto": ["0.3", "Auto", True, [0.3], -0.1, 1.5, {"a": 1}],
        "size": ["200G", "GB", -1, 0, 1.5, True],
        "size_or_auto": ["200G", "Auto", -1, 1.5, True, False, ["auto"], {"a": 1}],
        "url": [5, True, "", "~/x", "a\tb"],
        "urls": [5, True, "", "~/x", [], [5], ["a", "a"], ["~/x"], [["a"]]],
        "catalog": [5, True, "", "sqlite", "mysql://db/x"],
        "shares": [5, True, "x", [], ["x"], {}, {"a": 0}, {"a": -1}, {"a": "x"}, {"a": True}, {"a": [1]}],
        "section": [5, "x", ["x"]],
        "sections": [5, "x", {"a": 1}, ["x"]],
        "tasks": [5, "x", ["x"]],
        "store": [5, True, {"url": "x"}, "", ["x"]],
        "operations": [5, "flip", {"flip": None}, [5], [{}], [{"flip": None, "blur": None}]],
    }
    below = [key.least - 1] if key.least is not None else []
    above = [key.most + 1] if key.most is not None else []
    return never + by_kind[key.kind] + below + above


@pytest.mark.parametrize(("section", "key"), ALL_KEYS, ids=lambda value: value.name)
def test_every_key_refuses_what_it_is_not(section: KeySection, key: Key) -> None:
    """For each key of the table, wrong values are a ConfigError that names the key."""
    for wrong in wrong_values(key):
        with pytest.raises(ConfigError) as caught:
            load(wrapped(section, {key.name: wrong}))
        assert key.name in str(caught.value)


@pytest.mark.parametrize(("section", "key"), ALL_KEYS, ids=lambda value: value.name)
def test_every_misspelt_key_is_told_the_right_one(section: KeySection, key: Key) -> None:
    """A letter too many, and the error names the key that was meant."""
    wrong = key.name[:2] + "q" + key.name[2:]
    with pytest.raises(ConfigError) as caught:
        load(wrapped(section, {wrong: None}))
    assert f"unknown key '{wrong}'" in str(caught.value)
    assert f"did you mean {key.name}?" in str(caught.value)


@pytest.mark.parametrize(("section", "key"), [(s, k) for s, k in ALL_KEYS if k.required], ids=lambda value: value.name)
def test_every_required_key_is_missed(section: KeySection, key: Key) -> None:
    """Without a key that must be given, the error names it and says what it is for."""
    required = [other.name for other in section.keys if other.required]

    def without(entries: dict[str, Any]) -> dict[str, Any]:
        """The mapping of this section, told by its required keys, without the key; other mappings as they are."""
        ours = all(name in entries for name in required)
        return {name: value for name, value in entries.items() if not (ours and name == key.name)}

    with pytest.raises(ConfigError, match=f"needs the key {key.name}"):
        load(json.loads(json.dumps(wrapped(section, {})), object_hook=without))


def test_defaults_are_those_of_the_specs() -> None:
    """A default that stands in a spec too is the same there, so that code and YAML agree on what is left out."""
    for section, spec in (
        ("cache", CacheSpec),
        ("tier", TierSpec),
        ("dataset", DatasetSpec),
        ("dataset", TaskSpec),
        ("sampling", SamplingSpec),
        ("step", StepSpec),
    ):
        keys = {key.name: key for key in SECTIONS[section].keys}
        for field in dataclasses.fields(spec):
            if field.name in keys and field.default is not dataclasses.MISSING:
                assert keys[field.name].default == field.default, (section, field.name)


def test_the_table_is_whole() -> None:
    """Every kind is described and read, every section is reached, and texts are sentences."""
    assert {key.kind for _, key in ALL_KEYS} == set(KINDS)
    structural = {"section", "sections", "workers", "tasks", "store", "operations"}
    assert {key.kind for _, key in ALL_KEYS} - structural == set(values.READERS)
    assert {key.section for _, key in ALL_KEYS if key.section} | {"document"} == set(SECTIONS)
    assert {key for keys in STEP_KEYS.values() for key in keys} < {key.name for key in SECTIONS["step"].keys}
    for _, key in ALL_KEYS:
        assert key.doc.endswith(".")
        assert key.kind != "choice" or key.choices
        assert key.default is REQUIRED or not key.choices or key.default is None or key.default in key.choices


def test_a_hint_names_the_nearest_word_and_all_others() -> None:
    """A near word is proposed; for a far one there is only the list."""
    assert hint("conditon", ["prob", "condition"]) == "did you mean condition? known: prob, condition"
    assert hint("xyz", ["prob", "condition"]) == "known: prob, condition"
    assert hint("x" * 10**6, ["prob"]) == "known: prob"


def test_generated_files_are_up_to_date() -> None:
    """docs/config.md and docs/config.schema.json are what `python -m viewcache.api.config.schema docs` writes."""
    for path, text in schema.generated(ROOT / "docs").items():
        assert path.read_text("utf-8") == text, f"{path.name}: run python -m viewcache.api.config.schema docs"


def test_the_documentation_has_every_key_and_type_of_step() -> None:
    """Each key has a row with its meaning, and each type of step its row in the prose."""
    page = (ROOT / "docs" / "config.md").read_text("utf-8")
    for section, key in ALL_KEYS:
        assert not section.path or f"### `{section.path}`" in page
        assert f"| `{key.name}` | " in page
        assert key.doc in page
    assert all(f"| `{branch_type}` | " in page for branch_type in STEP_KEYS)


def test_the_command_prints_the_schema_and_writes_the_files(tmp_path: Path) -> None:
    """Without arguments the JSON Schema comes out; with a folder its files are brought up to date."""
    command = [sys.executable, "-m", "viewcache.api.config.schema"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(printed) == schema.json_schema()
    page = tmp_path / "config.md"
    page.write_text("before\n<!-- generated: keys -->\nof last year\n<!-- generated: end -->\nafter\n", "utf-8")
    subprocess.run([*command, str(tmp_path)], check=True)
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of last year" not in text
    assert schema.key_tables() in text
    assert json.loads((tmp_path / "config.schema.json").read_text("utf-8")) == schema.json_schema()


def test_the_schema_is_a_schema() -> None:
    """It is valid JSON Schema 2020-12 by the standard's own schema."""
    jsonschema.Draft202012Validator.check_schema(schema.json_schema())


def test_the_schema_accepts_the_examples_and_the_paper() -> None:
    """Files that load are valid for an editor too; their values are those of YAML 1.1 wherever both agree."""
    for text in [path.read_text("utf-8") for path in EXAMPLES] + [FIGURE_9]:
        for document in yaml.safe_load_all(text):
            VALIDATOR.validate(document)


@pytest.mark.parametrize(("section", "key"), ALL_KEYS, ids=lambda value: value.name)
def test_the_schema_refuses_what_the_table_can_say(section: KeySection, key: Key) -> None:
    """An unknown key, and a value of another type, are underlined by an editor as well."""
    assert VALIDATOR.is_valid(wrapped(section, {}))
    assert not VALIDATOR.is_valid(wrapped(section, {key.name + "q": 1}))
    assert not VALIDATOR.is_valid(wrapped(section, {key.name: {"q": [1]}}))


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Documents whose keys have values of about the right type, right or wrong."""
    sampling = {
        "videos_per_batch": draw(st.integers(-1, 3)),
        "frames_per_video": draw(st.sampled_from([1, 2**16, 2**16 + 1, "4", None])),
        "spread": draw(st.sampled_from([0, 0.5, 1, 2, None])),
    }
    changes: dict[str, Any] = {
        "tag": draw(st.sampled_from(["a", "a b", "-a", 5])),
        "sampling": sampling,
        "drop_last": draw(st.sampled_from([True, None, "no"])),
        "layout": draw(st.sampled_from(["TCHW", "HWC"])),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(changes))))
    branch_type = draw(st.sampled_from(list(STEP_KEYS)))
    outputs = draw(st.sampled_from(["a", ["a"], ["a", "b"], []]))
    step: dict[str, Any] = {"branch_type": branch_type, "inputs": "frame", "outputs": outputs}
    if draw(st.booleans()):
        step["config"] = draw(st.sampled_from([None, "None", ["grayscale"], [{"flip": {}}], "flip"]))
    return {
        "cache": {"budget": draw(st.sampled_from([1, "1GB", "1 tib", "1G", 0]))},
        "dataset": task(**{name: changes[name] for name in chosen}, augmentation=[step] if draw(st.booleans()) else []),
    }


@given(documents())
def test_what_loads_is_valid_by_the_schema(document: dict[str, Any]) -> None:
    """The schema never underlines a file that the loader takes."""
    try:
        load(document)
    except ConfigError:
        return
    VALIDATOR.validate(document)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_load_and_give_clips_of_one_size(path: Path) -> None:
    """Every file of examples/ loads, and its clips have one size for any videos, as a batch needs."""
    config = load(path)
    assert config.tasks
    for each in config.tasks:
        graph = config.graph(each)
        sizes: dict[str, set[ops.Size | None]] = {"frame": {None}}
        for step in graph.steps:
            before = {size for stream in step.inputs for size in sizes[stream]}
            chains = [branch.ops for branch in step.branches] or [step.ops]
            after = {
                ops.static_size([(op.name, op.params) for op in chain], size).size
                for chain in chains
                for size in before
            }
            sizes.update(dict.fromkeys(step.outputs, after))
        assert len(sizes[graph.final]) == 1
        assert None not in sizes[graph.final]


def test_examples_show_every_type_of_step() -> None:
    """All five types of step, several tasks in a file and the read-time operations have an example."""
    configs = {path.stem: load(path) for path in EXAMPLES}
    assert set(configs) == {"basicvsr", "branches", "hdvila", "mae", "slowfast", "test_10x3"}
    assert {step.branch_type for step in configs["branches"].tasks[0].steps} == set(STEP_KEYS)
    assert len(configs["hdvila"].tasks) == 2
    assert [op.name for op in configs["slowfast"].graph(configs["slowfast"].tasks[0]).read_ops] == ["normalize"]
