"""The verbs: every part that can be replaced, on one page. Each has a public fake in `t1.testing`, held to the same
contract test as the real parts (`tests/contract/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from t1.types import (
    CommandResult,
    Episode,
    FileChanges,
    IntArray,
    Rollout,
    Sample,
    SamplingParams,
    Task,
    Trajectory,
    Verdict,
)


@runtime_checkable
class Sampler(Protocol):
    """Token ids in, token ids out."""

    @property
    def version(self) -> int:
        """The weights version that new tokens are sampled with."""
        ...

    @property
    def max_context(self) -> int:
        """Longest prompt + completion, in tokens."""
        ...

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """Complete `prompt` [P]. `session` names the conversation whose cache may be kept between turns.

        Raises EngineError (infrastructure), or ValueError for a prompt that is empty or longer than the context.
        """
        ...

    async def close_session(self, session: str) -> None:
        """Forget the session's cache. Unknown sessions are fine."""
        ...

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Sample with these weights (Hugging Face names → tensors) from now on; older caches are dropped."""
        ...

    async def aclose(self) -> None:
        """Stop; pending requests end with EngineUnavailable."""
        ...


class Sandbox(Protocol):
    """A private machine for one agent, with one long-lived shell."""

    @property
    def id(self) -> str: ...

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """Run a command line in the long-lived shell: directory and variables persist.

        Whatever the command does is a result; SandboxVanished when the sandbox is gone for good.
        """
        ...

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """A regular file's bytes, or None where there is none. Never follows a symlink out of the sandbox.

        Raises SandboxError when the file is larger than `max_bytes`.
        """
        ...

    async def stop(self) -> FileChanges:
        """Kill every process, confirm that they are dead, hand out the files. The sandbox runs nothing afterwards."""
        ...

    async def close(self) -> None:
        """Leave nothing behind. Safe to call twice, and after stop."""
        ...


class SandboxProvider(Protocol):
    """Opens sandboxes."""

    async def open(self, task: Task) -> Sandbox:
        """A sandbox with the task's environment built and the shell in its workdir. No tests, no solution in it."""
        ...

    async def open_pristine(self, task: Task, changes: FileChanges) -> Sandbox:
        """A fresh sandbox of the same image over the agent's file changes, `tests/` at /tests, /logs/verifier empty."""
        ...

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        ...


class Verifier(Protocol):
    """Runs the task's own verifier."""

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        """Stop `sandbox`, verify what it left. Raises VerifierError or SandboxError where no verdict can be had."""
        ...


class Renderer(Protocol):
    """Messages to token ids, append-only: what was sent or sampled once is never rendered again."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a completion."""
        ...

    @property
    def boundary_ids(self) -> frozenset[int]:
        """Ids that may stand between a completion and the next message (stop, end of turn, newline, whitespace)."""
        ...

    def open(self, messages: Sequence[tuple[str, str]]) -> IntArray:
        """The first prompt: (role, content) messages and the generation prompt."""
        ...

    def extend(self, completion: IntArray, messages: Sequence[tuple[str, str]]) -> IntArray:
        """What follows `completion`: its missing end-of-turn tokens, the messages, the generation prompt."""
        ...

    def encode(self, text: str) -> IntArray:
        """Ids of text; control tokens spelled out in it stay text."""
        ...

    def decode(self, ids: IntArray) -> str:
        """Text of ids, without the closing stop id."""
        ...


class Harness(Protocol):
    """Lets a policy work on a task."""

    async def run(
        self, task: Task, sandbox: Sandbox, sampler: Sampler, *, session: str, seed: int | None = None
    ) -> Episode:
        """Drive the sandbox until the policy submits or meets a limit. What the policy spoils is data, not an error."""
        ...


class Source(Protocol):
    """Where rollouts come from. Asynchrony lives behind this line."""

    def next(self, step: int) -> Sequence[Rollout]:
        """The rollouts of one step, failures included."""
        ...

    def close(self) -> None: ...


class Tracker(Protocol):
    """Takes the metrics of a run."""

    def log(self, metrics: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Trainer(Protocol):
    """Makes a better policy out of trajectories: see training/ppo.py."""

    def step(self, rollouts: Sequence[tuple[Sequence[Trajectory], float]]) -> Mapping[str, float]:
        """Pack, score, advantage, update, on the (segments, reward) of each rollout. Returns the step's metrics."""
        ...

    def save(self, path: Path) -> None: ...

    def load(self, path: Path) -> None: ...

    def weights(self) -> Mapping[str, Any]:
        """The policy's weights by Hugging Face name."""
        ...
