"""Where a process's operations of users' own come from: modules that it imports itself, and op workers.

The process that plans loads them, and tells the processes that work, which take its word for what op workers serve and
start them only when frames are there; and which refuse code that is not the one that keys were made of. What talks to
op workers is loaded only where there are any: every worker process would pay for it.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from viewcache.materializer import ops

if TYPE_CHECKING:
    from viewcache.materializer.spec import CacheSpec

__all__ = ["OpSources"]


@dataclass(frozen=True, slots=True)
class OpSources:
    """What a process that works is told of operations; travels as text."""

    modules: tuple[str, ...] = ()
    """To import."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Operation → its code's, in the process that plans."""
    workers: str = ""
    """What to know of op workers; empty = there are none."""
    silent_s: float = 0.0
    """How long a worker may say nothing because it waits for op workers, seconds."""

    @classmethod
    def of(cls, cache: "CacheSpec") -> "OpSources":
        """What the settings of a cache name; its operations have been loaded in this process."""
        known = ops.fingerprints(ops.load_modules(cache.op_modules))
        if not cache.op_workers:
            return cls(cache.op_modules, known)
        from viewcache.materializer.op_workers.crews import silent_s, told_of

        return cls(cache.op_modules, known, told_of(cache.op_workers), silent_s(cache.op_workers))

    @classmethod
    def from_text(cls, text: str) -> "OpSources":
        """The other way of `to_text`."""
        return cls(**json.loads(text))

    def to_text(self) -> str:
        """As an argument of a process."""
        return json.dumps(asdict(self))

    def register(self) -> None:
        """Know all of them in this process; no op worker is started yet.

        Raises:
            BadInput: a module cannot be imported.
        """
        ops.load_modules(self.modules)
        ops.expect(self.fingerprints)
        if self.workers:
            from viewcache.materializer.op_workers.crews import register_told

            register_told(self.workers)
