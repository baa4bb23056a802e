"""Damaged configurations end in one of our errors, quickly and in little memory; the mutations are seeded."""

import random
import resource
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.samples import FIGURE_9
from viewcache.api.config.load import Config, load
from viewcache.api.config.yaml_subset import LOADER, Loader, read_text
from viewcache.errors import BadInput, ConfigError, NotFound, ViewcacheError

FILES = 10_000
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
CORPUS = [FIGURE_9, *(path.read_text("utf-8") for path in EXAMPLES)]

# What the language has beside plain text, values at the edges of types, and words of the table in wrong places.
WORDS = """
: - ? & * ! | > ' " % @ ` { } [ ] , # --- ... << ~ null None true no .inf .nan -1 0 1e999 0x 0o8 010 1:30 1_0 2024-02-30
!!python/object/apply:os.system !!binary &a *a %YAML %TAG \\x00 "\\ud800" "\\U99999999" 99999999999999999999 1.5TiB 200G
s3://k:v@b file:///x postgresql:// else iteration>1 and not ( ) frame a0 single merge multi conditional random concat
dataset cache sampling augmentation branches config condition prob inputs outputs tag resize flip no_op ä 日本
"""
SPACES = (
    "\n",
    "\t",
    "\r",
    "\x00",
    "\x85",
    "\xa0",
    "\u2028",
    "\ufeff",
    " ",
    "  ",
    "    ",
    "\n- ",
    "\n  ",
    ": ",
    "\n---\n",
)
PIECES = (*WORDS.split(), *SPACES)


def mutated(rng: random.Random) -> str:
    """A valid configuration with one to six pieces deleted, doubled, moved, replaced or inserted."""
    text = rng.choice(CORPUS)
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 1, 3, 10, 60)))
        piece = rng.choice((rng.choice(PIECES), rng.choice(PIECES), text[start:end] * 2, "", chr(rng.randrange(256))))
        if rng.random() < 0.2:  # another line in the place of this one
            lines = text.split("\n")
            lines[rng.randrange(len(lines))] = rng.choice(lines)
            text = "\n".join(lines)
        else:
            text = text[:start] + piece + text[end:]
    return text + "\n"


def outcome(text: str) -> Config | ViewcacheError:
    """What loading gives; anything but a configuration or one of our errors fails the test."""
    try:
        return load(text)
    except ViewcacheError as error:
        return error


def test_ten_thousand_damaged_files_end_in_our_errors() -> None:
    """Each of 10,000 mutated files loads or is a ConfigError with a place; none takes a second or 200 MB."""
    rng = random.Random(20_240_917)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded, placed, slowest_s = 0, 0, 0.0
    for _ in range(FILES):
        text = mutated(rng)
        start = time.thread_time()
        result = outcome(text)
        slowest_s = max(slowest_s, time.thread_time() - start)
        if isinstance(result, Config):
            loaded += 1
        else:
            assert isinstance(result, ConfigError), (text, result)
            assert len(str(result)) < 4000
            placed += bool(result.line)
    assert slowest_s < 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) < 200 << 10
    # The mutations reach behind the parser and do not all break the file: otherwise this would test nothing.
    assert 500 < loaded < FILES - 5000
    assert placed > 0.95 * (FILES - loaded)


@pytest.mark.parametrize(
    "worst",
    [
        "a: [" + "1," * 520_000 + "]",
        "x" * (1 << 20),
        "a: '" + "\\" * (1 << 19),
        "{" * (1 << 19),
        "a:\n" + "- b\n" * 260_000,
        "a: " + " " * (1 << 19) + "*x",
        "k" * 2000 + ": 1\n" * 100_000,
        "".join(f"k{k}: 1\n" for k in range(90_000)),
        "? " * (1 << 19),
        '"' + "\\u00e4" * 170_000,
        "#" * (1 << 20),
        "\n" * (1 << 20),
        "---\n" * 260_000,
        "dataset: {" + "q" * (1 << 19) + ": 1}\n",
        "dataset: {tag: " + "q" * (1 << 19) + "}\n",
        "- " + "!" * (1 << 19) + " x\n",
        "- &" + "a" * (1 << 19) + " x\n",
        "%YAML 1." + "9" * 5000 + "\n---\na: 1\n",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_the_worst_files_of_a_mebibyte_are_refused_in_a_second(worst: str) -> None:
    """A file as long as the cap allows, of whatever the parser likes least, costs at most a second."""
    start = time.thread_time()
    result = outcome(worst + "\n")
    assert time.thread_time() - start < 1
    assert isinstance(result, ConfigError)
    assert len(str(result)) < 1000


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_an_error(text: str) -> None:
    """Arbitrary text with a line break gives a configuration or one of our errors; without one it is no file."""
    assert isinstance(outcome(text + "\n"), Config | ConfigError)
    if "\n" not in text:
        assert isinstance(outcome("absent/" + text), NotFound | BadInput)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has only the pure parser")
def test_both_parsers_agree_on_what_a_damaged_file_means() -> None:
    """Where libyaml and the pure parser both read a damaged file, they read the same values."""
    rng = random.Random(7)
    texts = [mutated(rng) for _ in range(300)]
    fast = [_values(text, LOADER) for text in texts]
    both = [(one, _values(text, yaml.SafeLoader)) for one, text in zip(fast, texts, strict=True) if one is not None]
    same = [one == other for one, other in both if other is not None]
    assert all(same)
    assert len(same) > 50


def _values(text: str, loader: Loader) -> object:
    try:
        return [node.plain() for node in read_text(text, loader=loader)]
    except ConfigError:
        return None
