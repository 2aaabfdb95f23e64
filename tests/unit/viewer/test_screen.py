"""Output of a terminal: what a person would have seen, and nothing that acts or hides."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.viewer.screen import MAX_WIDTH, render, visible

STYLES = {f"{kind}{n}" for kind in ("fg", "bg") for n in range(8)} | {"bold", "italic", "underline"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ntext\n", "plain\ntext\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("10%\r 55%\r100%\n", "100%"),
        ("abc\b\bX", "aXc"),
        ("one\ntwo\n\x1b[2A\x1b[2K1\n", "1\ntwo"),
        ("before\n\x1b[2J\x1b[Htop", "top"),
        ("a\tb\r", "a       b"),
        ("宽字\x1b[2D\x1b[0K", "宽"),
        ("", ""),
    ],
)
def test_what_a_terminal_would_show_in_the_end(written, shown):
    assert render(written).text == shown


def test_colours_are_those_that_were_asked_for_or_the_nearest():
    runs = render("\x1b[1;31mred\x1b[0m \x1b[38;2;240;120;20morange\x1b[39m\x1b[48;5;21mon blue\x1b[m").runs
    assert runs == (("red", "fg1 bold"), (" ", ""), ("orange", "fg1"), ("on blue", "bg4"))


def test_rows_that_scrolled_out_are_kept():
    lines = [f"line {i}" for i in range(200)]
    assert render("\n".join(lines) + "\r").text.split("\n") == lines


def test_a_line_is_not_broken_where_it_was_not():
    assert render("x" * (MAX_WIDTH - 1) + "\r").text == "x" * (MAX_WIDTH - 1)


def test_control_strings_are_taken_out_and_counted():
    shown = render("\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\ \x1bPq#0\x1b\\end")
    assert shown.text == "link end" and shown.dropped == 4


def test_a_control_string_without_an_end_hides_nothing():
    assert render("\x1b]0;never ends, and then the evidence").text == "␛]0;never ends, and then the evidence"


@pytest.mark.parametrize("code", ["202e", "200b", "2066", "feff", "ad", "0", "9b", "d800", "e0041"])
def test_what_hides_or_reorders_text_stands_there_by_its_number(code):
    expected = f"a⟨{int(code, 16):02X}⟩b"
    assert visible(f"a{chr(int(code, 16))}b") == expected
    assert render(f"a{chr(int(code, 16))}b").text == expected
    assert render(f"\x1b[31ma{chr(int(code, 16))}b\r").text == expected


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab宽\n\r\b\t\x1b[];?0129mHJKABCDhlr@PLM\x07\ud800\u202e"), max_size=120))
def test_no_text_breaks_it_and_nothing_unseen_comes_out(text):
    shown = render(text)
    assert not set(shown.text) & set("\x1b\b\r\x07\ud800\u202e")
    assert {name for _, style in shown.runs for name in style.split()} <= STYLES


def test_a_text_that_is_slow_to_replay_is_shown_as_it_was_written():
    """Insertions into a wide row cost most; the bound is checked on a clock that is far behind it."""
    started = time.monotonic()
    shown = render("w" * 1900 + "\x1b[500D" + "\x1b[1@" * 200_000, deadline_s=0.2)
    assert shown.late and shown.runs[-1][0].startswith(("␛[1@", "[1@", "1@", "@"))
    assert time.monotonic() - started < 60
