"""What leaves: the active policy is asked, and `demand` where it fails or names too little.

A shipped policy runs in the catalog's database, a policy of the user's own in a process with limits. No policy can stop
the training: what goes wrong with one is told, and it is left alone for a while.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewcache.catalog import Catalog
from viewcache.catalog.eviction import DEFAULT
from viewcache.catalog.policies import LIMITS, SHIPPED, Policy, all_policies, ask, find_policy
from viewcache.catalog.records import EventRow, PolicyRow
from viewcache.errors import QueryRefused
from viewcache.materializer.spec import EvictionSpec

__all__ = ["PAUSE_S", "Eviction", "Victim"]

_log = logging.getLogger("viewcache.evict")

PAUSE_S = 60.0
"""How long a policy that has failed is not asked again: its next failure may take its whole time limit, too."""


@dataclass(frozen=True, slots=True)
class Victim:
    """One copy that is to leave."""

    object_id: int
    reason: str
    """In the policy's words."""
    policy: str | None
    """Its name; None where no policy could be asked."""


class Eviction:
    """Who chooses what leaves a tier."""

    def __init__(
        self,
        catalog: Catalog,
        policy: Policy | None = None,
        *,
        falls_back: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Choose by a policy.

        Args:
            catalog: what it chooses from.
            policy: None = `demand`.
            falls_back: False lets the failure of a policy be the caller's.
            clock: seconds that only grow.
        """
        self._catalog = catalog
        self._policy = policy
        self._falls_back = falls_back
        self._clock = clock
        self._asks_again_at = 0.0

    @classmethod
    def of(cls, catalog: Catalog, spec: EvictionSpec) -> "Eviction":
        """Find the policy that the settings name, which alone is tried, and record all that there are.

        Raises:
            NotFound: there is none of that name.
            BadInput: it cannot be used; the message says why.
        """
        found = all_policies(spec.folder, only=spec.policy)
        policy = find_policy(spec.policy, found)
        catalog.set_policies(
            [PolicyRow(p.name, p.source, p.purpose, p.text, p is policy, p.problem) for p in _one_of_a_name(found)]
        )
        return cls(catalog, policy)

    def choose(self, tier: str, need: int, spared: Sequence[int]) -> list[Victim]:
        """Copies whose bytes together reach what is needed, in the order in which they leave.

        Args:
            tier: which.
            need: bytes; fewer come if all that may leave is less.
            spared: object ids that may not leave.
        """
        policy = self._policy
        if policy is None or policy.source == SHIPPED:
            return self._shipped(tier, need, spared, policy.name if policy is not None else DEFAULT)
        chosen, freed = self._own(policy, tier, need, spared)
        if freed < need:
            spared = [*spared, *(victim.object_id for victim in chosen)]
            chosen += self._shipped(tier, need - freed, spared, DEFAULT)
        return chosen

    def _shipped(self, tier: str, need: int, spared: Sequence[int], name: str) -> list[Victim]:
        return _named(self._catalog.victims(tier, need, spared, name), name)

    def _own(self, policy: Policy, tier: str, need: int, spared: Sequence[int]) -> tuple[list[Victim], int]:
        if self._clock() < self._asks_again_at:
            return [], 0
        try:
            rows = ask(policy.text, self._catalog.candidates(tier, spared), need, LIMITS)
        except (QueryRefused, OSError) as failure:  # OSError: no process can be started
            if not self._falls_back:
                raise
            self._asks_again_at = self._clock() + PAUSE_S
            message = f"eviction policy {policy.name} failed: {failure}"
            _log.warning("%s; %s chooses for %g s", message, DEFAULT, PAUSE_S, extra={"action": "policy_failed"})
            self._catalog.add_events([EventRow("error", detail=f"{QueryRefused.kind}: {message}")])
            return [], 0
        return _named(rows, policy.name), sum(rows["bytes"].to_pylist())


def _named(rows: pa.Table, policy: str) -> list[Victim]:
    """What a policy gave up, ``VICTIMS``, with its name."""
    pairs = zip(rows["object_id"].to_pylist(), rows["reason"].to_pylist(), strict=True)
    return [Victim(object_id, reason, policy) for object_id, reason in pairs]


def _one_of_a_name(found: Sequence[Policy]) -> list[Policy]:
    """A file that is named like a shipped policy is not recorded beside it: a name means one thing."""
    shipped = {policy.name for policy in found if policy.source == SHIPPED}
    for policy in found:
        if policy.name in shipped and policy.source != SHIPPED:
            _log.warning("%s: %s", policy.source, policy.problem, extra={"action": "policy_refused"})
    return [policy for policy in found if policy.source == SHIPPED or policy.name not in shipped]
