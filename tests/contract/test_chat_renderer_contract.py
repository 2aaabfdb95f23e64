"""What every ChatRenderer keeps: the fake, the shipped base model and a small checkpoint of each family."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t1.base import base_path
from t1.gateway.conversation import ChatRenderer, Message, Role, Tool, ToolCall
from t1.gateway.rendering import ChatTemplateRenderer, renderer_for
from t1.testing.chat_checkpoints import FAMILIES, completion_of, write_chat_checkpoint
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.types import IntArray

SETTINGS = settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TOOL = Tool("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}})
QUESTION, MORE = Message(Role.USER, "Why?"), Message(Role.USER, "Go on.")
CALLING = Message(Role.ASSISTANT, "Wait.", "", (ToolCall("call_0", "look", '{"at": "a", "n": 1}'),))
ANSWER = Message(Role.TOOL, "it is\n here", tool_call_id="call_0", name="look")
SPOOFS = (
    *("<|im_end|>", "<|im_start|>assistant\n", "</think>", "<tool_call>", "</tool_response>", "<|user|>", "<|call|>"),
    *("<|end|>", "<|channel|>final<|message|>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>", "<end>", "/nothink"),
    *("\ufdd0", "\ufdd0364\ufdd1", "\U000f0000"),
)
EDGES = ("😀🏳️‍🌈", "日本語", "e\u0301\u0323", "a\r\nb", "\x00", "\ud83d", "\udc00x", "\x1b[0m", "<", "|>", "{'", '"\\')


@dataclass(frozen=True, slots=True)
class Case:
    """A renderer, and whether it claims that conversations keep their text."""

    renderer: ChatRenderer
    append_only: bool

    def completion(self, messages: list[Message], tools: tuple[Tool, ...] = ()) -> IntArray:
        if isinstance(self.renderer, ChatTemplateRenderer):
            return completion_of(self.renderer, messages, tools)
        assert isinstance(self.renderer, CharacterChatRenderer)
        return self.renderer.completion(messages[-1])


@pytest.fixture(params=["fake", "base", *FAMILIES], scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    if request.param == "fake":
        return Case(CharacterChatRenderer(), True)
    path = base_path() if request.param == "base" else tmp_path_factory.mktemp("checkpoint")
    if request.param != "base":
        write_chat_checkpoint(path, request.param)
    renderer = renderer_for(path)
    return Case(renderer, renderer.append_only().append_only)


@pytest.fixture
def renderer(case: Case) -> ChatRenderer:
    return case.renderer


def texts() -> st.SearchStrategy[str]:
    piece = st.sampled_from([*SPOOFS, *EDGES]) | st.text(st.characters(), max_size=6)
    return st.lists(piece, max_size=5).map("".join)


def well_formed(text: str) -> str:
    """Pairs of surrogates are a character, a lone one is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined(*parts: IntArray) -> list[int]:
    return np.concatenate(parts).tolist()


@pytest.mark.parametrize("follow", [[MORE], [ANSWER], [ANSWER, ANSWER], [ANSWER, MORE]], ids=len)
def test_a_conversation_that_grew_is_the_conversation_opened_at_once(case: Case, follow: list[Message]) -> None:
    if not case.append_only:
        pytest.skip("the template rewrites earlier messages: its proof says so")
    first = [QUESTION, CALLING if ANSWER in follow else Message(Role.ASSISTANT, "So.")]
    opened, completion = case.renderer.open(first[:1], (TOOL,)), case.completion(first, (TOOL,))
    grown = joined(opened, completion, case.renderer.extend(completion, follow, (TOOL,)))
    assert grown == case.renderer.open([*first, *follow], (TOOL,)).tolist()


@pytest.mark.parametrize("follow", [[MORE], [ANSWER], [ANSWER, ANSWER, MORE], []], ids=len)
def test_an_extension_ends_as_the_template_ends_the_same_conversation(case: Case, follow: list[Message]) -> None:
    """Append-only or not: what follows a completion is what the template writes there."""
    first = [QUESTION, CALLING if ANSWER in follow else Message(Role.ASSISTANT, "So.")]
    extension = case.renderer.extend(case.completion(first), follow)
    whole = case.renderer.open([*first, *follow])
    assert len(extension) > 0 or not follow
    assert whole[len(whole) - len(extension) :].tolist() == extension.tolist()


def test_tools_change_nothing_after_a_completion(case: Case) -> None:
    completion = case.completion([QUESTION, CALLING], (TOOL,))
    with_tools, without = (case.renderer.extend(completion, [ANSWER, MORE], tools) for tools in ((TOOL,), ()))
    assert with_tools.tolist() == without.tolist()


def test_a_completion_without_its_end_gets_one_that_is_a_boundary(case: Case) -> None:
    """Case T2: what stands between a completion and the next message is context, and declared."""
    whole = case.completion([QUESTION, Message(Role.ASSISTANT, "So.")])
    assert whole[-1] in case.renderer.stop_ids
    cut, kept = case.renderer.extend(whole[:-1], [MORE]), case.renderer.extend(whole, [MORE])
    assert cut[1:].tolist() == kept.tolist()
    assert int(cut[0]) in case.renderer.boundary_ids
    assert set(case.renderer.stop_ids) <= case.renderer.boundary_ids


def test_a_completion_of_one_id_or_none_can_be_extended(renderer: ChatRenderer) -> None:
    for completion in (renderer.encode(""), np.array(renderer.stop_ids[:1], dtype=np.int32)):
        assert len(renderer.extend(completion, [MORE])) > 0


@pytest.mark.parametrize("message", [Message(Role.ASSISTANT, "So."), CALLING, Message(Role.ASSISTANT)], ids=str)
def test_what_a_message_says_is_parsed_out_of_its_completion(case: Case, message: Message) -> None:
    """Case T5: a golden round trip for each template."""
    parsed = case.renderer.parse(case.completion([QUESTION, message], (TOOL,)), (TOOL,))
    spoken = parsed.content or parsed.reasoning  # gpt-oss thinks aloud before a call
    assert (parsed.role, spoken) == (Role.ASSISTANT, message.content)
    assert [(c.name, c.arguments) for c in parsed.tool_calls] == [(c.name, c.arguments) for c in message.tool_calls]
    assert len({call.id for call in parsed.tool_calls}) == len(parsed.tool_calls)


@SETTINGS
@given(text=texts())
def test_text_survives_and_never_becomes_a_control_token(renderer: ChatRenderer, text: str) -> None:
    ids = renderer.encode(text)
    assert renderer.decode(ids) == well_formed(text)
    assert set(renderer.stop_ids).isdisjoint(ids.tolist())


@SETTINGS
@given(text=texts(), argument=texts())
def test_no_message_can_spell_a_token_that_frames_the_conversation(
    renderer: ChatRenderer, text: str, argument: str
) -> None:
    """An agent that prints `<|im_end|>` ends nothing: not in content, not in results, names, arguments or tools."""

    def frame(content: str, value: str) -> Counter[int]:
        call = ToolCall("call_0", f"look{value}", f'{{"at": "{value}"}}')
        messages = [
            Message(Role.SYSTEM, f"x{content}x"),
            Message(Role.USER, f"x{content}x"),
            Message(Role.ASSISTANT, f"x{content}x", "", (call,)),
            Message(Role.TOOL, f"x{content}x", tool_call_id="call_0", name=f"look{value}"),
        ]
        tools = [Tool(f"look{value}", content, {"type": "object", "title": value, f"x{value}": [value]})]
        opened = renderer.open(messages, tools).tolist()
        extended = renderer.extend(renderer.encode(value), messages[3:], tools).tolist()
        return Counter(id_ for id_ in [*opened, *extended] if id_ in control)

    control = {*renderer.stop_ids, *renderer.open([QUESTION, CALLING, ANSWER], (TOOL,)).tolist()} & set(
        control_of(renderer)
    )
    assert frame(text, argument) == frame("x", "x")


def control_of(renderer: ChatRenderer) -> frozenset[int]:
    """Every control id of the renderer's vocabulary."""
    return renderer.spelling.control_ids if isinstance(renderer, ChatTemplateRenderer) else frozenset(range(4))


@SETTINGS
@given(data=st.data())
def test_any_ids_are_parsed_into_a_message(renderer: ChatRenderer, data: st.DataObject) -> None:
    """Case T6: parsing never fails, and what it says never touches the ids."""
    control = sorted(control_of(renderer))
    text = st.sampled_from(['{"name": "look", "arguments": {', "look\n", "}}", "```json\n", "<function=look>", '"'])
    pieces = st.sampled_from(control).map(lambda id_: [id_]) | text.map(lambda t: renderer.encode(t).tolist())
    ids = np.array([*chain.from_iterable(data.draw(st.lists(pieces, max_size=12)))], dtype=np.int32)
    before = ids.copy()
    message = renderer.parse(ids, (TOOL,))
    assert (message.role, ids.tolist()) == (Role.ASSISTANT, before.tolist())
    assert isinstance(renderer.decode(ids), str)
    assert len(renderer.extend(ids, [MORE])) > 0


def test_ids_are_int32_vectors(renderer: ChatRenderer) -> None:
    every = [renderer.open([QUESTION]), renderer.extend(renderer.encode("x"), [MORE]), renderer.encode("")]
    assert [(ids.dtype, ids.ndim) for ids in every] == [(np.int32, 1)] * 3


def test_a_renderer_is_a_chat_renderer(renderer: ChatRenderer) -> None:
    assert isinstance(renderer, ChatRenderer)
