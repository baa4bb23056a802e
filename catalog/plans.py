"""How a generation's plan is checked and recorded in bulk."""

from dataclasses import replace
from time import time

import pyarrow as pa
import pyarrow.compute as pc

from viewcache import errors
from viewcache.catalog import schemas
from viewcache.catalog.engine import Session
from viewcache.catalog.records import GenerationRow, PlanTables, TaskRow
from viewcache.catalog.rows import from_table, to_table
from viewcache.catalog.tasks import claim_ids

__all__ = ["begin", "expect", "forget_unmade_packs", "keep", "objects", "packs", "prepare", "record"]

_USE_ORDER = ("task_id", "seq", "position", "sample")


def prepare(plan: PlanTables) -> PlanTables:
    """The plan with exact column types, uses in reading order; done on the caller's thread.

    Raises:
        BadInput: columns do not fit.
    """
    objects = schemas.conform(plan.objects, schemas.OBJECT, "objects of a plan")
    uses = schemas.conform(plan.uses, schemas.USE, "uses of a plan")
    if not _is_ordered(uses):
        # Zone maps are DuckDB's only index here: a window of iterations must be neighbouring rows.
        uses = uses.sort_by([(name, "ascending") for name in _USE_ORDER])
    return PlanTables(
        replace(plan.generation, objects=objects.num_rows),
        objects,
        schemas.conform(plan.edges, schemas.EDGE, "edges of a plan"),
        uses,
    )


def record(session: Session, plan: PlanTables) -> GenerationRow:
    """Record a prepared plan in place of an earlier one; returns its generation with ids filled in."""
    task_id, number = plan.generation.task_id, plan.generation.number
    if _is_known(session, plan.generation):
        span = {"first_epoch": plan.generation.first_epoch, "last_epoch": plan.generation.last_epoch}
        session.run("delete_uses_of_epochs", {"task_id": task_id, **span})
        session.run("delete_generation", {"task_id": task_id, "number": number})
    generation = _insert(session, plan.generation)
    objects(session, plan.objects, generation.generation_id)
    session.run("insert_edges", given=plan.edges)
    session.run("insert_uses", given=plan.uses)
    return generation


def begin(session: Session, generation: GenerationRow) -> None:
    """Record a generation that is not planned yet, unless it is recorded."""
    if not _is_known(session, generation):
        _insert(session, generation)


def _is_known(session: Session, generation: GenerationRow) -> bool:
    known = from_table(GenerationRow, session.run("read_generations", {"task_id": generation.task_id}))
    return any(row.number == generation.number for row in known)


def _insert(session: Session, generation: GenerationRow) -> GenerationRow:
    task_id = generation.task_id
    task = next((t for t in from_table(TaskRow, session.run("read_tasks")) if t.task_id == task_id), None)
    if task is None:
        raise errors.BadInput(f"a plan names task {task_id}, which is not registered; call ensure_task first")
    whole = replace(
        generation,
        generation_id=claim_ids(session, "generation", 1),
        group_id=task.group_id,
        planned_at=generation.planned_at or time(),
    )
    session.run("insert_generation", given=to_table([whole]))
    return whole


def objects(session: Session, planned: pa.Table, generation_id: int) -> None:
    """Record what a plan names first, in place of what the store told of it."""
    session.run("delete_adopted", given=planned)
    session.run("insert_objects", {"generation_id": generation_id}, planned)


def keep(session: Session, decided: pa.Table, edges: pa.Table, given_up: pa.Table) -> None:
    """Record what a generation keeps, and what its clips are made from; nothing more from ``given_up``."""
    session.run("set_keep", given=decided)
    if given_up.num_rows:
        session.run("delete_edges", given=given_up)
    session.run("add_edges", given=edges)


def packs(session: Session, parts: pa.Table) -> None:
    """Record which pictures some packs have, in place of what was recorded of these packs."""
    session.run("delete_pack_parts", given=parts.select(["object_id"]))
    session.run("insert_pack_parts", given=parts)


def forget_unmade_packs(session: Session) -> int:
    """Forget packs that were formed and never made; returns how many those were."""
    unmade = session.run("read_unmade_packs")
    if unmade.num_rows:
        for name in ("delete_pack_parts", "delete_edges", "delete_objects"):
            session.run(name, given=unmade)
    return int(unmade.num_rows)


def expect(session: Session, expected: pa.Table) -> None:
    """Record which objects are of use in epochs that are not planned, in place of what was expected before."""
    session.run("delete_expected")
    session.run("insert_expected", given=expected)


def _is_ordered(uses: pa.Table) -> bool:
    if uses.num_rows < 2:
        return True
    columns = [uses[name].combine_chunks() for name in ("task_id", "seq")]
    tasks, seqs = ((column.slice(0, len(column) - 1), column.slice(1)) for column in columns)
    later_task = pc.greater(tasks[1], tasks[0])
    same_task = pc.equal(tasks[1], tasks[0])
    ordered = pc.or_(later_task, pc.and_(same_task, pc.greater_equal(seqs[1], seqs[0])))
    return bool(pc.all(ordered).as_py())
