"""Completions taken apart, format by format: what cannot be read is content, whatever stands in an argument."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats import deepseek, harmony, hermes, markup
from t1.gateway.rendering.formats.parsed import MOST_UNREADABLE, Call, Parsed
from t1.gateway.rendering.formats.written import members_at, object_text

PROPERTIES = {"path": {"type": "string"}, "n": {"type": "integer"}, "more": {"type": ["object", "null"]}}
WRITE = Tool("write", "", {"type": "object", "properties": PROPERTIES})
DELIMITERS = (
    *("<tool_call>", "</tool_call>", "</function>", "</parameter>", "<parameter=x>", "</arg_value>", "<arg_key>"),
    *("<｜tool▁call▁end｜>", "```", "<|call|>", "<|end|>", '"', "}", "\\", "\n", "</think>"),
)
ARGUMENTS = st.lists(st.sampled_from(DELIMITERS) | st.text(max_size=3), max_size=6).map("".join)


def hermes_call(arguments: str, name: str = "write") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def tags(value: str) -> str:
    return f"<tool_call>\n<function=write>\n<parameter=path>\n{value}\n</parameter>\n</function>\n</tool_call>"


def keys(value: str) -> str:
    return f"<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"


def bare(arguments: str) -> str:
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>"
    )


def fenced(arguments: str) -> str:
    return (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n"
        f"{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


@settings(max_examples=50, deadline=None, database=None)
@given(text=ARGUMENTS)
def test_delimiters_inside_json_arguments_close_nothing(text):
    """Case T12."""
    written = json.dumps({"path": text}, ensure_ascii=False)
    call = Call("write", written)
    assert hermes.parse("so\n" + hermes_call(written)) == Parsed("so", "", (call,))
    assert deepseek.parse("so" + bare(written)) == Parsed("so", "", (call,))
    assert deepseek.parse("so" + fenced(written)) == Parsed("so", "", (call,))


@pytest.mark.parametrize("value", ["a </parameter> b", "</function>", "</tool_call>", "<parameter=x>\n1", "", "a\n\nb"])
def test_tags_inside_a_bare_value_close_nothing(value):
    """Case T12: a delimiter ends a value only where the structure goes on after it."""
    assert markup.parse_function_tags("so\n\n" + tags(value)) == Parsed(
        "so", "", (Call("write", json.dumps({"path": value})),)
    )


@pytest.mark.parametrize("value", ["a </arg_value> b", "</tool_call>", "<arg_key>x", "", "a\n\nb "])
def test_keys_inside_a_bare_value_close_nothing(value):
    """Case T12."""
    assert markup.parse_argument_tags("\n<think>hm</think>\nso\n" + keys(value)) == Parsed(
        "so", "hm", (Call("write", json.dumps({"path": value})),)
    )


@pytest.mark.parametrize(
    "text",
    [
        hermes_call('{"path": "a"'),
        hermes_call("[1]"),
        hermes_call('{"path": NaN}'),
        hermes_call('{"path": "raw\nnewline"}'),
        hermes_call("{}", name=""),
        hermes_call("[" * 5000 + "]" * 5000),
        hermes_call('{"n": ' + "1" * 5000 + "}"),
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": ["write"]}\n</tool_call>',
        '<tool_call>\n{"name": "write", "arguments": {}} and more\n</tool_call>',
        "<tool_call>",
        "a </tool_call> b",
        "<tool_call><tool_call>",
    ],
)
def test_a_call_that_is_no_call_is_content(text):
    """Case T12: the policy is told what it said; nothing fails."""
    assert hermes.parse(f"<think>\nhm\n</think>\n\nso {text}") == Parsed(f"so {text}", "hm")


@pytest.mark.parametrize("parse", [markup.parse_function_tags, markup.parse_argument_tags, deepseek.parse])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=write>\n<parameter=path>\nx",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>x",
        "<tool_call>write\n<arg_key>path</arg_key>",
        "<｜tool▁call▁begin｜>write",
        "<｜tool▁call▁begin｜>write<｜tool▁sep｜>{",
        "<｜tool▁call▁begin｜>write<｜tool▁sep｜>[]<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{}<｜tool▁call▁end｜>",
    ],
)
def test_markup_that_is_no_call_is_content(parse, text):
    assert parse(text) == Parsed(text)


def test_good_calls_beside_bad_ones_are_calls():
    text = f"{hermes_call('{}', 'one')}\n{hermes_call('{', 'two')}\n{hermes_call('{}', 'three')}"
    parsed = hermes.parse(text)
    assert [call.name for call in parsed.calls] == ["one", "three"]
    assert parsed.content == hermes_call("{", "two")


def test_a_flood_of_openings_is_content():
    text = "<tool_call>write" * MOST_UNREADABLE + tags("x")
    assert markup.parse_function_tags(text) == Parsed(text)
    assert hermes.parse("<tool_call>" * 100_000) == Parsed("<tool_call>" * 100_000)
    spaces = "<tool_call>a" + " " * 100_000 + "<"
    assert markup.parse_argument_tags(spaces) == Parsed(spaces)


def test_arguments_stay_as_they_were_written():
    written = '{ "path":"a",\n "n" :1e2, "path": "b" }'
    for parsed in (hermes.parse(hermes_call(written)), deepseek.parse(bare(written))):
        assert parsed.calls == (Call("write", written),)
    assert harmony.parse(f" to=functions.write<|channel|>commentary json<|message|>{written}").calls == (
        Call("write", written),
    )


def test_arguments_that_are_json_in_a_string_are_taken_out_of_it():
    assert hermes.parse(hermes_call('"{\\"path\\": 1}"')).calls == (Call("write", '{"path": 1}'),)


def test_a_call_without_arguments_has_an_empty_object():
    text = '<tool_call>\n{"name": "write"}\n</tool_call>'
    assert hermes.parse(text).calls == (Call("write", "{}"),)
    no_parameters = "<tool_call>\n<function=write>\n</function>\n</tool_call>"
    assert markup.parse_function_tags(no_parameters).calls == (Call("write", "{}"),)
    assert markup.parse_argument_tags("<tool_call>write\n</tool_call>").calls == (Call("write", "{}"),)


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("path", "12", '"12"'),
        ("n", "12", "12"),
        ("n", "twelve", '"twelve"'),
        ("n", "1 2", '"1 2"'),
        ("more", '{"a":  1}', '{"a":  1}'),
        ("more", "null", "null"),
        ("unknown", "12", '"12"'),
        ("path", "grüße 😀", '"grüße 😀"'),
    ],
)
def test_bare_values_become_what_the_schema_says(key, value, written):
    as_tags = tags(value).replace("=path", f"={key}")
    as_keys = keys(value).replace(">path<", f">{key}<")
    for parsed in (markup.parse_function_tags(as_tags, [WRITE]), markup.parse_argument_tags(as_keys, [WRITE])):
        assert parsed.calls == (Call("write", f'{{"{key}": {written}}}'),)


@pytest.mark.parametrize("parameters", [{}, {"properties": None}, {"properties": {"n": True}}, {"properties": []}])
def test_a_schema_that_says_nothing_leaves_strings(parameters):
    parsed = markup.parse_function_tags(tags("1"), [Tool("write", "", parameters)])
    assert parsed.calls == (Call("write", '{"path": "1"}'),)


def test_reasoning_without_end_is_reasoning():
    """Case T10: a completion cut by its limit while it thinks."""
    assert hermes.parse("<think>\nI wonder <tool_call>") == Parsed("", "I wonder <tool_call>")


def test_a_call_cut_right_after_its_json_is_a_call():
    assert hermes.parse(hermes_call("{}").removesuffix("\n</tool_call>")).calls == (Call("write", "{}"),)


def test_harmony_channels_become_reasoning_content_and_calls():
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>first this<|end|>"
        '<|start|>assistant to=functions.write<|channel|>commentary <|constrain|>json<|message|>{"path": "<|call|>"}'
    )
    assert harmony.parse(text) == Parsed("first this", "hm", (Call("write", '{"path": "<|call|>"}'),))
    channel_first = "<|channel|>commentary to=functions.write <|constrain|>json<|message|>{}"
    assert harmony.parse(channel_first).calls == (Call("write", "{}"),)
    assert harmony.parse("<|channel|>final<|message|>done") == Parsed("done")


@pytest.mark.parametrize(
    "text",
    [
        "no channel at all",
        "<|channel|>final",
        " to=functions.write<|channel|>commentary json<|message|>{",
        " to=python<|channel|>analysis<|message|>print(1)",
        "<|start|>assistant<|start|>",
    ],
)
def test_harmony_that_is_no_message_is_content(text):
    parsed = harmony.parse(text)
    assert (parsed.calls, parsed.reasoning) == ((), "")
    assert parsed.content.replace("\n", "") == text


VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.text(max_size=2), max_size=2)


@settings(max_examples=50, deadline=None, database=None)
@given(
    st.dictionaries(st.text(max_size=3), VALUES | st.dictionaries(st.text(max_size=2), VALUES, max_size=2), max_size=4)
)
def test_members_of_an_object_are_found_as_they_were_written(value):
    text = json.dumps(value, indent=1)
    members, end = members_at(f"  {text} rest", 0)
    assert {key: json.loads(written) for key, written in members.items()} == value
    assert end == len(text) + 2
    assert object_text(f" {text}\n") == text
    assert object_text(text + "}") is None
