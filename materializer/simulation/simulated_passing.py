"""Clips that pass through memory in a simulation: the rules of the real ones, without memory (docs/design/0045)."""

from collections.abc import Mapping

from viewcache.materializer.planning.cost import CostModel
from viewcache.materializer.scheduling.passing_rules import Handling, OneUse, handling
from viewcache.materializer.scheduling.rules import Candidate, NextJob, State
from viewcache.materializer.simulation.simulated_store import Item, SimulatedIntermediate, SimulatedStore
from viewcache.materializer.simulation.simulated_uses import UseTrace

__all__ = ["SimulatedPassing"]


class SimulatedPassing:
    """What a job can make, and which of it passes."""

    def __init__(
        self,
        trace: UseTrace,
        store: SimulatedStore,
        state: State[Item],
        cost: CostModel,
        intermediates_of: Mapping[int, list[SimulatedIntermediate]],
    ) -> None:
        """Nothing passes yet; ``store`` has the memory's budget."""
        self._trace, self._store, self._state, self._cost = trace, store, state, cost
        self._intermediates_of = intermediates_of

    def of_job(
        self, choice: NextJob[Item], candidates: list[Candidate[Item]], memory: int
    ) -> tuple[list[Candidate[Item]], dict[Item, int]]:
        """What a job can make, without what is better made later; what passes is promised no bytes of the budget."""
        if not self._store.passing_budget:
            return candidates, {}
        asked = set(map(choice.work.key, choice.rows))
        stays: list[Candidate[Item]] = []
        places: dict[Item, int] = {}
        for candidate in candidates:
            _, work, row, _ = candidate
            item, size = work.key(row), work.bound(row)
            way = Handling.STORE
            if isinstance(item, int) and work.is_unkept(row) and self._state.objects.is_planned(item):
                soon = work.is_soon(row) or (choice.demanded and item in asked)
                to_come = sum(each.bytes_to_come() for each in self._state.works())
                uses, pictures = self._store.uses_to_come(item), self._pictures_bytes(item)
                clip = OneUse(size, True, uses, soon, True, pictures, self._store.free_bytes < to_come)
                way = handling(clip, self._cost)
            if way is Handling.LATER and item not in asked:
                continue
            stays.append(candidate)
            if way is Handling.PASS and work.held(row) <= memory and self._store.let_pass(item, size):
                places[item] = 0
                memory -= work.held(row)
        return stays, places

    def unused(self, places: Mapping[Item, int]) -> None:
        """No job makes these now."""
        for item in places:
            self._store.not_passing(item)

    def _pictures_bytes(self, clip: int) -> int | None:
        clips = self._trace.clips
        for each in self._intermediates_of.get(clips.video[clip], ()):
            if each in self._store.ready:
                return each.needs.raw // max(1, each.frames.bit_count()) * clips.frames[clip].bit_count()
        return None
