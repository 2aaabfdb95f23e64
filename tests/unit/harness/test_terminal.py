"""The terminal harness: ids as the source of truth, and one stop reason for every way to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.base import base_path
from t1.errors import PromptMismatch
from t1.harness import ChatMLRenderer, TerminalConfig, TerminalHarness
from t1.harness.terminal import bound_text, observe
from t1.testing.renderers import END, CharacterRenderer
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.tito import assemble
from t1.types import (
    Case,
    CommandResult,
    Episode,
    FinishReason,
    IntArray,
    RolloutId,
    Sample,
    SamplingParams,
    StopReason,
)

RENDERER = CharacterRenderer()


def writes(*texts: str, **options: Any) -> ScriptedSampler:
    """A policy that writes these completions, one a turn."""
    return ScriptedSampler([RENDERER.encode(text).tolist() for text in texts], **options)


async def run(
    sampler: ScriptedSampler,
    provider: FakeSandboxProvider | None = None,
    *,
    agent_timeout_s: float = 60.0,
    **config: Any,
) -> tuple[Episode, FakeSandbox]:
    """The episode, and the sandbox that it happened in."""
    task = example_task(instruction="Write it.\n", agent_timeout_s=agent_timeout_s)
    sandbox = await (provider or FakeSandboxProvider()).open(task)
    episode = await TerminalHarness(RENDERER, TerminalConfig(**config)).run(task, sandbox, sampler, session="s", seed=7)
    return episode, sandbox


async def test_exit_submits_and_is_not_run() -> None:
    episode, sandbox = await run(writes("echo hi > a", "exit"))
    assert (episode.stop, len(episode.turns)) == (StopReason.SUBMITTED, 2)
    assert sandbox.commands == ["echo hi > a"]
    assert episode.turns[1].observation == ""


async def test_the_first_prompt_is_system_and_instruction_and_later_ones_only_grow() -> None:
    episode, _ = await run(writes("pwd", "exit"), system_prompt="Be brief.")
    opened = RENDERER.open([("system", "Be brief."), ("user", "Write it.")])
    first, second = episode.turns
    assert first.prompt.tolist() == opened.tolist()
    extended = RENDERER.extend(first.completion, [("tool", "/app")])
    assert second.prompt.tolist() == [*opened.tolist(), *first.completion.tolist(), *extended.tolist()]


async def test_each_turn_asks_for_routes_from_the_first_token_that_was_not_fed() -> None:
    sampler = writes("pwd", "true", "exit")
    episode, _ = await run(sampler)
    held = [len(turn.prompt) + len(turn.completion) - 1 for turn in episode.turns]
    assert [asked.routing_start for asked in sampler.asked] == [0, *held[:-1]]


async def test_the_turn_limit_has_its_own_reason() -> None:
    sampler = writes("true", "true", "true")
    episode, _ = await run(sampler, max_turns=2)
    assert (episode.stop, len(episode.turns), len(sampler.asked)) == (StopReason.TURN_LIMIT, 2, 2)


async def test_the_budget_of_sampled_tokens_is_never_overdrawn() -> None:
    sampler = writes("true", "true", "true")
    episode, _ = await run(sampler, max_sampled_tokens=12)
    assert [asked.params.max_tokens for asked in sampler.asked] == [12, 7, 2]
    assert sum(len(turn.completion) for turn in episode.turns) == 12
    assert episode.stop is StopReason.TOKEN_LIMIT


async def test_turns_beyond_the_context_are_not_asked_for() -> None:
    """Case T11: the observation of the first turn fills the context."""
    sampler = writes("echo " + "x" * 40, "exit", max_context=110)
    episode, _ = await run(sampler)
    assert (episode.stop, len(episode.turns), len(sampler.asked)) == (StopReason.TOKEN_LIMIT, 1, 1)
    assert episode.turns[0].finish is FinishReason.STOP


async def test_an_instruction_beyond_the_context_is_an_episode_without_turns() -> None:
    sampler = writes("exit", max_context=10)
    episode, _ = await run(sampler)
    assert (episode.stop, episode.turns, sampler.asked) == (StopReason.TOKEN_LIMIT, (), [])


async def test_a_reply_after_the_time_limit_is_not_part_of_the_episode() -> None:
    """Case T8."""
    sampler = writes("exit", delay_s=60)
    episode, _ = await run(sampler, agent_timeout_s=0.05)
    assert (episode.stop, episode.turns, len(sampler.asked)) == (StopReason.TIME_LIMIT, (), 1)


async def test_a_time_out_of_the_samplers_own_is_not_the_tasks_time_limit() -> None:
    with pytest.raises(TimeoutError, match="socket"):
        await run(writes("exit", failures={0: TimeoutError("socket")}))


async def test_a_command_may_not_outlast_the_task() -> None:
    episode, sandbox = await run(writes("sleep 30", "exit"), agent_timeout_s=0.05)
    assert sandbox.commands == ["sleep 30"]
    assert "[killed: time limit]" in episode.turns[0].observation


async def test_a_completion_that_was_cut_is_not_run_and_stays_with_its_finish() -> None:
    """Case T10: trained as sampled, and the policy is told."""
    episode, sandbox = await run(writes("echo a long line", "exit"), max_tokens_per_turn=6)
    cut, last = episode.turns
    assert (cut.finish, len(cut.completion), RENDERER.decode(cut.completion)) == (FinishReason.LENGTH, 6, "echo a")
    assert (cut.observation, sandbox.commands) == ("[cut after 6 tokens; nothing was run]", [])
    assert (last.finish, episode.stop) == (FinishReason.STOP, StopReason.SUBMITTED)
    assert last.prompt[len(cut.prompt) + 6] == END  # its end of turn joined as context


async def test_what_cannot_be_parsed_is_an_observation_and_its_tokens_stay() -> None:
    """Case T12."""
    text = "<tool_call>{not json}</tool_call>"
    submit = '<tool_call>{"name": "submit"}</tool_call>'
    episode, sandbox = await run(writes(text, submit), action_format="tool_call")
    assert sandbox.commands == []
    assert episode.turns[0].observation.startswith("[the tool call is not JSON")
    assert RENDERER.decode(episode.turns[0].completion) == text
    assert episode.stop is StopReason.SUBMITTED


class EngineThatRetokenizes(ScriptedSampler):
    """Says that it saw another prompt than was sent."""

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        return await super().sample(prompt[:-1], params, session=session, routing_start=routing_start)


async def test_an_engine_that_saw_other_ids_is_an_infrastructure_failure() -> None:
    """Case T7."""
    with pytest.raises(PromptMismatch, match="the engine saw"):
        await run(EngineThatRetokenizes([[5]]))


async def test_a_spelling_that_the_tokenizer_would_not_choose_stays_as_sampled() -> None:
    """Case T13: ids that never come out of `encode`, here a start-of-message in the middle of a command."""
    odd = [*RENDERER.encode("echo ").tolist(), 0, *RENDERER.encode("x").tolist(), END]
    submit = RENDERER.encode("exit").tolist()
    episode, sandbox = await run(ScriptedSampler([odd, submit]))
    assert sandbox.commands == ["echo <start>x"]
    first, second = episode.turns
    assert first.completion.tolist() == odd
    assert second.prompt[len(first.prompt) : len(first.prompt) + len(odd)].tolist() == odd


async def test_the_seed_of_every_turn_is_its_own() -> None:
    sampler = writes("true", "true", "exit")
    await run(sampler)
    seeds = [asked.params.seed for asked in sampler.asked]
    assert len(set(seeds)) == 3 and None not in seeds


async def test_sampling_settings_reach_the_sampler() -> None:
    sampler = writes("exit")
    await run(sampler, sampling={"temperature": 0.5, "top_p": 0.9, "top_k": 4}, max_tokens_per_turn=9)
    params = sampler.asked[0].params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.5, 0.9, 4, 9)
    assert params.stop_ids == RENDERER.stop_ids


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (CommandResult("out\n\n", 0, 0.1), "out"),
        (CommandResult("", 0, 0.1), ""),
        (CommandResult("no\n", 2, 0.1), "no\n[exit 2]"),
        (CommandResult("", None, 0.1, timed_out=True, shell_restarted=True), "[killed: time limit]\n[shell restarted]"),
        (CommandResult("ab", None, 0.1, cut_bytes=70), "ab\n[70 bytes cut]\n[killed]"),
    ],
)
def test_an_observation_says_what_happened(result: CommandResult, seen: str) -> None:
    assert observe(result, 100) == seen


@given(text=st.text(max_size=300), bound=st.integers(16, 100))
def test_a_long_output_keeps_head_and_tail_and_says_what_was_cut(text: str, bound: int) -> None:
    shown = bound_text(text, bound)
    if len(text) <= bound:
        assert shown == text
        return
    head, tail = bound * 2 // 3, bound // 3
    assert shown == f"{text[:head]}\n[{len(text) - head - tail} characters cut]\n{text[len(text) - tail :]}"


COMPLETIONS = st.lists(
    st.lists(st.sampled_from([0, *map(int, RENDERER.encode("echo x;\n<|im_end|>"))]), min_size=1, max_size=12),
    max_size=8,
)


@given(completions=COMPLETIONS)
async def test_whatever_is_sampled_joins_strictly(completions: Sequence[Sequence[int]]) -> None:
    """Every completion is trained, and no turn needs more than case strict."""
    sampler = ScriptedSampler([*completions, RENDERER.encode("exit").tolist()])
    episode, _ = await run(sampler, max_tokens_per_turn=8, max_turns=20)
    trajectories = assemble(RolloutId("t", 0, 0), episode.turns, boundary_ids=RENDERER.boundary_ids)
    cases = [boundary.case for trajectory in trajectories for boundary in trajectory.boundaries]
    assert cases == [Case.OPEN, *[Case.STRICT] * (len(episode.turns) - 1)]
    assert trajectories[0].num_actions == sum(len(turn.completion) for turn in episode.turns)
    for before, after in pairwise(episode.turns):
        held = np.concatenate([before.prompt, before.completion])
        assert np.array_equal(after.prompt[: len(held)], held)


async def test_the_environment_of_a_command_is_the_last_ones() -> None:
    """One long-lived shell: what a turn sets, the next one sees."""
    files: Mapping[str, bytes] = {"/app/sub/a": b"found\n"}
    episode, _ = await run(writes("cd sub && name=a", "cat $name", "exit"), FakeSandboxProvider(files=files))
    assert episode.turns[1].observation == "found"


async def test_a_stack_that_keeps_text_spells_the_completion_anew_for_the_next_prompt() -> None:
    """And has no routes: the ids that come back are none that the sampler was asked about."""
    renderer = ChatMLRenderer.from_pretrained(base_path())
    spelled = np.concatenate([renderer.encode(letter) for letter in "echo"])
    assert len(spelled) > len(renderer.encode("echo"))
    task = example_task(instruction="Write it.")

    async def prompts(keeps: Literal["tokens", "text"]) -> tuple[IntArray, Episode]:
        sampler = ScriptedSampler([[*spelled.tolist(), *renderer.stop_ids], [*renderer.encode("exit").tolist()]])
        sandbox = await FakeSandboxProvider().open(task)
        harness = TerminalHarness(renderer, TerminalConfig(), keeps=keeps)
        episode = await harness.run(task, sandbox, sampler, session="s")
        return episode.turns[1].prompt, episode

    (tokens, exact), (text, retold) = await prompts("tokens"), await prompts("text")
    first = len(exact.turns[0].prompt)
    assert np.array_equal(tokens[first : first + len(spelled)], spelled)
    assert np.array_equal(text[first:][: len(renderer.encode("echo"))], renderer.encode("echo"))
    assert renderer.decode(tokens) == renderer.decode(text)
    assert all(turn.routing is None for turn in retold.turns)
    (trajectory,) = assemble(
        RolloutId("t", 0, 0), retold.turns, boundary_ids=renderer.boundary_ids, decode=renderer.decode
    )
    assert trajectory.boundaries[1].case is Case.RETOKENIZED
