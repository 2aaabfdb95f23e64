"""Pictures of a run as inline SVG that follows the page's colours, light or dark.

Boundary: takes numbers, returns SVG text. matplotlib draws with marker colours which become CSS variables of the page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t1.errors import UserError

COLORS = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--line)",
    "#040404": "var(--base)",
    "#050505": "var(--sft)",
    "#060606": "var(--rl)",
}
"""Marker colour in the drawing → what the page paints."""
INK, MUTED, LINE, BASE, SFT, RL = COLORS
STAGE_COLORS = {"base": BASE, "sft": SFT, "rl": RL}


def solve_rate_bars(stages: Mapping[str, Mapping[str, Any]]) -> str:
    """One bar a stage: the solve rate, its 95 % interval as a whisker."""
    names = list(stages)
    figure, axes = _figure(7.2, 0.45 * len(names) + 0.5)
    for row, name in enumerate(names):
        rate, (low, high) = stages[name]["solve_rate"], stages[name]["ci95"]
        color = STAGE_COLORS.get(name, RL)
        axes.barh(row, rate, height=0.56, color=color)
        axes.hlines(row, low, high, color=INK, linewidth=1.4)
        axes.vlines([low, high], row - 0.1, row + 0.1, color=INK, linewidth=1.4)
        axes.text(min(high + 0.015, 1.02), row, f"{rate:.1%}", va="center", color=INK, fontsize=10, weight="bold")
    axes.set_yticks(range(len(names)), [name.upper() if len(name) < 4 else name for name in names], fontsize=10)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x")
    return _svg(figure, "bars")


def curve(steps: Sequence[float], values: Sequence[float], name: str, *, color: str = RL) -> str:
    """A metric over steps: every value faintly, and its moving average."""
    figure, axes = _figure(3.5, 1.9)
    smooth = moving_average(values, max(1, len(values) // 10))
    axes.plot(steps, values, color=color, alpha=0.3, linewidth=1)
    axes.plot(steps, smooth, color=color, linewidth=2, solid_capstyle="round")
    axes.plot(steps[-1:], smooth[-1:], color=color, marker="o", markersize=4.5)
    axes.annotate(
        f"{smooth[-1]:,.3g}" if abs(smooth[-1]) < 1000 else f"{smooth[-1]:,.0f}",
        (steps[-1], smooth[-1]),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        fontsize=10,
        weight="bold",
        annotation_clip=False,
    )
    axes.grid(axis="y")
    axes.locator_params(nbins=4)
    axes.locator_params(axis="x", nbins=4, integer=True)
    axes.margins(x=0.02, y=0.15)
    return _svg(figure, name)


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and its neighbours, `width` values in all, fewer at the ends."""
    before, after = (width - 1) // 2, width // 2 + 1
    windows = [values[max(0, i - before) : i + after] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """An empty pair of axes in the page's manner."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("the report's pictures need a package: pip install 't1[report]'") from None
    with rc_context({"axes.edgecolor": LINE, "xtick.color": MUTED, "ytick.color": MUTED, "grid.color": LINE}):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3, labelsize=9)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Any, name: str) -> str:
    """The figure as an `<svg>` element: the same for the same numbers, its text left as text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    for marker, variable in COLORS.items():
        svg = svg.replace(marker, variable)
    return svg
