"""The commands that make something, or say what would be made: plan, scan, run."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from viewcache.api.cli.terminal import Terminal
from viewcache.api.text import counted, duration, printable, size

if TYPE_CHECKING:
    from viewcache.api.preview.plan import Outlook
    from viewcache.api.session.cache import Cache
    from viewcache.api.session.made import Making
    from viewcache.materializer.dataset.listing import Progress
    from viewcache.materializer.retention.forecast import Forecast
    from viewcache.materializer.telemetry.snapshot import TierBytes

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]

BUDGET_HELP = (
    "what if the budget were 10GB,50GB,200GB: for each, simulated with an empty store at first, the clips that are "
    "there when they are read (hits), core seconds of decoding, bytes read of the videos, the part of the time that "
    "training waits (stall), and the time until an epoch waits less than 1 %% (warm-up)"
)


def add_commands(commands: "Commands") -> None:
    """Describe these commands to the parser."""
    plan = commands.add_parser("plan", help="what would be made, how large and how long, before anything runs")
    plan.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    plan.add_argument("--generation", type=int, metavar="N", help="which group of epochs (default 0)")
    plan.add_argument("--budget", metavar="SIZES", help=BUDGET_HELP)
    plan.add_argument("--pace", type=float, metavar="S", help="with --budget: seconds that training takes a batch")
    plan.add_argument("--epochs", type=int, metavar="N", help="with --budget: only the first N epochs, in generations")
    plan.add_argument("--json", action="store_true", help="the answer as JSON")
    plan.set_defaults(command=_plan)

    scan = commands.add_parser("scan", help="look at every packet of all videos, ahead of training")
    scan.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    scan.add_argument("--json", action="store_true", help="the answer as JSON")
    scan.set_defaults(command=_scan)

    run = commands.add_parser("run", help="make ahead what the budget keeps, with a progress bar")
    run.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    run.add_argument(
        "--epochs", type=int, metavar="N", help="only the first N epochs of each task, and the rest of their generation"
    )
    run.add_argument("--dry-run", action="store_true", help="say what would be made, make nothing")
    run.add_argument("--trace", metavar="FILE", help="write a trace for ui.perfetto.dev, .json or .json.gz")
    run.add_argument("--json", action="store_true", help="the summary as JSON")
    run.set_defaults(command=_run)


def _plan(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration
    from viewcache.api.preview.plan import previews
    from viewcache.errors import BadInput

    if arguments.budget is not None and arguments.generation is not None:
        raise BadInput("--budget compares whole trainings, and --generation plans a group of epochs; name one of them")
    if arguments.budget is not None:
        return _what_if(arguments, terminal)
    if arguments.pace is not None or arguments.epochs is not None:
        raise BadInput("--pace and --epochs say how budgets are compared; name them, as in --budget 10GB,50GB")
    with terminal.progress("looking at files") as bar:
        found = previews(configuration(arguments.config), [arguments.generation or 0], progress=bar.at)
    _show_previews(found, terminal)
    return 0


def _what_if(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.cli.tables import WHAT_IF_HEADS, what_if_lines, what_if_rows
    from viewcache.api.config.find import configuration
    from viewcache.api.preview.what_if import Question, what_if

    question = Question.of(arguments.budget, arguments.pace, arguments.epochs)
    with ExitStack() as shown:
        bar = shown.enter_context(terminal.progress("looking at files"))

        def simulating() -> "Progress":
            shown.close()  # that is over; what comes now may take longer
            return shown.enter_context(terminal.progress("simulating budgets")).at

        found = what_if(configuration(arguments.config), question, progress=bar.at, simulating=simulating)
    if terminal.json:
        terminal.data(found.as_dict())
    else:
        terminal.table(WHAT_IF_HEADS, what_if_rows(found))
        for line in what_if_lines(found):
            terminal.show(line)
    return 1 if all(each.error for each in found.budgets) else 0


def _show_previews(found: "Outlook", terminal: Terminal) -> None:
    from viewcache.api.cli.tables import cost_rows, keep_lines, keep_rows, object_rows, preview_lines, saving_rows

    if terminal.json:
        terminal.data(found.as_dict())
        return
    for preview in found.tasks:
        for line in preview_lines(preview):
            terminal.show(line)
        terminal.table(("objects", "count", "as pixels", "kept", "kept, as pixels"), object_rows(preview))
        terminal.table(("", "decoded once", "on demand", "ratio"), cost_rows(preview))
        for warning in preview.warnings:
            terminal.say(f"warning: {warning}")
    for keep in found.keeps:
        for line in keep_lines(keep):
            terminal.show(line)
        if keep.rules:
            terminal.table(("rule", "keeps", "core seconds, estimated", "against leaves"), keep_rows(keep))
    for number, _ in found.savings:
        terminal.show(f"all tasks together, generation {number}")
        heads = ("", "each clip alone", "each task alone", "together", "saved by sharing")
        terminal.table(heads, saving_rows(found, number))


def _scan(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration
    from viewcache.api.upkeep.scan import scan_datasets
    from viewcache.materializer.choices import Media

    with terminal.progress("looking at files") as bar:
        scanned = scan_datasets(configuration(arguments.config), bar.at)
    if terminal.json:
        terminal.data({"datasets": [each.as_dict() for each in scanned]})
    for each in () if terminal.json else scanned:
        frames = "" if each.media == Media.IMAGE else f" {counted(each.frames, 'frame')},"
        found = f"{each.dataset}: {counted(each.videos, each.media)},{frames} {len(each.bad)} bad"
        terminal.show(f"{found}; {duration(each.seconds)}")
        for why in (*each.bad, *each.changed):
            terminal.show(printable(why))
    return 1 if any(each.bad for each in scanned) else 0


def _run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import configuration, named_files
    from viewcache.api.preview.plan import generations_of, previews
    from viewcache.api.service.opening import open
    from viewcache.api.session.cache import Cache
    from viewcache.errors import BadInput

    config = configuration(arguments.config)
    if arguments.epochs is not None and arguments.epochs < 1:
        raise BadInput(f"--epochs {arguments.epochs}: at least 1")
    if arguments.dry_run:
        with terminal.progress("looking at files") as bar:
            found = previews(config, generations_of(config, arguments.epochs), progress=bar.at)
        _show_previews(found, terminal)
        return 0
    with terminal.progress("looking at files") as bar:
        if arguments.trace is not None:  # a trace is of a process that owns the store
            cache = Cache(config.with_trace(arguments.trace), progress=bar.at)
        else:
            cache = open(named_files(arguments.config), progress=bar.at)
    with cache:
        return _materialize(cache, arguments.epochs, terminal, arguments.config)


def _materialize(cache: "Cache", epochs: int | None, terminal: Terminal, named: Sequence[str]) -> int:
    import time

    from viewcache.materializer.choices import Media
    from viewcache.store.tier import LOCAL

    # What a task of images has of each is a picture, and people count images.
    what = "image" if all(task.dataset.media == Media.IMAGE for task in cache.config.tasks) else "clip"
    start, before = time.monotonic(), cache.busy_seconds()
    with terminal.progress("making objects") as bar:
        for _ in cache.materialize(epochs):
            making = _making_of(cache)
            bar.at(*making.made(), _failed(making))
        making = _making_of(cache)
        done, _ = making.made()
        if not making.failure:  # it is over, also where not all that was predicted had room
            bar.at(done, done, _failed(making))
    seconds, now = time.monotonic() - start, cache.snapshot()
    counts, failure, predicted, measured = making.clips, making.failure, making.predicted, making.measured
    busy = {stage: s - before.get(stage, 0.0) for stage, s in now.worker_seconds.items()}
    local = now.tiers[LOCAL]
    summary = {
        "tasks": list(cache.tasks),
        "clips": dict(counts),
        "seconds": seconds,
        "worker_seconds": busy,
        "stored_bytes": local.used,
        "budget_bytes": local.budget,
        "tiers": {name: {"used_bytes": tier.used, "budget_bytes": tier.budget} for name, tier in now.tiers.items()},
        "predicted": asdict(predicted),
        "measured": asdict(measured),
    }
    if terminal.json:
        terminal.data(summary)
    else:
        if predicted.objects:
            terminal.table(("", "predicted, about", "measured", "ratio"), list(_told(predicted, measured)))
        short = round(predicted.objects) - round(measured.objects)
        if short > 0 and not failure and not counts.get("failed"):
            why = "they have no room, or cost less when they are read, or do not pack as small as was promised for them"
            terminal.show(f"{counted(short, 'object')} less than predicted: {why}")
        ready, held = counted(counts.get("ready", 0), what), _held(now.tiers)
        terminal.show(f"{ready} ready after {duration(seconds)}; the store holds {held}")
        if busy:
            parts = sorted(busy.items(), key=lambda item: -item[1])
            terminal.show("workers were busy: " + ", ".join(f"{stage} {duration(s)}" for stage, s in parts))
        from_kept, left_out = making.from_kept, counts.get("planned", 0) - making.from_kept
        if from_kept and not failure:
            terminal.show(f"{counted(from_kept, what)} will be made from kept pictures when they are read")
        if left_out and not failure:
            why = f"`{shlex.join(['viewcache', 'plan', *named])}` says what is kept"
            terminal.show(f"{counted(left_out, what)} not kept, to be made when they are read; {why}")
    if counts.get("failed"):
        why = f'`{shlex.join(["viewcache", "sql", *named[:1]])} "from errors"` says why'
        terminal.say(f"{counted(counts['failed'], what)} could not be made: {why}")
        return 1
    if counts.get("planned") and failure:
        terminal.say(f"{counted(counts['planned'], what)} not made: {failure}")
        return 1
    return 0


def _making_of(cache: "Cache") -> "Making":
    assert cache.making is not None  # `materialize` began it
    return cache.making


def _failed(making: "Making") -> str:
    """A note of clips that could not be made, if there are any."""
    return f"{making.clips['failed']} failed" if making.clips["failed"] else ""


def _held(tiers: "Mapping[str, TierBytes]") -> str:
    """How full the tiers are."""
    parts = [(name, f"{size(tier.used)} of {size(tier.budget)}") for name, tier in tiers.items()]
    if len(parts) == 1:
        return parts[0][1]
    return ", ".join(f"{part} in the {name} tier" for name, part in parts)


def _told(predicted: "Forecast", measured: "Forecast") -> Iterator[tuple[object, ...]]:
    """A table of what the plan said and what it took."""
    plain = ("packets", "packets decoded"), ("frames", "frames converted"), ("objects", "objects made")
    for name, words in plain:
        before, after = getattr(predicted, name), getattr(measured, name)
        yield words, f"{before:,.0f}", f"{after:,.0f}", _ratio(after, before)
    before, after = predicted.object_bytes, measured.object_bytes
    yield "bytes of them, unpacked", size(int(before)), size(int(after)), _ratio(after, before)
    for stage in ("decode", "convert", "augment", "store"):
        before, after = getattr(predicted, f"{stage}_s"), getattr(measured, f"{stage}_s")
        yield f"core seconds, {stage}", duration(before), duration(after), _ratio(after, before)


def _ratio(after: float, before: float) -> str:
    return f"{after / before:.2f}x" if before else ""
