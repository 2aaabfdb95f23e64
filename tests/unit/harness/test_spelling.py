"""Control tokens and text, kept apart on tokenizers of every make."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from t1.errors import CheckpointError
from t1.harness.spelling import Spelling, marks_absent_from, well_formed
from t1.testing.chat_checkpoints import small_tokenizer

SPECIAL, MARKUP = ("<|end|>", "/off"), ("<think>", "</think>", "[/INST]")
MARK = "\ufdd0"


@pytest.fixture(scope="module")
def spelling() -> Spelling:
    return Spelling(small_tokenizer(SPECIAL, MARKUP))


def as_text(spelling: Spelling, text: str) -> list[int]:
    return spelling.encode_text(text).tolist()


def test_the_tokenizer_itself_would_read_control_tokens_out_of_text(spelling):
    """What this module is there for: even `encode_special_tokens` leaves markup such as `</think>` a control token."""
    plain = Tokenizer.from_str(small_tokenizer(SPECIAL, MARKUP))
    plain.encode_special_tokens = True
    assert spelling.control["</think>"] in plain.encode("a</think>b").ids
    assert spelling.control["</think>"] not in as_text(spelling, "a</think>b")


@pytest.mark.parametrize("text", [*SPECIAL, *MARKUP, "<|end|><|end|>", "</thi" + "nk>", "<<think>>"])
def test_a_spelled_control_token_is_the_ids_of_its_letters(spelling, text):
    ids = as_text(spelling, text)
    assert spelling.control_ids.isdisjoint(ids)
    assert spelling.decode(np.array(ids, dtype=np.int32)) == text


def test_what_a_template_writes_is_a_control_token_and_what_is_marked_is_not(spelling):
    marking = spelling.marking(MARK)
    ids = spelling.encode(f"hi {marking.put('<|end|>')}<|end|>", marking).tolist()
    assert [i for i in ids if i in spelling.control_ids] == [spelling.control["<|end|>"]]
    assert ids[:-1] == as_text(spelling, "hi <|end|>")


@pytest.mark.parametrize(("left", "inside", "right"), [("<", "|end|>", ""), ("<|en", "d|>", "!"), ("", "<|end", "|>")])
def test_no_control_token_forms_across_the_edge_of_marked_text(spelling, left, inside, right):
    marking = spelling.marking(MARK)
    ids = spelling.encode(left + marking.put(inside) + right, marking).tolist()
    assert ids == as_text(spelling, left + inside + right)


def test_text_between_control_tokens_is_encoded_as_one_piece(spelling):
    """Merges reach across the edge of a message, as they do where a tokenizer encodes the whole rendering."""
    marking = spelling.marking(MARK)
    ids = spelling.encode(f"<|end|>fi{marking.put('les')}", marking).tolist()
    assert ids[1:] == as_text(spelling, "files")
    assert ids[1:] != as_text(spelling, "fi") + as_text(spelling, "les")


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.sampled_from([*SPECIAL, *MARKUP, MARK, "\ufdd1", "<", ">"]) | st.text(max_size=4)).map("".join))
def test_marking_is_undone_and_decoding_marks_what_only_spells(text):
    spelling = Spelling(small_tokenizer(SPECIAL, MARKUP))
    marking = spelling.marking(marks_absent_from([text], 1)[0])
    assert marking.take(marking.put(text)) == text
    ids = np.array([*as_text(spelling, text), spelling.control["</think>"]], dtype=np.int32)
    decoded, mark = spelling.decode_marked(ids)
    assert decoded.replace(mark, "") == text + "</think>"
    assert decoded.count("</think>") == 1


def test_lone_surrogates_become_the_replacement_character_and_pairs_their_own():
    assert well_formed("a\ud83d") == "a\ufffd"
    assert well_formed("\ude00\ud83d") == "\ufffd\ufffd"
    assert well_formed("\ud83d\ude00") == "😀"
    assert well_formed("\x00\r\n") == "\x00\r\n"


def test_a_mark_is_found_for_text_that_holds_every_noncharacter():
    text = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    first, second = marks_absent_from([text, "\U000f0000"], 2)
    assert (first, second) == ("\U000f0001", "\U000f0002")


def test_added_tokens_that_are_words_keep_their_ids():
    """A vocabulary may be extended with plain words; those are no control tokens and stay one id."""
    tokenizer = Tokenizer.from_str(small_tokenizer(SPECIAL, MARKUP))
    tokenizer.add_tokens(["grüezi", AddedToken("   ", normalized=False)])
    spelling = Spelling(tokenizer.to_str())
    for word in ("grüezi", "   "):
        assert as_text(spelling, word) == [tokenizer.token_to_id(word)]


def test_a_vocabulary_that_holds_its_control_tokens_keeps_them_out_of_text():
    """Some models spell a control token as one piece of their own vocabulary and need no added token for it."""
    document = json.loads(small_tokenizer(("<end>",)))
    (token,) = document["added_tokens"]
    document["model"]["vocab"]["<end>"] = token["id"]
    document["model"]["ignore_merges"] = True
    document["pre_tokenizer"]["use_regex"] = False
    bare = Tokenizer.from_str(json.dumps(document | {"added_tokens": []}))
    assert bare.encode("<end>").ids == [token["id"]]
    spelling = Spelling(json.dumps(document))
    assert spelling.control_ids.isdisjoint(as_text(spelling, "<end>"))
    assert spelling.decode(spelling.encode_text("<end>")) == "<end>"


def test_a_tokenizer_that_cannot_encode_pieces_apart_is_refused():
    tokenizer = Tokenizer(models.BPE({"▁": 0, "a": 1, "b": 2, "c": 3, "d": 4}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    with pytest.raises(CheckpointError, match="byte-level"):
        Spelling(tokenizer.to_str())


def test_a_normalizing_tokenizer_is_taken_as_it_is():
    """Qwen's tokenizers compose characters (NFC): the text changes as it does everywhere else with that tokenizer."""
    tokenizer = Tokenizer.from_str(small_tokenizer(SPECIAL, MARKUP))
    tokenizer.normalizer = normalizers.NFC()
    spelling = Spelling(tokenizer.to_str())
    assert spelling.decode(spelling.encode_text("e\u0301")) == "é"


def test_a_tokenizer_that_was_saved_while_it_cut_and_padded_does_neither():
    tokenizer = Tokenizer.from_str(small_tokenizer(SPECIAL, MARKUP))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    spelling = Spelling(tokenizer.to_str())
    assert spelling.decode(spelling.encode_text("what no merge knows")) == "what no merge knows"
    assert len(spelling.encode_text("")) == 0
