"""A chat template: jinja text to conversation text, in a sandbox.

Renders what `transformers` would render, with jinja2 alone. Templates come with a checkpoint and are not trusted:
they run in jinja's immutable sandbox, reach no file and no attribute of Python, and see one fixed day. This module
never learns of token ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from t1.errors import CheckpointError

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or () %}{{ '\n' if message.content or not loop.first else '' }}"
    '<tool_call>\n{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For tokenizers that know ChatML's tokens and bring no template that can write tool calls."""


class WrittenJson(dict[str, Any]):
    """A JSON object that is written as it was read, for templates that want a mapping."""

    def __init__(self, text: str, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self.text = text


class _Generation(Extension):
    """`{% generation %}` … `{% endgeneration %}`, with which some templates mark the assistant's words: its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja reads a class attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One template with the variables that the tokenizer fixes."""

    def __init__(
        self, source: str, variables: Mapping[str, Any] | None = None, day: date | None = None, name: str = "template"
    ) -> None:
        """`variables`: such as bos_token or enable_thinking. `day`: what templates that print a date see (today)."""
        self.source, self.name = source, name
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        moment = datetime.combine(day or date.today(), time())
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = moment.strftime
        try:
            self._template = environment.from_string(source, globals=dict(variables or {}))
        except TemplateError as error:
            raise CheckpointError(f"{name}: the chat template does not compile: {error}") from error

    @classmethod
    def from_pretrained(
        cls, path: Path, options: Mapping[str, Any] | None = None, day: date | None = None
    ) -> ChatTemplate | None:
        """The template of a checkpoint directory, or None where it has none. `options` reach the template."""
        config = _read_config(path)
        file = path / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
        if isinstance(source, list):
            named = {entry["name"]: entry["template"] for entry in source}
            source = named.get("tool_use", named.get("default"))
        if not source:
            return None
        return cls(str(source), {**special_tokens(path), **(options or {})}, day, str(path))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], generate: bool) -> str:
        """The conversation as text, with the generation prompt where `generate`.

        Raises ValueError where the template refuses the conversation.
        """
        try:
            return self._template.render(messages=messages, tools=tools or None, add_generation_prompt=generate)
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise ValueError(f"{self.name}: the chat template refuses this conversation: {error}") from error

    def knows_tools(self) -> bool:
        """Whether tools that are passed can be read in the rendering."""
        tool = {"type": "function", "function": {"name": "lookup", "description": "", "parameters": {}}}
        try:
            return "lookup" in self.render([{"role": "user", "content": "?"}], [tool], True)
        except ValueError:
            return False


def special_tokens(path: Path) -> dict[str, str]:
    """bos_token, eos_token and so on of a checkpoint directory."""
    tokens = {}
    for key, value in _read_config(path).items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            tokens[key] = text
    return tokens


def _read_config(path: Path) -> dict[str, Any]:
    """tokenizer_config.json, or nothing where there is none."""
    file = path / "tokenizer_config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    return dict(config)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON as `transformers` writes it: no HTML escapes. What came as text stays that text."""
    if isinstance(value, WrittenJson):
        return value.text
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: str) -> NoReturn:
    """`raise_exception` of templates."""
    raise TemplateError(message)
