"""Demonstrations: a task's reference solution played through another harness, with real observations.

Wraps any token-native harness and is one itself: the collector that gathers rollouts gathers demonstrations with the
same code, in the same sandboxes, verified by the same verifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from t1.harness.actions import ActionFormat, write_action
from t1.protocols import Harness, Renderer, Sampler, Sandbox
from t1.tasks.demonstrations import demonstration_lines, inline
from t1.types import (
    CommandResult,
    Episode,
    FileChanges,
    FinishReason,
    IntArray,
    Sample,
    SamplingParams,
    Task,
)


class WatchedSandbox:
    """A sandbox that remembers what each command printed."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.outputs: dict[str, str] = {}

    @property
    def id(self) -> str:
        """The wrapped sandbox's id."""
        return self._sandbox.id

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """Run and remember."""
        result = await self._sandbox.run(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes)
        self.outputs[command] = result.output
        return result

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """As the wrapped sandbox."""
        return await self._sandbox.read(path, max_bytes=max_bytes)

    async def stop(self) -> FileChanges:
        """As the wrapped sandbox."""
        return await self._sandbox.stop()

    async def close(self) -> None:
        """As the wrapped sandbox."""
        await self._sandbox.close()


class ReferencePolicy:
    """A Sampler that plays a solution's lines, one a turn, then submits.

    It is deterministic, so every token has probability 1 (logprob 0); there is no model, hence no routing.
    """

    def __init__(
        self, lines: list[str], outputs: Mapping[str, str], renderer: Renderer, style: ActionFormat, max_context: int
    ) -> None:
        self._lines = iter(lines)
        self._outputs = outputs
        self._renderer = renderer
        self._style: ActionFormat = style
        self._max_context = max_context

    @property
    def version(self) -> int:
        """A reference has one version."""
        return 0

    @property
    def max_context(self) -> int:
        """That of the policy that will learn from it."""
        return self._max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """The next line, values that an earlier line showed filled in; cut where the policy's would be."""
        line = next(self._lines, None)
        text = write_action(None if line is None else inline(line, self._outputs), self._style)
        whole = np.append(self._renderer.encode(text), self._renderer.stop_ids[0]).astype(np.int32)
        ids = whole[: min(params.max_tokens, self._max_context - len(prompt))]
        finish = FinishReason.STOP if len(ids) == len(whole) else FinishReason.LENGTH
        size = len(ids)
        return Sample(
            prompt, ids, np.zeros(size, dtype=np.float32), np.zeros(size, dtype=np.int32), finish, None, routing_start
        )

    async def close_session(self, session: str) -> None:
        """Nothing is kept."""

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """A reference does not learn."""

    async def aclose(self) -> None:
        """Nothing to stop."""


class DemonstrationHarness:
    """Plays each task's own solution instead of asking a sampler."""

    def __init__(self, harness: Harness, renderer: Renderer, style: ActionFormat, *, max_context: int) -> None:
        self._harness = harness
        self._renderer = renderer
        self._style: ActionFormat = style
        self._max_context = max_context

    async def run(
        self, task: Task, sandbox: Sandbox, sampler: Sampler, *, session: str, seed: int | None = None
    ) -> Episode:
        """Play the solution of `task`. Raises TaskError where it ships none."""
        watched = WatchedSandbox(sandbox)
        policy = ReferencePolicy(
            demonstration_lines(task), watched.outputs, self._renderer, self._style, self._max_context
        )
        return await self._harness.run(task, watched, policy, session=session, seed=seed)
