"""Law 10, in short: text from a configuration runs nothing and reaches no file; each reader's own tests go further."""

from pathlib import Path

import pytest

import viewcache
from tests.tiny import open_cache
from viewcache.errors import BadInput, ConfigError


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system ['touch {}']", "!!python/name:os.system", "&a [*a]"]
)
def test_yaml_builds_no_objects(tmp_path: Path, value: str) -> None:
    """Tags, anchors and aliases are refused with their place."""
    trap = tmp_path / "trap"
    with pytest.raises(ConfigError, match=":2:"):
        viewcache.open(f"cache:\n  seed: {value.format(trap)}\n")
    assert not trap.exists()


@pytest.mark.parametrize(
    "where",
    [
        "label in (select column0 from read_csv('/etc/passwd'))",
        "exists (select * from read_text('/etc/hostname'))",
        "true; copy (select 1) to '{trap}'",
        "name in (select 'x' from '{trap}')",
        "getenv('HOME') is not null",
    ],
)
def test_a_predicate_reaches_nothing_but_its_columns(tmp_path: Path, videos: Path, where: str) -> None:
    """``where`` sees the dataset's columns: no file, no second statement, no setting of the process."""
    trap = tmp_path / "trap.csv"
    with pytest.raises(BadInput, match="where"):
        open_cache(tmp_path / "s", videos, where=where.format(trap=trap))
    assert not trap.exists()
