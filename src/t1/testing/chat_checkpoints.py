"""Small checkpoint directories of each model family, as far as a ChatRenderer reads them.

The tokenizer is a byte-level BPE with the family's control tokens, trained in a few milliseconds. The templates are
short ones of our own that keep a family's control tokens and what it does to earlier messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from t1.gateway.conversation import Message, Tool
from t1.gateway.rendering import ChatTemplateRenderer
from t1.types import IntArray

_WORDS = (
    'list the files and say what is in them, then write {"path": "a.txt", "text": "one two"} to disk\n'
    "  def main():\n    return 0\n\nsystem user assistant tool analysis commentary final json function\n"
)


@dataclass(frozen=True, slots=True)
class ChatFamily:
    """What a checkpoint of a family has beside its template."""

    special: tuple[str, ...]
    """Special tokens; the first ends a turn."""
    markup: tuple[str, ...] = ()
    """Added tokens that are not special."""
    stops: tuple[str, ...] = ()
    """What generation_config.json lists, where it is there."""
    bos: str = ""


def write_chat_checkpoint(directory: Path, name: str, template: str = "") -> Path:
    """Write what a renderer reads of a checkpoint of family `name`, with our template of it or another; `directory`."""
    family = FAMILIES[name]
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_str(small_tokenizer(family.special, family.markup))
    (directory / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    config: dict[str, str] = {"eos_token": family.special[0]} | ({"bos_token": family.bos} if family.bos else {})
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(template or chat_template(name), encoding="utf-8")
    stops = [tokenizer.token_to_id(name) for name in family.stops or family.special[:1]]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}), encoding="utf-8")
    return directory


def completion_of(renderer: ChatTemplateRenderer, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
    """[C] what a model samples to say the last of `messages`, as far as the template writes it the same way."""
    prompt = renderer.open(messages[:-1], tools)
    rendered = renderer.render(messages, tools, generate=False)
    said = renderer.spelling.encode(rendered.text, rendered.marking)
    if said[: len(prompt)].tolist() != prompt.tolist():
        raise ValueError(f"{renderer.template.name}: this message is not written after its own generation prompt")
    completion = said[len(prompt) :]
    ends = [index for index, id_ in enumerate(completion.tolist()) if id_ in renderer.stop_ids]
    if ends:
        return completion[: ends[-1] + 1]
    return np.append(completion, renderer.stop_ids[1 if messages[-1].tool_calls else 0]).astype(np.int32)


def chat_template(name: str) -> str:
    """Our short template in the manner of family `name`."""
    return (Path(__file__).parent / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def small_tokenizer(special: Sequence[str], markup: Sequence[str] = ()) -> str:
    """tokenizer.json of a byte-level BPE that knows a few words and these control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator([_WORDS] * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in markup])
    return tokenizer.to_str()


_CHATML = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
_CALL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_GLM_ROLES = ("<|user|>", "<|observation|>")

FAMILIES: Mapping[str, ChatFamily] = {
    "appending": ChatFamily(_CHATML, _CALL_TAGS),
    "qwen3": ChatFamily(_CHATML, _CALL_TAGS),
    "qwen3.5": ChatFamily(_CHATML, _CALL_TAGS),
    "glm": ChatFamily(
        ("<|endoftext|>", *_GLM_ROLES, "<|system|>", "<|assistant|>", "[gMASK]", "<sop>", "/nothink"),
        (*_CALL_TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ("<|endoftext|>", *_GLM_ROLES),
    ),
    "deepseek": ChatFamily(
        ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
        (
            *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁sep｜>"),
            *(
                f"<｜tool▁{what}▁{end}｜>"
                for what in ("calls", "call", "outputs", "output")
                for end in ("begin", "end")
            ),
        ),
        bos="<｜begin▁of▁sentence｜>",
    ),
    "gpt-oss": ChatFamily(
        (
            "<|return|>",
            "<|call|>",
            "<|end|>",
            "<|start|>",
            "<|message|>",
            "<|channel|>",
            "<|constrain|>",
            "<|endoftext|>",
        ),
        stops=("<|return|>", "<|call|>", "<|endoftext|>"),
    ),
}
