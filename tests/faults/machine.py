"""One real cache under any sequence of reads, damages, deaths, pressure, restarts and crashes, beside a small model.

The model is what an undisturbed run gave: a batch, clip or frame either has those bytes or the read raises a typed
error that the model expects. Catalog, store, dispatcher and workers are real; only a crash is made in process, as an
image of the disk that is taken while no thread can move.
"""

import ctypes
import os
import random
import shlex
import shutil
import signal
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import viewcache
from tests.faults.caches import assert_at_rest, config, digest_of, objects_of, store_bytes
from tests.faults.damage import KINDS, shard_of
from tests.faults.site import EPOCHS, MINIMUM, Place, Site, WatchedTier, digest, names_of, single, stop
from tests.faults.watched import WatchedPool
from tests.scheduling.harness import until
from viewcache.api.queries.ask import ask
from viewcache.api.session import owner as session
from viewcache.api.session.cache import Cache
from viewcache.errors import BadVideo, Full, WorkerDied
from viewcache.materializer.scheduling.deaths import TRIES
from viewcache.materializer.scheduling.demand import Fetched
from viewcache.materializer.workers import start
from viewcache.store.tier import PASSING

ROOMY = 146_352
"""Bytes with which a batch can be read while the clips of another are held."""

BUDGETS = (MINIMUM, ROOMY, 2 * MINIMUM, 10**8)

DAMAGES = ("flip", "zero", "truncate", "delete shard", "delete object", "swap")
"""Those of `KINDS` that leave the store no larger than it was."""

EXPECTED = (BadVideo, Full, WorkerDied)
"""What a read may raise, where the model knows why."""

LIFE = 3
"""Steps from one start to the next, for most machines: a start costs as much as three reads."""

IDLE_S = 60.0
"""Longest that making ahead may take: far more than a machine under load needs."""


class CacheMachine(RuleBasedStateMachine):
    """A cache, and what was done to it that a read may notice."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.folder = Path(tempfile.mkdtemp(dir=site.scratch))
        self.store = Path(shutil.copytree(site.template, self.folder / "0"))
        self.cache: Cache | None = None
        self.budget, self.epochs, self.workers = 10**8, EPOCHS, 1
        self.hurt: set[str] = set()
        """Keys of objects that were damaged and not surely rebuilt."""
        self.slack = 0
        """Bytes that damages added behind the cache's back."""
        self.hidden: str | None = None
        """Name of the video whose file is away."""
        self.full = False
        """Workers cannot write."""
        self.kills = 0
        """Workers killed since the cache was opened, at most."""
        self.asked = True
        """A question in SQL costs as much as twenty reads: one machine in eight asks, once."""
        self.holding = False
        """The last `hold` was not let go; it may have got nothing."""
        self.life = LIFE
        """Steps from one start to the next at the least."""
        self.since = 0
        """Steps since the cache was opened, that one included."""
        self.leases: list[tuple[ExitStack, Fetched, set[str]]] = []
        """What is held: to let go, what it is, and the keys that were damaged meanwhile."""

    @initialize(
        budget=st.sampled_from(BUDGETS),
        epochs=st.integers(1, EPOCHS),
        workers=st.integers(1, 2),
        asks=st.integers(0, 7),
        restless=st.integers(0, 7),
    )
    def begin(self, budget: int, epochs: int, workers: int, asks: int, restless: int) -> None:
        """Open a cache that has drawn its epochs and made nothing."""
        self.workers, self.asked, self.life = workers, asks > 0, LIFE if restless else 0
        self._open(budget, epochs)

    # What people do ------------------------------------------------------------------------------------------------

    @rule(n=st.integers(0, 2 * EPOCHS - 1))
    def read(self, n: int) -> None:
        """A batch is that of the model, or its video is away, or workers were killed on it again and again."""
        self._count("read")
        self._read(self._place(n))

    @rule(n=st.integers(0, EPOCHS - 1))
    def read_epoch(self, n: int) -> None:
        """The same of a whole epoch, one batch after the other."""
        self._count("read_epoch")
        for place in self.site.batches:
            if place[0] == n % self.epochs:
                self._read(place)

    @rule()
    def read_damaged(self) -> None:
        """The same of all batches that need a damaged clip."""
        self._count("read_damaged")
        self._read_damaged()

    def _read_damaged(self) -> None:
        for place in self.site.batches:
            if place[0] < self.epochs and self.hurt & set(self._keys(place)):
                self._read(place)

    def _read(self, place: Place) -> None:
        epoch, iteration = place
        names = self._open_cache.task("t").describe(epoch, iteration).videos
        try:
            batch = self._open_cache.read("t", epoch, iteration)
        except EXPECTED as error:
            self._expected(error, set(names))
            return
        assert digest_of(batch) == self.site.batches[place]
        self.hurt -= set(batch.keys)

    @rule(n=st.integers(0, 31))
    def read_frame(self, n: int) -> None:
        """The same of a single frame, decoded or augmented."""
        self._count("read_frame")
        known = [each for each in self.site.frames if each[3] < self.epochs]
        which = known[n % len(known)]
        try:
            assert single(self._open_cache, *which) == self.site.frames[which]
        except EXPECTED as error:
            self._expected(error, {which[0]})

    @rule()
    def make_ahead(self) -> None:
        """Making ahead comes to an end, and with a large budget all that is still to be read is there then."""
        self._count("make_ahead")
        for _, counts in zip(range(int(2 * IDLE_S)), self._open_cache.materialize(), strict=False):
            last = counts
        self._assert_at_rest()
        if self.budget == BUDGETS[-1] and self.hidden is None and not self.full and not last["failed"]:
            task = self._open_cache.task("t").task
            for active in (task.generation(number) for number in range(task.last_generation() + 1)):
                left = range(active.from_rank, len(active.plan))
                assert not [row for row in left if not self._open_cache.owner.ledger.has(active.key(row))]

    @precondition(lambda self: not self.holding and self.budget >= ROOMY)
    @rule(n=st.integers(0, 2 * EPOCHS - 1))
    def hold(self, n: int) -> None:
        """Take hold of a batch's clips, as a reader does that is slow to copy them."""
        self._count("hold")
        self._hold(n)

    @precondition(lambda self: not self.holding and self.budget >= ROOMY)
    @rule(n=st.integers(0, 2 * EPOCHS - 1))
    def read_beside_a_slow_reader(self, n: int) -> None:
        """Every batch is read while another reader holds one."""
        self._count("read_beside_a_slow_reader")
        self._hold(n)
        for place in self.site.batches:
            if place[0] < self.epochs:
                self._read(place)
        self.only_leases_hold()
        self._let_go_all()

    def _hold(self, n: int) -> None:
        self.holding = True
        task = self._open_cache.task("t")
        epoch, iteration = self._place(n)
        active = task.task.generation(task.task.generation_of(epoch))
        rows = active.rows(epoch, iteration)
        lease = ExitStack()
        try:
            fetched = lease.enter_context(self._open_cache.owner.dispatcher_now().fetch(active, rows))
        except EXPECTED as error:
            self._expected(error, set(task.describe(epoch, iteration).videos))
            return
        self.leases.append((lease, fetched, {copy.key for copy in fetched.copies} & self.hurt))

    @precondition(lambda self: self.holding)
    @rule()
    def let_go(self) -> None:
        """What was held is there still, with the same bytes, except what was damaged."""
        self._count("let_go")
        self._let_go_all()

    @precondition(lambda self: not self.asked)
    @rule()
    def ask_sql(self) -> None:
        """The read-only door counts the objects that the cache has."""
        self._count("ask_sql")
        self.asked = True
        self._settle()
        answer = ask(str(self.store), "select count(*) from objects where state = 'ready'")
        assert answer.rows == [(len(self._open_cache.owner.ledger),)]

    # What happens to it --------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(DAMAGES),
        seed=st.integers(0, 2**16),
        many=st.sampled_from([1, 1, 4]),
        at_once=st.booleans(),
    )
    def damage(self, kind: str, seed: int, many: int, at_once: bool) -> None:
        """Damage a few objects on disk, behind the cache's back; what needs them is read at once, or later."""
        dice = random.Random(seed)
        if not len(self._open_cache.owner.ledger):
            self._read(self._place(seed))
        self._settle()
        copies = self._open_cache.owner.ledger.copies()
        whole = sorted(copies.keys() - self.hurt)
        if len(whole) < 2:
            return
        self._count(kind)
        before = store_bytes(self.store)
        for key in dice.sample(whole, min(many, len(whole) - 1)):
            other = dice.choice([each for each in whole if each != key and each not in self.hurt])
            folders = objects_of(self.store)
            KINDS[kind](folders[key], copies[key], folders[other], dice)
            self.hurt.add(key)
            for _, fetched, hurt in self.leases:
                hurt |= {copy.key for copy in fetched.copies} & {key}
        self.slack += max(0, store_bytes(self.store) - before)
        if at_once:
            self._read_damaged()

    @precondition(lambda self: self.kills < 2 * TRIES)
    @rule(seed=st.integers(0, 7), hangs=st.booleans())
    def kill_worker(self, seed: int, hangs: bool) -> None:
        """A worker is killed, or stops for good, busy or not; that its time is over comes at once."""
        if not self._pool.pids():
            self._read(self._place(seed))
        self.kills += 1
        if pids := self._pool.pids():
            victim = pids[seed % len(pids)]
            self._count("worker_hang" if hangs else "kill_worker")
            if hangs:
                self._pool.stopped.add(victim)
                stop(victim)
            else:
                os.kill(victim, signal.SIGKILL)

    @precondition(lambda self: self.hidden is None)
    @rule(k=st.integers(0, 3))
    def hide_source(self, k: int) -> None:
        """A video's file goes away."""
        self._count("hide_source")
        self.hidden = f"v{k}"
        (self.site.videos / f"v{k}.mp4").rename(self.site.scratch / f"v{k}.mp4")

    @precondition(lambda self: self.hidden is not None)
    @rule()
    def bring_source_back(self) -> None:
        """It is there again, as it was."""
        self._count("bring_source_back")
        self._bring_back()

    # Restarts ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.since >= self.life)
    @rule(budget=st.sampled_from(BUDGETS), epochs=st.integers(1, EPOCHS))
    def reopen(self, budget: int, epochs: int) -> None:
        """Close and open again, with more or less budget and epochs."""
        self._count("reopen")
        self._close()
        self._open(budget, epochs)
        assert not self._open_cache.owner.recovered.walked

    @precondition(lambda self: self.since >= self.life)
    @rule(budget=st.sampled_from(BUDGETS), epochs=st.integers(1, EPOCHS), lost=st.integers(0, 3))
    def crash(self, budget: int, epochs: int, lost: int) -> None:
        """The power fails: what was on disk at that moment is left, and of that the last few files are not."""
        self._count("crash")
        image = self._image()
        self._close()
        whole = [folder for key, folder in objects_of(image).items() if key not in self.hurt]
        for folder in sorted(whole, key=lambda folder: -folder.stat().st_mtime)[:lost]:
            self.hurt.add(folder.name)
            if lost == 1:
                shutil.rmtree(folder)
            else:
                shard_of(folder).write_bytes(bytes(shard_of(folder).stat().st_size))
        shutil.rmtree(self.store)
        self.store = image
        refused_first = self.hidden is not None  # that start has walked the store already
        self._open(budget, epochs)
        assert self._open_cache.owner.recovered.walked != refused_first
        self._assert_at_rest()

    # What always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def budget_holds(self) -> None:
        """Counted at every moment, and on disk, temporary files included."""
        tier = self._open_cache.tier
        assert isinstance(tier, WatchedTier)
        assert max(tier.most, tier.used_bytes + tier.reserved_bytes) <= self.budget
        until(lambda: store_bytes(self.store) <= self.budget + self.slack, "the store to be within its budget")

    @invariant()
    def only_leases_hold(self) -> None:
        """A read that is over holds nothing; what is held is there."""
        held = {copy.key for _, fetched, _ in self.leases for copy in fetched.copies}
        assert self._open_cache.owner.ledger.held == held
        hurt = set().union(*(hurt for _, _, hurt in self.leases))
        passing = {copy.key for _, fetched, _ in self.leases for copy in fetched.copies if copy.tier == PASSING}
        assert held - hurt - passing <= objects_of(self.store).keys()

    @invariant()
    def a_step_is_done(self) -> None:
        """Count it whatever came of it, which may depend on the moment: the same steps must be allowed each time."""
        self.since += 1

    # How -----------------------------------------------------------------------------------------------------------

    @property
    def _open_cache(self) -> Cache:
        assert self.cache is not None
        return self.cache

    @property
    def _pool(self) -> WatchedPool:
        pool = self._open_cache.owner.dispatcher_now().pool
        assert isinstance(pool, WatchedPool)
        return pool

    def _count(self, what: str) -> None:
        self.site.steps[what] += 1

    def _keys(self, place: Place) -> tuple[str, ...]:
        return self._open_cache.task("t").describe(*place).keys

    def _place(self, n: int) -> Place:
        places = [place for place in self.site.batches if place[0] < self.epochs]
        return places[n % len(places)]

    def _expected(self, error: Exception, videos: set[str]) -> None:
        """A typed error is right if the model knows its cause."""
        if isinstance(error, WorkerDied):
            assert self.kills >= TRIES
        elif isinstance(error, Full):
            assert self.full
            assert "free disk space" in str(error)
        else:
            assert self.hidden in videos
            assert f"{self.hidden}.mp4" in str(error)

    def _open(self, budget: int, epochs: int) -> None:
        self.budget, self.epochs, self.kills, self.since = budget, epochs, 0, 0
        policy = "raise"  # so that what cannot be had is an error, and never other bytes
        wanted = config(
            self.store, self.site.videos, budget=budget, epochs=epochs, workers=self.workers, on_missing_video=policy
        )
        if self.hidden is not None:
            with suppress(BadVideo):  # unless all that was drawn of it is stored
                viewcache.open(wanted).close()
            self._bring_back()
        with patch.object(session, "LocalTier", WatchedTier), patch.object(start, "WorkerPool", WatchedPool):
            self.cache = viewcache.open(wanted)
            self.cache.owner.dispatcher_now()
        for epoch in range(epochs):
            names = names_of(self.cache, epoch)
            assert names == self.site.orders[epoch]
            assert Counter(names) == {f"v{k}": 2 for k in range(4)}  # each video once, with its two samples

    def _close(self, *, look: bool = False) -> None:
        self._let_go_all()
        self._assert_at_rest()
        self._open_cache.close()
        self.cache = None
        assert not list((self.store / "tmp").iterdir())
        if look:
            assert_at_rest(self.store, apart_from=self.hurt)

    def _let_go_all(self) -> None:
        self.holding = False
        while self.leases:
            lease, fetched, hurt = self.leases.pop()
            with lease:
                self._assert_whole(fetched, hurt)

    def _assert_whole(self, fetched: Fetched, hurt: set[str]) -> None:
        out = np.empty((len(fetched.copies), *fetched.copies[0].stored.shape), np.uint8)
        damaged, _ = self._open_cache.owner.tiers.read_slots(fetched.copies, out)
        for position, copy in enumerate(fetched.copies):
            if position in damaged:
                assert copy.key in hurt
            else:
                assert digest(out[position]) == self.site.clips[copy.key]

    def _bring_back(self) -> None:
        name = f"{self.hidden}.mp4"
        (self.site.scratch / name).rename(self.site.videos / name)
        self.hidden = None

    def _settle(self) -> None:
        """Wait until nothing is planned, made or evicted any more, and all of it is committed."""
        cache = self._open_cache
        cache.owner.look_ahead.wait_idle()
        if cache.owner.dispatcher is not None:
            assert cache.owner.dispatcher.wait_idle(IDLE_S), "making ahead does not end"
        cache.catalog.flush()

    def _assert_at_rest(self) -> None:
        """Ledger, catalog, count and folders are the same objects, apart from those that were damaged."""
        self._settle()
        cache = self._open_cache
        copies = {copy.key: copy.bytes for copy in cache.owner.ledger.copies().values()}
        rows = {row["key"]: row["bytes"] for row in cache.catalog.query("read_stored", tier="local").to_pylist()}
        assert rows == copies
        assert (cache.tier.used_bytes, cache.tier.reserved_bytes) == (sum(copies.values()), 0)
        sizes = {physical.rpartition("/")[2]: size for physical, size in cache.tier.iter_objects()}
        assert {key: size for key, size in sizes.items() if key not in self.hurt} == {
            key: size for key, size in copies.items() if key not in self.hurt
        }

    def _image(self) -> Path:
        """The store as it is on disk at one moment, while work goes on."""
        image = self.folder / str(int(self.store.name) + 1)
        stopped = self._pool.pids()
        for pid in stopped:
            stop(pid)
        # A PyDLL call keeps the interpreter's lock: no thread of this process moves while the folder is copied.
        assert ctypes.PyDLL(None).system(shlex.join(["cp", "-a", str(self.store), str(image)]).encode()) == 0
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return image

    def teardown(self) -> None:
        """Close, and put everything back for the next machine."""
        try:
            if self.cache is not None:
                self._close(look=True)
        finally:
            if self.cache is not None:
                self.cache.close()
            if self.hidden is not None:
                self._bring_back()
            shutil.rmtree(self.folder)
