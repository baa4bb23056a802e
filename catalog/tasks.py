"""What registering means: datasets, videos, items, tasks, draws; each function is the work of one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from viewcache import errors
from viewcache.catalog import schemas
from viewcache.catalog.engine import Session
from viewcache.catalog.records import SubstitutionRow, TaskRow
from viewcache.catalog.rows import from_table, to_table

__all__ = [
    "add_substitutions",
    "claim_ids",
    "ensure_task",
    "forget_task",
    "record_draws",
    "record_orders",
    "register_dataset",
    "register_items",
    "replace_videos",
    "set_item_labels",
    "set_labels",
    "set_video_columns",
    "set_video_etags",
    "set_video_keys",
    "settle_draws",
    "upsert_videos",
]

_TICK_S = 1e-6
"""Seconds that a double can tell apart today."""


def claim_ids(session: Session, name: str, n: int) -> int:
    """The first of ``n`` consecutive ids of a kind; never given out again."""
    if n < 0:
        raise errors.BadInput(f"cannot give out {n} ids; ask for 0 or more")
    return int(session.run("claim_ids", {"name": name, "n": n})["next_id"][0].as_py()) - n


def register_dataset(session: Session, uri: str) -> int:
    """The id of a dataset."""
    found = session.run("find_dataset", {"uri": uri})["dataset_id"].to_pylist()
    if found:
        return int(found[0])
    dataset_id = claim_ids(session, "dataset", 1)
    session.run("insert_dataset", {"dataset_id": dataset_id, "uri": uri})
    return dataset_id


def upsert_videos(session: Session, dataset_id: int, videos: pa.Table) -> list[int]:
    """The ids of scanned files, old ones kept; ``videos`` has columns of ``schemas.VIDEO``, the others are null."""
    uris = videos["uri"].to_pylist()
    if len(set(uris)) != len(uris):
        twice = next(uri for uri in uris if uris.count(uri) > 1)
        raise errors.BadInput(f"video {twice} was given twice; each uri once")
    known_rows = session.run("read_video_ids", {"dataset_id": dataset_id}, pa.table({"uri": videos["uri"]}))
    known = dict(zip(known_rows["uri"].to_pylist(), known_rows["video_id"].to_pylist(), strict=True))
    fresh = [uri for uri in uris if uri not in known]
    first = claim_ids(session, "video", len(fresh))
    known.update((uri, first + i) for i, uri in enumerate(fresh))
    ids = [int(known[uri]) for uri in uris]
    columns = {name: videos[name] for name in videos.column_names}
    nulls = {each.name: pa.nulls(len(ids), each.type) for each in schemas.VIDEO if each.name not in columns}
    given = {"video_id": pa.array(ids, pa.int64()), "dataset_id": pa.array([dataset_id] * len(ids), pa.int64())}
    session.run("upsert_videos", given=schemas.conform(pa.table(nulls | columns | given), schemas.VIDEO, "videos"))
    session.run("set_scanned", {"dataset_id": dataset_id, "at_s": time()})
    return ids


def register_items(session: Session, dataset_id: int, items: pa.Table) -> list[int]:
    """The ids of segments; see ``Catalog.register_items``."""
    known = session.run("read_items", {"dataset_id": dataset_id})
    names, inverse = np.unique(np.concatenate([_identities(known), _identities(items)]), return_inverse=True)
    ids = np.zeros(len(names), np.int64)
    before, asked = np.split(inverse.reshape(-1), [known.num_rows])
    ids[before] = known["item_id"].to_numpy()
    fresh = np.flatnonzero(ids[asked] == 0)
    if len(np.unique(asked)) != len(asked):
        raise errors.BadInput("a segment was given twice; equal ones are told apart by their ordinals")
    if len(fresh):
        ids[asked[fresh]] = claim_ids(session, "video", len(fresh)) + np.arange(len(fresh))
        new = {name: items[name].take(fresh) for name in ("video_id", "start_s", "end_s", "ordinal")}
        new |= {"item_id": ids[asked[fresh]], "dataset_id": np.full(len(fresh), dataset_id)}
        new |= {"label": pa.nulls(len(fresh), pa.string())}
        session.run("insert_items", given=schemas.conform(pa.table(new), schemas.ITEM, "items"))
    found: list[int] = ids[asked].tolist()
    return found


def _identities(items: pa.Table) -> NDArray[np.void]:
    """(items,) what a segment is known by: its video, its times to the bit, its ordinal."""
    times = [items[name].fill_null(np.nan).to_numpy().astype("<f8").view("<i8") for name in ("start_s", "end_s")]
    columns = [items["video_id"].to_numpy(), *times, items["ordinal"].to_numpy()]
    packed = np.ascontiguousarray(np.stack(columns, axis=1).astype("<i8"))
    return packed.view("V32").reshape(-1)


def set_item_labels(session: Session, labels: Mapping[int, str | None]) -> None:
    """Give segments other labels."""
    table = pa.table({"item_id": list(labels), "label": pa.array(list(labels.values()), pa.string())})
    session.run("set_item_labels", given=table)


def replace_videos(session: Session, dataset_id: int, retired: pa.Table, fresh: pa.Table) -> list[int]:
    """The ids of files that take the uris of known ones; these keep their ids, under the uris that they have now."""
    session.run("upsert_videos", given=schemas.conform(retired, schemas.VIDEO, "videos"))
    return upsert_videos(session, dataset_id, fresh)


def set_labels(session: Session, labels: Mapping[int, str | None]) -> None:
    """Give files other labels."""
    table = pa.table({"video_id": list(labels), "label": pa.array(list(labels.values()), pa.string())})
    session.run("set_labels", given=table)


def set_video_keys(session: Session, keys: Mapping[int, str]) -> None:
    """Give files the keys of other contents."""
    session.run("set_video_keys", given=pa.table({"video_id": list(keys), "key": list(keys.values())}))


def set_video_etags(session: Session, etags: Mapping[int, str | None]) -> None:
    """Give files the marks of their versions."""
    session.run("set_video_etags", given=pa.table({"video_id": list(etags), "etag": list(etags.values())}))


def set_video_columns(session: Session, table: pa.Table) -> None:
    """Replace the further columns of the rows' items."""
    session.run("delete_video_columns", given=table)
    session.run("insert_video_columns", given=table)


def ensure_task(session: Session, task: TaskRow, *, keeps_views: bool = False) -> TaskRow:
    """The task as registered; see ``Catalog.ensure_task``."""
    known = {row.name: row for row in from_table(TaskRow, session.run("read_tasks"))}.get(task.name)
    if known is None:
        task = replace(task, task_id=claim_ids(session, "task", 1), group_id=_group(session, task.dataset_id))
    else:
        task = replace(task, task_id=known.task_id, group_id=_group(session, task.dataset_id))
        if known == task:
            return task
        if known.definition_key != task.definition_key and not keeps_views:
            _forget_plans(session, known)
    session.run("upsert_task", given=to_table([task]))
    return task


def forget_task(session: Session, name: str) -> TaskRow:
    """Forget a task; see ``Catalog.forget_task``."""
    known = {row.name: row for row in from_table(TaskRow, session.run("read_tasks"))}
    if name not in known:
        raise errors.NotFound(f"no task {name!r} in this catalog; it has {', '.join(sorted(known)) or 'none'}")
    _delete_plans(session, known[name].task_id)
    for query in ("delete_substitutions", "delete_task"):
        session.run(query, {"task_id": known[name].task_id})
    for query in ("delete_expected", "delete_unplanned", "delete_loose_edges"):
        session.run(query)  # what is expected, whoever opens the other tasks says anew
    return known[name]


def record_draws(session: Session, draws: pa.Table, settled: pa.Table | None = None) -> None:
    """Record an order; see ``Catalog.record_draws``."""
    table = schemas.conform(draws, schemas.DRAW, "draws")
    _refuse_contradiction(session, table)
    session.run("insert_draws", given=table)
    if settled is not None:
        session.run("upsert_settled", given=schemas.conform(settled, schemas.SETTLED, "settled positions"))


def record_orders(session: Session, orders: pa.Table, runs: pa.Table) -> None:
    """Record orders by what they are computed from; see ``Catalog.record_orders``."""
    table = schemas.conform(orders, schemas.ORDER, "orders")
    against = session.run("contradicted_orders", given=table).to_pylist()
    if against:
        raise errors.Misuse(
            f"task {against[0]['task_id']} epoch {against[0]['epoch']} has another order on record; an order never "
            "changes"
        )
    session.run("insert_runs", given=schemas.conform(runs, schemas.RUN, "items of versions"))
    session.run("upsert_orders", given=table)


def settle_draws(session: Session, draws: pa.Table, uses: pa.Table, settled: pa.Table) -> None:
    """Settle more of an order; see ``Catalog.settle_draws``."""
    table = schemas.conform(draws, schemas.DRAW, "draws")
    _refuse_contradiction(session, table)
    session.run("move_draws", given=table)
    session.run("move_uses", given=schemas.conform(uses, schemas.MOVE, "moved uses"))
    session.run("upsert_settled", given=schemas.conform(settled, schemas.SETTLED, "settled positions"))


def add_substitutions(session: Session, rows: Sequence[SubstitutionRow]) -> None:
    """Record uses of policies; the last one of a place holds, so time goes on here when a clock is set back."""
    last = session.run("last_substitution")["at_s"][0].as_py()
    now = max(time(), last + _TICK_S)
    session.run("load_substitutions", given=to_table([row if row.at_s else replace(row, at_s=now) for row in rows]))


def _refuse_contradiction(session: Session, table: pa.Table) -> None:
    whole = session.run("ordered_among", given=table).to_pylist()
    if whole:
        raise errors.Misuse(
            f"task {whole[0]['task_id']} epoch {whole[0]['epoch']} is recorded as a whole, by the digest of its order; "
            "no single place of it can be drawn"
        )
    against = session.run("contradicted_draws", given=table).to_pylist()
    if against:
        raise errors.Misuse(
            f"task {against[0]['task_id']} epoch {against[0]['epoch']} position {against[0]['position']} was drawn as "
            f"video {against[0]['video_id']} before; a draw never changes"
        )


def _group(session: Session, dataset_id: int) -> int:
    found = session.run("find_group", {"dataset_id": dataset_id})["group_id"][0].as_py()
    if found is not None:
        return int(found)
    group_id = claim_ids(session, "group", 1)
    session.run("insert_group", {"group_id": group_id, "dataset_id": dataset_id})
    return group_id


def _forget_plans(session: Session, known: TaskRow) -> None:
    drawn = session.run("count_draws", {"task_id": known.task_id})["drawn"][0].as_py()
    if drawn:
        raise errors.BadInput(
            f"task {known.name!r} has another definition now, but {drawn} of its draws are recorded and a path never "
            "changes its meaning; give the changed task another tag, restore its definition, or forget its draws with "
            "`viewcache forget`"
        )
    _delete_plans(session, known.task_id)


def _delete_plans(session: Session, task_id: int) -> None:
    """Delete what was planned and drawn for a task, and where its readers are."""
    for query in (
        "delete_uses",
        "delete_generations",
        "delete_progress",
        "delete_draws",
        "delete_orders",
        "delete_settled",
    ):
        session.run(query, {"task_id": task_id})
    session.run("delete_unused_runs")
