"""Moving objects between tiers: up before they are due, down when the local tier fills (docs/design/0019).

Memory holds residents, which are read in every epoch (docs/design/0054), and a window on what comes next; the local
tier what is needed first of the rest; the remote tier what the local one has no room for. The trade-off: what moves up
stays below as well, since a second copy can be given up at once, while writing it down again would take time when room
is short. Nothing moves up and down in turn: what is near in time stays up, and of the rest only what is needed later
makes room for what is needed sooner.
"""

import logging
import math
import threading
import time
from collections.abc import Container, Iterator, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import chain

from viewcache.errors import ChunkDamaged, Full, StoreUnreachable, ViewcacheError
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.scheduling.candidates import rest_s
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.moves import Moves
from viewcache.materializer.scheduling.residents import Residents, room_for
from viewcache.materializer.scheduling.rules import SHARE
from viewcache.materializer.scheduling.trim import Trim
from viewcache.materializer.scheduling.work import Work
from viewcache.materializer.spec import CacheSpec
from viewcache.materializer.storage.codecs import CodecChooser
from viewcache.materializer.storage.ledger import Copy, Ledger
from viewcache.materializer.storage.tiers import Tiers
from viewcache.materializer.workers.job import Made
from viewcache.store import Reservation, Tier, copy_object
from viewcache.store.tier import LOCAL, MEMORY, REMOTE

__all__ = ["Mover", "Watermarks"]

_log = logging.getLogger("viewcache.moving")

IDLE_S = 0.5
"""How long the mover sleeps when there was nothing to move; reading, making and evicting wake it."""

AT_ONCE = 4
"""Objects on their way at a time: a remote store answers late, and the cores have other work."""

WINDOW = 1024
"""How many objects each task's reader looks ahead for what moves into memory."""

SOUGHT = 4096
"""How many residents that are not in memory are looked for at a time: most of a first epoch they are not made yet."""

LINGER_S = 10.0
"""How long residents stay whose work is gone while nothing has come in its place: the next generation may still be
decided, or a job may begin again."""

NEAR_SHARE = 4
"""What is read next stays in this part of the local tier."""

NEAR = 64
"""How many for what is brought back into the local tier: reading a remote copy itself is no mistake, only slower."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How full tiers are: when the local one is emptied in advance and how far, as fractions of its budget."""

    high: float = 0.95
    low: float = 0.90
    """So far memory is filled, too."""
    residents: int | None = None
    """Bytes of memory for residents; None = what the window does not need."""

    @classmethod
    def of(cls, cache: CacheSpec) -> "Watermarks":
        """As the settings have them."""
        residents = next((tier.residents for tier in cache.tiers if tier.name == MEMORY), None)
        return cls(cache.eviction.high_water, cache.eviction.low_water, residents)


@dataclass(frozen=True, slots=True)
class _Move:
    """A copy on its way to another tier."""

    copy: Copy
    """Held meanwhile."""
    target: Tier
    reservation: Reservation
    falls: bool
    """It shall leave where it was."""


class Mover:
    """Moves objects in threads of its own, as long as there is more than one tier; else it only clears and trims."""

    def __init__(
        self,
        tiers: Tiers,
        ledger: Ledger,
        dispatcher: Dispatcher,
        moves: Moves,
        codecs: CodecChooser,
        watermarks: Watermarks,
        trim: Trim | None = None,
        *,
        durable: bool,
    ) -> None:
        """Move nothing yet; `start` does.

        Args:
            tiers: between which.
            ledger: what lies where.
            dispatcher: knows what is needed when, and is told what left.
            moves: the one that the dispatcher has.
            codecs: chooses how copies are packed.
            watermarks: when the local tier is emptied in advance.
            trim: has what nothing wants any more leave in between; None = it stays until room is short.
            durable: whether copies are flushed before they count.
        """
        self._tiers = tiers
        self._ledger = ledger
        self._dispatcher = dispatcher
        self._evictor = dispatcher.evictor
        if REMOTE in tiers:
            dispatcher.most_free = tiers.local.budget_bytes - tiers.local.budget_bytes // NEAR_SHARE
        self._codecs = codecs
        self._watermarks = watermarks
        self._trim = trim
        self._durable = durable
        self._moves = moves
        self._closing = False
        self.residents = Residents(self._size_in_memory)
        """What stays in memory."""
        ledger.residents = self.residents.keys
        self._chosen_of: tuple[list[Work[str]], int] = [], 0
        """Work whose objects residents were chosen of last, and the room for them."""
        self._fewer_since: float | None = None
        """Since when some of that work is gone, monotonic seconds."""
        self.shown: set[str] = set()
        """Keys of what was brought to memory because it came next."""
        self.demoted: set[str] = set()
        """Keys of what lies there and is no resident any more; it leaves when its place is needed."""
        self._looked_through_at = WINDOW
        """So many of both are looked through for what has left memory by another way."""
        self._paused_until = 0.0
        """Monotonic seconds; a move that failed would fail at once again."""
        self._rests_until = 0.0
        """The same; until then no policy is asked what nothing wants: it named nothing when it was asked last."""
        self._movers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="viewcache-move")
        self._thread = threading.Thread(target=self._run, name="viewcache-mover", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is on its way arrives first, unless its tier does not answer at once."""
        self._closing = True
        self._tiers.hasten()
        self._moves.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._movers.shutdown()

    def _run(self) -> None:
        running: set[Future[None]] = set()
        while not self._closing:
            self._moves.look()
            trimmed = False
            try:
                trimmed = self._begin_some(running)
            except ViewcacheError as error:
                _log.warning("nothing is moved for now: %s", error, extra={"action": "move_failed"})
            except Exception:  # whatever it is: a store from which nothing leaves any more fills up
                _log.exception("nothing is moved for now", extra={"action": "move_failed"})
            if running:
                _, running = wait(running, IDLE_S, FIRST_COMPLETED)
            elif not trimmed:
                self._moves.rest()
                self._evictor.rested()
                self._moves.wait(IDLE_S)
        wait(running)

    def _begin_some(self, running: set[Future[None]]) -> bool:
        """Begin what is moved next, beside what is ``running``, and trim, or catch up; whether anything was trimmed."""
        started, counted = self._start(AT_ONCE - len(running)), self._tiers.local.is_counted()
        running.update(self._movers.submit(self._move, move) for move in started)
        trimmed = counted and self._trim is not None and self._trim.some()
        if not running and not trimmed:
            self._tiers.delete_some()
        return trimmed

    def _start(self, room: int) -> list[_Move]:
        """What is moved next: up before down, the soonest needed first."""
        if room <= 0 or time.monotonic() < self._paused_until or not self._tiers.local.is_counted():
            return []
        moves: list[_Move] = []
        try:
            for move in chain(self._into_memory(), self._into_local(), self._out_of_local()):
                self._moves.begin(move.copy.key, move.target.name)
                moves.append(move)
                if len(moves) == room:
                    break
        except ViewcacheError as error:  # what was begun until then is moved
            _log.warning("nothing more is moved for now: %s", error, extra={"action": "move_failed"})
        return moves

    # What moves ----------------------------------------------------------------------------------------------------

    def _into_memory(self) -> Iterator[_Move]:
        """Residents, and what comes next until memory is full."""
        memory = self._tiers.get(MEMORY)
        if memory is None:
            return
        self._choose_residents(memory)
        if len(self.shown) + len(self.demoted) >= self._looked_through_at:
            self._forget_gone()
        window = self._window(memory)
        if memory.counted_bytes > self._filled(memory):
            self._clear_memory(window)
        for copies in (self._absent_residents(), (copy for copy in window.values() if copy.tier != MEMORY)):
            for copy in copies:
                if self._is_busy(copy.key, MEMORY):
                    continue
                if memory.free_bytes < _bound(copy):
                    self._clear_memory(window)
                move = self._begin(copy, memory, falls=False)
                if move is None:
                    break
                if copy.key not in self.residents.keys:
                    self.shown.add(copy.key)
                yield move

    def _window(self, memory: Tier) -> dict[str, Copy]:
        """What comes next, as much of it as memory has room for beside residents."""
        window: dict[str, Copy] = {}
        left = self._filled(memory) - self.residents.bytes
        for key in self._evictor.next_needed(WINDOW):
            copy = self._ledger.find(key, MEMORY) or self._lower(key)
            if copy is not None:
                left -= copy.bytes if copy.tier == MEMORY else _bound(copy)
                if left < 0:
                    break
                window[key] = copy
        return window

    def _choose_residents(self, memory: Tier) -> None:
        """Choose anew where other objects are read again, or there is more or less room; others leave."""
        works = self._evictor.recurring_work()
        room = room_for(self._watermarks.residents, self._filled(memory), self._dispatcher.demand_reserve)
        before, room_before = self._chosen_of
        fewer_since, self._fewer_since = self._fewer_since, None
        if (works, room) == (before, room_before):
            return
        if room == room_before and set(works) < set(before):
            now = time.monotonic()
            self._fewer_since = now if fewer_since is None else fewer_since
            if now < self._fewer_since + LINGER_S:
                return
        self._chosen_of = works, room
        self.demoted.update(self.residents.choose([work.recurring() for work in works], room))
        self.demoted -= self.residents.keys

    def _absent_residents(self) -> Iterator[Copy]:
        """Copies of those that are not in memory, wherever these lie."""
        for key in self.residents.absent(SOUGHT):
            size = self._size_in_memory(key)
            copy = self._lower(key)
            if size is not None:
                self.residents.arrived(key, size)
            elif copy is not None:
                yield copy

    def _size_in_memory(self, key: str) -> int | None:
        copy = self._ledger.find(key, MEMORY)
        return None if copy is None else copy.bytes

    def _filled(self, memory: Tier) -> int:
        """Bytes of memory that are filled."""
        return int(memory.budget_bytes * self._watermarks.low)

    def _clear_memory(self, window: Container[str]) -> None:
        """What is no resident and comes no more soon leaves memory; what is being read just now leaves later."""
        shown, demoted = ({key for key in keys if key not in window} for keys in (self.shown, self.demoted))
        copies = [copy for key in shown | demoted if (copy := self._ledger.find(key, MEMORY)) is not None]
        if copies:
            self._evictor.give_up(copies)
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Forget what has left memory; the next look of its own is due when there are twice as many as stayed."""
        stays, comes = self._ledger.lies_in, self._moves.is_under_way
        for keys in (self.shown, self.demoted):
            # In this order: one that arrives meanwhile lies there.
            keys.difference_update([key for key in keys if not comes(key, MEMORY) and not stays(key, MEMORY)])
        self._looked_through_at = max(WINDOW, 2 * (len(self.shown) + len(self.demoted)))

    def _into_local(self) -> Iterator[_Move]:
        """What is about to be read and lies in the remote tier only, where there is no memory to bring it to."""
        if REMOTE not in self._tiers or MEMORY in self._tiers:
            return
        local = self._tiers.local
        for key in self._near():
            copy = self._ledger.find(key, REMOTE)
            if copy is None or self._ledger.find(key, LOCAL) is not None or self._is_busy(key, LOCAL):
                continue
            size = _bound(copy) + self._dispatcher.demand_reserve
            if local.free_bytes < size:
                self._evictor.evict(size, self._evictor.next_due_in_s(key) or 0.0, only_copied=True)
            move = self._begin(copy, local, falls=False) if local.free_bytes >= size else None
            if move is None:
                return
            yield move

    def _near(self) -> list[str]:
        """What is read next, as much as a part of the local tier holds: it stays there, or is brought there."""
        left = self._tiers.local.budget_bytes // NEAR_SHARE
        near = []
        for key in self._evictor.next_needed(NEAR):
            copy = self._lower(key)
            left -= 0 if copy is None else copy.bytes
            if left < 0:
                break
            near.append(key)
        return near

    def _out_of_local(self) -> Iterator[_Move]:
        """Above the high mark, or without room to make more: what nothing wants leaves, the rest moves down."""
        local, remote = self._tiers.local, self._tiers.get(REMOTE)
        if not self._tiers.takes("write", REMOTE):
            remote = None
        over = local.used_bytes - int(local.budget_bytes * self._watermarks.high)
        if over <= 0 and not (remote is not None and self._dispatcher.full):
            return
        need = max(local.used_bytes - int(local.budget_bytes * self._watermarks.low), local.budget_bytes // SHARE)
        if remote is None and time.monotonic() < self._rests_until:
            return
        near, asked_at = set(self._near()), time.monotonic()
        candidates = self._candidates(LOCAL, need, near)
        if all(wanted for _, wanted in candidates):
            # Each batch that is read wakes the mover, and in a full tier all may be wanted for hundreds of epochs.
            answered_at = time.monotonic()
            self._rests_until = answered_at + rest_s(answered_at - asked_at)
        for copy, wanted in candidates:
            if not wanted or (remote is not None and self._ledger.find(copy.key, REMOTE) is not None):
                self._evictor.give_up([copy])
            elif remote is not None and not self._is_busy(copy.key, REMOTE):
                move = self._begin(copy, remote, falls=True)
                if move is None:
                    self._clear_remote(remote, _bound(copy))
                    return
                yield move

    def _clear_remote(self, remote: Tier, size: int) -> None:
        """Make room in the remote tier by what nothing wants.

        What is wanted stays, also when it is needed later than what has no room: else two that want one place would
        push each other out, and be made again, for ever.
        """
        share = max(size, int(remote.budget_bytes * (self._watermarks.high - self._watermarks.low)))
        self._evictor.give_up([copy for copy, wanted in self._candidates(REMOTE, share) if not wanted])

    def _candidates(self, tier: str, need: int, near: Set[str] = frozenset()) -> list[tuple[Copy, bool]]:
        """What may leave a tier, see `Ledger.candidates`, and whether it is wanted: by a use, or as it was just made.

        Who makes epochs ahead may name clips that were read before: were these given up, they would be made again at
        once.
        """
        found = self._ledger.candidates(tier, need, self._evictor.protected() | near)
        return [(copy, wanted or self._evictor.next_due_in_s(copy.key) is not None) for copy, wanted in found]

    def _is_busy(self, key: str, tier: str) -> bool:
        """Whether a copy is on its way to a tier, or one that left it is about to be deleted there."""
        if tier == REMOTE and self._tiers.is_to_leave(key):
            return True
        return self._moves.is_under_way(key, tier) or self._ledger.is_leaving(key, tier)

    def _lower(self, key: str) -> Copy | None:
        return self._ledger.find(key, LOCAL) or self._ledger.find(key, REMOTE)

    # Moving --------------------------------------------------------------------------------------------------------

    def _begin(self, copy: Copy, target: Tier, *, falls: bool) -> _Move | None:
        """Hold the copy and reserve room for it; None if there is none, or the copy has just left."""
        reservation = target.reserve(_bound(copy))
        if reservation is None:
            return None
        if self._ledger.hold([copy.key], copy.tier) is None:
            reservation.release()
            return None
        return _Move(copy, target, reservation, falls)

    def _move(self, move: _Move) -> None:
        copy, target, begun = move.copy, move.target, time.monotonic()
        failed = True
        try:
            codec, choose = self._codecs.for_copy(target.name, copy.stored)
            source = self._tiers[copy.tier]
            with move.reservation:
                where = source, copy.stored, target, codec, copy.key
                try:
                    written = copy_object(*where, durable=self._durable, choose=choose)
                except StoreUnreachable as error:
                    if target.name == REMOTE and not error.refused:  # the answer may be what was lost: it lies there
                        move.reservation.commit(_bound(copy))
                        self._tiers.delete_later(replace(copy, bytes=_bound(copy), tier=REMOTE))
                    raise
                move.reservation.commit(self._ledger.uncounted(copy.key, target.name, written))
            stored = Made(copy.key, written, {}).stored
            self._ledger.add(Copy(copy.object_id, copy.key, stored, written.bytes, target.name), written)
            self._evictor.observer.moved(begun, copy, target.name)
            failed = False
        except ChunkDamaged as damage:
            _log.warning("rebuilding an object: %s", damage, extra={"action": "rebuild"})
            self._evictor.damaged(copy)
        except (Full, StoreUnreachable) as error:
            if target.name == REMOTE:
                self._tiers.mark_refusing("write", REMOTE, error)
            elif isinstance(error, StoreUnreachable):
                self._tiers.mark_unreachable(copy.tier, error)
            else:
                _log.warning("an object stays where it is: %s", error, extra={"action": "move_failed"})
        except Exception:  # whatever it is, the next object may move
            _log.exception("an object could not be moved", extra={"action": "move_failed"})
        finally:
            self._ledger.release([copy])
            if failed:
                self._paused_until = time.monotonic() + IDLE_S
            self._moves.end(copy.key, target.name)
        if move.falls and self._ledger.find(copy.key, target.name) is not None:
            self._evictor.give_up([copy])
        self._moves.wake()


def _bound(copy: Copy) -> int:
    """Most bytes that an object takes in any tier and codec."""
    stored = copy.stored
    chunks = len(stored.table.offsets)
    # What is no array of frames is a file, or a pack, which says a few lines of each of its pictures.
    frames = 4 * max(stored.shape[0], chunks) if len(stored.shape) > 1 else 64 * chunks
    return clip_bound(math.prod(stored.shape), frames)
