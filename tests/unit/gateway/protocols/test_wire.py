"""What the protocols share: hostile and broken bodies."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.gateway.conversation import GatewayError, Message, Role, ToolCall
from t1.gateway.protocols import CHAT, MESSAGES, RESPONSES
from t1.gateway.protocols.wire import in_order_of_calls

DIALECTS = pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=["chat", "messages", "responses"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "x"]), inner),
    max_leaves=8,
)


def body(dialect, content):
    name = "input" if dialect is RESPONSES else "messages"
    return {"model": "policy", name: [{"role": "user", "content": content}]}


@DIALECTS
@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'"hi"', b"\xff\xfe", b'{"model": NaN}', b"[" * 10_000, b'{"a": "\\ud800'],
    ids=repr,
)
def test_what_is_no_json_object_is_refused(dialect, raw):
    with pytest.raises(GatewayError) as caught:
        dialect.read(raw)
    assert caught.value.status == 400


@DIALECTS
def test_half_a_character_becomes_a_replacement_character(dialect):
    """A client that cuts text by UTF-16 units leaves half an emoji behind: no reason to end its rollout."""
    raw = json.dumps(body(dialect, "cut \ud83d, whole 🙂")).encode()
    assert dialect.read(raw).request.messages[0].content == "cut \ufffd, whole 🙂"


@DIALECTS
@settings(deadline=None, max_examples=50)
@given(text=st.text())
def test_any_text_is_read_as_it_is(dialect, text):
    raw = json.dumps(body(dialect, text), ensure_ascii=True).encode()
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert dialect.read(raw).request.messages[0].content == whole


@DIALECTS
@settings(deadline=None, max_examples=50)
@given(
    fields=st.dictionaries(st.sampled_from(["messages", "input", "tools", "system", "stream", "n", "stop"]), ANYTHING)
)
def test_any_json_is_read_or_refused_with_a_place(dialect, fields):
    raw = json.dumps({**body(dialect, "hi"), **fields}).encode()
    try:
        assert dialect.read(raw).request.model == "policy"
    except GatewayError as error:
        assert error.status == 400
        assert error.param


def test_results_stand_in_the_order_of_their_calls():
    """Seen of Claude Code: the result of the faster of two tools comes first."""
    calls = tuple(ToolCall(f"c{i}", "bash", "{}") for i in range(3))
    said, again = Message(Role.ASSISTANT, tool_calls=calls), Message(Role.ASSISTANT, tool_calls=calls[:1])
    results = [Message(Role.TOOL, str(i), tool_call_id=f"c{i}") for i in range(3)]
    stray, question = Message(Role.TOOL, "?", tool_call_id="c9"), Message(Role.USER, "hi")
    sent = [stray, question, said, results[2], stray, results[0], results[1], question, again, results[0]]
    expected = (stray, question, said, *results, stray, question, again, results[0])
    assert in_order_of_calls(sent) == expected
