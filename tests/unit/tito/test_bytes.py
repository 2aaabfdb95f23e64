"""Text at its edges: whatever bytes are sampled, the sampled ids are trained, and a copy is found again or split."""

import unicodedata

import numpy as np
import pytest

from t1.types import Case

EDGES = {
    "emoji": "echo 🙂 > 🎉.txt",
    "emoji of several code points": "👩‍👩‍👧 and 🏳️‍🌈",
    "only emoji": "🙂🙂🙂",
    "cjk": "打印文件列表",
    "combining marks": "e\u0301a\u0308o\u0302",
    "right to left": "שלום \u202eabc\u202c",
    "carriage return": "ls\r\ncat\r\ndone",
    "nul": "printf 'a\x00b'",
    "control": "a\x1b[31mb\x07c",
    "replacement character": "a\ufffdb\ufffd",
    "white space": "a\u00a0b\u2003c\td",
    "private and unassigned": "a\ue000b\U000f0000c\uffff",
}
edges = pytest.mark.parametrize("text", EDGES.values(), ids=EDGES)


def cases(trajectories):
    return [[boundary.case for boundary in trajectory.boundaries] for trajectory in trajectories]


def spelled(chat, text):
    """A completion of `text`, one character after the other, and the stop id."""
    return np.concatenate([chat.letters(text), [chat.end]]).astype(np.int32)


def two_turns(chat, said, copy):
    """The first turn says `said`; its harness sends `copy` back."""
    prompt = chat.opening()
    again = np.concatenate([prompt, copy, chat.observed()])
    return chat.turns([(prompt, said), (again, chat.said("done"))])


@edges
def test_a_tokenizer_gives_the_text_back(any_chat, text):
    assert any_chat.decode(any_chat.said(text)) == text


@edges
def test_recorded_ids_are_strict_whatever_they_spell(any_chat, text):
    said = any_chat.said(text)
    trajectories, report = any_chat.checked(two_turns(any_chat, said, said))
    assert cases(trajectories) == [[Case.OPEN, Case.STRICT]]
    assert trajectories[0].tokens[trajectories[0].mask][: len(said)].tolist() == said.tolist()
    assert not report.findings


@edges
def test_other_ids_of_the_same_text_are_retokenized(any_chat, text):
    said = spelled(any_chat, f"echo hello {text}")
    trajectories, report = any_chat.checked(two_turns(any_chat, said, any_chat.said(f"echo hello {text}")))
    assert cases(trajectories) == [[Case.OPEN, Case.RETOKENIZED]]
    assert trajectories[0].tokens[trajectories[0].mask][: len(said)].tolist() == said.tolist()
    assert not report.findings


@pytest.mark.parametrize("text", ["ok 🙂", "ok 文", "hello 🙂🙂", "ok é"])
def test_a_character_that_was_cut_comes_back_as_its_replacement_and_is_found(any_chat, text):
    """Case T10: max_tokens falls into the bytes of a character; the harness copies what it was shown."""
    whole = any_chat.ids(text)
    for cut in range(len(any_chat.ids(text[:2])) + 1, len(whole)):
        said = whole[:cut]
        shown = any_chat.decode(said)
        trajectories, report = any_chat.checked(two_turns(any_chat, said, any_chat.said(shown)))
        assert cases(trajectories) in ([[Case.OPEN, Case.RETOKENIZED]], [[Case.OPEN, Case.STRICT]]), shown
        assert trajectories[0].tokens[trajectories[0].mask][:cut].tolist() == said.tolist()
        assert not report.findings


def test_a_lone_surrogate_that_was_sampled_as_bytes_is_trained_as_bytes(any_chat):
    """UTF-8 has no lone surrogates: their bytes decode to replacement characters, which is what clients send back."""
    names = ["<0xED>", "<0xA0>", "<0xBD>"]
    if any_chat.tokenizer.token_to_id(names[0]) is None:
        names = ["í", "ł", "½"]  # the byte-level alphabet's letters for ED A0 BD
    half = [any_chat.tokenizer.token_to_id(name) for name in names]
    said = np.concatenate([any_chat.ids("echo "), half, any_chat.ids("x"), [any_chat.end]]).astype(np.int32)
    shown = any_chat.decode(said)
    assert "\ufffd" in shown
    trajectories, report = any_chat.checked(two_turns(any_chat, said, any_chat.said(shown)))
    assert cases(trajectories) == [[Case.OPEN, Case.RETOKENIZED]]
    assert trajectories[0].tokens[trajectories[0].mask][: len(said)].tolist() == said.tolist()
    assert not report.findings


def test_newline_style_is_the_same_text(any_chat):
    said = any_chat.said("ls\r\ncat x\r\ndone")
    trajectories, report = any_chat.checked(two_turns(any_chat, said, any_chat.said("ls\ncat x\ndone")))
    assert cases(trajectories) == [[Case.OPEN, Case.RETOKENIZED]]
    assert not report.findings


def test_another_unicode_normal_form_is_another_text(any_chat):
    """A client that composes characters has changed what was said."""
    text = "e\u0301 and a\u0308"
    composed = unicodedata.normalize("NFC", text)
    trajectories, report = any_chat.checked(two_turns(any_chat, any_chat.said(text), any_chat.said(composed)))
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    assert not report.findings


def test_a_character_is_not_mistaken_for_its_replacement(any_chat):
    trajectories, report = any_chat.checked(two_turns(any_chat, any_chat.said("ok 🙂"), any_chat.said("ok \ufffd")))
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    assert not report.findings
