"""A configuration's files that change in the midst of a training: with which of them no service begins, and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny import config
from viewcache.api.config.documents import renewed, texts_of
from viewcache.api.config.load import load
from viewcache.errors import ConfigCode, ConfigError


def _without(section: str, key: str) -> Callable[[dict[str, Any]], object]:
    return lambda given: given[section].pop(key)


def _with(**cache: object) -> Callable[[dict[str, Any]], object]:
    return lambda given: given["cache"].update(cache)


@pytest.mark.parametrize(
    ("change", "code", "line", "why"),
    [
        (_with(seed=99), "other_cache", 8, "cache.seed is 99, but the cache was opened with 7"),
        (_without("cache", "seed"), "other_cache", 0, "cache.seed is 0, but the cache was opened with 7"),
        (_with(catalog="postgresql://host/db"), "other_cache", 3, "host/db, but the cache was opened with "),
        (_with(store="elsewhere"), "other_cache", 9, "elsewhere, but the cache was opened with "),
        (_with(service="off"), "other_cache", 9, "cache.service is off, but the cache was opened with auto"),
        (_with(op_modules=["json"]), "other_cache", 7, "but the cache is open with no_ops"),
        (_without("cache", "op_modules"), "missing_key", 0, "cache.op_modules is not there any more, which was given"),
        (_without("cache", "budget"), "missing_key", 0, "cache.budget is not there any more, which was given"),
        (lambda given: given.pop("dataset"), "missing_key", 0, "dataset is not there any more, which was given"),
    ],
    ids=range(9),
)
def test_a_file_of_another_cache_is_told_by_its_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], object],
    code: str,
    line: int,
    why: str,
) -> None:
    """With both values and its line; a key that is gone has none."""
    (tmp_path / "no_ops.py").write_text("OPS = []")
    monkeypatch.syspath_prepend(tmp_path)
    given: Any = config(tmp_path / "store", tmp_path, cache={"op_modules": ["no_ops"]})
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(given))
    sources, before = texts_of(file), load(file)
    assert renewed(sources, before) == (sources, before)
    change(given)
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(ConfigError) as told:
        renewed(sources, before)
    assert (told.value.code, told.value.file, told.value.line or 0) == (ConfigCode(code), str(file), line)
    assert why in str(told.value)
