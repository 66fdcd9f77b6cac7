"""The look of our figures: colors, axes with two sides and a faint grid, and a figure as PNG bytes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, FAINT, GRID, PAPER = "#1f2933", "#9aa5b1", "#e4e7eb", "#ffffff"
BLUE, ORANGE, GREEN, VIOLET, RED = "#2f6fb5", "#d98324", "#3e9a6b", "#8b6fc0", "#d64545"
COLORS = (BLUE, ORANGE, GREEN, VIOLET, RED, "#5f6c7b", "#b5822f", "#2aa1a8")


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of this size in inches; it is drawn without a window."""
    figure = Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Any) -> None:
    """Leaves only the left and the bottom side, and puts a faint grid behind the data."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def to_png(drawn: Figure, title: str) -> bytes:
    """Returns the figure as PNG, with the title above it at the left."""
    drawn.suptitle(escape_text(title), x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold")
    written = BytesIO()
    drawn.savefig(written, dpi=130, format="png")
    return written.getvalue()


def escape_text(text: str) -> str:
    """Escapes what matplotlib would read as a formula, and replaces letters that no font can draw."""
    return "".join(letter if letter.isprintable() else "?" for letter in text).replace("$", r"\$")


def shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
