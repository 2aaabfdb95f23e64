"""What a completion asks for: run a command, submit, or nothing that can be understood.

Three formats. `bare`: the completion is the command, `exit` submits; it costs no tokens and suits a small model.
`fenced`: one ```bash block among free text. `tool_call`: one Hermes `<tool_call>` with a JSON object. A completion
that cannot be parsed is an observation for the policy (case T12); its tokens stay as they were sampled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

ActionFormat: TypeAlias = Literal["bare", "fenced", "tool_call"]


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command line in the sandbox."""

    command: str


@dataclass(frozen=True, slots=True)
class Submit:
    """The policy says that it is done."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """The completion could not be understood; `reason` becomes the observation."""

    reason: str


Action: TypeAlias = Run | Submit | Malformed

SUBMIT_COMMAND = "exit"
_FENCE = re.compile(r"^```(?:bash|sh)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_TOOL_OPEN, _TOOL_CLOSE = "<tool_call>", "</tool_call>"


def parse_action(text: str, style: ActionFormat) -> Action:
    """Read the one action of a completion's text."""
    return _PARSERS[style](text)


def write_action(command: str | None, style: ActionFormat) -> str:
    """The completion text that asks for `command` (None submits); the inverse of `parse_action`, for demonstrations."""
    if style == "bare":
        return SUBMIT_COMMAND if command is None else command
    if style == "fenced":
        return f"```bash\n{SUBMIT_COMMAND if command is None else command}\n```"
    call = {"name": "submit", "arguments": {}} if command is None else _bash_call(command)
    return f"{_TOOL_OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{_TOOL_CLOSE}"


def _bash_call(command: str) -> dict[str, object]:
    return {"name": "bash", "arguments": {"command": command}}


def _command(text: str) -> Action:
    command = text.strip()
    if not command:
        return Malformed("empty command")
    return Submit() if command == SUBMIT_COMMAND else Run(command)


def _parse_fenced(text: str) -> Action:
    blocks = _FENCE.findall(text)
    if len(blocks) != 1:
        return Malformed(f"expected one ```bash block, found {len(blocks)}")
    return _command(blocks[0])


def _parse_tool_call(text: str) -> Action:
    start, end = text.find(_TOOL_OPEN), text.rfind(_TOOL_CLOSE)
    if start < 0 or end < start:
        return Malformed("expected one <tool_call>…</tool_call>, found none")
    try:
        # raw_decode stops where the JSON value ends: a closing tag inside a string does not end the call early.
        call, _ = json.JSONDecoder().raw_decode(text[start + len(_TOOL_OPEN) : end].strip())
    except json.JSONDecodeError as error:
        return Malformed(f"the tool call is not JSON: {error.msg} at character {error.pos}")
    match call:
        case {"name": "submit"}:
            return Submit()
        case {"name": "bash", "arguments": {"command": str(command)}}:
            return Run(command) if command.strip() else Malformed("empty command")
    return Malformed('expected {"name": "bash", "arguments": {"command": "…"}} or {"name": "submit"}')


_PARSERS: dict[ActionFormat, Callable[[str], Action]] = {
    "bare": _command,
    "fenced": _parse_fenced,
    "tool_call": _parse_tool_call,
}
