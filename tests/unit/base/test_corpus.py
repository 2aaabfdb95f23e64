"""The corpus is a function of its seed, is framed as the harness frames, and shares nothing with the tasks."""

import re
from itertools import islice

import pytest

from t1.base.corpus import DOMAINS, END, SPECIAL_TOKENS, START, corpus_digest, documents
from t1.base.words import EXTENSIONS, RARE_EXTENSIONS, WORDS

COMMAND = re.compile(rf"(?:^\$ |{re.escape(START)}assistant\n)(.+?)(?:$|{re.escape(END)})", re.MULTILINE)


def commands_of(text: str) -> list[str]:
    """What was typed in a document: after a prompt, or as the assistant of a session."""
    return COMMAND.findall(text)


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another() -> None:
    assert corpus_digest(3, 200) == corpus_digest(3, 200) != corpus_digest(4, 200)


@pytest.mark.parametrize("domain", [name for name in DOMAINS if name.startswith("framed")])
def test_a_session_is_a_user_message_then_commands_with_their_outputs_then_exit(domain: str) -> None:
    turn = rf"{START}assistant\n[^\n]+{END}\n{START}tool\n[^<]*{END}\n"
    session = rf"{START}user\n.+?{END}\n(?:{turn})*{START}assistant\nexit{END}\n"
    pattern = re.compile(session.replace("|", r"\|").replace("(?:" + "", "(?:"), re.DOTALL)
    for document in islice(documents(1, domain), 100):
        assert pattern.fullmatch(document.text), document.text


def test_control_tokens_stand_only_where_a_frame_needs_them() -> None:
    for document in islice(documents(5), 500):
        starts, ends = document.text.count(START), document.text.count(END)
        assert starts == ends and SPECIAL_TOKENS[0] not in document.text
        assert (starts > 0) == (document.domain == "chat" or document.domain.startswith("framed"))


def test_no_command_names_a_plain_word_with_a_common_extension() -> None:
    plain = re.compile(rf"(?<![\w./-])(?:[\w-]+/)?({'|'.join(WORDS)})\.({'|'.join(EXTENSIONS)}|tar)(?![\w.])")
    for document in islice(documents(2), 3000):
        for command in commands_of(document.text):
            assert not plain.search(command), command


def test_the_two_kinds_of_extension_are_disjoint() -> None:
    assert not set(EXTENSIONS) & set(RARE_EXTENSIONS)
