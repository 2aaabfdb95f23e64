"""The renderer over chat templates: golden renderings, what follows a completion, what a completion says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from t1.base import base_path
from t1.errors import CheckpointError
from t1.gateway.conversation import Message, Role, Tool, ToolCall
from t1.gateway.rendering import ChatTemplateRenderer, renderer_for
from t1.harness import ChatMLRenderer
from t1.testing.chat_checkpoints import FAMILIES, chat_template, completion_of, write_chat_checkpoint

GOLDEN = Path(__file__).parent / "golden"
LOOK = Tool(
    "look", "Look at a <file>.", {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}
)
SYSTEM, QUESTION, MORE = Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Why?"), Message(Role.USER, "Go on.")
CALLS = (ToolCall("call_a", "look", '{"at":  "a.txt", "n": 3}'), ToolCall("call_b", "look", '{"at": "b"}'))
CALLING = Message(Role.ASSISTANT, "", "I must look.", CALLS)
ANSWERS = [Message(Role.TOOL, f"about {call.id}", tool_call_id=call.id) for call in CALLS]
SAYING = Message(Role.ASSISTANT, "So.", "That was it.")
TALK = [SYSTEM, QUESTION, CALLING, *ANSWERS, SAYING, MORE]


@pytest.fixture(params=FAMILIES, scope="module")
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def renderer(family: str, tmp_path_factory: pytest.TempPathFactory) -> ChatTemplateRenderer:
    return checkpoint(tmp_path_factory.mktemp("checkpoint"), family)


def checkpoint(directory: Path, family: str, template: str = "", **options: object) -> ChatTemplateRenderer:
    return renderer_for(write_chat_checkpoint(directory, family, template), options=options, day=date(2026, 1, 2))


def test_a_conversation_is_rendered_as_ever(family: str, renderer: ChatTemplateRenderer) -> None:
    """Case T5: a golden text for each template: system, tools, calls, results, reasoning."""
    ids = renderer.open(TALK, [LOOK])
    assert renderer.decode(ids) == (GOLDEN / f"{family}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("message", [SAYING, replace(CALLING, tool_calls=CALLS[:1])], ids=["answer", "call"])
def test_a_message_survives_its_template(renderer: ChatTemplateRenderer, message: Message) -> None:
    """Case T5: reasoning comes back as reasoning and calls as calls, whatever the template wrote around them."""
    if renderer.family.name == "deepseek":
        message = replace(message, reasoning="")  # this template never writes reasoning
    parsed = renderer.parse(completion_of(renderer, [QUESTION, message], [LOOK]), [LOOK])
    assert (parsed.content, parsed.reasoning) == (message.content, message.reasoning)
    said = [json.loads(call.arguments) for call in parsed.tool_calls]
    assert said == [json.loads(call.arguments) for call in message.tool_calls]


def test_arguments_are_sent_as_they_were_written_where_the_template_writes_json(renderer: ChatTemplateRenderer) -> None:
    """JSON spacing in arguments is what a client often changes; we do not."""
    text = renderer.decode(renderer.open([QUESTION, CALLING, *ANSWERS]))
    assert ('{"at":  "a.txt", "n": 3}' in text) == (renderer.family.name not in ("qwen3.5", "glm"))


def test_the_answers_of_tools_follow_a_completion_that_called_them(renderer: ChatTemplateRenderer) -> None:
    completion = completion_of(renderer, [QUESTION, CALLING], [LOOK])
    extension = renderer.extend(completion, [*ANSWERS, MORE])
    whole = renderer.open([QUESTION, CALLING, *ANSWERS, MORE])
    assert whole[len(whole) - len(extension) :].tolist() == extension.tolist()
    text = renderer.decode(extension)
    assert [part in text for part in ("about call_a", "about call_b", "Go on.", "Why?", "I must look")] == [
        *(True, True, True, False, False)
    ]


def test_a_tools_answer_is_named_by_the_completion_where_the_client_does_not_say(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "gpt-oss")
    completion = completion_of(renderer, [QUESTION, replace(CALLING, tool_calls=CALLS[:1])], [LOOK])
    assert renderer.decode(renderer.extend(completion, ANSWERS[:1])).startswith("<|start|>functions.look to=assistant")
    unknown = renderer.extend(renderer.encode("no call at all"), ANSWERS[:1])
    assert renderer.decode(unknown).startswith("<|call|><|start|>functions.tool to=assistant")
    named = renderer.extend(completion, [replace(ANSWERS[0], name="see")])
    assert "functions.see" in renderer.decode(named)


def test_a_role_token_that_ended_a_turn_opens_the_next_message_once(tmp_path: Path) -> None:
    """GLM ends a turn with the token of the next speaker."""
    renderer = checkpoint(tmp_path, "glm")
    ends = {renderer.decode(np.array([id_], dtype=np.int32)): id_ for id_ in renderer.stop_ids}
    said = renderer.encode("\nSo.").tolist()
    followed = {
        name: renderer.decode(renderer.extend(np.array([*said, id_], dtype=np.int32), [MORE]))
        for name, id_ in ends.items()
    }
    opened = "<|user|>\nGo on.<|assistant|>"
    assert followed["<|user|>"] == opened.removeprefix("<|user|>")
    assert followed["<|observation|>"] == followed["<|endoftext|>"] == opened


def test_every_role_may_follow_a_turn_that_ends_with_the_next_role(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "glm")
    followed = {
        message.role: renderer.decode(renderer.extend(renderer.encode("\nSo."), [message, MORE]))
        for message in (SYSTEM, SAYING, QUESTION)
    }
    assert followed == {
        Role.SYSTEM: "<|system|>\nBe brief.<|user|>\nGo on.<|assistant|>",
        Role.ASSISTANT: "<|assistant|>\n<think></think>\nSo.<|user|>\nGo on.<|assistant|>",
        Role.USER: "<|user|>\nWhy?<|user|>\nGo on.<|assistant|>",
    }


def test_a_tools_answer_bears_the_name_of_the_call_that_it_answers(tmp_path: Path) -> None:
    source = chat_template("appending").replace("message.role + '\\n'", "message.role + '/' ~ message.name ~ '\\n'")
    renderer = checkpoint(tmp_path, "appending", source)
    text = renderer.decode(renderer.open([QUESTION, CALLING, *ANSWERS[:1], replace(ANSWERS[1], name="see")]))
    assert "tool/look\nabout call_a" in text
    assert "tool/see\nabout call_b" in text


def test_the_last_answer_ends_otherwise_and_is_kept_as_it_was_sampled(tmp_path: Path) -> None:
    """gpt-oss samples `<|return|>` where later prompts write `<|end|>`: the sampled id stays, no second one joins."""
    renderer = checkpoint(tmp_path, "gpt-oss")
    end = renderer.spelling.control["<|end|>"]
    completion = completion_of(renderer, [QUESTION, SAYING])
    assert renderer.decode(completion[-1:]) == "<|return|>"
    assert renderer.decode(renderer.extend(completion, [MORE])).startswith("<|start|>user")
    assert renderer.extend(completion[:-1], [MORE])[0] == end
    assert end in renderer.boundary_ids
    assert end not in renderer.stop_ids


def test_reasoning_that_the_prompt_opened_is_reasoning(tmp_path: Path) -> None:
    """Case T5."""
    renderer = checkpoint(tmp_path, "qwen3.5")
    end = renderer.spelling.control["</think>"]
    thought, rest = renderer.encode("hm\n").tolist(), renderer.encode("\n\nSo.").tolist()
    stop = renderer.stop_ids[0]
    whole = renderer.parse(np.array([*thought, end, *rest, stop], dtype=np.int32))
    assert (whole.reasoning, whole.content) == ("hm", "So.")
    cut = renderer.parse(np.array(thought, dtype=np.int32))
    assert (cut.reasoning, cut.content) == ("hm", "")
    hasty = renderer.parse(completion_of(renderer, [QUESTION, CALLING])[len(renderer.encode("I must look.\n")) + 2 :])
    assert [call.name for call in hasty.tool_calls] == ["look", "look"]


def test_a_spelled_delimiter_is_not_the_sampled_one(tmp_path: Path) -> None:
    """Case T12: where a delimiter has an id of its own, only that id delimits."""
    renderer = checkpoint(tmp_path, "glm")
    ids = renderer.spelling.control
    head = [ids["<tool_call>"], *renderer.encode("look\n").tolist(), ids["<arg_key>"], *renderer.encode("at").tolist()]
    value = renderer.encode("x</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1</arg_value></tool_call>").tolist()
    tail = [ids["</arg_value>"], ids["</tool_call>"]]
    message = renderer.parse(np.array([*head, ids["</arg_key>"], ids["<arg_value>"], *value, *tail], dtype=np.int32))
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{"at": renderer.decode(np.array(value))}]


def test_arguments_that_are_no_json_are_context_all_the_same(renderer: ChatTemplateRenderer) -> None:
    """Case T12: a client sends back what a policy said, also what no parser could read."""
    for arguments in ("not json", "[1]", "", '{"at": '):
        call = ToolCall("call_a", "look", arguments)
        text = renderer.decode(renderer.open([QUESTION, Message(Role.ASSISTANT, "", "", (call,)), ANSWERS[0]]))
        assert arguments in text


def test_arguments_and_tools_nested_beyond_reason_are_text_or_refused(renderer: ChatTemplateRenderer) -> None:
    call = ToolCall("call_a", "look", '{"at": ' + "[" * 900 + "]" * 900 + "}")
    assert "[" * 900 in renderer.decode(renderer.open([QUESTION, Message(Role.ASSISTANT, "", "", (call,)), ANSWERS[0]]))
    nested: dict[str, object] = {}
    for _ in range(900):
        nested = {"items": nested}
    with pytest.raises(ValueError, match="nested too deeply"):
        renderer.open([QUESTION], [Tool("look", "", nested)])


def test_reasoning_that_a_template_refuses_is_left_out(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "gpt-oss")
    both = replace(CALLING, content="Wait.")
    assert renderer.open([QUESTION, both]).tolist() == renderer.open([QUESTION, replace(both, reasoning="")]).tolist()


def test_what_a_template_refuses_is_a_value_error(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "qwen3.5")
    for render in (lambda: renderer.open([QUESTION, SYSTEM]), lambda: renderer.extend(renderer.encode("x"), [SYSTEM])):
        with pytest.raises(ValueError, match="a system message comes first"):
            render()


def test_tools_are_described_in_the_system_message_where_the_template_knows_none(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "deepseek")
    text = renderer.decode(renderer.open([SYSTEM, QUESTION], [LOOK]))
    assert "Be brief.\n\n## Tools" in text
    assert "Look at a <file>." in text
    assert renderer.spelling.control["<｜tool▁sep｜>"] in renderer.open([QUESTION], [LOOK])


def test_a_template_of_an_unknown_manner_parses_nothing_and_writes_no_calls(tmp_path: Path) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ 'tools: none' if 0 }}"
    plain = renderer_for(write_chat_checkpoint(tmp_path, "qwen3", source), family="plain")
    assert plain.parse(plain.encode("<tool_call>")).content == "<tool_call>"
    with pytest.raises(ValueError, match="writes no tool calls"):
        plain.open([QUESTION, CALLING])


def test_the_shipped_base_model_speaks_as_it_was_trained_and_can_be_given_tools() -> None:
    renderer, trained = renderer_for(base_path()), ChatMLRenderer.from_pretrained(base_path())
    talk = [("system", "Be brief."), ("user", "list files"), ("assistant", "ls"), ("tool", "a.txt <|im_end|>")]
    messages = [Message(Role(role), content) for role, content in talk]
    assert renderer.open(messages).tolist() == trained.open(talk).tolist()
    completion = np.append(renderer.encode("ls"), renderer.stop_ids[0]).astype(np.int32)
    assert renderer.extend(completion, messages[3:]).tolist() == trained.extend(completion, talk[3:]).tolist()
    assert renderer.append_only().append_only
    text = renderer.decode(renderer.open(messages, [LOOK]))
    assert "Be brief.\n\n# Tools" in text
    assert json.dumps(dict(LOOK.parameters)) in text


def test_options_reach_the_template_and_the_day_stays(tmp_path: Path) -> None:
    closed = chat_template("qwen3").replace("assistant{{ '\\n' }}{%- endif -%}", "assistant{{ how }}{%- endif -%}")
    renderer = checkpoint(tmp_path / "a", "qwen3", closed, how="!")
    assert renderer.decode(renderer.open([QUESTION])).endswith("<|im_start|>assistant!")
    assert "Today is 2026-01-02." in (dated := checkpoint(tmp_path / "b", "gpt-oss")).decode(dated.open([QUESTION]))


def test_every_declared_end_is_a_stop_id(tmp_path: Path) -> None:
    renderer = checkpoint(tmp_path, "qwen3")
    assert renderer.stop_ids == (renderer.spelling.control["<|im_end|>"],)
    more = {"eos_token_id": [renderer.spelling.control["<|endoftext|>"]]}
    (tmp_path / "generation_config.json").write_text(json.dumps(more), encoding="utf-8")
    assert renderer_for(tmp_path).stop_ids == (*renderer.stop_ids, *more["eos_token_id"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", None, "no such file; a checkpoint directory needs its tokenizer.json"),
        ("generation_config.json", "{", "generation_config.json: not JSON"),
        ("chat_template.jinja", "tools {{ messages[0].content }}", "hides an earlier message"),
        ("chat_template.jinja", "tools {{ raise_exception('never') }}", "never"),
    ],
)
def test_a_checkpoint_that_cannot_be_rendered_is_refused_by_name(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    write_chat_checkpoint(tmp_path, "qwen3")
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        renderer_for(tmp_path)


def test_a_checkpoint_without_template_is_chatml_if_its_tokens_are(tmp_path: Path) -> None:
    write_chat_checkpoint(tmp_path, "qwen3")
    (tmp_path / "chat_template.jinja").unlink()
    renderer = renderer_for(tmp_path)
    assert renderer.decode(renderer.open([QUESTION])) == "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    write_chat_checkpoint(tmp_path, "deepseek")
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match=r"add chat_template\.jinja"):
        renderer_for(tmp_path)


def test_an_unknown_family_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'qwen9' is none of deepseek, glm, gpt-oss, hermes, plain, qwen3\.5"):
        renderer_for(write_chat_checkpoint(tmp_path, "qwen3"), family="qwen9")
