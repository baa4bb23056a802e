"""Whatever arrives when, and whoever is killed: epochs have exactly what their generation had, in one order for all."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.streaming.arriving import arrive, streaming
from viewcache.api.config.load import load
from viewcache.catalog import Catalog
from viewcache.materializer.choices import ProbeMode
from viewcache.materializer.dataset import arrivals, listing
from viewcache.materializer.dataset.listed import Found
from viewcache.materializer.dataset.scan_worker import look
from viewcache.materializer.media.facts import Scanned
from viewcache.materializer.tasks.group import Group
from viewcache.materializer.tasks.opening import open_task, share_among
from viewcache.materializer.tasks.task import Task

TASKS = {1: ("one",), 2: ("one", "two")}
EPOCHS = 6


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are read in this process: what starting another one costs would leave time for a tenth of the cases."""

    def read(
        files: Sequence[Found], max_pixels: int, *, probe: ProbeMode, **_: object
    ) -> Iterator[tuple[Found, Scanned]]:
        for each in files:
            yield each, look(each.uri, max_pixels, probe)

    monkeypatch.setattr(listing, "scan", read)
    monkeypatch.setattr(arrivals, "scan", read)


@dataclass
class World:
    """A folder that grows, a catalog that may be killed at any time, and what everybody was told so far."""

    root: Path
    clips: list[Path]
    k: int
    tasks: tuple[str, ...]
    lives: int = 0
    come: set[str] = field(default_factory=set)
    had: dict[int, set[str]] = field(default_factory=dict)
    """Generation → what was there when it was drawn first."""
    told: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(task, epoch) → videos at the positions that are drawn for certain."""

    def __post_init__(self) -> None:
        """Begin with one clip."""
        self.arrive(1)
        self.open(self.root / "store0")

    def arrive(self, count: int) -> None:
        """Let the next clips come, in an order that is not that of their names."""
        for each in self.clips[len(self.come) : len(self.come) + count]:
            arrive(self.root / "videos", each)
            self.come.add(each.stem)

    def open(self, store: Path) -> None:
        """Open the tasks on a store, as a cache does."""
        one = streaming(store, self.root / "videos", epochs=EPOCHS, cache={"epochs_per_generation": self.k})
        dataset = one["dataset"]
        assert isinstance(dataset, dict)
        config = load({"cache": one["cache"], "dataset": [dataset | {"tag": name} for name in self.tasks]})
        self.catalog = Catalog.open(str(store))
        grown: dict[object, object] = {}
        self.open_tasks: dict[str, Task] = {
            spec.name: open_task(config.cache, spec, self.catalog, budget_bytes=10**8, grown=grown)  # type: ignore[arg-type]
            for spec in config.tasks
        }
        groups: dict[int, Group] = {}
        share_among([*self.open_tasks.values()], self.catalog, config.cache, groups, nullcontext)
        self.store = store

    def kill(self) -> None:
        """Go on with what lies on the disk now, as after kill -9; then the process that had it may close."""
        self.lives += 1
        left = Path(shutil.copytree(self.store, self.root / f"store{self.lives}"))
        for each in left.glob("*.lock"):
            each.unlink()
        self.catalog.close()
        self.open(left)

    def read(self, number: int, place: int) -> None:
        """Let a task's reader have a batch."""
        task = self.open_tasks[self.tasks[number % len(self.tasks)]]
        epoch = place % EPOCHS
        iteration = (place // EPOCHS) % task.iterations(epoch)
        task.batch(epoch, iteration)
        task.reached(epoch, iteration)

    def check(self) -> None:
        """What is drawn is right, and what was drawn before is the same."""
        for name, task in self.open_tasks.items():
            drawn = self.catalog.load_draws(task.task_id, 0, EPOCHS)
            settled = self.catalog.load_settled(task.task_id)
            orders: dict[int, list[int]] = {}
            for epoch, video in zip(drawn["epoch"].to_pylist(), drawn["video_id"].to_pylist(), strict=True):
                orders.setdefault(epoch, []).append(video)
            assert [*orders] == [*range(len(orders))], "a later epoch was drawn before an earlier one"
            names = dict(zip(task.dataset.files.ids.tolist(), task.dataset.files.names, strict=True))
            for epoch, order in orders.items():
                had = self.had.setdefault(epoch // self.k, set(self.come))
                assert sorted(names[each] for each in order) == sorted(had)
                before = self.told.get((name, epoch), [])
                certain = order[: settled.get(epoch, len(order))]
                assert certain[: len(before)] == before
                self.told[name, epoch] = certain


steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 3)),
        st.tuples(st.just("read"), st.integers(0, 1), st.integers(0, 40)),
        st.tuples(st.just("kill")),
    ),
    max_size=12,
)


def live(root: Path, clips: list[Path], k: int, tasks: int, doings: Sequence[tuple[object, ...]]) -> None:
    """One life of a world."""
    world = World(root, clips[::-1], k, TASKS[tasks])
    try:
        for what, *numbers in doings:
            getattr(world, str(what))(*numbers)
            world.check()
        world.read(0, EPOCHS - 1)
        world.read(1, EPOCHS - 1)
        world.check()
        assert len(world.told) == EPOCHS * tasks
        assert [len(each) for _, each in sorted(world.had.items())] == sorted(map(len, world.had.values()))
    finally:
        world.catalog.close()


_CASE = given(k=st.integers(1, 3), tasks=st.sampled_from([1, 2]), doings=steps)
_LIVES = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=5, **_LIVES)  # type: ignore[arg-type]
@_CASE
def test_epochs_have_what_their_generation_had(
    clips: list[Path], k: int, tasks: int, doings: list[tuple[object, ...]]
) -> None:
    """Laws 1, 3 and 4 under any arrivals, reads and kills: alone, and for two tasks that draw together."""
    with TemporaryDirectory() as root:
        live(Path(root), clips, k, tasks, doings)


@pytest.mark.long
@settings(max_examples=60, **_LIVES)  # type: ignore[arg-type]
@_CASE
def test_epochs_have_what_their_generation_had_many_times(
    clips: list[Path], k: int, tasks: int, doings: list[tuple[object, ...]]
) -> None:
    """The same, many times."""
    with TemporaryDirectory() as root:
        live(Path(root), clips, k, tasks, doings)
