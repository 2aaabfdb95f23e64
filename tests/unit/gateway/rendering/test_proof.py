"""What the proof says of a template: append-only or not, why, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from t1.gateway.rendering import Proof, renderer_for
from t1.testing.chat_checkpoints import chat_template, write_chat_checkpoint

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ SAID }}<|im_end|>\n{% endfor %}"
GENERATION = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CALLED = (
    "{% for c in m.tool_calls or () %}<tool_call>{{ c.function.name + c.function.arguments }}</tool_call>{% endfor %}"
)


def proof_of(directory: Path, family: str, template: str = "") -> Proof:
    return renderer_for(
        write_chat_checkpoint(directory, family, template), family="hermes" if template else "auto"
    ).append_only()


@pytest.mark.parametrize("family", ["appending", "deepseek"])
def test_a_template_that_keeps_everything_is_append_only(tmp_path: Path, family: str) -> None:
    proof = proof_of(tmp_path, family)
    assert proof.append_only
    assert str(proof).startswith("append-only: yes, because")


@pytest.mark.parametrize(
    ("family", "reasons"),
    [
        (
            "qwen3",
            {
                "plain": "an empty reasoning block stands only before the last answer",
                "tools": "an empty reasoning block stands only before the last answer",
                "several results": "an empty reasoning block stands only before the last answer",
                "reasoning": "reasoning of an earlier turn is dropped",
            },
        ),
        (
            "qwen3.5",
            {
                "plain": "an empty reasoning block stands only before the last answer",
                "tools": "an empty reasoning block stands only before the last answer",
                "several results": "an empty reasoning block stands only before the last answer",
                "reasoning": "reasoning of an earlier turn is dropped",
            },
        ),
        ("glm", {"reasoning": "reasoning of an earlier turn is dropped"}),
        ("gpt-oss", {"reasoning": "reasoning of an earlier turn is dropped"}),
    ],
)
def test_the_proof_says_why_a_template_is_not(tmp_path: Path, family: str, reasons: dict[str, str]) -> None:
    """Cases T1 and T5: known before anything runs, not found as a broken prefix in the middle of a run."""
    proof = proof_of(tmp_path, family)
    assert not proof.append_only
    assert {broken.conversation: broken.because for broken in proof.breaks} == reasons


def test_the_proof_shows_the_first_difference(tmp_path: Path) -> None:
    broken = proof_of(tmp_path, "qwen3").breaks[0]
    assert broken.message == 2
    assert broken.before.startswith("<think>\n\n</think>\n\nSo.")
    assert broken.after.startswith("So.<|im_end|>")
    assert "plain: an empty reasoning block" in str(proof_of(tmp_path, "qwen3"))


@pytest.mark.parametrize(
    ("said", "generation", "because"),
    [
        ("m.content[:1] if not loop.last else m.content", GENERATION, "an earlier message is written differently"),
        (
            "m.content",
            GENERATION.replace("assistant\n", "assistant\n<think>\n"),
            "the generation prompt opens a reasoning block that messages lack",
        ),
    ],
)
def test_other_habits_of_templates_are_told_apart(tmp_path: Path, said: str, generation: str, because: str) -> None:
    template = (
        CHATML.replace("{{ SAID }}", f"{{{{ {said} }}}}{CALLED}") + "{{ tools[0].function.name if tools }}" + generation
    )
    breaks = proof_of(tmp_path, "qwen3", template).breaks
    assert breaks[0].because.startswith(because)


def test_a_conversation_that_a_template_refuses_is_named(tmp_path: Path) -> None:
    refusing = chat_template("appending").replace(
        "{{ message.content }}", "{{ raise_exception('no results') if message.role == 'tool' else message.content }}"
    )
    breaks = proof_of(tmp_path, "appending", refusing).breaks
    assert [broken.conversation for broken in breaks] == ["tools", "several results", "reasoning"]
    assert all("no results" in str(broken) for broken in breaks)
