"""Chat templates: what transformers renders, in a sandbox."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from t1.errors import CheckpointError
from t1.gateway.rendering.template import ChatTemplate, special_tokens

TALK = [{"role": "user", "content": "hi"}]


def rendered(source: str, **variables: object) -> str:
    return ChatTemplate(source, variables).render(TALK, [{"name": "look", "text": "<ü>"}], True)


def test_a_template_sees_messages_tools_and_variables():
    source = "{{ bos }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{{ add_generation_prompt }}"
    assert rendered(source, bos="<s>") == "<s>user: hiTrue"


def test_json_is_written_without_html_escapes():
    assert rendered("{{ tools[0] | tojson }}") == '{"name": "look", "text": "<ü>"}'
    assert rendered("{{ tools[0] | tojson(indent=1, ensure_ascii=True) }}") == (
        '{\n "name": "look",\n "text": "<\\u00fc>"\n}'
    )


def test_what_marks_the_assistants_words_is_only_its_body():
    assert rendered("{% generation %}{{ messages[0].content }}{% endgeneration %}!") == "hi!"


def test_loops_can_be_left():
    assert rendered("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"


def test_the_day_is_fixed_when_the_template_is_made():
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", day=date(2025, 6, 1))
    assert template.render(TALK, [], False) == "01 Jun 2025"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system message, please') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].missing.deeper }}",
        "{{ 1 // 0 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'other' %}",
    ],
)
def test_a_template_that_fails_refuses_the_conversation(source):
    with pytest.raises(ValueError, match="refuses this conversation"):
        rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ self.__init__.__globals__ }}",
    ],
)
def test_a_hostile_template_reaches_nothing(source):
    with pytest.raises(ValueError, match="refuses"):
        rendered(source)
    assert TALK == [{"role": "user", "content": "hi"}]


def test_a_broken_template_names_its_checkpoint(tmp_path: Path):
    (tmp_path / "chat_template.jinja").write_text("{% for %}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"{tmp_path}: the chat template does not compile"):
        ChatTemplate.from_pretrained(tmp_path)


def test_the_file_wins_over_the_configuration_and_named_templates_prefer_tools(tmp_path: Path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    config = {"chat_template": named, "eos_token": {"content": "<e>"}, "bos_token": None, "model_max_length": 5}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    template = ChatTemplate.from_pretrained(tmp_path)
    assert template is not None
    assert template.source == "with tools"
    assert special_tokens(tmp_path) == {"eos_token": "<e>"}
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}", encoding="utf-8")
    template = ChatTemplate.from_pretrained(tmp_path)
    assert template is not None
    assert template.render(TALK, [], False) == "<e>"


def test_a_checkpoint_without_template_has_none_and_one_with_broken_configuration_says_so(tmp_path: Path):
    assert ChatTemplate.from_pretrained(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not JSON"):
        ChatTemplate.from_pretrained(tmp_path)
