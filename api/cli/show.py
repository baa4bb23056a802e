"""The command that draws a batch or a video into a file: show."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from viewcache.api.cli.terminal import Terminal

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_commands"]


def add_commands(commands: "Commands") -> None:
    """Describe this command to the parser."""
    show = commands.add_parser(
        "show", help="draw a batch or a video with labels, times, crops and flips: a contact sheet, GIF, WebP or MP4"
    )
    show.add_argument("config", nargs="*", metavar="CONFIG", help="YAML files (default: as `viewcache status`)")
    show.add_argument("--task", metavar="TASK", help="whose (default: the only one, or the first)")
    show.add_argument("--epoch", type=int, default=0, metavar="E", help="of the batch, or of the clips (default 0)")
    show.add_argument("--iteration", type=int, metavar="I", help="of the batch (default 0)")
    show.add_argument("--video", metavar="NAME", help="instead of a batch: a video or an image, and its clips' windows")
    show.add_argument("-o", "--out", metavar="FILE", help=".png is a sheet; .gif, .webp and .mp4 move")
    show.add_argument("--columns", type=int, metavar="N", help="frames, or images, in a row of the sheet (default 8)")
    show.add_argument("--height", type=int, metavar="PX", help="most pixels of a frame's height (default 128)")
    show.add_argument("--job", metavar="NAME", help="whose batches, of several equal trainings")
    show.add_argument("--json", action="store_true", help="what is drawn as JSON, with the recipe of each clip")
    show.set_defaults(command=_show)


def _show(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from viewcache.api.config.find import named_files
    from viewcache.api.pictures.encode import check_file
    from viewcache.api.pictures.show import COLUMNS, HEIGHT
    from viewcache.api.service.opening import open as open_cache

    if arguments.out is not None:
        check_file(arguments.out)
    with terminal.progress("looking at files") as bar:
        opened = open_cache(named_files(arguments.config), job=arguments.job, progress=bar.at)
    with opened as cache:
        task = arguments.task or cache.tasks[0]
        picture = cache.show(
            task,
            arguments.epoch,
            arguments.iteration,
            video=arguments.video,
            columns=COLUMNS if arguments.columns is None else arguments.columns,
            height=HEIGHT if arguments.height is None else arguments.height,
        )
        file = picture.save(arguments.out or _name(task, arguments))
    if terminal.json:
        height, width = picture.sheet.shape[:2]
        terminal.data({"file": str(file), "sheet": [width, height], "film": picture.film.count, **picture.facts})
    else:
        terminal.show(str(file))
    return 0


def _name(task: str, arguments: argparse.Namespace) -> Path:
    """Of a file in the working directory, by what is drawn."""
    what = arguments.video or f"{arguments.epoch}-{arguments.iteration or 0}"
    return Path(f"{task}-{re.sub(r'[^A-Za-z0-9._-]', '_', what)}.png")
