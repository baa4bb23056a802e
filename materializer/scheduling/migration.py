"""Moving objects between tiers: up before they are due, down when the local tier fills (docs/design/0019).

Memory holds a window on what comes next; the local tier what is needed first of the rest; the remote tier what the
local one has no room for. The trade-off: what moves up stays below as well, since a second copy can be given up at
once, while writing it down again would take time when room is short. Nothing moves up and down in turn: what is near
in time stays up, and of the rest only what is needed later makes room for what is needed sooner.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from viewcache.errors import ChunkDamaged, Full, StoreUnreachable, ViewcacheError
from viewcache.materializer.planning.size import clip_bound
from viewcache.materializer.scheduling.dispatcher import Dispatcher
from viewcache.materializer.scheduling.moves import Moves
from viewcache.materializer.scheduling.rules import SHARE
from viewcache.materializer.scheduling.trim import Trim
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

NEAR = 64
"""How many for what is brought back into the local tier: reading a remote copy itself is no mistake, only slower."""


@dataclass(frozen=True, slots=True)
class Watermarks:
    """When the local tier is emptied in advance and how far, as fractions of its budget."""

    high: float = 0.95
    low: float = 0.90


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
        self._codecs = codecs
        self._watermarks = watermarks
        self._trim = trim
        self._durable = durable
        self._moves = moves
        self._closing = False
        self._paused_until = 0.0
        """Monotonic seconds; a move that failed would fail at once again."""
        self._movers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="viewcache-move")
        self._thread = threading.Thread(target=self._run, name="viewcache-mover", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is on its way arrives first."""
        self._closing = True
        self._moves.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._movers.shutdown()

    def _run(self) -> None:
        running: set[Future[None]] = set()
        while not self._closing:
            self._moves.look()
            try:
                started, counted = self._start(AT_ONCE - len(running)), self._tiers.local.is_counted()
            except ViewcacheError as error:
                _log.warning("nothing is moved for now: %s", error, extra={"action": "move_failed"})
                started, counted = [], False
            running.update(self._movers.submit(self._move, move) for move in started)
            trimmed = counted and self._trim is not None and self._trim.some()
            if running:
                _, running = wait(running, IDLE_S, FIRST_COMPLETED)
            elif not trimmed:
                self._moves.rest()
                self._evictor.rested()
                self._moves.wait(IDLE_S)
        wait(running)

    def _start(self, room: int) -> list[_Move]:
        """What is moved next: up before down, the soonest needed first."""
        if room <= 0 or time.monotonic() < self._paused_until or not self._tiers.local.is_counted():
            return []
        moves: list[_Move] = []
        for candidates in (self._into_memory, self._into_local, self._out_of_local):
            for move in candidates():
                self._moves.begin(move.copy.key, move.target.name)
                moves.append(move)
                if len(moves) == room:
                    return moves
        return moves

    # What moves ----------------------------------------------------------------------------------------------------

    def _into_memory(self) -> Iterator[_Move]:
        """What comes next, until memory is full."""
        memory = self._tiers.get(MEMORY)
        if memory is None:
            return
        window: dict[str, Copy] = {}
        left = int(memory.budget_bytes * self._watermarks.low)
        for key in self._evictor.next_needed(WINDOW):
            copy = self._ledger.find(key, MEMORY) or self._lower(key)
            if copy is not None:
                left -= copy.bytes if copy.tier == MEMORY else _bound(copy)
                if left < 0:
                    break
                window[key] = copy
        for copy in window.values():
            if copy.tier != MEMORY and not self._moves.is_under_way(copy.key, MEMORY):
                if memory.free_bytes < _bound(copy):
                    self._evictor.give_up(
                        [each for each in self._ledger.copies(MEMORY).values() if each.key not in window]
                    )
                move = self._begin(copy, memory, falls=False)
                if move is None:
                    return
                yield move

    def _into_local(self) -> Iterator[_Move]:
        """What is about to be read and lies in the remote tier only, where there is no memory to bring it to."""
        if REMOTE not in self._tiers or MEMORY in self._tiers:
            return
        local = self._tiers.local
        for key in self._near():
            copy = self._ledger.find(key, REMOTE)
            if copy is None or self._ledger.find(key, LOCAL) is not None or self._moves.is_under_way(key, LOCAL):
                continue
            size = _bound(copy) + self._dispatcher.demand_reserve
            if local.free_bytes < size:
                self._evictor.evict(size, self._evictor.next_due_in_s(key) or 0.0, only_copied=True)
            move = self._begin(copy, local, falls=False) if local.free_bytes >= size else None
            if move is None:
                return
            yield move

    def _near(self) -> list[str]:
        """What is read next, as much as a quarter of the local tier holds: it stays there, or is brought there."""
        left = self._tiers.local.budget_bytes // 4
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
        if not self._ledger.is_reachable(REMOTE):
            remote = None
        over = local.used_bytes - int(local.budget_bytes * self._watermarks.high)
        if over <= 0 and not (remote is not None and self._dispatcher.full):
            return
        need = max(local.used_bytes - int(local.budget_bytes * self._watermarks.low), local.budget_bytes // SHARE)
        near = set(self._near())
        for copy, wanted in self._ledger.candidates(LOCAL, need, self._evictor.protected() | near):
            if not wanted or (remote is not None and self._ledger.find(copy.key, REMOTE) is not None):
                self._evictor.give_up([copy])
            elif remote is not None and not self._moves.is_under_way(copy.key, REMOTE):
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
        candidates = self._ledger.candidates(REMOTE, share, self._evictor.protected())
        self._evictor.give_up([copy for copy, wanted in candidates if not wanted])

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
            chunk = math.prod(copy.stored.shape[1:]) * copy.stored.chunk_rows
            codec = self._codecs.pick(target.name, chunk, uses=1.0)
            source = self._tiers[copy.tier]
            with move.reservation:
                written = copy_object(source, copy.stored, target, codec, copy.key, durable=self._durable)
                counted = written.existed and self._ledger.find(copy.key, target.name) is not None
                move.reservation.commit(0 if counted else written.bytes)
            stored = Made(copy.key, written, {}).stored
            self._ledger.add(Copy(copy.object_id, copy.key, stored, written.bytes, target.name), written)
            self._evictor.observer.moved(begun, copy, target.name)
            failed = False
        except ChunkDamaged as damage:
            _log.warning("rebuilding an object: %s", damage, extra={"action": "rebuild"})
            self._evictor.damaged(copy)
        except StoreUnreachable as error:
            self._tiers.mark_unreachable(target.name if target.name == REMOTE else copy.tier, error)
        except Full as error:
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
    return clip_bound(math.prod(stored.shape), 4 * max(stored.shape[0], len(stored.table.offsets)))
