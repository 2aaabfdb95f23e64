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
from t1.gateway.rendering.spelling import Spelling
from t1.gateway.rendering.template import CHATML, ChatTemplate, special_tokens


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
    if template is None or "tool" not in template.source:
        template = _with_calls(path, spelling, template)
    found = family_of(spelling.control, template.source) if family == "auto" else family
    if found not in FAMILIES:
        raise CheckpointError(f"family: {found!r} is none of {', '.join(sorted(FAMILIES))} and auto")
    eos = spelling.control.get(special_tokens(path).get("eos_token", ""))
    stops = [*_declared_stops(path), *([] if eos is None else [eos])]
    return ChatTemplateRenderer(spelling, template, FAMILIES[found], stops)


def _with_calls(path: Path, spelling: Spelling, own: ChatTemplate | None) -> ChatTemplate:
    """ChatML's template for a checkpoint whose own knows no tools, provided that they agree on all else."""
    chatml = ChatTemplate(CHATML, name=str(path))
    if {"<|im_start|>", "<|im_end|>"} <= spelling.control.keys():
        talk = [{"role": role, "content": f"a {role}"} for role in ("system", "user", "assistant", "tool", "user")]
        if own is None or own.render(talk, [], True) == chatml.render(talk, [], True):
            return chatml
    if own is None:
        raise CheckpointError(f"{path}: no chat template, and no ChatML tokens to do without; add chat_template.jinja")
    return own


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
