"""The command that writes a configuration for a folder of videos or images: init."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.terminal import Terminal
from viewcache.api.text import counted

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    init = commands.add_parser("init", help="write a commented configuration for a folder of videos or images")
    init.add_argument("folder", metavar="FOLDER", help="where the videos or images are, in subfolders too")
    init.add_argument("-o", "--out", metavar="FILE", help="the file to write (default viewcache.yaml)")
    init.add_argument("--dry-run", action="store_true", help="print it, write nothing")
    init.add_argument("--json", action="store_true", help="what was found and chosen as JSON")
    init.set_defaults(command=_init)


def _init(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import NAME
    from viewcache.api.init.written import initial, write_new
    from viewcache.errors import BadInput

    file = Path(NAME if arguments.out is None else arguments.out)
    if not arguments.dry_run and (file.exists() or file.is_symlink()):
        raise BadInput(f"{file} is there already and is left as it is; name another file with -o")
    with terminal.progress("looking at files") as bar:
        made = initial(arguments.folder, file, bar)
    if not arguments.dry_run:
        write_new(file, made.text)
    if terminal.json:
        terminal.data(
            {
                "file": str(file),
                "dry_run": arguments.dry_run,
                f"{made.looked.media}s": len(made.looked.paths),
                "looked_at": made.looked.looked_at,
                "bad": list(made.looked.bad),
                "labels": made.labels.source or None,
                "text": made.text,
            }
        )
    else:
        terminal.show(made.text.rstrip("\n") if arguments.dry_run else str(file))
    for note in made.notes:
        terminal.say(f"note: {note}")
    if not arguments.dry_run:
        name = "" if arguments.out is None else f" {file}"
        terminal.say(f"written for {counted(len(made.looked.paths), made.looked.media)}. What to do next:")
        for command, why in (
            (f"plan{name}", "what would be made, how large and how long"),
            (f"show{name}", "a picture of the first batch"),
            (f"run{name} --epochs 1", f"make {made.looked.media.clip}s ahead; training also makes what it needs"),
        ):
            terminal.say(f"  viewcache {command:<24} {why}")
    return 0
