"""What a mistake in a configuration is told: place, key, value, what is allowed; and never a secret."""

import json
from typing import Any

import pytest

from tests.config.samples import FIGURE_9, refused, single, task
from viewcache.api.config.load import load
from viewcache.errors import ConfigError

# Each of these is laid over the paper's example: what is replaced, by what, and the whole message.
GOLDEN = [
    (
        'tag: "train"',
        "tag: my task",
        "3:8: dataset.tag must be a name of letters, digits, '.', '_' and '-' that starts with a letter "
        "or digit, got 'my task'",
    ),
    (
        'tag: "train"',
        "tag: 007",
        "3:8: dataset.tag must be a name of letters, digits, '.', '_' and '-' that starts with a letter "
        "or digit, got 7; put it in quotes",
    ),
    (
        "input_source: file",
        "input_source: streaming",
        "5:17: dataset.input_source: streaming is not supported yet; this release reads files (file)",
    ),
    (
        "input_source: file",
        "input_source: flie",
        "5:17: dataset.input_source must be one of file, streaming, got 'flie'; did you mean file?",
    ),
    (
        "videos_per_batch: 8",
        "videos_per_batch: eight",
        "9:23: dataset.sampling.videos_per_batch must be a whole number from 1 to 65536, got 'eight'",
    ),
    (
        "videos_per_batch: 8",
        'videos_per_batch: "8"',
        "9:23: dataset.sampling.videos_per_batch must be a whole number from 1 to 65536, got '8'; remove the quotes",
    ),
    (
        "videos_per_batch: 8",
        "videos_per_batch:",
        "9:22: dataset.sampling.videos_per_batch is empty; it must be a whole number from 1 to 65536",
    ),
    (
        "    videos_per_batch: 8\n",
        "",
        "9:5: dataset.sampling needs the key videos_per_batch: Videos in a batch.",
    ),
    (
        "frame_stride: 4",
        "stride: 4",
        "11:5: unknown key 'stride' in dataset.sampling; did you mean frame_stride? known: "
        "videos_per_batch, frames_per_video, frame_stride, samples_per_video, coordination, spread",
    ),
    (
        "frame_stride: 4",
        "budget: 4",
        "11:5: unknown key 'budget' in dataset.sampling; it belongs under cache; known: "
        "videos_per_batch, frames_per_video, frame_stride, samples_per_video, coordination, spread",
    ),
    (
        "frame_stride: 4",
        "drop_last: no",
        "11:5: unknown key 'drop_last' in dataset.sampling; it belongs under dataset; known: "
        "videos_per_batch, frames_per_video, frame_stride, samples_per_video, coordination, spread",
    ),
    (
        "  sampling:",
        "  drop_last: no\n  sampling:",
        "8:14: dataset.drop_last must be true or false, got 'no'; YAML 1.2 knows only true and false",
    ),
    (
        "shape: [256, 320]",
        "shap: [256, 320]",
        "20:7: dataset.augmentation[0].config[0]: resize: unknown parameter 'shap'; allowed: shape, "
        "short_side, interpolation; did you mean shape?",
    ),
    (
        "resize:\n        shape: [256, 320]\n        inter",
        "resize:\n      shape: [256, 320]\n      inter",
        "21:7: dataset.augmentation[0].config[0] has more than one name: indent 'shape' under 'resize' "
        "if it is a parameter, or put '- ' before it if it is the next operation",
    ),
    (
        'branch_type: "single"',
        'branch_type: "sinlge"',
        "16:18: dataset.augmentation[0].branch_type must be one of single, conditional, random, multi, "
        "merge, got 'sinlge'; did you mean single?",
    ),
    (
        'branch_type: "single"',
        'branch_type: "multi"',
        "19:5: a step of type multi has no config; it belongs to steps of type single",
    ),
    (
        'inputs: ["frame"]',
        'inputs: ["frames"]',
        "17:14: no step makes 'frames', which step 'augment_resize' reads; did you mean frame; streams: "
        "frame, augmented_frame_0, augmented_frame_1, augmented_frame_2",
    ),
    (
        'inputs: ["frame"]',
        'inputs: ["augmented_frame_2"]',
        "17:14: steps wait for one another in a circle: augment_resize → conditional branch → "
        "random_branch → augment_resize",
    ),
    (
        'outputs: ["augmented_frame_2"]',
        'outputs: ["augmented_frame_1"]',
        "38:15: stream 'augmented_frame_1' is made by step 'random_branch' and by step 'conditional "
        "branch' (line 23); each stream has one producer",
    ),
    (
        'inputs: ["augmented_frame_1"]',
        'inputs: ["augmented_frame_0"]',
        "26:15: stream 'augmented_frame_1' is never read; the clip is the one stream left over, here "
        "'augmented_frame_2': merge them, or remove the step",
    ),
    (
        "- prob: 0.5\n      config:\n        None",
        "- prob: 0.6\n      config:\n        None",
        "40:7: the probabilities of step 'random_branch' must sum to 1, got 0.5 + 0.6 = 1.1",
    ),
    (
        "- prob: 0.5\n      config:\n      - flip",
        "- condition: else\n      config:\n      - flip",
        "40:7: a branch of a random step has prob, not condition",
    ),
    (
        'condition: "else"',
        "condition: epoch > 3",
        "32:7: the last branch of step 'conditional branch' must have condition: else (with config: None "
        "frames pass on unchanged)",
    ),
    (
        'name: "random_branch"',
        "name: conditional branch",
        "35:11: two steps are called 'conditional branch'; names of steps differ",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), GOLDEN, ids=lambda value: str(value)[:40])
def test_messages_say_where_what_and_what_is_allowed(old: str, new: str, message: str) -> None:
    """Each mistake gets its place, what was found and what is allowed, word for word."""
    assert old in FIGURE_9
    assert str(refused(FIGURE_9.replace(old, new, 1))) == f"<string>:{message}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"augmentation": [single("frame", "a", {"no_op": None})]}, "unknown op 'no_op'; known: "),
        (
            {"augmentation": [single("frame", "a", {"flip": {"flip_prob": 2}})]},
            "flip_prob is 2; allowed: a number from 0",
        ),
        ({"augmentation": [single("frame", "a", 7)]}, "config[0] must be an operation such as"),
        ({"augmentation": [single("frame", "a") | {"config": {"flip": None}}]}, "config must be a list of operations"),
        ({"augmentation": [{"branch_type": "single", "inputs": "frame", "outputs": "a"}]}, "needs the key config"),
        ({"augmentation": {"a": 1}}, "dataset.augmentation must be a list of mappings, got a mapping with a"),
        ({"augmentation": ["resize"]}, "dataset.augmentation[0] must be a mapping, got 'resize'"),
        ({"labels": "labels.txt"}, "dataset.labels must be a .csv or .parquet file, or folders, got 'labels.txt'"),
        ({"video_dataset_path": "~/videos"}, "'~' and variables are not expanded"),
        ({"video_dataset_path": "$HOME/videos"}, "'~' and variables are not expanded"),
        ({"video_dataset_path": "/videos\nx"}, "has a line break or tab"),
        ({"video_dataset_path": " "}, "dataset.video_dataset_path is empty"),
        ({"where": "x" * 10_001}, "dataset.where has 10001 characters"),
        ({"sampling": None}, "dataset.sampling must be a mapping, got nothing"),
        ({"seed": -1}, "dataset.seed must be a whole number from 0 to"),
        ({"epochs": True}, "dataset.epochs must be a whole number from 1 to 1000000, got True"),
        ({"epochs": 1.0}, "dataset.epochs must be a whole number"),
    ],
)
def test_mistakes_in_a_mapping_are_named_by_their_keys(changes: dict[str, Any], words: str) -> None:
    """A Python mapping has no lines, so messages lead to the mistake by its keys."""
    error = refused({"dataset": task(**changes)})
    assert words in str(error)
    assert (error.file, error.line) == ("<mapping>", 0)


@pytest.mark.parametrize(
    "condition", ["iteration >", "__import__('os')", "frame > 1", "1 < 2 < 3", "else and 1 < 2", 5]
)
def test_conditions_are_a_grammar_of_their_own(condition: object) -> None:
    """What is no condition is refused at its place; nothing of it runs."""
    error = refused(FIGURE_9.replace('"iteration > 10000"', json.dumps(condition)))
    assert (error.line, error.column) == (28, 18)
    assert "dataset.augmentation[1].branches[0].condition" in str(error)


SECRET_URLS = [
    "postgresql://me:hunter2@db/x",
    "postgresql://me:hun/hunter2@db/x",
    "postgresql://me:hunter2#@db/x",
    "postgresql://db/x?user=me&password=hunter2",
    "postgresql://db/x?pass%77ord=hunter2",
    "postgresql://db/x#&password=hunter2",
    "s3://AKIA:hunter2@bucket/x.csv",
    "s3://hunter2@bucket/x.csv",
    "filecache::s3://AKIA:hunter2@bucket/x.csv",
    "https://host/x.csv?X-Amz-Signature=hunter2",
    "https://host/x.csv?a=b;sig=hunter2",
    "https://host/x.csv?api_key=hunter2",
]


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize("quote", [True, False])
def test_secrets_are_refused_and_never_repeated(url: str, quote: bool) -> None:
    """Credentials in any value that is a URL are refused, and no message of any key shows them."""
    written = json.dumps(url) if quote else f"[{json.dumps(url)}]"
    for text in (
        f"cache: {{catalog: {written}}}\n",
        f"cache: {{store: {written}}}\n",
        f"cache: {{budget: {written}, durability: {written}}}\n",
        f"cache: {{op_modules: {written}}}\n",
        f"dataset: {{tag: t, video_dataset_path: {written}, sampling: 5}}\n",
        f"dataset: {{tag: {written}, video_dataset_path: v, sampling: 5}}\n",
        f"dataset: {{tag: t, labels: {written}, video_dataset_path: v, sampling: {json.dumps(task()['sampling'])}}}\n",
    ):
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert "hunter2" not in str(caught.value)
