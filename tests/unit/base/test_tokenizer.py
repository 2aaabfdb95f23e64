"""The tokenizer loses nothing, keeps names in one spelling, and loads with the public classes."""

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from t1.base import base_path
from t1.base.corpus import SPECIAL_TOKENS, documents, message
from t1.base.tokenizer import save_tokenizer, train_tokenizer, vocabulary_texts
from t1.base.words import CORE_WORDS

SHIPPED = Tokenizer.from_file(str(base_path() / "tokenizer.json"))


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert SHIPPED.decode(SHIPPED.encode(text).ids, skip_special_tokens=False) == text


def test_documents_come_back_and_take_few_tokens() -> None:
    texts = [document.text for document in islice(documents(11), 300)]
    ids = [SHIPPED.encode(text).ids for text in texts]
    assert [SHIPPED.decode(row, skip_special_tokens=False) for row in ids] == texts
    assert sum(map(len, texts)) / sum(map(len, ids)) > 2.5


def test_a_name_is_spelled_by_the_same_tokens_wherever_it_stands() -> None:
    for name in (*CORE_WORDS[::20], "tavel", "redfox-7"):
        alone = SHIPPED.encode(name).ids
        for frame in ("mkdir -p {}", "echo x > {}", '"{}"', "a\n{}\nb", "in/{}/out", "{}.txt"):
            before, after = frame.split("{}")
            around = [*SHIPPED.encode(before).ids, *alone, *SHIPPED.encode(after).ids]
            assert SHIPPED.encode(frame.format(name)).ids == around, frame


def test_the_vocabulary_is_whole_and_starts_with_the_control_tokens() -> None:
    assert SHIPPED.get_vocab_size() == 1024
    assert [SHIPPED.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2]
    for piece in ("cat", "mkdir", "echo", "chmod", ".txt", "user", "assistant", "tool"):
        assert len(SHIPPED.encode(piece).ids) == 1, piece


def test_the_same_seed_trains_the_shipped_tokenizer(tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(vocabulary_texts(0), 1024), tmp_path, 1024)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / file).read_bytes() == (base_path() / file).read_bytes()


@pytest.mark.parametrize("prompt", [False, True])
def test_the_chat_template_is_the_frame_of_the_corpus(prompt: bool) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_path())
    said = [("user", "say oak"), ("assistant", "oak")]
    text = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in said], tokenize=False, add_generation_prompt=prompt
    )
    expected = "".join(message(role, content) for role, content in said)
    assert text == expected + ("<|im_start|>assistant\n" if prompt else "")
    assert tokenizer(text, add_special_tokens=False).input_ids == SHIPPED.encode(text).ids
