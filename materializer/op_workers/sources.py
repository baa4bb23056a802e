"""Where a process's operations of users' own come from: modules that it imports itself, and op workers.

The process that plans loads them, and tells the processes that work, which take its word for what op workers serve and
start them only when frames are there; and which refuse code that is not the one that keys were made of.
"""

import atexit
import threading
from dataclasses import dataclass, field

import msgspec

from viewcache.errors import BadInput
from viewcache.materializer import ops
from viewcache.materializer.op_workers.answers import Described
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.process import START_S
from viewcache.materializer.op_workers.remote import remote_op
from viewcache.materializer.spec import CacheSpec, OpWorkerSpec

__all__ = ["OpSources", "end_idle_op_workers", "load_op_worker"]

_crews: dict[OpWorkerSpec, Crew] = {}
"""Of this process."""
_lock = threading.Lock()


def load_op_worker(spec: OpWorkerSpec) -> tuple[str, ...]:
    """Start an op worker, unless it is known, and register what it serves; returns the names.

    Raises:
        BadInput: what it serves cannot be used, or a name is taken.
        OpWorkerFailed: it cannot be started.
    """
    crew = _crew(spec)
    return tuple(_registered(crew, described) for described in crew.ops())


def end_idle_op_workers() -> None:
    """End the processes of op workers that nobody uses now; who needs one again starts another."""
    for crew in list(_crews.values()):
        crew.close()


atexit.register(end_idle_op_workers)


def _crew(spec: OpWorkerSpec, described: tuple[Described, ...] | None = None) -> Crew:
    with _lock:
        if spec not in _crews:
            _crews[spec] = Crew(spec, described)
        return _crews[spec]


def _registered(crew: Crew, described: Described) -> str:
    made = remote_op(crew, described)
    there = ops.register(made)
    if getattr(there, "crew", None) is not crew:
        raise BadInput(f"op {made.name!r} is served by an op worker and defined elsewhere too; give one another name")
    return made.name


@dataclass(frozen=True, slots=True)
class OpSources:
    """What a process that works is told of operations; travels as text."""

    modules: tuple[str, ...] = ()
    """To import."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Operation → its code's, in the process that plans."""
    workers: tuple[tuple[OpWorkerSpec, tuple[Described, ...]], ...] = ()

    @classmethod
    def of(cls, cache: CacheSpec) -> "OpSources":
        """What the settings of a cache name; its operations have been loaded in this process."""
        names = ops.load_modules(cache.op_modules)
        workers = tuple((spec, _crew(spec).ops()) for spec in cache.op_workers)
        return cls(cache.op_modules, ops.fingerprints(names), workers)

    @classmethod
    def from_text(cls, text: str) -> "OpSources":
        """The other way of `to_text`."""
        return msgspec.json.decode(text, type=cls)

    def to_text(self) -> str:
        """As an argument of a process."""
        return msgspec.json.encode(self).decode()

    def register(self) -> None:
        """Know all of them in this process; no op worker is started yet.

        Raises:
            BadInput: a module cannot be imported.
        """
        ops.load_modules(self.modules)
        ops.expect(self.fingerprints)
        for spec, served in self.workers:
            crew = _crew(spec, served)
            for described in served:
                _registered(crew, described)

    @property
    def silent_s(self) -> float:
        """How long a worker may say nothing because it waits for op workers: a start, and two calls that hang."""
        return sum(START_S + 2 * spec.timeout_s for spec, _ in self.workers)
