"""What plan, run and status show: their values as tables and lines of words."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from viewcache.api.queries.status import Status, as_number
from viewcache.api.text import counted, duration, printable, size
from viewcache.catalog.kinds import ObjectKind
from viewcache.materializer.choices import KeepRule
from viewcache.materializer.telemetry.stalls import CAUSES

if TYPE_CHECKING:
    from viewcache.api.preview.keeps import Keep, Pace
    from viewcache.api.preview.plan import Outlook, Preview
    from viewcache.api.preview.what_if import BudgetOutlook, WhatIf
    from viewcache.api.service.answers import StatsOf
    from viewcache.materializer.planning.sharing import Saving

__all__ = [
    "WHAT_IF_HEADS",
    "Table",
    "client_table",
    "cost_rows",
    "keep_lines",
    "keep_rows",
    "object_rows",
    "preview_lines",
    "saving_rows",
    "status_tables",
    "what_if_lines",
    "what_if_rows",
]

PICTURES = (ObjectKind.FRAMES, ObjectKind.AUG, ObjectKind.PACK)
"""Kinds of objects that clips are made from."""

Table = tuple[str, Sequence[str], list[tuple[object, ...]]]
"""Title, columns and rows."""


def preview_lines(preview: "Preview") -> list[str]:
    """Task, graph and generation in words."""
    more = f" to {preview.last_epoch}" if preview.last_epoch > preview.first_epoch else ""
    kept, clips = preview.kept_clips, preview.summary.clips
    pictures = sum(each.kept for each in preview.objects if each.kind in PICTURES)
    beside = f", and {counted(pictures, 'object')} of pictures that clips are made from" if pictures else ""
    of_videos = f"{preview.items} items of {preview.summary.videos} videos, {preview.segments} of them segments"
    return [
        *preview.graph,
        *(f"files: {printable(each)}" for each in preview.changes),
        f"generation {preview.generation}: epoch {preview.first_epoch}{more}, {preview.iterations} batches an epoch, "
        f"clips of {'x'.join(map(str, preview.shape))} uint8",
        *([f"an epoch draws {of_videos}"] if preview.segments else []),
        f"budget {size(preview.budget_bytes)}: keeps {kept} of {clips} clips ({kept / max(clips, 1):.0%}){beside}",
    ]


def object_rows(preview: "Preview") -> list[tuple[object, ...]]:
    """A table of the objects per kind."""
    return [(each.kind, each.count, size(each.bytes), each.kept, size(each.kept_bytes)) for each in preview.objects]


def cost_rows(preview: "Preview") -> list[tuple[object, ...]]:
    """A table of what making costs, with decoding every clip on demand beside it."""
    s = preview.summary
    counts = (("frames converted", s.frames, s.frame_uses), ("packets decoded", s.packets, s.packets_on_demand))
    rows: list[tuple[object, ...]] = [(name, a, b, f"{b / max(a, 1):.1f}x") for name, a, b in counts]
    ratio = s.decode_on_demand_s / s.decode_s if s.decode_s else 1.0
    if s.counted < s.uses:
        rows.append(("clips counted", s.uses, s.counted, ""))
    rows.append(("core seconds, estimated", duration(s.decode_s), duration(s.decode_on_demand_s), f"{ratio:.1f}x"))
    return rows


def keep_rows(keep: "Keep") -> list[tuple[object, ...]]:
    """A table of the rules."""
    base = next(cost for name, _, cost in keep.rules if name == KeepRule.LEAVES)
    return [
        (
            f"{name}{' (chosen)' if name == keep.rule else ''}",
            size(kept),
            duration(cost) if cost < math.inf else "not possible",
            f"{cost / base - 1:+.0%}" if 0 < base < math.inf and cost < math.inf else "",
        )
        for name, kept, cost in keep.rules
    ]


def keep_lines(keep: "Keep") -> list[str]:
    """What is kept, in words."""
    ways = ", ".join(f"{what} of {count}" for what, count in keep.ways)
    most = size(keep.clip_bytes)
    clips = f"clips behind its first epoch take up to {most}" if keep.clip_bytes else "it has one epoch"
    lines = [
        f"what is kept, generation {keep.generation}: {clips}, there is room for {size(keep.budget_bytes)}; "
        f"of {sum(count for _, count in keep.ways)} files: {ways}"
    ]
    horizon = keep.horizon
    if horizon.epoch_s:
        epochs, beside = (
            ", ".join(f"{'' if epoch > 1 else 'epoch '}{epoch}: {duration(s)}" for epoch, s in each)
            for each in (horizon.epoch_s, horizon.beside_s)
        )
        line = f"an epoch costs about, in core seconds: {epochs}"
        if horizon.without_s is not None:
            without, pays = duration(horizon.without_s), _pays(horizon.pays_after)
            line += f"; {without} without what lasts behind its generation, which pays {pays}"
            if len(horizon.pay_after) > 1:
                line += f" ({', '.join(f'{name}: {_pays(after)}' for name, after in horizon.pay_after)})"
        lines.append(line)
        lines.append(f"of these, whatever is kept, for planning, the catalog and handing batches over: {beside}")
    if keep.pace is not None:
        lines.append(_pace_line(keep.pace))
    return lines


def _pays(after: float) -> str:
    """When something pays, in words."""
    if math.isinf(after):
        return "never"
    return f"after {math.ceil(after)} epochs" if after else "at once"


def _pace_line(pace: "Pace") -> str:
    """What devices and cores give together, in words."""
    devices = ", ".join(f"{name} {size(int(rate))}/s" for name, rate in pace.devices)
    day = time.strftime("%Y-%m-%d", time.localtime(pace.profiled_at_s))
    what, kept = ("images", "images") if pace.of_images else ("clips", "videos")
    counted = "counted in are" if pace.counts_batches else "not measured yet, and not counted in, are"
    more = ", which `viewcache profile` leaves out" if pace.of_images else ""
    bound = " and ".join(pace.bound_by)
    return (
        f"devices {devices} (profiled {day}), cores {pace.cores}: something is kept of {pace.kept_share:.0%} of the "
        f"{kept}, {pace.per_s:,.0f} {what}/s over all epochs to come, bound by {bound}; {counted} "
        f"keeping, planning and handing batches over{more}"
    )


def saving_rows(outlook: "Outlook", number: int) -> list[tuple[object, ...]]:
    """A table of what sharing saves in a generation."""
    return [
        (
            each.what,
            *(_amount(each.what, value) for value in (each.alone, each.by_task, each.together)),
            _less(each),
        )
        for each in dict(outlook.savings)[number]
    ]


def _amount(what: str, value: float) -> str:
    if what.startswith("bytes"):
        return size(int(value))
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _less(saving: "Saving") -> str:
    """How much less the tasks make together than each by itself."""
    return f"{saving.together / saving.by_task - 1:+.0%}" if saving.by_task else ""


WHAT_IF_HEADS = (
    "budget", "kept of the first generation", "hits, epoch 0", "hits, later", "decoding", "all work", "read", "stall",
    "warm-up", "an epoch", "the 10th", "the 100th",
)  # fmt: skip


def what_if_rows(found: "WhatIf") -> list[tuple[object, ...]]:
    """A table with `WHAT_IF_HEADS`."""
    return [_budget_row(each) for each in found.budgets]


def _budget_row(outlook: "BudgetOutlook") -> tuple[object, ...]:
    if outlook.error:
        return size(outlook.budget_bytes), outlook.error, *[None] * 10
    later = outlook.hits_later
    return (
        size(outlook.budget_bytes),
        outlook.kept,
        f"{outlook.hits_first:.1%}",
        None if later is None else f"{later:.1%}",
        duration(outlook.decode_s),
        duration(outlook.work_s),
        size(outlook.read_bytes),
        f"{outlook.stall:.1%}",
        "never" if outlook.warm_up_s is None else duration(outlook.warm_up_s),
        *(duration(outlook.epoch_s[epoch]) if epoch in outlook.epoch_s else None for epoch in (1, 10, 100)),
    )


def what_if_lines(found: "WhatIf") -> list[str]:
    """What was simulated, and the least budget at which nothing is decoded twice, in words."""
    paces = ", ".join(
        f"{name} {duration(pace)} a batch" if pace else f"{name} as fast as possible"
        for name, pace in found.paces_s.items()
    )
    part = f"{found.epochs} epochs" + (f" of {found.epochs_of_task}" if found.epochs < found.epochs_of_task else "")
    rates = "measured" if found.measured else "guessed: nothing has been made in this cache yet"
    if found.least_bytes is not None:
        about = "about " if found.searched else ""
        least = f"nothing is decoded twice from {about}{size(found.least_bytes)} on"
        least += "" if found.searched else ", of the budgets above"
    else:
        least = "something is decoded twice under every budget above"
    errors = [f"{size(each.budget_bytes)}: {each.error}" for each in found.budgets if each.error]
    return [f"{part}, {found.uses} clips read; pace: {paces}; rates of work: {rates}", least, *errors]


def status_tables(found: Status) -> list[Table]:
    """A table for each part."""
    return [
        _status_tasks(found),
        _status_epochs(found),
        _status_objects(found),
        _status_tiers(found),
        _status_residents(found),
        _status_passing(found),
        _status_waiting(found),
        _status_changes(found),
        _status_errors(found),
    ]


def client_table(service: "StatsOf") -> Table:
    """The processes that use a service now, with where each reads."""
    rows: list[tuple[object, ...]] = []
    for client in service.clients:
        seats = ", ".join(
            f"{seat.task} {seat.epoch}/{seat.iteration} as rank {seat.rank} of {seat.world}"
            + (f", worker {seat.part} of {seat.parts}" if seat.parts > 1 else "")
            for seat in client.seats
        )
        rows.append(
            (client.pid, client.program, client.job, f"{duration(time.time() - client.since)} ago", client.held, seats)
        )
    title = f"clients of the service, process {service.pid}, {duration(service.cpu_s)} of CPU"
    return title, ("process", "program", "job", "since", "objects held", "reads next"), rows


def _status_tasks(found: Status) -> Table:
    rows: list[tuple[object, ...]] = []
    for row in found.parts["tasks"]:
        at = _next_of(row)
        ready = f"{row['ready_to_come'] or 0} of {row['clips_to_come'] or 0}"
        pace = duration(as_number(row["seconds_each"])) if row["seconds_each"] else ""
        rows.append((row["task"], row["epochs"], row["generations"], row["rank"], at, pace, ready))
    return (
        "tasks",
        ("task", "epochs", "generations planned", "rank", "next", "per iteration", "ready of to come"),
        rows,
    )


def _next_of(row: Mapping[str, object]) -> str:
    """What is next for a reader of a task, in words."""
    if row["epoch"] is None:
        return "ended, not read" if row["ended"] else "not read yet"
    if as_number(row["epoch"]) >= as_number(row["epochs"]):
        return f"ended: all {row['epochs']} epochs read" if row["ended"] else f"all {row['epochs']} epochs read"
    return f"{'ended at ' if row['ended'] else ''}epoch {row['epoch']}, iteration {row['iteration']}"


def _status_epochs(found: Status) -> Table:
    rows: list[tuple[object, ...]] = []
    for row in found.parts["epochs"]:
        last, expected, ratio = ("" if row[name] is None else row[name] for name in _LAST)
        rows.append(
            (
                row["task"],
                row["epochs"],
                duration(as_number(row["epoch_s"])),
                last if last == "" else duration(as_number(last)),
                expected if expected == "" else duration(as_number(expected)),
                ratio if ratio == "" else f"{as_number(ratio):.2f}",
            )
        )
    return (
        "core seconds of an epoch",
        ("task", "epochs read", "measured, all", "measured, last generation", "expected of it", "measured ÷ expected"),
        rows,
    )


_LAST = ("generation_epoch_s", "expected_s", "ratio")


def _status_objects(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (row["kind"], row["state"], row["objects"], size(as_number(row["bytes"]))) for row in found.parts["objects"]
    ]
    return "objects", ("kind", "state", "objects", "bytes"), rows


def _status_tiers(found: Status) -> Table:
    rows: list[tuple[object, ...]] = []
    for row in found.parts["tiers"]:
        used, budget = as_number(row["used_bytes"]), as_number(row["budget_bytes"])
        rows.append((row["tier"], row["url"], size(used), size(budget), f"{used / budget:.0%}" if budget else ""))
    return "store", ("tier", "where", "used", "budget", "full"), rows


def _status_residents(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (row["kind"], row["residents"], size(as_number(row["bytes"]))) for row in found.parts["residents"]
    ]
    return "pictures in memory, from which clips of every epoch are made", ("kind", "residents", "bytes"), rows


def _status_passing(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (row["made"], row["read"], size(as_number(row["bytes"])), duration(as_number(row["seconds"])))
        for row in found.parts["passing"]
        if as_number(row["made"])
    ]
    return "read once, through memory", ("objects made", "objects read", "bytes read", "seconds of both"), rows


def _status_waiting(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (
            row["task"],
            CAUSES.get(str(row["waiting_for"]), row["waiting_for"]),
            duration(as_number(row["seconds"])),
            f"{as_number(row['share']):.0%}",
        )
        for row in found.stalls()
    ]
    rows += [
        (
            row["task"],
            {"hit": "clips that were there", "miss": "clips that were not", "rebuild": "objects that were damaged"}.get(
                str(row["kind"]), row["kind"]
            ),
            row["count"],
            "",
        )
        for row in found.parts["waiting"]
        if row["kind"] != "stall"
    ]
    return "what reading waited for", ("task", "for", "", "share"), rows


def _status_changes(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (
            str(row["kind"]).removeprefix("videos_"),
            row["count"],
            printable(str(row["detail"])),
            _ago(row["at_s"]),
        )
        for row in found.parts["changes"]
    ]
    return "the last 5 changes of files and classes", ("what", "how many", "which", "when"), rows


def _status_errors(found: Status) -> Table:
    rows: list[tuple[object, ...]] = [
        (row["about"] or "cache", row["name"], row["message"], row["count"], *map(_ago, (row["first_s"], row["at_s"])))
        for row in found.parts["errors"]
    ]
    return "last errors", ("about", "name", "message", "times", "first", "last"), rows


def _ago(at_s: object) -> str:
    """How long ago something was; empty where that is not known, as of videos, which each scan judges anew."""
    return "" if at_s is None else f"{duration(time.time() - as_number(at_s))} ago"
