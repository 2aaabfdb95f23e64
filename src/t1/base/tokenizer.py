"""The base model's tokenizer: byte-level BPE in which a name is spelled by the same tokens wherever it stands.

A small model copies best when what it copies looks the same at both places. So a space is glued only to operators,
options and English function words, never to a name: `box` in `mkdir -p box`, at the start of a line and in `"box"` is
one and the same token. This module knows the corpus only as an iterator of texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from t1.base.corpus import END, END_OF_TEXT, SPECIAL_TOKENS, documents
from t1.base.words import CORE_WORDS, GLUED_WORDS, VERBS, WORDS, listed

_PATTERN = "|".join(
    (
        rf" (?:{'|'.join(GLUED_WORDS)})(?![A-Za-z0-9_.-])",  # a function word and its space
        r" -[A-Za-z]+(?![A-Za-z])",  # an option
        r" (?:>>|>|<|\||&&|\|\|) ?",  # an operator of the shell
        r"\.[A-Za-z]+",  # an extension
        r"[A-Za-z]+",
        r"[0-9]",
        r"\n",
        r"[^\sA-Za-z0-9]",
        r"\s",
    )
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


_SHELL = listed("""
cat cp mv rm mkdir touch chmod ln sort uniq head tail grep cut sed tar wc find echo tac printf ls readlink stat exit
user assistant tool No such The -p -n -l -s -i -cf -d -f -name > >> | < .txt .csv .log .md .sh .tar .conf .json
""")


def vocabulary_texts(seed: int) -> Iterator[str]:
    """A word list, weighted, before documents of the corpus: whole words win over syllables, syllables over bytes."""
    yield from repeat("".join(f" {word}" for word in GLUED_WORDS), 400)
    yield from repeat("".join(f" {piece} " for piece in _SHELL), 400)
    yield from repeat(" ".join((*VERBS, *map(str.capitalize, VERBS))), 100)
    yield from repeat(" ".join(CORE_WORDS), 350)
    yield from repeat(" ".join(WORDS), 5)
    for document in islice(documents(seed), 600):
        yield document.text


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn the merges from texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out: Path, max_length: int) -> None:
    """Write `tokenizer.json` and the configuration that `AutoTokenizer` reads."""
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "bos_token": None,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
