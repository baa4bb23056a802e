"""One used cache for the tests that look: read, evicted from, and with videos that fail; nobody has it open."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

import viewcache
from tests.images.small import config as of_images
from tests.images.small import save_folder
from tests.tiny import AUGMENTATION, config, encode_folder, sql
from viewcache.api.config.find import Located, locate
from viewcache.api.page.server import PageServer
from viewcache.api.queries.ask import ask
from viewcache.api.service.attached import AttachedCache
from viewcache.api.service.stopping import stop
from viewcache.errors import NotFound
from viewcache.materializer.reading.batch import Batch

HOSTILE = "<img src=x onerror=document.title='taken'>.mp4"
"""A video of this name is no video: its name, its path and its error are text that a page must not obey."""
BUDGET = 1_200_000
"""Bytes: less than the clips of a generation take, so that some are evicted."""


def _damage(path: Path) -> None:
    """Overwrite the second half of a video's packets, so that its first frames can be decoded and later ones not."""
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") - 4
    length = int.from_bytes(data[at : at + 4])
    data[at + length // 2 : at + length] = b"\xff" * (length - length // 2)
    path.write_bytes(data)


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos, one of them damaged half-way, and a file that is none."""
    frames = {f"{'cats' if k % 2 else 'dogs'}/v{k}.mp4": 40 + 8 * k for k in range(8)}
    folder = encode_folder(tmp_path_factory.mktemp("page-videos"), frames)
    _damage(folder / "cats" / "v5.mp4")
    (folder / "dogs" / HOSTILE).write_bytes(b"no video" * 64)
    return folder


def described(store: Path, videos: Path, **cache: object) -> dict[str, object]:
    """The configuration of these tests."""
    settings = {"budget": BUDGET, **cache}
    sampling = {"frames_per_video": 8, "samples_per_video": 3}
    return config(
        store, videos, cache=settings, sampling=sampling, labels="folders", augmentation=AUGMENTATION, epochs=6,
        on_bad_video="replace",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Used:
    """A cache that was read, and what is where in it."""

    store: Path
    stored: tuple[int, int, int]
    """Epoch, iteration and clip of one that is stored."""
    gone: tuple[int, int, int]
    """Of one that was evicted."""


@pytest.fixture(scope="session")
def used(tmp_path_factory: pytest.TempPathFactory, videos: Path) -> Used:
    """A cache of which three epochs were read; nobody writes into it."""
    store = tmp_path_factory.mktemp("page") / "store"
    with viewcache.open(described(store, videos), service="off") as cache:
        for epoch in range(3):
            for iteration in range(cache.task("train").iterations(epoch)):
                cache.read("train", epoch, iteration)
    keys = ask(
        str(store),
        "select u.epoch, u.iteration, o.state from uses u join objects o on o.object_id = u.object_id "
        "order by u.epoch, u.iteration, u.position, u.sample",
    ).dicts()
    places: dict[object, tuple[int, int, int]] = {}
    clips: Counter[tuple[int, int]] = Counter()
    for row in keys:
        epoch, iteration = int(str(row["epoch"])), int(str(row["iteration"]))
        places[row["state"]] = (epoch, iteration, clips[epoch, iteration])
        clips[epoch, iteration] += 1
    return Used(store, places["ready"], places["evicted"])


@dataclass(frozen=True, slots=True)
class Pictured:
    """A cache of images that was read, with all of its first epoch stored."""

    store: Path
    batches: list[Batch]
    """Of that epoch."""


@pytest.fixture(scope="session")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Pictured:
    """A cache of seven images and a file that is none, which others stand in for."""
    folder = tmp_path_factory.mktemp("page-images")
    images = save_folder(folder / "images", {f"{'cats' if k % 2 else 'dogs'}/{k}.png": (64 + k, 48) for k in range(7)})
    (images / "dogs" / "bad.png").write_bytes(b"no image")
    sampling = {"images_per_batch": 4, "samples_per_image": 2}
    settings = of_images(folder / "store", images, labels="folders", on_bad_image="replace", sampling=sampling)
    with viewcache.open(settings, service="off") as cache:
        for _ in cache.materialize(1):
            pass
        batches = [cache.read("train", 0, iteration) for iteration in range(2)]
        assert sql(cache, "select count(*) from substitutions where epoch = 0 and policy = 'replace'") != [(0,)]
        return Pictured(folder / "store", batches)


@contextmanager
def served(located: Located) -> Iterator[PageServer]:
    """The page of a cache, answering on a port of its own."""
    server = PageServer(located, 0)
    thread = Thread(target=server.serve, name="page-under-test")
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def token(page: PageServer) -> str:
    """The key in the page's address."""
    return page.url.partition("token=")[2]


def cookie(page: PageServer) -> dict[str, str]:
    """What a browser sends once it has the key."""
    return {"Cookie": f"viewcache_page_{page.port}={token(page)}"}


@pytest.fixture
def page(used: Used) -> Iterator[PageServer]:
    """The page of the used cache."""
    with served(locate(str(used.store))) as server:
        yield server


@pytest.fixture
def attach(tmp_path: Path, videos: Path) -> Iterator[Callable[..., AttachedCache]]:
    """Opens a cache that a service owns, in a store of the test; keyword arguments are settings of the cache."""
    store, opened = tmp_path / "store", list[AttachedCache]()

    def one(**settings: object) -> AttachedCache:
        cache: object = viewcache.open(described(store, videos, **settings), service="auto")
        assert isinstance(cache, AttachedCache)
        opened.append(cache)
        return cache

    yield one
    for each in opened:
        each.close()
    with suppress(NotFound):
        stop(store, now=True)
