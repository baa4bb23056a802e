"""Pictures of what was drawn, as a PNG or as an HTML page that needs no other file.

matplotlib is loaded when a picture is asked for, and used without its global state: no window, no backend to choose.
"""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from viewcache.api.audit.diversity import OFTEN, Diversity
from viewcache.api.audit.evidence import Evidence, TaskEvidence
from viewcache.api.audit.uniformity import Check
from viewcache.api.text import counted
from viewcache.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_figure", "plotter"]

_COLUMNS = 4
"""Panels beside one another."""
_TITLE, _TITLE_LINES = 44, 4
"""Most characters of a title's line, so that it stays over its panel, and most lines."""
_SHOWN_TIMES = 12
"""Bars of how often frames were selected; the last one has all that were selected as often or more."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>viewcache verify</title><style>
body {{ font: 15px/1.4 sans-serif; margin: 2em; }} table {{ border-collapse: collapse; margin: 1em 0; }}
td, th {{ padding: .2em .8em; border-bottom: 1px solid #ccc; text-align: right; }}
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) {{ text-align: left; }}
</style></head><body><h1>viewcache verify</h1>
{tables}
<img alt="what was drawn" src="data:image/svg+xml;base64,{picture}" style="max-width: 100%">
</body></html>
"""


def plotter(file: str) -> Callable[[Evidence], None]:
    """What draws the evidence into a file; says at once if it could not.

    Args:
        file: a path that ends in ``.png`` or ``.html``; its folder exists.

    Raises:
        BadInput: another ending, or no such folder.
        MissingExtra: matplotlib is not installed.
    """
    path = Path(file)
    if path.suffix.lower() not in (".png", ".html"):
        raise BadInput(f"--plot {file}: its ending says what it becomes; allowed: .png, .html")
    if not path.parent.is_dir():
        raise BadInput(f"--plot {file}: there is no folder {path.parent}; make it first")
    try:
        import matplotlib.figure  # noqa: F401 - whether it is there
    except ImportError as missing:
        raise MissingExtra("plots need matplotlib: pip install 'viewcache[verify]'") from missing

    def draw(evidence: Evidence) -> None:
        figure, out = draw_figure(evidence), io.BytesIO()
        if path.suffix.lower() == ".png":
            figure.savefig(out, format="png", dpi=120)
            data = out.getvalue()
        else:
            figure.savefig(out, format="svg")
            picture = base64.b64encode(out.getvalue()).decode()
            data = _PAGE.format(tables=_tables(evidence), picture=picture).encode()
        try:
            path.write_bytes(data)
        except OSError as error:
            raise BadInput(f"--plot {file} cannot be written: {error.strerror or error}") from error

    return draw


def draw_figure(evidence: Evidence) -> "Figure":
    """All panels that have something to show, task by task, without a gap for those that have not."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = list(_panels(evidence))
    across = min(_COLUMNS, max(len(panels), 1))
    down = max(-(-len(panels) // across), 1)
    figure = Figure(figsize=(4.4 * across, 3.8 * down), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    if not panels:
        figure.text(0.5, 0.5, "nothing was drawn yet", ha="center", va="center")
    for at, draw in enumerate(panels):
        draw(figure.add_subplot(down, across, at + 1))
    return figure


def _panels(evidence: Evidence) -> Iterator[Callable[["Axes"], None]]:
    """What draws each panel."""
    alone = {each.tasks[0]: each for each in evidence.diversity if len(each.tasks) == 1}
    for task in evidence.tasks:
        checks = {check.about: check for check in task.checks if check.density}
        if task.places:
            yield partial(_order, task=task)
        if "start" in checks:
            title, below = f"{task.task}: clip starts", "tenth of the possible starts"
            yield partial(_density, title=title, below=below, checks=[checks["start"]])
        crops = [checks[name] for name in ("crop rows", "crop columns") if name in checks]
        if crops:
            title, below = f"{task.task}: random crops", "tenth of the possible offsets"
            yield partial(_density, title=title, below=below, checks=crops)
        if task.task in alone:
            yield partial(_times, counts=alone[task.task])
    for each in evidence.diversity:
        if len(each.tasks) > 1:
            yield partial(_times, counts=each)


def _order(axes: "Axes", task: TaskEvidence) -> None:
    """Listing against epoch; colours end at three times the noise that so many draws have, at a quarter or at zero."""
    parts = len(task.places)
    draws = next((check.n for check in task.checks if check.about == "place"), 1)
    off = min(1.0, max(0.25, 3 * parts / draws**0.5))
    picture = axes.imshow(
        task.places,
        cmap="RdBu_r",
        vmin=1 - off,
        vmax=1 + off,
        aspect="auto",
        origin="lower",
        extent=(0, 1, 0, 1),
    )
    axes.figure.colorbar(picture, ax=axes, label="density, 1 = uniform")
    p_values = ", ".join(f"{check.about} {check.p:.2g}" for check in task.checks[:3] if check.p is not None)
    title = f"{task.task}: order of {counted(task.epochs, 'epoch')}"
    _label(axes, f"{title}\np: {p_values}" if p_values else title, "place in the epoch", "place in the listing")


def _density(axes: "Axes", title: str, below: str, checks: Sequence[Check]) -> None:
    """Bars per tenth around the line of the uniform law, with the noise that so many draws have."""
    width = 0.8 / len(checks)
    for k, check in enumerate(checks):
        at = [tenth + 1 + (k - (len(checks) - 1) / 2) * width for tenth in range(len(check.density))]
        p = check.verdict if check.p is None else f"p {check.p:.2g}"
        axes.bar(at, check.density, width, label=f"{check.about}: n {check.n}, {p}")
    noise = 2 * ((len(checks[0].density) - 1) / min(check.n for check in checks)) ** 0.5
    axes.axhspan(max(0.0, 1 - noise), 1 + noise, color="grey", alpha=0.2)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylim(0, max(1 + noise, *(max(check.density) for check in checks)) * 1.3)  # room for the legend
    axes.legend(fontsize="small")
    _label(axes, title, below, "density, 1 = uniform")


def _times(axes: "Axes", counts: Diversity) -> None:
    """How often frames were selected, as recorded and by independent draws."""
    for shift, name, each in ((-0.2, "recorded", counts.recorded), (0.2, "independent", counts.independent)):
        ever = max(each.ever, 1.0)
        shares = [times / ever for times in each.times[: _SHOWN_TIMES - 1]]
        shares.append(sum(each.times[_SHOWN_TIMES - 1 :]) / ever)
        at = [times + 1 + shift for times in range(len(shares))]
        axes.bar(at, shares, 0.4, label=f"{name}: {each.often:.1%} {OFTEN} times or more")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)
    axes.legend(fontsize="small")
    who = " + ".join(counts.tasks)
    _label(
        axes,
        f"{who}: frames in {counted(counts.epochs, 'epoch')}",
        f"times selected; {_SHOWN_TIMES} = {_SHOWN_TIMES} or more",
        "share of selected frames",
    )


def _label(axes: "Axes", title: str, below: str, beside: str) -> None:
    lines = [part for line in title.split("\n") for part in wrap(line, _TITLE)]  # names of tasks are long at times
    axes.set_title("\n".join(lines[:_TITLE_LINES]), fontsize="medium", parse_math=False)  # a name may hold a $
    axes.set_xlabel(below)
    axes.set_ylabel(beside)


def _tables(evidence: Evidence) -> str:
    lines = []
    for head, rows in (evidence.check_table(), evidence.diversity_table()):
        body = "".join(_line("td", row) for row in rows)
        lines.append(f"<table>{_line('th', head)}{body}</table>")
    return "".join(lines)


def _line(tag: str, values: Sequence[object]) -> str:
    cells = "".join(f"<{tag}>{escape(_short(value))}</{tag}>" for value in values)
    return f"<tr>{cells}</tr>"


def _short(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
