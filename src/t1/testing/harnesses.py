"""A Harness that plays a list of commands. Held to the same contract test as the real one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t1.protocols import Sampler, Sandbox
from t1.types import Episode, IntArray, SamplingParams, StopReason, Task, Turn

SHORT = SamplingParams(max_tokens=8, stop_ids=(1,))


class ScriptedHarness:
    """One turn a command: the sampler is asked, its tokens are kept, and the next command of the script is run.

    No renderer is needed: what stands between a completion and the next turn is `context`.
    """

    def __init__(
        self,
        commands: Sequence[str] = ("true",),
        *,
        stop: StopReason = StopReason.SUBMITTED,
        params: SamplingParams = SHORT,
        context: Sequence[int] = (2, 3),
    ) -> None:
        self._commands, self._stop, self._params = tuple(commands), stop, params
        self._context: IntArray = np.array(context, dtype=np.int32)
        self.seeds: dict[str, int | None] = {}
        """The seed of every run, by session."""

    async def run(
        self, task: Task, sandbox: Sandbox, sampler: Sampler, *, session: str, seed: int | None = None
    ) -> Episode:
        """See `protocols.Harness.run`."""
        self.seeds[session] = seed
        turns: list[Turn] = []
        prompt, routing_start = self._context, 0
        for command in self._commands:
            sample = await sampler.sample(prompt, self._params, session=session, routing_start=routing_start)
            result = await sandbox.run(command, timeout_s=task.limits.agent_timeout_s)
            turn = Turn(
                prompt=sample.prompt,
                completion=sample.completion,
                logprobs=sample.logprobs,
                versions=sample.versions,
                finish=sample.finish,
                routing=sample.routing,
                routing_start=sample.routing_start,
                action=command,
                observation=result.output,
            )
            turns.append(turn)
            routing_start = len(prompt) + len(sample.completion) - 1
            prompt = np.concatenate([prompt, sample.completion, self._context], dtype=np.int32)
        return Episode(tuple(turns), self._stop)
