"""How a value shows itself in a notebook: a small table in HTML, for `_repr_html_`. No pixel is made for it."""

from collections.abc import Mapping
from html import escape

__all__ = ["html_table"]


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """A heading and a row for each fact; the words are escaped."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
