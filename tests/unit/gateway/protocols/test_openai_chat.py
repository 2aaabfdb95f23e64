"""`/v1/chat/completions`: bodies and chunks."""

import json

import pytest

from t1.gateway.conversation import Finish, GatewayError, Message, Reply, Role, Tool, ToolCall
from t1.gateway.protocols import CHAT

CALL = ToolCall("c1", "bash", '{"command":  "ls"}')


def read(**fields):
    body = {"model": "policy", "messages": [{"role": "user", "content": "hi"}], **fields}
    return CHAT.read(json.dumps(body).encode())


def reply(message, finish=Finish.STOP, **fields):
    return Reply("r1", "policy", message, finish, prompt_tokens=7, completion_tokens=3, cached_tokens=5, **fields)


def chunks(raw):
    lines = b"".join(raw).decode().strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_conversation_with_tools_is_read_as_it_was_written():
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": CALL.arguments}}
    request = read(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        ],
        tools=[
            {"type": "function", "function": {"name": "bash", "description": "d", "parameters": {"type": "object"}}}
        ],
    ).request
    assert request.messages == (
        Message(Role.SYSTEM, "be brief"),
        Message(Role.USER, "one\ntwo"),
        Message(Role.ASSISTANT, "", "hm", (CALL,)),
        Message(Role.TOOL, "a.txt", tool_call_id="c1"),
    )
    assert request.tools == (Tool("bash", "d", {"type": "object"}),)
    assert request.ignored == ()


def test_parts_of_an_assistant_are_joined_without_a_seam():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(messages=[{"role": "assistant", "content": parts}]).request.messages[0].content == "ab"


def test_sampling_settings_reach_the_request():
    request = read(max_tokens=5, max_completion_tokens=9, temperature=0.5, top_p=1, seed=3, stop="END").request
    assert (request.max_tokens, request.temperature, request.top_p, request.seed) == (9, 0.5, 1, 3)
    assert request.stop == ("END",)
    assert read(stop=["a", "b"]).request.stop == ("a", "b")


def test_fields_that_mean_nothing_are_accepted_and_named_once():
    messages = [
        {"role": "user", "content": "x", "cache_control": {}},
        {"role": "user", "content": "y", "cache_control": 1},
    ]
    request = read(messages=messages, user="me", response_format={"type": "text"}, tool_choice="auto").request
    assert request.ignored == ("user", "response_format", "messages.cache_control")


def test_a_choice_of_none_takes_the_tools_away_and_a_forced_one_is_named_as_ignored():
    tools = [{"type": "function", "function": {"name": "bash"}}]
    assert read(tools=tools, tool_choice="none").request.tools == ()
    forced = read(tools=tools, tool_choice="required").request
    assert (len(forced.tools), forced.ignored) == (1, ("tool_choice",))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"model": None}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
        (
            {"messages": [{"role": "user", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]},
            "messages.0.tool_calls",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools.0"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_by_its_name(fields, param):
    with pytest.raises(GatewayError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_reply_says_text_reasoning_and_calls_as_they_were_sampled():
    body = read().body(reply(Message(Role.ASSISTANT, "", "hm", (CALL,)), Finish.TOOL_CALLS))
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "bash", "arguments": CALL.arguments}
    assert body["usage"]["total_tokens"] == 10
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}


@pytest.mark.parametrize(
    ("finish", "told"), [(Finish.LENGTH, "length"), (Finish.STOP_SEQUENCE, "stop"), (Finish.STOP, "stop")]
)
def test_a_finish_is_told_in_the_protocols_word(finish, told):
    body = read().body(reply(Message(Role.ASSISTANT, ""), finish))
    assert body["choices"][0]["finish_reason"] == told
    assert body["choices"][0]["message"]["content"] == ""


def test_chunks_put_together_are_the_reply():
    told = chunks(read(stream=True).events(reply(Message(Role.ASSISTANT, "I look.", "hm", (CALL, CALL)))))
    deltas = [chunk["choices"][0]["delta"] for chunk in told]
    assert "".join(delta.get("content", "") for delta in deltas) == "I look."
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], call["function"]["arguments"]) for call in calls] == [
        (0, CALL.arguments),
        (1, CALL.arguments),
    ]
    assert told[-1]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in told[-1]


def test_usage_is_the_last_chunk_where_it_was_asked_for():
    told = chunks(read(stream=True, stream_options={"include_usage": True}).events(reply(Message(Role.ASSISTANT, "x"))))
    assert told[-1]["choices"] == []
    assert told[-1]["usage"]["prompt_tokens"] == 7
    assert all(chunk["usage"] is None for chunk in told[:-1])


def test_errors_have_the_vendors_shape():
    error = CHAT.error(GatewayError(400, "context_length_exceeded", "9 > 8", "messages"))["error"]
    assert error == {
        "message": "prompt is too long: 9 > 8",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    assert CHAT.error(GatewayError(503, "engine_down", "x"))["error"]["type"] == "server_error"
    assert CHAT.error(GatewayError(401, "authentication_error", "x"))["error"]["type"] == "authentication_error"
