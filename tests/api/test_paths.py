"""Text below ``view://`` to a value and back."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewcache.api.views.paths import FORMS, NodeKind, ViewPath, parse_path
from viewcache.errors import BadUrl

NAMES = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
NUMBERS = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "folder"),
        ("train", "folder"),
        ("train/12", "folder"),
        ("train/cat", "folder"),
        ("train/0/12", "folder"),
        ("train/cat.mp4", "video"),
        ("train/cats.-a.20b.mp4", "video"),
        ("train/cat/frame3", "frame"),
        ("train/cat/frame3/aug1", "aug"),
        ("train/cat/frame3/aug1?epoch=2&sample=1&output=b", "aug"),
        ("train/cat/at", "folder"),
        ("train/cat/at/12.48s", "frame"),
        ("train/cat/at/0s/aug2?epoch=1", "aug"),
        ("train/0/12/view", "view"),
        ("train/0/12/view?rank=1&world=2", "view"),
        ("train/0/12/view.zarr", "zarr"),
        ("train/0/12/view.zarr/video/c/0/0/0/0/0", "zarr"),
    ],
)
def test_each_form_has_its_kind(text: str, kind: str) -> None:
    """The last component decides the kind, with or without the scheme and outer slashes."""
    assert parse_path(text).kind == kind
    assert parse_path("view://" + text) == parse_path("view://" + text.rstrip("/")) == parse_path(text)


def test_a_video_named_like_an_epoch() -> None:
    """A video called 12 and epoch 12 live side by side."""
    assert parse_path("train/12/frame0").video == "12"
    assert parse_path("train/12/0/view").epoch == 12
    assert parse_path("train/12/frame0/aug1").kind == "aug"


@pytest.mark.parametrize(
    "text",
    [
        "train//view",
        "train/../secret",
        "train/./cat",
        "train/c t",
        "train/cat\n",
        "train/cat\x00.mp4",
        "train/ca\u0301t",
        "train/\u0663/0/view",
        "train/" + "a" * 135,
        "train/cat/frame-1",
        "train/cat/frame01",
        "train/cat/frame1/aug",
        "train/cat/frame1/aug1/x",
        "train/cat/at/12.48",
        "train/cat/at/-1s",
        "train/cat/at/1e3s",
        "train/cat/at/.5s",
        "train/cat/at/00.5s",
        "train/cat/at/1s/frame0",
        "train/cat/at/1s?epoch=1",
        "train/00/0/view",
        "train/0/0/views",
        "train/0/99999999999/view",
        "train/0/0/view?rank=2&world=2",
        "train/0/0/view?world=0",
        "train/0/0/view?rank=1&rank=1",
        "train/0/0/view?epoch=1",
        "train/0/0/view?rank=",
        "train/0/0/view.zarr?rank=0",
        "train/cat/frame1?epoch=1",
        "train/cat/frame1/aug1?epoch=-1",
        "train/cat/frame1/aug1?epoch=1e3",
        "?x=1",
        "s3://bucket/train",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_path_is_named(text: str) -> None:
    """A malformed path is a BadUrl that shows the text and the five forms."""
    with pytest.raises(BadUrl) as caught:
        parse_path(text)
    assert repr(text) in str(caught.value)
    assert all(form in str(caught.value) for form in FORMS)
    assert isinstance(caught.value, ValueError)


def test_what_is_given_twice_is_told_so() -> None:
    """An option that is allowed is not said to be another one's."""
    with pytest.raises(BadUrl, match=r"\?epoch= is given twice"):
        parse_path("train/cat/frame3/aug3?epoch=0&epoch=1")


@given(st.text(max_size=60) | st.text("train/0frameugviewz.%?&=-\x00\n", max_size=60))
def test_any_text_is_a_path_or_a_bad_url(text: str) -> None:
    """Parsing never raises anything but BadUrl, and never lets a component through that is not a plain name."""
    try:
        found = parse_path(text)
    except BadUrl:
        return
    assert all(part not in ("", ".", "..") and part.isascii() and "/" not in part for part in found.parts)


HOSTILE = [
    "../",
    "..",
    "\\",
    "%2e%2e",
    "%00",
    "::",
    "://",
    "?epoch=",
    "#",
    "*",
    "?",
    "[a]",
    "~",
    "$HOME",
    "`id`",
    ";",
    "|",
]
HOSTILE += ["&", "<", ">", "'", '"', "\x00", "\n", "\r", " ", "\t", "\u0663", "\xe9", "\u202e", "\ud800"]


def test_two_thousand_hostile_names() -> None:
    """Tricks that break other path readers are refused, or are plain names: as video, as task and inside a group."""
    chance = random.Random(5)
    for _ in range(2000):
        pieces = chance.choices([*HOSTILE, "cat", "frame1", "view", "0"], k=chance.randint(1, 5))
        name = "".join([*pieces, chance.choice(HOSTILE)])
        for text in (f"train/{name}/frame0", f"{name}/0/0/view", f"train/0/0/view.zarr/{name}"):
            try:
                found = parse_path(text)
            except BadUrl:
                continue
            assert not {"..", "."} & set(found.parts), text
            assert all(re.fullmatch(r"[A-Za-z0-9._-]+", part) for part in found.parts), text


@given(
    st.one_of(
        st.builds(
            lambda t, v, e: ViewPath(NodeKind.VIDEO, (t, f"{v}.{e}"), t, f"{v}.{e}"), NAMES, NAMES, st.just("mp4")
        ),
        st.builds(lambda t, v, i: ViewPath(NodeKind.FRAME, (t, v, f"frame{i}"), t, v, i), NAMES, NAMES, NUMBERS),
        st.builds(
            lambda t, v, i, d, e, s, o: ViewPath(
                NodeKind.AUG, (t, v, f"frame{i}", f"aug{d}"), t, v, i, d, epoch=e, sample=s, output=o
            ),
            *(NAMES, NAMES, NUMBERS, NUMBERS, st.none() | NUMBERS, NUMBERS, st.none() | st.text(min_size=1)),
        ),
        st.builds(
            lambda t, e, i, r, w: ViewPath(
                NodeKind.VIEW, (t, str(e), str(i), "view"), t, epoch=e, iteration=i, rank=min(r, w - 1), world=w
            ),
            *(NAMES, NUMBERS, NUMBERS, st.integers(0, 9), st.integers(1, 9)),
        ),
    )
)
def test_a_path_survives_being_written(path: ViewPath) -> None:
    """Writing a path and reading it gives the same path."""
    assert parse_path(str(path)) == path
    assert parse_path("view://" + str(path)) == path
