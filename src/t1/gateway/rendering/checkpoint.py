"""The renderer of a checkpoint directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from t1.errors import CheckpointError
from t1.gateway.rendering.families import FAMILIES, family_of
from t1.gateway.rendering.renderer import ChatTemplateRenderer
from t1.gateway.rendering.template import CHATML, ChatTemplate, special_tokens
from t1.harness.spelling import Spelling


def renderer_for(
    path: Path, family: str = "auto", options: Mapping[str, Any] | None = None, day: date | None = None
) -> ChatTemplateRenderer:
    """The renderer of the checkpoint in `path`: its tokenizer.json, chat template and generation_config.json.

    `options` reach the template (such as enable_thinking). `day` is what a template sees that prints a date: pass
    the one that a run began with, and prompts stay the same on another day.
    """
    file = path / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file; a checkpoint directory needs its tokenizer.json")
    spelling = Spelling(file.read_text(encoding="utf-8"))
    template = ChatTemplate.from_pretrained(path, options, day)
    if template is None or not template.knows_tools():
        template = _with_calls(path, spelling, template)
    found = family_of(spelling.control, template) if family == "auto" else family
    if found not in FAMILIES:
        raise CheckpointError(f"family: {found!r} is none of {', '.join(sorted(FAMILIES))} and auto")
    eos = spelling.control.get(special_tokens(path).get("eos_token", ""))
    stops = [*_declared_stops(path), *([] if eos is None else [eos])]
    return ChatTemplateRenderer(spelling, template, FAMILIES[found], stops)


def _with_calls(path: Path, spelling: Spelling, own: ChatTemplate | None) -> ChatTemplate:
    """ChatML's template for a checkpoint whose own knows no tools, provided that they agree on all else."""
    chatml = ChatTemplate(CHATML, name=str(path))
    knows_chatml = {"<|im_start|>", "<|im_end|>"} <= spelling.control.keys()
    if own is None and not knows_chatml:
        raise CheckpointError(f"{path}: no chat template, and no ChatML tokens to do without; add chat_template.jinja")
    return chatml if own is None or (knows_chatml and _agree(own, chatml)) else own


def _agree(one: ChatTemplate, other: ChatTemplate) -> bool:
    """Whether two templates write a conversation without calls the same way."""
    talk = [{"role": role, "content": f"a {role}"} for role in ("system", "user", "assistant", "tool", "user")]
    try:
        return one.render(talk, [], True) == other.render(talk, [], True)
    except ValueError:
        return False


def _declared_stops(path: Path) -> list[int]:
    """eos_token_id of generation_config.json."""
    file = path / "generation_config.json"
    if not file.is_file():
        return []
    try:
        declared = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    ids = declared if isinstance(declared, list) else [declared]
    return [int(id_) for id_ in ids if id_ is not None]
