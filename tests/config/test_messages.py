"""What a mistake in a configuration is told: place, key, value, what is allowed; and never a secret."""

import json
from typing import Any

import pytest

from tests.config.samples import FIGURE_9, refused, single, task
from viewcache.api.config.load import load
from viewcache.errors import ConfigCode, ConfigError

# Each of these is laid over the paper's example: what is replaced, by what, the code, the place and the value.
MISTAKES = [
    ('tag: "train"', "tag: my task", ConfigCode.WRONG_FORMAT, (3, 8), "got 'my task'"),
    ('tag: "train"', "tag: 007", ConfigCode.WRONG_TYPE, (3, 8), "got 7"),
    ("input_source: file", "settle: 3", ConfigCode.MISPLACED_KEY, (5, 11), "set input_source: streaming"),
    ("input_source: file", "join: epoch", ConfigCode.MISPLACED_KEY, (5, 9), "dataset.join is of a dataset that grows"),
    ("input_source: file", "input_source: flie", ConfigCode.UNKNOWN_CHOICE, (5, 17), "did you mean file?"),
    ("videos_per_batch: 8", "videos_per_batch: eight", ConfigCode.WRONG_TYPE, (9, 23), "got 'eight'"),
    ("videos_per_batch: 8", 'videos_per_batch: "8"', ConfigCode.WRONG_TYPE, (9, 23), "remove the quotes"),
    ("videos_per_batch: 8", "batch_size: 8", ConfigCode.UNKNOWN_KEY, (9, 5), "did you mean videos_per_batch?"),
    ("videos_per_batch: 8", "videos_per_batch:", ConfigCode.MISSING_KEY, (9, 22), "videos_per_batch is empty"),
    ("    videos_per_batch: 8\n", "", ConfigCode.MISSING_KEY, (9, 5), "needs the key videos_per_batch"),
    ("frame_stride: 4", "stride: 4", ConfigCode.UNKNOWN_KEY, (11, 5), "did you mean frame_stride?"),
    ("frame_stride: 4", "budget: 4", ConfigCode.UNKNOWN_KEY, (11, 5), "it belongs under cache"),
    ("frame_stride: 4", "drop_last: no", ConfigCode.UNKNOWN_KEY, (11, 5), "it belongs under dataset"),
    ("  sampling:", "  drop_last: no\n  sampling:", ConfigCode.WRONG_TYPE, (8, 14), "got 'no'; YAML 1.2"),
    ("shape: [256, 320]", "shap: [256, 320]", ConfigCode.OP_PARAMETERS, (20, 7), "unknown parameter 'shap'"),
    (
        "resize:\n        shape: [256, 320]\n        inter",
        "resize:\n      shape: [256, 320]\n      inter",
        ConfigCode.OP_PARAMETERS,
        (21, 7),
        "indent 'shape' under 'resize'",
    ),
    ('branch_type: "single"', 'branch_type: "sinlge"', ConfigCode.UNKNOWN_CHOICE, (16, 18), "did you mean single?"),
    (
        'branch_type: "single"',
        'branch_type: "multi"',
        ConfigCode.MISPLACED_KEY,
        (19, 5),
        "has no config; it belongs to steps of type single",
    ),
    (
        'inputs: ["frame"]',
        'inputs: ["frames"]',
        ConfigCode.UNKNOWN_STREAM,
        (17, 14),
        "'frames', which step 'augment_resize' reads; did you mean frame?",
    ),
    (
        'inputs: ["frame"]',
        'inputs: ["augmented_frame_2"]',
        ConfigCode.GRAPH_CYCLE,
        (17, 14),
        "augment_resize → conditional branch → random_branch → augment_resize",
    ),
    (
        'outputs: ["augmented_frame_2"]',
        'outputs: ["augmented_frame_1"]',
        ConfigCode.STREAM_MADE_TWICE,
        (38, 15),
        "by step 'conditional branch' (line 23)",
    ),
    (
        'inputs: ["augmented_frame_1"]',
        'inputs: ["augmented_frame_0"]',
        ConfigCode.UNREAD_STREAM,
        (26, 15),
        "'augmented_frame_1' is never read",
    ),
    (
        "- prob: 0.5\n      config:\n        None",
        "- prob: 0.6\n      config:\n        None",
        ConfigCode.PROBABILITIES,
        (40, 7),
        "0.5 + 0.6 = 1.1",
    ),
    (
        "- prob: 0.5\n      config:\n      - flip",
        "- condition: else\n      config:\n      - flip",
        ConfigCode.MISPLACED_KEY,
        (40, 7),
        "has prob, not condition",
    ),
    ('condition: "else"', "condition: epoch > 3", ConfigCode.MISSING_ELSE, (32, 7), "step 'conditional branch'"),
    (
        'name: "random_branch"',
        "name: conditional branch",
        ConfigCode.GIVEN_TWICE,
        (35, 11),
        "two steps are called 'conditional branch'",
    ),
]

# Whole messages, to see what people see: what is replaced, by what, and the message.
GOLDEN = [
    (
        'tag: "train"',
        "tag: my task",
        "3:8: dataset.tag must be a name of letters, digits, '.', '_' and '-' that starts with a letter "
        "or digit, got 'my task'",
    ),
    (
        "input_source: file",
        "input_source: flie",
        "5:17: dataset.input_source must be one of file, streaming, got 'flie'; did you mean file?",
    ),
    (
        "frame_stride: 4",
        "budget: 4",
        "11:5: unknown key 'budget' in dataset.sampling; it belongs under cache; known: "
        "videos_per_batch, images_per_batch, samples_per_image, frames_per_video, frame_stride, fps, clip_seconds, "
        "samples_per_video, clips, coordination, "
        "spread",
    ),
    (
        'inputs: ["frame"]',
        'inputs: ["frames"]',
        "17:14: no step makes 'frames', which step 'augment_resize' reads; did you mean frame? "
        "streams: frame, augmented_frame_0, augmented_frame_1, augmented_frame_2",
    ),
    (
        "- prob: 0.5\n      config:\n      - flip",
        "- condition: else\n      config:\n      - flip",
        "40:7: a branch of a random step has prob, not condition",
    ),
]


@pytest.mark.parametrize(("old", "new", "code", "place", "words"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_has_its_code_and_place(
    old: str, new: str, code: ConfigCode, place: tuple[int, int], words: str
) -> None:
    """Each mistake gets its code, its place and the value that is wrong or allowed."""
    assert old in FIGURE_9
    error = refused(FIGURE_9.replace(old, new, 1))
    assert (error.code, (error.line, error.column)) == (code, place)
    assert words in error.reason


@pytest.mark.parametrize(("old", "new", "message"), GOLDEN, ids=lambda value: str(value)[:40])
def test_messages_say_where_what_and_what_is_allowed(old: str, new: str, message: str) -> None:
    """A message has the place, what was found and what is allowed, word for word."""
    assert str(refused(FIGURE_9.replace(old, new, 1))) == f"<string>:{message}"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"augmentation": [single("frame", "a", {"no_op": None})]}, ConfigCode.UNKNOWN_OP, "'no_op'"),
        (
            {"augmentation": [single("frame", "a", {"flip": {"flip_prob": 2}})]},
            ConfigCode.OP_PARAMETERS,
            "flip_prob is 2",
        ),
        ({"augmentation": [single("frame", "a", 7)]}, ConfigCode.WRONG_TYPE, "config[0]"),
        (
            {"augmentation": [single("frame", "a") | {"config": {"flip": None}}]},
            ConfigCode.WRONG_TYPE,
            "augmentation[0].config",
        ),
        (
            {"augmentation": [{"branch_type": "single", "inputs": "frame", "outputs": "a"}]},
            ConfigCode.MISSING_KEY,
            "config",
        ),
        ({"augmentation": {"a": 1}}, ConfigCode.WRONG_TYPE, "dataset.augmentation must"),
        ({"augmentation": ["resize"]}, ConfigCode.WRONG_TYPE, "dataset.augmentation[0]"),
        ({"labels": "labels.txt"}, ConfigCode.WRONG_FORMAT, "'labels.txt'"),
        ({"video_dataset_path": "~/videos"}, ConfigCode.WRONG_FORMAT, "'~'"),
        ({"video_dataset_path": "$HOME/videos"}, ConfigCode.WRONG_FORMAT, "'~'"),
        ({"video_dataset_path": "/videos\nx"}, ConfigCode.WRONG_FORMAT, "dataset.video_dataset_path"),
        ({"video_dataset_path": " "}, ConfigCode.MISSING_KEY, "dataset.video_dataset_path"),
        ({"where": "x" * 10_001}, ConfigCode.OUT_OF_RANGE, "10001"),
        ({"sampling": None}, ConfigCode.WRONG_TYPE, "dataset.sampling"),
        ({"seed": -1}, ConfigCode.OUT_OF_RANGE, "dataset.seed"),
        ({"epochs": True}, ConfigCode.WRONG_TYPE, "got True"),
        ({"epochs": 1.0}, ConfigCode.WRONG_TYPE, "got 1.0"),
    ],
)
def test_mistakes_in_a_mapping_are_named_by_their_keys(changes: dict[str, Any], code: ConfigCode, words: str) -> None:
    """A Python mapping has no lines, so messages lead to the mistake by its keys."""
    error = refused({"dataset": task(**changes)})
    assert words in str(error)
    assert (error.code, error.file, error.line) == (code, "<mapping>", 0)


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
