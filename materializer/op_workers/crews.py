"""The op workers of this process: each is known once, and what it serves are operations like any others."""

import atexit
import threading

import msgspec

from viewcache.errors import BadInput
from viewcache.materializer import ops
from viewcache.materializer.op_workers.answers import Described
from viewcache.materializer.op_workers.crew import Crew
from viewcache.materializer.op_workers.process import START_S
from viewcache.materializer.op_workers.remote import remote_op
from viewcache.materializer.spec import OpWorkerSpec

__all__ = ["end_idle_op_workers", "load_op_worker", "register_told", "silent_s", "told_of"]

_Told = tuple[tuple[OpWorkerSpec, tuple[Described, ...]], ...]

_crews: dict[OpWorkerSpec, Crew] = {}
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


def told_of(specs: tuple[OpWorkerSpec, ...]) -> str:
    """What another process has to know to use these op workers, which are known here, as text."""
    told: _Told = tuple((spec, _crew(spec).ops()) for spec in specs)
    return msgspec.json.encode(told).decode()


def register_told(text: str) -> None:
    """Know the op workers of `told_of` in this process; none is started yet."""
    for spec, served in msgspec.json.decode(text, type=_Told):
        crew = _crew(spec, served)
        for described in served:
            _registered(crew, described)


def silent_s(specs: tuple[OpWorkerSpec, ...]) -> float:
    """How long a worker may say nothing because it waits for op workers: a start, and three calls that hang."""
    return sum(START_S + 3 * spec.timeout_s for spec in specs)


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
