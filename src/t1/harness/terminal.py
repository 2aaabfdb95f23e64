"""The token-native terminal harness: a policy, a shell, and nothing re-tokenized in between.

A turn: the sampler completes the ids so far, the completion's text is parsed into one action, the shell runs it, and
the observation is rendered once and appended. The harness never learns of rewards or of the task's tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from t1.errors import PromptMismatch
from t1.harness.actions import Malformed, Run, Submit, parse_action
from t1.harness.config import TerminalConfig
from t1.protocols import Renderer, Sampler, Sandbox
from t1.types import (
    CommandResult,
    Episode,
    FinishReason,
    IntArray,
    Sample,
    SamplingParams,
    StopReason,
    Task,
    Turn,
)


def bound_text(text: str, max_chars: int) -> str:
    """Head and tail of a text that is too long, with how much was cut."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 2 // 3, max_chars // 3
    return f"{text[:head]}\n[{len(text) - head - tail} characters cut]\n{text[-tail:]}"


def observe(result: CommandResult, max_chars: int) -> str:
    """The text that the policy sees of a command's result."""
    notes = []
    if result.cut_bytes:
        notes.append(f"[{result.cut_bytes} bytes cut]")
    if result.timed_out:
        notes.append("[killed: time limit]")
    elif result.exit_code is None:
        notes.append("[killed]")
    elif result.exit_code:
        notes.append(f"[exit {result.exit_code}]")
    if result.shell_restarted:
        notes.append("[shell restarted]")
    return "\n".join(filter(None, [bound_text(result.output.rstrip("\n"), max_chars), *notes]))


class TokenStream:
    """Ids that only grow. Every prompt of an episode is a read-only view of its start, so memory grows with the tokens
    of the episode and not with turns × tokens.
    """

    def __init__(self, ids: IntArray) -> None:
        self._room: IntArray = np.array(ids, dtype=np.int32)
        self._size = len(ids)
        self.num_sampled = 0
        """Sampled tokens so far."""

    @property
    def ids(self) -> IntArray:
        """[T] the stream so far."""
        view = self._room[: self._size]
        view.flags.writeable = False
        return view

    def extend(self, completion: IntArray, context: IntArray, *, num_sampled: int) -> None:
        """Append a completion of `num_sampled` sampled tokens and what follows it. Earlier views stay as they were."""
        self.num_sampled += num_sampled
        size = self._size + len(completion) + len(context)
        if size > len(self._room):
            room = np.empty(2 * size, dtype=np.int32)
            room[: self._size] = self._room[: self._size]
            self._room = room
        for part in (completion, context):
            self._room[self._size : self._size + len(part)] = part
            self._size += len(part)


class TerminalHarness:
    """Drives one episode with the ids as the source of truth."""

    def __init__(
        self, renderer: Renderer, config: TerminalConfig, *, keeps: Literal["tokens", "text"] = "tokens"
    ) -> None:
        """`keeps` text: every completion is decoded and encoded again for the next prompt, and routes are not kept, as
        in a stack that exchanges text. To measure what that costs, never to train well.
        """
        self._renderer = renderer
        self._config = config
        self._keeps = keeps

    async def run(
        self, task: Task, sandbox: Sandbox, sampler: Sampler, *, session: str, seed: int | None = None
    ) -> Episode:
        """Drive the sandbox until the policy submits or meets a limit."""
        deadline = time.monotonic() + task.limits.agent_timeout_s
        stream = TokenStream(self._renderer.open(self._opening(task)))
        turns: list[Turn] = []
        routing_start = 0
        while (stop := self._limit(turns, stream, sampler, deadline)) is None:
            prompt = stream.ids
            params = self._params(len(turns), stream, seed)
            bound = asyncio.timeout(deadline - time.monotonic())
            try:
                async with bound:
                    sample = await sampler.sample(prompt, params, session=session, routing_start=routing_start)
            except TimeoutError:
                if not bound.expired():
                    raise  # the sampler's own, not the task's limit
                # The reply, if one comes, was never seen by anyone: it is not part of the episode (case T8).
                return Episode(tuple(turns), StopReason.TIME_LIMIT)
            turn, submitted = await self._act(sample, prompt, sandbox, deadline)
            turns.append(turn)
            if submitted:
                return Episode(tuple(turns), StopReason.SUBMITTED)
            routing_start = len(prompt) + len(sample.completion) - 1
            message = (self._config.observation_role, turn.observation)
            kept = self._kept(sample.completion)
            context = self._renderer.extend(kept, [message])
            stream.extend(kept, context, num_sampled=len(sample.completion))
        return Episode(tuple(turns), stop)

    def _opening(self, task: Task) -> Sequence[tuple[str, str]]:
        system = [("system", self._config.system_prompt)] if self._config.system_prompt else []
        return [*system, ("user", task.instruction.strip())]

    def _limit(self, turns: list[Turn], stream: TokenStream, sampler: Sampler, deadline: float) -> StopReason | None:
        """The limit that forbids another turn, if any."""
        if len(turns) >= self._config.max_turns:
            return StopReason.TURN_LIMIT
        if stream.num_sampled >= self._config.max_sampled_tokens:
            return StopReason.TOKEN_LIMIT
        if len(stream.ids) >= sampler.max_context:  # turns after the context limit would only burn time (case T11)
            return StopReason.TOKEN_LIMIT
        return StopReason.TIME_LIMIT if time.monotonic() >= deadline else None

    def _kept(self, completion: IntArray) -> IntArray:
        """[C'] the completion [C] as the next prompt has it."""
        if self._keeps == "tokens":
            return completion
        spelled = self._renderer.encode(self._renderer.decode(completion))
        stop = completion[-1:] if np.isin(completion[-1:], self._renderer.stop_ids).all() else completion[:0]
        return np.concatenate([spelled, stop]).astype(np.int32)

    def _params(self, turn: int, stream: TokenStream, seed: int | None) -> SamplingParams:
        sampling = self._config.sampling
        left = self._config.max_sampled_tokens - stream.num_sampled
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=min(self._config.max_tokens_per_turn, left),
            stop_ids=self._renderer.stop_ids,
            seed=None if seed is None else seed * 4096 + turn,
        )

    async def _act(self, sample: Sample, prompt: IntArray, sandbox: Sandbox, deadline: float) -> tuple[Turn, bool]:
        """Run the sampled action; returns the turn and whether the policy submitted."""
        if not np.array_equal(sample.prompt, prompt):
            raise PromptMismatch(f"sent {len(prompt)} prompt ids, the engine saw {len(sample.prompt)} others")
        text = self._renderer.decode(sample.completion)
        action = parse_action(text, self._config.action_format)
        if sample.finish is FinishReason.LENGTH:
            action = Malformed(f"cut after {len(sample.completion)} tokens; nothing was run")
        observation, sandbox_s = "", 0.0
        match action:
            case Run(command):
                bound = max(0.1, min(self._config.command_timeout_s, deadline - time.monotonic()))
                result = await sandbox.run(command, timeout_s=bound)
                observation, sandbox_s = observe(result, self._config.max_observation_chars), result.duration_s
            case Malformed(reason):
                observation = f"[{reason}]"
        turn = Turn(
            prompt=prompt,
            completion=sample.completion,
            logprobs=sample.logprobs,
            versions=sample.versions,
            finish=sample.finish,
            routing=sample.routing if self._keeps == "tokens" else None,
            routing_start=sample.routing_start,
            action=text,
            observation=observation,
            timings=sample.timings,
            sandbox_s=sandbox_s,
        )
        return turn, isinstance(action, Submit)
