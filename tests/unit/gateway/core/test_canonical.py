"""What makes two messages the same one."""

import pytest

from t1.gateway.canonical import (
    ChangeKind,
    canonical_json,
    differences,
    fills_in,
    message_key,
    same_reasoning,
    tools_key,
)
from t1.gateway.conversation import Message, Role, Tool, ToolCall


def assistant(content="", arguments=None, reasoning="", id="a"):
    tool_calls = () if arguments is None else (ToolCall(id, "run", arguments),)
    return Message(Role.ASSISTANT, content, reasoning, tool_calls)


FORGIVEN = [
    (assistant("a  \n"), assistant("a"), {ChangeKind.WHITESPACE}),
    (assistant("\n\na"), assistant("a"), {ChangeKind.WHITESPACE}),
    (assistant("a\r\nb\rc"), assistant("a\nb\nc"), {ChangeKind.NEWLINES}),
    (assistant(arguments='{"a":1}'), assistant(arguments='{ "a" : 1 }'), {ChangeKind.ARGUMENTS}),
    (assistant(arguments='{"a":1,"b":2}'), assistant(arguments='{"b":2,"a":1}'), {ChangeKind.ARGUMENTS}),
    (assistant(arguments='{"a":1.0,"b":1e2}'), assistant(arguments='{"a":1,"b":100}'), {ChangeKind.ARGUMENTS}),
    (assistant(arguments='{"a":"\\u00e9\\/"}'), assistant(arguments='{"a":"é/"}'), {ChangeKind.ARGUMENTS}),
    (assistant(arguments=""), assistant(arguments="{}"), {ChangeKind.ARGUMENTS}),
    (assistant(arguments="{}", id="a"), assistant(arguments="{}", id="b"), {ChangeKind.CALL_IDS}),
    (assistant("a", reasoning="so"), assistant("a"), {ChangeKind.REASONING_DROPPED}),
    (assistant("a", reasoning="so"), assistant("a", reasoning="so\n"), {ChangeKind.WHITESPACE}),
    (assistant("a"), assistant("a"), set()),
]


@pytest.mark.parametrize(("recorded", "sent", "kinds"), FORGIVEN)
def test_what_clients_change_is_forgiven_and_named(recorded, sent, kinds):
    assert message_key(recorded) == message_key(sent)
    assert same_reasoning(recorded, sent)
    assert {kind for kind, _ in differences(recorded, sent)} == kinds


OTHERS = [
    (assistant("a"), assistant("b")),
    (assistant("a b"), assistant("ab")),
    (assistant("a"), Message(Role.USER, "a")),
    (assistant(arguments='{"a":1}'), assistant(arguments='{"a":"1"}')),
    (assistant(arguments='{"a":null}'), assistant(arguments="{}")),
    (assistant(arguments='{"a":true}'), assistant(arguments='{"a":1}')),
    (assistant(arguments='{"a":NaN}'), assistant(arguments='{"a":"NaN"}')),
    (assistant(arguments='{"a":[1,2]}'), assistant(arguments='{"a":[2,1]}')),
    (assistant(arguments='{"a":{"b":1}}'), assistant(arguments='{"a":[["b",1]]}')),
    (assistant(arguments='{"a":1,"a":2}'), assistant(arguments='{"a":2}')),
    (assistant(arguments="not json"), assistant(arguments="not  json")),
    (assistant(arguments="1e999999"), assistant(arguments="1e999998")),
    (Message(Role.USER, "a", name="x"), Message(Role.USER, "a", name="y")),
    (Message(Role.USER, "\ud800"), Message(Role.USER, "\ud801")),
]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_another_message_is_not_taken_for_the_same(one, other):
    assert message_key(one) != message_key(other)


def test_a_result_is_told_apart_by_the_call_it_answers_and_not_by_its_id():
    one, other = Message(Role.TOOL, "ok", tool_call_id="a"), Message(Role.TOOL, "ok", tool_call_id="b")
    assert message_key(one, 0) == message_key(other, 0) != message_key(one, 1)


def test_changed_reasoning_is_another_message():
    assert not same_reasoning(assistant("a", reasoning="so"), assistant("a", reasoning="no"))
    assert not same_reasoning(assistant("a"), assistant("a", reasoning="so"))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 5000, "9" * 5000, '"\\ud800"', "\x00", '{"a":1', "-", "[" * 64]
)
def test_hostile_arguments_have_a_canonical_form_too(text):
    assert canonical_json(text) == canonical_json(f" {text}\n")


def test_tools_are_the_same_whatever_the_order_of_their_keys():
    one = Tool("run", "runs", {"type": "object", "properties": {"a": {}, "b": {}}})
    same = Tool("run", "runs", {"properties": {"b": {}, "a": {}}, "type": "object"})
    assert tools_key([one]) == tools_key([same])
    assert len({tools_key([one]), tools_key([]), tools_key([one, one]), tools_key([Tool("run", "walks")])}) == 4


FILLED = [
    (assistant("x", arguments='{"a":1}'), assistant("x ", arguments='{ "a": 1.0, "b": false }')),
    (assistant(arguments="{}"), assistant(arguments='{"b":[1]}')),
    (assistant(arguments="", reasoning="so"), assistant(arguments='{"b":null}')),
]


@pytest.mark.parametrize(("recorded", "sent"), FILLED)
def test_a_client_may_fill_in_what_a_call_left_open(recorded, sent):
    assert fills_in(recorded, sent)
    assert ChangeKind.DEFAULTS in {kind for kind, _ in differences(recorded, sent)}
    assert not fills_in(sent, recorded), "taking an argument away is another call"


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        (assistant(arguments='{"a":1}'), assistant(arguments='{"a":2,"b":1}')),
        (assistant(arguments='{"a":1}'), assistant(arguments='{"a":1,"b":1}', id="other")),
        (assistant("x", arguments="{}"), assistant("y", arguments='{"b":1}')),
        (assistant(arguments="not json"), assistant(arguments='{"b":1}')),
        (assistant(arguments='{"a":1,"a":2}'), assistant(arguments='{"a":1,"a":2,"b":1}')),
        (assistant(arguments="[1]"), assistant(arguments='[1,{"b":1}]')),
        (assistant("a"), assistant("a")),
        (assistant(arguments="[" * 99), assistant(arguments="[" * 99)),
    ],
)
def test_another_call_is_not_a_filled_one(recorded, sent):
    assert not fills_in(recorded, sent)
