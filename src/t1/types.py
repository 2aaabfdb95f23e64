"""The nouns that cross a folder border. Read this page and `protocols.py`, and the rest of T1 follows.

Axes: **P** prompt tokens of a turn, **C** completion tokens of a turn, **T** tokens of a trajectory, **N** tokens of
a pack, **L** MoE layers, **K** experts per token. Index t always describes token t. Constructors refuse what is
misaligned and say both shapes; nothing is padded, clipped or realigned to make an error go away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int32]
FloatArray: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
RoutingArray: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


def _check(name: str, array: npt.NDArray[Any], dtype: Any, *shape: int | None) -> None:
    """Refuse an array whose dtype or shape is not the declared one (None = any length)."""
    fits = array.ndim == len(shape) and array.dtype == dtype
    for want, got in zip(shape, array.shape, strict=False):
        fits = fits and (want is None or want == got)
    if not fits:
        wanted = "[" + ", ".join("*" if n is None else str(n) for n in shape) + "]"
        raise ValueError(f"{name}: expected {np.dtype(dtype)} {wanted}, got {array.dtype} {list(array.shape)}")


def check_routing(name: str, routing: npt.NDArray[Any], num_rows: int) -> None:
    """Refuse a routing capture that is not uint8/uint16 [num_rows, L, K]."""
    if routing.ndim != 3 or routing.shape[0] != num_rows or routing.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"{name}: expected uint8 or uint16 [{num_rows}, L, K], got {routing.dtype} {list(routing.shape)}"
        )


# --------------------------------------------------------------------------------------------------------------------
# Tasks


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """A command that tells when a sandbox is ready: exit code 0, within `start_period_s` or `retries` more tries."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Environment:
    """What the sandbox of a task must offer (Harbor's `[environment]`)."""

    path: Path
    """The task's `environment/` directory: a Dockerfile and what it copies."""
    docker_image: str | None = None
    workdir: str | None = None
    cpus: int = 1
    memory_mb: int = 2048
    storage_mb: int = 10240
    allow_internet: bool = False
    build_timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that the agent may reach where `allow_internet` is false (`network_mode = "allowlist"`)."""
    user: str | None = None
    """Whom the agent's commands run as (`agent.user`); None = the image's own user."""
    healthcheck: Healthcheck | None = None


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    """How a task is verified (Harbor's `[verifier]`): `tests/test.sh` runs in /tests, /logs/verifier is read."""

    path: Path
    """The task's `tests/` directory."""
    timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds an attempt at the task, beside the harness's own limits."""

    agent_timeout_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Step:
    """One `[[steps]]` entry of a multi-step task: its own instruction and verifier, in the environment of the task."""

    name: str
    instruction: str
    verifier: VerifierSpec
    limits: Limits
    solution: Path | None = None
    min_reward: float | Mapping[str, float] | None = None
    """Below this (by reward key, where it is a table) the steps that follow are not run."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task directory in Harbor's format, read and checked."""

    id: str
    digest: str
    """sha256 hex over every file of the directory (relative path, mode bit x, bytes): what "the same task" means."""
    instruction: str
    environment: Environment
    verifier: VerifierSpec
    limits: Limits
    path: Path
    solution: Path | None = None
    """`solution/solve.sh` where the task ships one."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    """Of a multi-step task, in order; empty otherwise."""

    @property
    def num_assertions(self) -> int | None:
        """The declared number of assertions (`metadata.num_assertions`), or None where the author declares none."""
        value = self.metadata.get("num_assertions")
        return int(value) if value is not None else None


# --------------------------------------------------------------------------------------------------------------------
# Sampling


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """A stop id was sampled; it is the last token of the completion."""
    LENGTH = "length"
    """`max_tokens` was reached."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The distribution that completions are drawn from. The reported logprobs are of exactly this distribution."""

    temperature: float = 1.0
    """0 = greedy (logprobs are then of the temperature-1 distribution, and such tokens must not be trained on)."""
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""
    max_tokens: int = 256
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None
    """The completion is a function of (weights, prompt, params) when set, up to floating-point batching effects."""


@dataclass(frozen=True, slots=True)
class SampleTimings:
    """Where the time of one request went, and how much of its prompt was not fed again."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a Sampler returns for one request."""

    prompt: IntArray
    """[P] the ids that the engine saw, echoed: compared with those sent (case T7)."""
    completion: IntArray
    """[C ≥ 1] sampled ids, the stop id included."""
    logprobs: FloatArray
    """[C] of the distribution that was really sampled."""
    versions: IntArray
    """[C] weights version that sampled each token."""
    finish: FinishReason
    routing: RoutingArray | None
    """[P+C−1−routing_start, L, K] experts of every fed token from `routing_start` on; None for a dense model."""
    routing_start: int = 0
    timings: SampleTimings = SampleTimings()

    def __post_init__(self) -> None:
        _check("prompt", self.prompt, np.int32, None)
        _check("completion", self.completion, np.int32, None)
        if len(self.completion) == 0:
            raise ValueError("completion: expected at least one sampled token, got none")
        _check("logprobs", self.logprobs, np.float32, len(self.completion))
        _check("versions", self.versions, np.int32, len(self.completion))
        if self.routing is not None:
            rows = len(self.prompt) + len(self.completion) - 1 - self.routing_start
            check_routing("routing", self.routing, rows)


# --------------------------------------------------------------------------------------------------------------------
# Sandboxes and verification


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one command did in a sandbox."""

    output: str
    """stdout and stderr as one stream, undecodable bytes replaced; cut to head and tail when too long."""
    exit_code: int | None
    """None when the command was killed (time or output limit) or took its shell with it and left no status."""
    duration_s: float
    timed_out: bool = False
    cut_bytes: int = 0
    """How many bytes the middle of `output` lacks."""
    shell_restarted: bool = False
    """True when the shell had to be started anew: files stay, variables and background processes are gone."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that an agent left, on the host side, after every one of its processes was confirmed dead."""

    root: Path
    """Directory that holds one subtree per place; never follow a symlink in it from the host."""
    places: Mapping[str, str]
    """Absolute path in the sandbox → name of its subtree under `root`."""
    uncarried: tuple[str, ...] = ()
    """Absolute paths outside the places that the agent changed; no verifier ever sees them."""
    outlived: tuple[str, ...] = ()
    """Command lines of processes that were still running when the agent was stopped (bounded)."""
    blind: str = ""
    """What the backend could not see of the changes, and why; the verdict does not depend on it, the evidence does."""


class AssertionStatus(StrEnum):
    """CTRF's statuses, folded: pending and other count as skipped."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class AssertionResult:
    """One assertion of a verifier."""

    name: str
    status: AssertionStatus
    message: str = ""


class RewardSource(StrEnum):
    """Where a reward came from."""

    ASSERTIONS = "assertions"
    BINARY_FALLBACK = "binary_fallback"
    """The per-assertion report was missing or unreadable: metered, and warned about above a set fraction."""
    BINARY = "binary"
    """The binary ablation was asked for."""
    TAMPERED = "tampered"
    """Zero, because of what the agent did to the ground under its verifier."""
    NONE = "none"
    """Infrastructure failure: not a score."""


class StopReason(StrEnum):
    """Why an episode ended."""

    SUBMITTED = "submitted"
    """The policy said that it is done."""
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    """The budget of sampled tokens, or the model's context, is used up."""
    TIME_LIMIT = "time_limit"
    CRASHED = "crashed"
    """A foreign agent program ended with an error of its own; what it left is scored."""
    FAILED = "failed"
    """Infrastructure failed; the outcome carries the failure and no score."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An infrastructure failure, typed by the error's class name (see errors.py)."""

    kind: str
    message: str
    where: str = ""


class TamperLevel(StrEnum):
    """How much a piece of evidence weighs."""

    NOTED = "noted"
    """Unusual, and without influence on the verdict: recorded, never punished."""
    TAMPERING = "tampering"
    """Aimed at the verifier: the run's policy decides what becomes of the reward."""


@dataclass(frozen=True, slots=True)
class TamperEvidence:
    """One thing that the agent did to the ground under its verifier."""

    rule: str
    path: str
    message: str = ""
    level: TamperLevel = TamperLevel.TAMPERING


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier found: the raw material of an Outcome."""

    assertions: tuple[AssertionResult, ...] | None
    """None when no per-assertion report could be read."""
    solved: bool
    """Every assertion passed (at least one); from the binary outcome where there is no report."""
    tamper: tuple[TamperEvidence, ...] = ()
    duration_s: float = 0.0
    report_error: str = ""
    """Why the per-assertion report is missing, where it is."""
    own_reward: float | None = None
    """The verifier's own number between 0 and 1, where that decided; benchmarks with partial credit score by it."""

    @property
    def tampered(self) -> bool:
        """True when some evidence is more than merely noted."""
        return any(evidence.level is TamperLevel.TAMPERING for evidence in self.tamper)

    @property
    def num_passed(self) -> int | None:
        """How many assertions passed, or None without a report. Skipped is not passed."""
        if self.assertions is None:
            return None
        return sum(a.status is AssertionStatus.PASSED for a in self.assertions)


_SCORED = (RewardSource.ASSERTIONS, RewardSource.BINARY_FALLBACK, RewardSource.BINARY)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rollout ended. `reward` is None exactly when infrastructure failed."""

    stop: StopReason
    verdict: Verdict | None
    reward: float | None
    reward_source: RewardSource
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if (self.failure is None) != (self.reward is not None):
            raise ValueError(f"outcome: a failure has no reward, a score has one; got {self.failure=} {self.reward=}")
        if (self.reward_source is RewardSource.NONE) != (self.reward is None):
            raise ValueError(f"outcome: {self.reward_source=} contradicts {self.reward=}")

    @property
    def solved(self) -> bool:
        """True when the verifier found everything done, on ground that the run's policy accepts."""
        return self.verdict is not None and self.verdict.solved and self.reward_source in _SCORED


# --------------------------------------------------------------------------------------------------------------------
# Rollouts


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange with the sampler, and what its action did. The raw record that the auditor trusts."""

    prompt: IntArray
    """[P] ids as the sampler saw them."""
    completion: IntArray
    """[C ≥ 1] ids as they were sampled, the stop id included."""
    logprobs: FloatArray
    """[C] sampler_logprobs."""
    versions: IntArray
    """[C] weights version per sampled token."""
    finish: FinishReason
    routing: RoutingArray | None = None
    """[P+C−1−routing_start, L, K] rows of the tokens fed in this turn, from position `routing_start` on."""
    routing_start: int = 0
    action: str = ""
    """What the harness ran (decoded for people; never encoded again)."""
    observation: str = ""
    timings: SampleTimings = SampleTimings()
    sandbox_s: float = 0.0

    def __post_init__(self) -> None:
        Sample(
            self.prompt, self.completion, self.logprobs, self.versions, self.finish, self.routing, self.routing_start
        )


@dataclass(frozen=True, slots=True, order=True)
class RolloutId:
    """`task` (id), `group` (which draw of the task), `member` (which of its rollouts)."""

    task: str
    group: int
    member: int

    def __str__(self) -> str:
        return f"{self.task}/{self.group}/{self.member}"


@dataclass(frozen=True, slots=True)
class RolloutTimings:
    """Seconds of one rollout by kind."""

    wall_s: float = 0.0
    queue_s: float = 0.0
    engine_s: float = 0.0
    sandbox_s: float = 0.0
    verifier_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """What a harness hands back: the turns and why it stopped."""

    turns: tuple[Turn, ...]
    stop: StopReason


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at a task, failed ones included."""

    id: RolloutId
    task_digest: str
    turns: tuple[Turn, ...]
    outcome: Outcome
    timings: RolloutTimings = RolloutTimings()
    attempts: int = 1
    """How many launches it took (infrastructure failures are launched again)."""

    @property
    def num_sampled(self) -> int:
        """Sampled tokens over all turns."""
        return sum(len(turn.completion) for turn in self.turns)


# --------------------------------------------------------------------------------------------------------------------
# Trajectories


class Case(StrEnum):
    """How a turn joined the stream (the four cases), tried in this order. OPEN is a segment's first turn."""

    OPEN = "open"
    STRICT = "strict"
    NORMALIZED = "normalized"
    RETOKENIZED = "retokenized"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class Boundary:
    """How turn `turn` was joined to what came before."""

    turn: int
    case: Case
    kept: int = 0
    """Stream tokens before this turn's new context that stand in its prompt as they are."""
    inserted: int = 0
    """Tokens of this turn's prompt that joined as context."""
    dropped: int = 0
    """Prompt tokens of the harness's copy that never entered the stream."""
    residual: int = 0
    """Context tokens of the stream that differ from what the sampler saw at this turn. 0 in strict."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One segment of a rollout as the trainer sees it."""

    rollout: RolloutId
    segment: int
    tokens: IntArray
    """[T]"""
    mask: BoolArray
    """[T] True where the policy sampled the token."""
    logprobs: FloatArray
    """[T] sampler_logprobs; 0 where mask is False."""
    turn: IntArray
    """[T] index of the turn that brought the token."""
    version: IntArray
    """[T] weights version that sampled the token; for context, that of the first token sampled after it."""
    routing: RoutingArray | None
    """[T−1, L, K] row t = experts of token t when it was fed. The last token is never fed."""
    boundaries: tuple[Boundary, ...]

    def __post_init__(self) -> None:
        _check("tokens", self.tokens, np.int32, None)
        size = len(self.tokens)
        _check("mask", self.mask, np.bool_, size)
        _check("logprobs", self.logprobs, np.float32, size)
        _check("turn", self.turn, np.int32, size)
        _check("version", self.version, np.int32, size)
        if self.routing is not None:
            check_routing("routing", self.routing, size - 1)
        if size < 2 or self.mask[0] or not self.mask[-1]:
            raise ValueError("trajectory: starts with context and ends with a sampled token")

    @property
    def num_actions(self) -> int:
        """Trained tokens."""
        return int(self.mask.sum())


class Severity(StrEnum):
    """ERROR keeps a trajectory out of training, WARNING does not; both are counted."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the auditor saw."""

    rule: str
    severity: Severity
    rollout: RolloutId
    where: str
    message: str
