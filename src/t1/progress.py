"""Live progress for people: one bar a stage on a terminal, plain lines everywhere else.

Boundary: this module never learns what a stage does. It is told a name, a total and a few numbers to show.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_SHOWN = {
    "collected": ("collected", "{}"),
    "reward": ("reward", "{:.3f}"),
    "solve_rate": ("solved", "{:.1%}"),
    "loss": ("loss", "{:.3f}"),
    "gap": ("gap", "{:.4f}"),
    "explained_variance": ("value fit", "{:.2f}"),
    "tokens_per_s": ("", "{:,.0f} tok/s"),
    "trials_per_s": ("", "{:.1f} trials/s"),
}
"""Metric → (label, format), in the order of display. Other metrics are for the tracker, not for the screen."""


def summary(metrics: Mapping[str, object]) -> str:
    """The metrics worth a glance, as one short line."""
    parts = []
    for key, (label, form) in _SHOWN.items():
        value = metrics.get(key)
        if isinstance(value, (int, float)) or (key == "collected" and value):
            parts.append(f"{label} {form.format(value)}".strip())
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """`75` → `1m15s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class ProgressDisplay:
    """Shows the stages of a run; use as a context manager so that the terminal is given back on any exit.

    `with ProgressDisplay() as show: show.stage("rl", total=60, unit="steps"); show.advance(1, {"reward": 0.4})`
    """

    def __init__(self, console: Console | None = None, *, plain_interval_s: float = 5.0) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._plain_interval_s = plain_interval_s
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._name, self._unit, self._total, self._done = "", "", 0, 0
        self._started = self._stage_started = time.monotonic()
        self._printed_at = float("-inf")
        self._shown: dict[str, object] = {}

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.fields[mark]}"),
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("[dim]{task.fields[unit]}"),
                TextColumn("{task.fields[shown]}"),
                TimeElapsedColumn(),
                TextColumn("[dim]left"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish_stage()
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, *, total: int, unit: str = "steps", done: int = 0) -> None:
        """Begin a stage of `total` units, `done` of them already behind (a resumed run); the one before is complete."""
        self._finish_stage()
        self._name, self._unit, self._total, self._done = name, unit, total, done
        self._stage_started, self._printed_at, self._shown = time.monotonic(), float("-inf"), {}
        if self._bars is not None:
            self._task = self._bars.add_task(
                escape(name), total=total, completed=done, unit=unit, shown="", mark="[cyan]▸"
            )
        else:
            self._line(f"{name}: {total} {unit}")

    def advance(self, amount: int = 1, metrics: Mapping[str, object] | None = None) -> None:
        """Count `amount` units as done and show the metrics beside them."""
        self._done += amount
        self._shown.update(metrics or {})
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=amount, shown=escape(summary(self._shown)))
        elif time.monotonic() - self._printed_at >= self._plain_interval_s and self._done < self._total:
            self._print_state()

    def reached(self, done: int, total: int) -> None:
        """`done` of `total` units are behind: the form in which collectors and generators report."""
        self._total = total
        self.advance(done - self._done)

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        if self._bars is not None:
            self._bars.console.print(escape(text))
        else:
            self._line(text)

    def _finish_stage(self) -> None:
        """Close the open stage: its bar keeps the last numbers, plain output gets a closing line."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=max(self._done, 1), completed=max(self._done, 1), mark="[green]✓")
            self._bars.stop_task(self._task)
        elif self._name:
            self._print_state()
        self._task, self._name = None, ""

    def _print_state(self) -> None:
        """The plain form of a bar."""
        self._printed_at = now = time.monotonic()
        parts = [f"{self._name} {self._done}/{self._total} {self._unit}", summary(self._shown)]
        if 0 < self._done < self._total:
            left_s = (now - self._stage_started) / self._done * (self._total - self._done)
            parts.append(f"{duration(left_s)} left")
        self._line(" · ".join(part for part in parts if part))

    def _line(self, text: str) -> None:
        """One plain line, with the time since the display was made."""
        stamp = duration(time.monotonic() - self._started)
        self._console.print(f"[{stamp:>6}] {text}", markup=False, soft_wrap=True)
