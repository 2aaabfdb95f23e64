"""Progress: bars on a terminal, lines elsewhere."""

import io

import pytest
from rich.console import Console

from t1.progress import ProgressDisplay, duration, summary


def shown(*, terminal: bool, interval_s: float = 0.0) -> str:
    """What a short run of two stages prints."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=160, highlight=False)
    with ProgressDisplay(console, plain_interval_s=interval_s) as display:
        display.stage("base [x]", total=2, unit="tasks")
        display.advance(2, {"solve_rate": 0.25})
        display.stage("rl", total=4, done=1)
        display.note("a [note]")
        display.advance(1, {"reward": 0.5, "gap": 0.0123, "tokens_per_s": 2500.0, "private": 3})
        display.reached(4, 4)
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines():
    text = shown(terminal=False)
    lines = [line.split("] ", 1)[1] for line in text.splitlines()]
    assert lines[0] == "base [x]: 2 tasks"
    assert lines[1] == "base [x] 2/2 tasks · solved 25.0%"
    assert "a [note]" in lines
    assert lines[-1] == "rl 4/4 steps · reward 0.500 · gap 0.0123 · 2,500 tok/s"
    assert "\x1b" not in text and "private" not in text


def test_plain_lines_come_no_faster_than_the_interval():
    assert len(shown(terminal=False, interval_s=1e9).splitlines()) == 6


def test_on_a_terminal_every_stage_has_a_bar():
    text = shown(terminal=True)
    assert "base [x]" in text and "reward 0.500" in text and "✓" in text


def test_an_error_gives_the_terminal_back():
    stream = io.StringIO()
    with pytest.raises(RuntimeError), ProgressDisplay(Console(file=stream, force_terminal=True)) as display:
        display.stage("rl", total=2)
        raise RuntimeError
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5s"), (75, "1m15s"), (3900, "1h05m")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_a_summary_shows_known_numbers_only():
    assert summary({"reward": 0.25, "stage": "rl", "gap": None}) == "reward 0.250"
