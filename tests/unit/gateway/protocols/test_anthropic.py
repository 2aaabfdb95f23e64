"""`/v1/messages`: bodies and events."""

import json

import pytest

from t1.gateway.conversation import Finish, GatewayError, Message, Reply, Role, Tool, ToolCall
from t1.gateway.protocols import MESSAGES
from t1.gateway.protocols.anthropic import UNPARSED, UNSEEN

CALL = ToolCall("c1", "bash", '{"command":  "ls"}')


def read(**fields):
    body = {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    return MESSAGES.read(json.dumps(body).encode())


def reply(message, finish=Finish.STOP, **fields):
    return Reply("r1", "policy", message, finish, prompt_tokens=7, completion_tokens=3, cached_tokens=5, **fields)


def events(raw):
    found = []
    for event in b"".join(raw).decode().strip().split("\n\n"):
        name, payload = event.split("\n")
        found.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_system_results_text_and_thinking_become_messages():
    request = read(
        system=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
        messages=[
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.txt"}]},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "b.txt", "is_error": True},
                    {"type": "text", "text": "and"},
                    {"type": "text", "text": "now?"},
                ],
            },
        ],
        tools=[{"name": "bash", "description": "d", "input_schema": {"type": "object"}}],
    ).request
    assert request.messages == (
        Message(Role.SYSTEM, "a\nb"),
        Message(Role.USER, "go"),
        Message(Role.ASSISTANT, "I look.", "hm", (ToolCall("c1", "bash", '{"command": "ls"}'),)),
        Message(Role.TOOL, "a.txt", tool_call_id="c1"),
        Message(Role.TOOL, "b.txt", tool_call_id="c2"),
        Message(Role.USER, "and\nnow?"),
    )
    assert request.tools == (Tool("bash", "d", {"type": "object"}),)
    assert request.ignored == ("system.cache_control",)


def test_a_picture_from_a_tool_is_named_and_one_from_the_user_is_refused():
    block = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": {}}]}
    request = read(messages=[{"role": "user", "content": [block]}]).request
    assert request.messages[0].content == UNSEEN
    with pytest.raises(GatewayError, match="text only"):
        read(messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])


def test_the_vendors_own_tools_and_a_forced_choice_are_named_as_ignored():
    request = read(
        tools=[{"type": "web_search_20250305", "name": "web_search"}], tool_choice={"type": "any"}, thinking={}
    ).request
    assert request.tools == ()
    assert request.ignored == ("thinking", "tools.web_search", "tool_choice")


def test_a_choice_of_none_takes_the_tools_away():
    assert read(tools=[{"name": "bash", "input_schema": {}}], tool_choice={"type": "none"}).request.tools == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "assistant", "content": [{"type": "image"}]}]}, "messages.0.content.0.type"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"system": 3}, "system"),
        ({"stop_sequences": "x"}, "stop_sequences"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_by_its_name(fields, param):
    with pytest.raises(GatewayError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_reply_has_thinking_text_and_calls_in_order():
    body = read().body(reply(Message(Role.ASSISTANT, "I look.", "hm", (CALL,)), Finish.TOOL_CALLS))
    assert [block["type"] for block in body["content"]] == ["thinking", "text", "tool_use"]
    assert body["content"][2] == {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
    assert body["stop_reason"] == "tool_use"
    assert body["usage"] == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 3,
    }


@pytest.mark.parametrize(
    "arguments", ["", "[1]", '{"command": "ls', "ls -l", "null", "[" * 100_000], ids=lambda a: a[:9]
)
def test_arguments_that_are_no_object_come_back_as_the_policy_wrote_them(arguments):
    """Case T12: a call that cannot be parsed is the policy's business; the text of it is not lost on the way."""
    said = Message(Role.ASSISTANT, "", "", (ToolCall("c1", "bash", arguments),))
    content = read().body(reply(said, Finish.TOOL_CALLS))["content"]
    assert content[0]["input"] == {UNPARSED: arguments}
    assert read(messages=[{"role": "assistant", "content": content}]).request.messages == (said,)


def test_an_empty_reply_still_has_a_block():
    assert read().body(reply(Message(Role.ASSISTANT)))["content"] == [{"type": "text", "text": ""}]


def test_a_stop_string_is_told():
    body = read().body(reply(Message(Role.ASSISTANT, "x"), Finish.STOP_SEQUENCE, stop_sequence="END"))
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")


def test_events_put_together_are_the_reply():
    told = events(read(stream=True).events(reply(Message(Role.ASSISTANT, "I look.", "hm", (CALL,)), Finish.TOOL_CALLS)))
    assert [event["type"] for event in told if "index" not in event] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    blocks = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use"]
    deltas = [event["delta"] for event in told if event["type"] == "content_block_delta"]
    assert deltas[0] == {"type": "thinking_delta", "thinking": "hm"}
    assert deltas[1]["type"] == "signature_delta"
    assert deltas[2:] == [
        {"type": "text_delta", "text": "I look."},
        {"type": "input_json_delta", "partial_json": CALL.arguments},
    ]
    assert told[0]["message"]["usage"]["input_tokens"] == 2
    assert told[-2]["delta"]["stop_reason"] == "tool_use"
    assert told[-2]["usage"]["output_tokens"] == 3


def test_errors_have_the_vendors_shape():
    error = MESSAGES.error(GatewayError(400, "context_length_exceeded", "9 tokens > 8"))
    assert error == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"},
    }
    kinds = {
        status: MESSAGES.error(GatewayError(status, "x", "m"))["error"]["type"] for status in (401, 404, 413, 500, 503)
    }
    assert kinds == {
        401: "authentication_error",
        404: "not_found_error",
        413: "request_too_large",
        500: "api_error",
        503: "overloaded_error",
    }
