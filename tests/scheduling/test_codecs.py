"""Codecs are chosen by measured costs (docs/design/0019): the choice itself, and real caches that make it."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewcache
from tests.faults.caches import config, read_all
from viewcache.catalog.records import IoSampleRow
from viewcache.materializer.planning.ladder import trial_rows
from viewcache.materializer.planning.prices import Prices
from viewcache.materializer.storage.codecs import CodecChooser, Rates, cheapest_codec, rates
from viewcache.store import CODECS, codec
from viewcache.store.codec_trial import Trial, try_codecs

CHUNK = 1 << 20

SECONDS = st.floats(0, 1e-6)
RATES = st.fixed_dictionaries(
    {
        name: st.builds(Rates, SECONDS, SECONDS, st.floats(0.01, 1.2) if name != "raw" else st.just(1.0))
        for name in CODECS
    }
)


@given(RATES, st.floats(0, 10), st.floats(0, 1e-6))
def test_nothing_is_cheaper(known: dict[str, Rates], uses: float, byte_s: float) -> None:
    """No other codec costs less over the object's life."""

    def cost(name: str) -> float:
        return known[name].pack_s + uses * known[name].load_s + byte_s * known[name].packed

    assert cost(cheapest_codec(known, uses=uses, byte_s=byte_s)) == min(map(cost, known))


@given(RATES, st.floats(0, 10), st.floats(0, 1e-6), st.floats(1, 100))
def test_dearer_bytes_never_choose_a_larger_codec(
    known: dict[str, Rates], uses: float, byte_s: float, factor: float
) -> None:
    """The shorter the budget, the smaller what is stored."""
    now = cheapest_codec(known, uses=uses, byte_s=byte_s)
    later = cheapest_codec(known, uses=uses, byte_s=byte_s * factor)
    # Costs that differ by less than rounding may choose either.
    assert known[later].packed <= known[now].packed * (1 + 1e-9) or cost_near(known, now, later, uses, byte_s * factor)


def cost_near(known: dict[str, Rates], one: str, other: str, uses: float, byte_s: float) -> bool:
    """Whether two codecs cost the same, as far as doubles can tell."""
    first, second = (
        known[each].pack_s + uses * known[each].load_s + byte_s * known[each].packed for each in (one, other)
    )
    return math.isclose(first, second, rel_tol=1e-9)


def chooser(samples: list[IoSampleRow], byte_s: float = 0.0, **fixed: str) -> CodecChooser:
    """Of a cache with these measurements."""
    tiers = {"memory": "auto", "local": "auto", "remote": "auto"} | fixed
    return CodecChooser(tiers, lambda: samples, lambda: Prices(byte_s))


HALVED = trial_rows(
    [Trial("zstd1", CHUNK, CHUNK, CHUNK // 2, 2e-3, 1e-3), Trial("lz4", CHUNK, CHUNK, CHUNK, 1e-4, 1e-4)]
)
"""zstd1 halves a chunk of a mebibyte in 2 ms and unpacks it in 1 ms; lz4 gains nothing."""


def test_until_something_was_tried_objects_are_raw() -> None:
    """Nothing is guessed of what a codec does to pixels."""
    assert {chooser([]).pick(tier, CHUNK, 1.0) for tier in ("memory", "local", "remote")} == {"raw"}


def test_a_fast_disk_with_room_stores_raw_and_a_slow_network_does_not() -> None:
    """The same measurements choose differently where bytes cost time."""
    assert chooser(HALVED).pick("local", CHUNK, 1.0) == "raw"
    assert chooser(HALVED).pick("memory", CHUNK, 1.0) == "raw"
    assert chooser(HALVED).pick("remote", CHUNK, 1.0) == "zstd1"
    slow = [*HALVED, IoSampleRow("load", 20, "raw", "local", 100, 5.0, 100 * CHUNK)]
    assert chooser(slow).pick("local", CHUNK, 1.0) == "zstd1"


def test_a_short_budget_packs() -> None:
    """When a byte is worth more than it costs to save it, it is saved; not in memory, where all lies below as well."""
    assert chooser(HALVED, byte_s=1e-7).pick("local", CHUNK, 1.0) == "zstd1"
    assert chooser(HALVED, byte_s=1e-7).pick("memory", CHUNK, 1.0) == "raw"


def test_measured_loads_are_believed_before_what_was_reckoned() -> None:
    """A codec that loads slower than its trial said is not chosen any more."""
    slow = [
        *HALVED,
        IoSampleRow("load", 20, "raw", "remote", 100, 1.0, 100 * CHUNK),
        IoSampleRow("load", 20, "zstd1", "remote", 100, 2.0, 100 * CHUNK),
    ]
    assert chooser(slow).pick("remote", CHUNK, 1.0) == "raw"


def test_what_is_configured_is_not_asked() -> None:
    """A tier with a codec of its own takes that one, whatever was measured."""
    assert chooser(HALVED, byte_s=1.0, local="lz4").pick("local", CHUNK, 1.0) == "lz4"


def test_trials_of_another_size_say_nothing() -> None:
    """Frames pack otherwise than clips: each size of chunk has its own measurements."""
    assert set(rates(HALVED, "local", CHUNK)) == {"raw", "zstd1", "lz4"}
    assert set(rates(HALVED, "local", CHUNK // 16)) == {"raw"}


@pytest.mark.parametrize("content", ["noise", "flat"])
def test_a_trial_measures_what_the_codec_does(content: str) -> None:
    """Its sizes are those of the codec, of the chunk's middle."""
    whole = np.zeros((4, CHUNK), np.uint8)
    if content == "noise":
        whole = np.random.default_rng(1).integers(0, 256, whole.shape, np.uint8)
    middle = whole.reshape(-1)[3 * CHUNK // 2 : 5 * CHUNK // 2]
    for trial in try_codecs(whole):
        assert (trial.chunk_bytes, trial.raw_bytes) == (whole.size, CHUNK)
        assert trial.packed_bytes == codec(trial.codec).encode(middle).size
        assert trial.pack_s > 0
        assert trial.unpack_s is not None
        assert trial.unpack_s > 0


def test_a_cache_that_chooses_serves_the_same(tmp_path: Path, videos: Path) -> None:
    """Whatever is chosen, also when a second run knows more than the first, every batch is the same (law 3)."""
    with viewcache.open(config(tmp_path / "raw", videos)) as cache:
        truth = dict(read_all(cache))
    tight = config(tmp_path / "auto", videos, codec="auto", budget=104_000)
    for _ in range(2):
        with viewcache.open(tight) as cache:
            assert dict(read_all(cache)) == truth
            assert {row.op for row in cache.catalog.load_io_samples()} >= {"pack", "packed", "unpack", "load", "store"}


def test_work_is_told_with_its_core_seconds(tmp_path: Path, videos: Path) -> None:
    """Of each kind of work, those of workers and of readers; no row has more of them than seconds."""
    with viewcache.open(config(tmp_path / "auto", videos, codec="auto")) as cache:
        dict(read_all(cache))
        cache.catalog.flush()
        rows = cache.catalog.load_io_samples()
    core_s = {op: sum(row.cpu_s for row in rows if row.op == op) for op in ("decode", "convert", "store", "load")}
    assert min(core_s.values()) > 0
    assert all(row.cpu_s <= row.seconds for row in rows)
    assert all(row.cpu_s == row.seconds for row in rows if row.op in ("load", "pack", "unpack"))
