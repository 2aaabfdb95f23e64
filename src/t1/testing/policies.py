"""A policy that plays a text for each turn, a script for `ScriptedSampler`: the sampled side of tests with agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from t1.gateway.conversation import ChatRenderer
from t1.types import IntArray

Line: TypeAlias = str | Callable[[str], str]
"""What is said in a turn, or a function from what was said since the turn before to it."""


class ScriptedPolicy:
    """Says line n where n replies of the assistant stand in the prompt, so that branches and retries play right."""

    def __init__(
        self,
        renderer: ChatRenderer,
        lines: Sequence[Line],
        *,
        others: Mapping[str, Sequence[Line]] | None = None,
        opening: str = "<|im_start|>assistant",
    ) -> None:
        """`others`: lines of conversations that open with such a text in them: a sub-agent's, a summary's.
        `opening`: what a template writes before a reply. The last line is said again and again."""
        self._renderer, self._lines, self._opening = renderer, tuple(lines), opening
        self._others = {text: tuple(lines) for text, lines in (others or {}).items()}

    def __call__(self, prompt: IntArray) -> list[int]:
        """The completion of `prompt` [P]."""
        *before, last, _ = ["", *self._renderer.decode(prompt).split(self._opening)]
        start = before[1] if len(before) > 1 else last
        lines = next((other for text, other in self._others.items() if text in start), self._lines)
        line = lines[min(max(0, len(before) - 1), len(lines) - 1)]
        said = line if isinstance(line, str) else line(last)
        return [*self._renderer.encode(said).tolist(), self._renderer.stop_ids[0]]


def call_text(name: str, arguments: dict[str, Any], *, saying: str = "") -> str:
    """A call as Hermes-style models write it, with spacing that no library would choose."""
    written = json.dumps({"name": name, "arguments": arguments}, separators=(" ,", " : "), ensure_ascii=False)
    return f"{saying}<tool_call>\n{written}\n</tool_call>"
