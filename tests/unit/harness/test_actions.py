"""Action formats: what is understood, and what becomes an observation for the policy."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.harness.actions import ActionFormat, Malformed, Run, Submit, parse_action, write_action

STYLES = typing.get_args(ActionFormat)
COMMANDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=40)


@pytest.mark.parametrize("style", STYLES)
@given(command=COMMANDS)
def test_what_is_written_is_what_is_read(style: ActionFormat, command: str) -> None:
    if command != "exit" and "```" not in command:
        assert parse_action(write_action(command, style), style) == Run(command)


@pytest.mark.parametrize("style", STYLES)
def test_submitting_is_read_back(style: ActionFormat) -> None:
    assert parse_action(write_action(None, style), style) == Submit()


def test_a_closing_tag_inside_an_argument_does_not_end_the_call() -> None:
    """Case T12."""
    command = "echo '</tool_call>' > a.txt"
    assert parse_action(write_action(command, "tool_call"), "tool_call") == Run(command)


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("  \n", "bare"),
        ("no block at all", "fenced"),
        ("```bash\nls\n```\n```bash\npwd\n```", "fenced"),
        ("```bash\n\n```", "fenced"),
        ("<tool_call>{not json}</tool_call>", "tool_call"),
        ('<tool_call>{"name": "bash", "arguments": {"cmd": "ls"}}</tool_call>', "tool_call"),
        ('<tool_call>{"name": "bash", "arguments": {"command": " "}}</tool_call>', "tool_call"),
        ("ls", "tool_call"),
    ],
)
def test_what_cannot_be_understood_says_why(text: str, style: ActionFormat) -> None:
    action = parse_action(text, style)
    assert isinstance(action, Malformed) and action.reason


@pytest.mark.parametrize("style", STYLES)
@given(text=st.text(max_size=80))
def test_no_text_crashes_a_parser(style: ActionFormat, text: str) -> None:
    assert isinstance(parse_action(text, style), (Run, Submit, Malformed))
