"""A service and its clients agree on the code of operations: one key is one content, whoever asks."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import viewcache
from tests.op_workers.served import SOLARIZE, entry, module
from tests.service.served import ended, start
from tests.tiny import config, single
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import ConfigError, NotFound, OpWorkerFailed
from viewcache.materializer.ops import registry

STEPS = [single({"resize": {"shape": [32, 32]}}, {"solarize": [64, 192]})]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """A store whose service ends with the test."""
    yield tmp_path / "store"
    with suppress(NotFound):
        stop(tmp_path / "store", now=True)


def _attached(given: dict[str, Any]) -> AttachedCache:
    cache: object = viewcache.open(given, service="auto")
    assert isinstance(cache, AttachedCache)
    return cache


@pytest.mark.parametrize("key", [pytest.param("op_workers", marks=pytest.mark.long), "op_modules"])
def test_a_client_with_other_code_is_refused(
    key: str, store: Path, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was edited while the service ran: the error names the operation and the cure, and the cure helps."""
    folder = module(tmp_path / "ops", "joined_code", SOLARIZE)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    code = entry(folder, "joined_code") if key == "op_workers" else {"op_modules": ["joined_code"]}
    given = config(store, videos, cache=code, augmentation=STEPS)
    program = """
try:
    with viewcache.open(given, service="auto") as cache:
        print(json.dumps(digest(cache.read("train", 0, 0))))
except viewcache.ViewcacheError as error:
    print(json.dumps(f"{error.kind}: {error}"))
"""
    first = str(ended(start(program, given)))
    with _attached(
        config(store, videos, augmentation=[single({"resize": {"shape": [8, 8]}})], tag="other")
    ):  # keeps it up
        module(folder, "joined_code", SOLARIZE.replace("255 - frame", "254 - frame"))
        refused = str(ended(start(program, given)))
        assert refused.startswith("config: ")
        assert "the service has loaded other code of op 'solarize'" in refused
        assert "`viewcache stop`" in refused
    stop(store, now=True)
    if key == "op_workers":  # once is enough
        assert ended(start(program, given)) not in (first, refused)


def test_a_joiner_brings_no_program(store: Path, videos: Path, tmp_path: Path) -> None:
    """The service runs only what the configuration named that started it: another op worker is refused, not started."""
    folder = module(tmp_path / "ops", "brought", SOLARIZE)
    given = config(store, videos, cache=entry(folder, "brought"), augmentation=STEPS)
    with _attached(given) as cache:
        batch = cache.read("train", 0, 0)
        codes: list[dict[str, Any]] = [entry(folder, "brought", timeout=3), {"op_workers": {}}]
        for code in codes:
            with (
                registry.own_registrations(),
                pytest.raises(ConfigError, match=r"cache\.op_workers is .* open with mine"),
            ):
                _attached(config(store, videos, cache=code, augmentation=[single("grayscale")], tag="more"))
    own = config(tmp_path / "own", videos, cache=entry(folder, "brought"), augmentation=STEPS)
    with viewcache.open(own, service="off") as alone:
        assert np.array_equal(alone.read("train", 0, 0).video, batch.video)


@pytest.mark.parametrize(
    ("what", "told"),
    [("os._exit(3)", "ended with exit status 3"), ("time.sleep(1000)", r"gave no answer within 1 s")],
    ids=["crash", "hang"],
)
def test_what_ends_an_op_worker_ends_no_service(
    what: str, told: str, store: Path, videos: Path, tmp_path: Path
) -> None:
    """By the policy raise the batch of a clip that crashes or hangs is an error; the same service serves the others."""
    folder = module(tmp_path / "ops", "ends", f"if row[0] == 1: {what}\nreturn frame")
    steps = [single({"resize": {"shape": [32, 32]}}, "own")]
    given = config(store, videos, cache=entry(folder, "ends", timeout=1), augmentation=steps)
    failed, good = list[str](), 0
    with _attached(given) as cache:
        pid = cache.stats().pid
        for epoch, iteration in product(range(3), range(2)):
            try:
                cache.read("train", epoch, iteration)
                good += 1
            except OpWorkerFailed as error:
                failed.append(str(error))
        assert cache.stats().pid == pid
    assert failed
    assert all(re.search(f"op worker 'mine': operation 'own': .*{told}", each) for each in failed)
    assert good, "the service served on"
