"""`/v1/responses`: bodies and events."""

import json

import pytest

from t1.gateway.conversation import Finish, GatewayError, Message, Reply, Role, Tool, ToolCall
from t1.gateway.protocols import RESPONSES

CALL = ToolCall("c1", "bash", '{"command":  "ls"}')
SAID = Message(Role.ASSISTANT, "I look.", "hm", (CALL, ToolCall("c2", "bash", "{}")))


def read(**fields):
    return RESPONSES.read(json.dumps({"model": "policy", "input": "hi", **fields}).encode())


def reply(message, finish=Finish.STOP, **fields):
    return Reply("r1", "policy", message, finish, prompt_tokens=7, completion_tokens=3, cached_tokens=5, **fields)


def events(raw):
    found = []
    for event in b"".join(raw).decode().strip().split("\n\n"):
        name, payload = event.split("\n")
        found.append(json.loads(payload.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_text_alone_is_a_users_message_after_the_instructions():
    assert read(instructions="be brief").request.messages == (
        Message(Role.SYSTEM, "be brief"),
        Message(Role.USER, "hi"),
    )


def test_items_of_one_reply_become_one_message_again():
    items = read().body(reply(SAID, Finish.TOOL_CALLS))["output"]
    outputs = [{"type": "function_call_output", "call_id": name, "output": "ok"} for name in ("c1", "c2")]
    messages = read(input=[{"role": "user", "content": "go"}, *items, *outputs]).request.messages
    assert messages == (
        Message(Role.USER, "go"),
        SAID,
        Message(Role.TOOL, "ok", tool_call_id="c1"),
        Message(Role.TOOL, "ok", tool_call_id="c2"),
    )


def test_what_was_thought_comes_back_letter_by_letter_even_if_only_the_sealed_form_does():
    thought = "line\r\n\x00 é 漢 🙂 "
    item = read().body(reply(Message(Role.ASSISTANT, "x", thought)))["output"][0]
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
    assert read(input=[sealed]).request.messages[0].reasoning == thought
    shown = {"type": "reasoning", "summary": item["summary"], "encrypted_content": "not ours!"}
    assert read(input=[shown]).request.messages[0].reasoning == thought


def test_a_second_reply_without_anything_between_is_a_message_of_its_own():
    def said(text):
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    call = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
    messages = read(input=[said("a"), call, said("b")]).request.messages
    assert [(message.content, len(message.tool_calls)) for message in messages] == [("a", 1), ("b", 0)]


def test_a_free_form_tool_is_offered_as_a_function_and_called_in_its_own_way():
    tools = [{"type": "custom", "name": "apply_patch", "description": "d", "format": {"definition": "start: x"}}]
    call = read(tools=tools)
    (tool,) = call.request.tools
    assert "start: x" in tool.description
    assert tool.parameters["required"] == ["input"]
    said = Message(Role.ASSISTANT, tool_calls=(ToolCall("c1", "apply_patch", '{"input": "*** Begin"}'),))
    (item,) = call.body(reply(said, Finish.TOOL_CALLS))["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin")
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}
    assert read(input=[item, output]).request.messages == (said, Message(Role.TOOL, "done", tool_call_id="c1"))


@pytest.mark.parametrize("arguments", ["*** Begin", "[1]", '{"text": 1}', '{"input": 5}'])
def test_a_free_form_call_that_cannot_be_parsed_goes_to_the_tool_as_it_is(arguments):
    said = Message(Role.ASSISTANT, tool_calls=(ToolCall("c1", "apply_patch", arguments),))
    (item,) = read(tools=[{"type": "custom", "name": "apply_patch"}]).body(reply(said))["output"]
    assert item["input"] == arguments


def test_tools_of_a_namespace_keep_it():
    inner = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    call = read(tools=[{"type": "namespace", "name": "agents", "tools": [inner]}, {"type": "function", "name": "a.b"}])
    assert call.request.tools == (Tool("agents.spawn", "", {"type": "object"}), Tool("a.b"))
    said = Message(Role.ASSISTANT, tool_calls=(ToolCall("c1", "agents.spawn", "{}"), ToolCall("c2", "a.b", "{}")))
    items = call.body(reply(said))["output"]
    assert [(item.get("namespace"), item["name"]) for item in items] == [("agents", "spawn"), (None, "a.b")]
    assert read(input=items).request.messages == (said,)


def test_the_vendors_own_tools_are_named_as_ignored():
    request = read(tools=[{"type": "web_search"}], store=False, tool_choice="required").request
    assert request.ignored == ("store", "tool_choice", "tools.web_search")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input.0"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_by_its_name(fields, param):
    with pytest.raises(GatewayError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_reply_that_was_cut_is_incomplete():
    body = read().body(reply(Message(Role.ASSISTANT, "x"), Finish.LENGTH))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["usage"]["input_tokens_details"] == {"cached_tokens": 5}


def test_events_are_numbered_and_each_item_opens_grows_and_closes():
    told = events(read(stream=True).events(reply(SAID, Finish.TOOL_CALLS)))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [told[0]["type"], told[-1]["type"]] == ["response.created", "response.completed"]
    added = [event["item"]["type"] for event in told if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert added == [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert done == told[-1]["response"]["output"]
    deltas = {event["type"]: event["delta"] for event in reversed(told) if event["type"].endswith(".delta")}
    assert deltas == {
        "response.reasoning_summary_text.delta": "hm",
        "response.output_text.delta": "I look.",
        "response.function_call_arguments.delta": CALL.arguments,
    }


def test_a_cut_stream_ends_incomplete():
    told = events(read(stream=True).events(reply(Message(Role.ASSISTANT, "x"), Finish.LENGTH)))
    assert told[-1]["type"] == "response.incomplete"
