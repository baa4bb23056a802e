"""What a video's own pictures took when they were packed says what others of it will take."""

from hypothesis import assume, given
from hypothesis import strategies as st

from viewcache.materializer.media.loss import LOSSY
from viewcache.materializer.planning.ladder import GUESSED, Ladder
from viewcache.materializer.retention.density import ENOUGH_BYTES, Densities
from viewcache.store.codec_trial import Trial

LADDER = Ladder()
PICTURE = 300_000
PACKED = [name for name, rung in GUESSED.items() if rung.lead and name != LOSSY]


def trial(codec: str, share: float, raw: int = 16 * PICTURE, picture: int = PICTURE) -> Trial:
    """So much was left of some pictures."""
    return Trial(codec, picture, raw, round(raw * share), 0.0, 0.0)


def seen(*trials: Trial) -> Densities:
    """Of one video."""
    densities = Densities()
    densities.note("v", trials)
    return densities


@given(st.sampled_from(PACKED), st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5))
def test_what_was_packed(codec: str, shares: list[float]) -> None:
    """The mean is expected of the rest, and no object that was seen took more than is promised."""
    rung = seen(*(trial(codec, each) for each in shares)).of(LADDER, "v", codec, PICTURE).of(GUESSED[codec])
    assert abs(rung.packed - sum(shares) / len(shares)) < 1e-5
    assert rung.promised >= min(1.0, max(shares)) - 1e-5


@given(st.sampled_from(PACKED), st.sampled_from(PACKED), st.floats(0.1, 4.0))
def test_other_codecs(codec: str, other: str, times: float) -> None:
    """A codec that has packed nothing of a video is expected to do as much worse than usual as others do."""
    assume(codec != other)
    share = min(1.0, GUESSED[codec].packed * times)
    densities = seen(trial(codec, share))
    rung = densities.of(LADDER, "v", other, PICTURE).of(GUESSED[other])
    assert abs(rung.packed - min(1.0, GUESSED[other].packed * share / GUESSED[codec].packed)) < 1e-4
    densities.note("v", [trial(other, 0.5)])
    assert abs(densities.of(LADDER, "v", other, PICTURE).of(GUESSED[other]).packed - 0.5) < 1e-4


@given(st.sampled_from(PACKED), st.floats(0.001, 0.05))
def test_a_still_scene_says_little_of_a_busy_one(codec: str, share: float) -> None:
    """A video whose first objects pack well is promised as much as any, until much of it was packed."""
    little, much = seen(trial(codec, share)), seen(trial(codec, share, raw=ENOUGH_BYTES))
    of_little, of_much = (each.of(LADDER, "v", codec, PICTURE).of(GUESSED[codec]) for each in (little, much))
    assert of_little.promised >= GUESSED[codec].promised - 1e-9 > of_much.promised
    assert abs(of_little.packed - of_much.packed) < 1e-4, "what is expected is the same"


def test_what_says_nothing() -> None:
    """Of other videos, of what is packed otherwise, of what loses something, and of other sizes where there are any."""
    assert seen(trial("h264", 0.9)).of(LADDER, "w", "h264", PICTURE).of(GUESSED["h264"]) == GUESSED["h264"]
    for codec in ("raw", "lz4", "zstd1"):
        assert seen(trial(codec, 0.9)).of(LADDER, "v", codec, PICTURE).of(GUESSED[codec]) == GUESSED[codec]
    assert seen(trial(LOSSY, 0.9)).of(LADDER, "v", "h264", PICTURE).of(GUESSED["h264"]) == GUESSED["h264"]
    sizes = seen(trial("h264", 0.9, picture=10), trial("h264", 0.3))
    assert abs(sizes.of(LADDER, "v", "h264", PICTURE).of(GUESSED["h264"]).packed - 0.3) < 1e-4
    assert abs(sizes.of(LADDER, "v", "h264", 10).of(GUESSED["h264"]).packed - 0.9) < 1e-4
