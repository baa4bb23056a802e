"""`cache.eviction`: names that there are, marks in order, a folder that is there."""

from pathlib import Path
from typing import Any

import pytest

from tests.config.samples import task
from viewcache.api.config.load import load
from viewcache.errors import ConfigError
from viewcache.materializer.spec import EvictionSpec


def eviction(**keys: Any) -> EvictionSpec:
    """The section of a configuration with these keys."""
    return load({"cache": {"budget": 1, "eviction": keys}, "dataset": task()}).cache.eviction


def test_the_default_is_demand_near_the_top() -> None:
    """Without the section, and with an empty one, the budget is used almost whole."""
    assert load({"dataset": task()}).cache.eviction == eviction() == EvictionSpec("demand", None, 0.95, 0.9)


def test_a_policy_is_a_shipped_one_or_a_file(tmp_path: Path) -> None:
    """A name of the folder is as good as a shipped one; the folder's path is absolute."""
    (tmp_path / "mine.sql").write_text("select 1")
    assert eviction(policy="lru").policy == "lru"
    assert eviction(policy="mine", folder=str(tmp_path)) == EvictionSpec("mine", str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"policy": "demnd"},
            "no eviction policy is named demnd; did you mean demand? known: cost_benefit, demand, fifo",
        ),
        ({"policy": "mine"}, "no eviction policy is named mine"),
        ({"high_water": 0.5, "low_water": 0.6}, "low_water is 0.6, above high_water, which is 0.5"),
        ({"high_water": 0.5}, "low_water is 0.9, above high_water"),
        ({"high_water": 95}, "high_water must be a number from 0.05 to 1.0"),
        ({"folder": "nowhere"}, "must be a local folder; nowhere is none"),
        ({"folder": "s3://bucket/policies"}, "must be a local folder"),
    ],
)
def test_what_is_wrong_is_said(keys: dict[str, Any], says: str) -> None:
    """Each mistake names the key, the value and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        eviction(**keys)
    assert says in str(caught.value)


def test_a_policy_alone_is_shown_as_a_mapping() -> None:
    """What most people write first says what to write instead."""
    with pytest.raises(ConfigError, match=r"cache.eviction must be a mapping, got 'lru'; write \{policy: lru\}$"):
        load({"cache": {"eviction": "lru"}, "dataset": task()})
