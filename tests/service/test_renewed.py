"""Settings of the file that change in the midst of a training: they count from the next service on."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

import viewcache
from tests.service.served import described, digest
from tests.tiny import single
from viewcache.api.config import documents
from viewcache.api.config.yaml_subset import read_source
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import BudgetTooSmall, ConfigError

SETTINGS = {"budget": "20MB", "workers": 2, "memory": "200MB", "service_idle": 7, "mix": 0.5}
"""That may be others than those of the service before."""


@pytest.fixture
def write(store: Path, videos: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes the file of the configuration; keyword arguments as of `tests.tiny.config`."""

    def write(**settings: Any) -> Path:
        config = tmp_path / "train.yaml"
        config.write_text(yaml.safe_dump(described(store, videos, **settings)))
        return config

    return write


@contextmanager
def attached(config: Path | Mapping[str, object]) -> Iterator[AttachedCache]:
    """A cache of a service."""
    opened: object = viewcache.open(config, service="auto")
    assert isinstance(opened, AttachedCache)
    with opened:
        yield opened


def budget(cache: AttachedCache) -> int:
    """Bytes of the running service's folder."""
    return cache.snapshot().tiers["local"].budget


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said about services."""
    return [each.getMessage() for each in caplog.records if each.name == "viewcache.service"]


def test_the_next_service_has_the_settings_of_the_file(store: Path, write: Callable[..., Path]) -> None:
    """After `viewcache stop` a client that goes on begins one with them, and reads what it would have read."""
    with attached(write()) as cache:
        before = [digest(cache.read("train", 0, k)) for k in range(2)]
        assert budget(cache) == 50_000_000
        write(cache=SETTINGS)
        stop(store)
        assert [digest(cache.read("train", 0, k)) for k in range(2)] == before
        assert budget(cache) == 20_000_000
        assert not cache.differing
        with attached(write(cache=SETTINGS)) as other:
            assert not other.warnings


def test_another_client_leaves_such_a_service_as_it_is(store: Path, write: Callable[..., Path]) -> None:
    """One that was opened with the settings of before does not end it, though nobody else uses it."""
    with attached(write()) as one:
        one.read("train", 0, 0)
        with attached(write(cache={"budget": "20MB", "service_idle": 60})) as two:
            stop(store)
            two.read("train", 0, 0)
            pid = two.stats().pid
        one.read("train", 0, 0)
        assert one.stats().pid == pid
        assert budget(one) == 20_000_000


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cache": {"seed": 99, "budget": "20MB"}}, "cache.seed is 99, but the cache was opened with 7"),
        ({"cache": {"epochs_per_generation": 1, "budget": "20MB"}}, "cache.epochs_per_generation is 1, but"),
        ({"cache": {"service": "off", "budget": "20MB"}}, "cache.service is off, but"),
        (
            {"cache": {"op_modules": ["numpy"], "budget": "20MB"}},
            "cache.op_modules is a list of 1, but the cache is open with none",
        ),
        ({"cache": {"budget": "20 parsecs"}}, "20 parsecs"),
        ({"cache": {"eviction": {"policy": "no_such"}, "budget": "20MB"}}, "no_such"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used_changes_nothing(
    store: Path, write: Callable[..., Path], change: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is of another cache, names other code, or is wrong: the training goes on, and its log says which key it is."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        config = write(**change)
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000
    (said,) = warned(caplog)
    assert f"no service begins with the settings that the file has by now, so those of before stay: {config}:" in said
    assert why in said


@pytest.mark.parametrize("until", ["budget", "dataset"])
def test_a_file_that_ends_too_early_changes_nothing(store: Path, write: Callable[..., Path], until: str) -> None:
    """Such as one that an editor is writing: without its budget the cache would take half of the disk."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        file = write(cache={"budget": "20MB"})
        file.write_text(file.read_text().partition(f"{until}:")[0].rpartition("\n")[0] + "\n")
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000


def test_files_are_read_by_who_starts_a_service(
    store: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that go on, as workers of a DataLoader do, only that one says that its file cannot be used."""
    with attached(write()) as one, attached(write()) as two:
        before = digest(one.read("train", 0, 0))
        write(cache={"seed": 99})
        stop(store)
        read = Mock(wraps=read_source)
        monkeypatch.setattr(documents, "read_source", read)
        assert digest(one.read("train", 0, 0)) == before
        assert digest(two.read("train", 0, 0)) == before
        assert read.call_count == len(warned(caplog)) == 1


def test_what_differs_is_told_of_the_file_as_it_is(
    store: Path, videos: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Where another client has begun the service with the settings of a third file."""
    with attached(write()) as one:
        one.read("train", 0, 0)
        third = described(store, videos, cache={"budget": "20MB", "service_idle": 60})
        with attached(third) as two:
            write(cache={"budget": "30MB"})
            caplog.clear()
            stop(store)
            two.read("train", 0, 0)
            one.read("train", 0, 0)
            assert not two.differing
            (told,) = one.differing
            assert told.startswith("cache.budget is 30 MB in the configuration, but the running service has 20 MB, ")
            write(cache={"seed": 99})
            assert [each.partition(",")[0] for each in one.differing] == [
                "cache.budget is 50 MB in the configuration"
            ], "a file that cannot be used counts as it was"
        assert not warned(caplog)


def test_a_budget_that_holds_no_batch_changes_nothing(
    store: Path, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A service begins with it, and has no room for the task: the next one has the settings of before."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        write(cache={"budget": "100kB"})
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000
    (said,) = warned(caplog)
    assert "so those of before stay: " in said


def test_a_tier_in_memory_comes_and_goes(store: Path, write: Callable[..., Path]) -> None:
    """Where the objects lie is the same, whatever lies before it."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        for tiers, has in (([{"url": "memory://", "budget": "2MB"}, {"url": str(store)}], True), (str(store), False)):
            write(cache={"store": tiers, "budget": "20MB"})
            stop(store)
            assert digest(cache.read("train", 0, 0)) == before
            assert ("memory" in cache.snapshot().tiers) is has
            assert budget(cache) == 20_000_000
            assert not cache.differing


def test_settings_with_which_no_service_begins_change_nothing(
    store: Path, write: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy that is no SQL is found when the service opens the cache: the log of who goes on says so."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/mine.sql").write_text("select nonsense")
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        write(cache={"eviction": {"policy": "mine", "folder": str(tmp_path / "policies")}, "budget": "20MB"})
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000
    (said,) = warned(caplog)
    assert "so those of before stay: " in said
    assert "mine" in said


def test_a_file_that_is_gone_or_elsewhere_changes_nothing(
    store: Path, write: Callable[..., Path], tmp_path: Path
) -> None:
    """Neither does one whose store lies elsewhere by now."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        write(cache={"store": str(tmp_path / "elsewhere"), "budget": "20MB"})
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        (tmp_path / "train.yaml").unlink()
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000
        assert not (tmp_path / "elsewhere").exists()


def test_tasks_stay_as_they_were_opened(store: Path, write: Callable[..., Path]) -> None:
    """Settings count from the next service on, also where the file describes the task otherwise by now."""
    with attached(write()) as cache:
        before = digest(cache.read("train", 0, 0))
        other = [single({"center_crop": {"shape": [24, 24]}})]
        config = write(augmentation=other, cache={"budget": "20MB"})
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 20_000_000
        with pytest.raises(ConfigError, match="is open with another definition"), attached(config):
            pass


def test_a_mapping_stays_what_it_was(store: Path, videos: Path) -> None:
    """A configuration that is no file cannot change."""
    given = described(store, videos)
    with attached(given) as cache:
        before = digest(cache.read("train", 0, 0))
        stop(store)
        assert digest(cache.read("train", 0, 0)) == before
        assert budget(cache) == 50_000_000


SMALL = {"videos_per_batch": 1, "frames_per_video": 1, "samples_per_video": 1}
"""Sampling of a task that has room where that of the other tests has none."""


def test_a_service_without_room_makes_way_once_nobody_uses_it(
    store: Path, videos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another client began it for its own small task; who goes on ends no training because of the order of both."""
    little = described(store, videos, cache={"budget": "40kB", "service_idle": 60}, tag="small", sampling=SMALL)
    with attached(described(store, videos)) as one:
        before = digest(one.read("train", 0, 0))
        with attached(little) as two:
            caplog.clear()
            stop(store)
            two.read("small", 0, 0)
            with pytest.raises(
                BudgetTooSmall, match=f"cache.budget is 40000; .* then `viewcache stop {store}`"
            ) as told:
                one.read("train", 0, 0)
            assert told.value.minimum > 40_000
        assert digest(one.read("train", 0, 0)) == before
        assert budget(one) == 50_000_000
    assert not warned(caplog)


def test_many_go_on_with_a_file_that_has_no_room(store: Path, write: Callable[..., Path]) -> None:
    """Whoever is first begins a service that refuses all of them: the others are not ended by it."""
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        caches = [stack.enter_context(attached(write())) for _ in range(4)]
        before = digest(caches[0].read("train", 0, 0))
        write(cache={"budget": "100kB"})
        stop(store)
        assert set(pool.map(lambda each: digest(each.read("train", 0, 0)), caches)) == {before}
        assert budget(caches[0]) == 50_000_000
