"""Demonstrations: the reference solution through the policy's own harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t1.errors import TaskError
from t1.harness import DemonstrationHarness, TerminalConfig, TerminalHarness
from t1.harness.actions import ActionFormat
from t1.testing.renderers import CharacterRenderer
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import Episode, FinishReason, StopReason

RENDERER = CharacterRenderer()
UNASKED = ScriptedSampler([])


async def play(
    folder: Path, solution: str, *, style: ActionFormat = "bare", max_context: int = 4096, **config: Any
) -> tuple[Episode, FakeSandbox]:
    """The demonstration of a solution, and its sandbox."""
    script = folder / "solve.sh"
    script.write_text(solution)
    task = example_task(solution=script)
    harness = DemonstrationHarness(
        TerminalHarness(RENDERER, TerminalConfig(action_format=style, **config)),
        RENDERER,
        style,
        max_context=max_context,
    )
    sandbox = await FakeSandboxProvider(files={"/app/plan": b"oak\n"}).open(task)
    return await harness.run(task, sandbox, UNASKED, session="s"), sandbox


async def test_every_line_is_a_turn_and_the_last_turn_submits(tmp_path: Path) -> None:
    episode, sandbox = await play(tmp_path, "#!/bin/bash\nset -e\necho a > x\n\necho b > y\n")
    assert sandbox.commands == ["echo a > x", "echo b > y"]
    assert [turn.action for turn in episode.turns] == ["echo a > x", "echo b > y", "exit"]
    assert episode.stop is StopReason.SUBMITTED
    assert UNASKED.asked == []


async def test_a_value_that_was_read_is_used_by_name(tmp_path: Path) -> None:
    episode, sandbox = await play(tmp_path, 'cat plan\necho done > "$(cat plan)"\n')
    assert sandbox.commands == ["cat plan", "echo done > oak"]
    assert episode.turns[0].observation == "oak"


@pytest.mark.parametrize("style", ["fenced", "tool_call"])
async def test_a_demonstration_speaks_the_configured_format(tmp_path: Path, style: ActionFormat) -> None:
    episode, sandbox = await play(tmp_path, "echo a > x\n", style=style, max_tokens_per_turn=200)
    assert (sandbox.commands, episode.stop) == (["echo a > x"], StopReason.SUBMITTED)


async def test_tokens_are_certain_and_without_routes(tmp_path: Path) -> None:
    episode, _ = await play(tmp_path, "true\n")
    assert all((turn.logprobs == 0).all() and turn.routing is None for turn in episode.turns)
    assert all(turn.finish is FinishReason.STOP for turn in episode.turns)


async def test_a_line_beyond_the_policys_limit_is_cut_as_the_policys_would_be(tmp_path: Path) -> None:
    episode, sandbox = await play(tmp_path, "echo a long line\n", max_tokens_per_turn=6)
    assert (episode.turns[0].finish, len(episode.turns[0].completion)) == (FinishReason.LENGTH, 6)
    assert sandbox.commands == []


async def test_a_demonstration_never_outgrows_the_policys_context(tmp_path: Path) -> None:
    episode, _ = await play(tmp_path, "echo a long line\n" * 9, max_context=80)
    assert len(episode.turns[-1].prompt) + len(episode.turns[-1].completion) <= 80
    assert episode.stop is StopReason.TOKEN_LIMIT


async def test_a_task_without_a_solution_is_refused() -> None:
    harness = DemonstrationHarness(TerminalHarness(RENDERER, TerminalConfig()), RENDERER, "bare", max_context=99)
    sandbox = await FakeSandboxProvider().open(example_task())
    with pytest.raises(TaskError, match="no reference solution"):
        await harness.run(example_task(), sandbox, UNASKED, session="s")
