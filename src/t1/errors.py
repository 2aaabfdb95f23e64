"""Every error of T1. Infrastructure failures stand apart from everything else: they are never scores (design law 6).

T1Error
├── UserError                 the person can fix it: the message names the place and the next step
│   ├── ConfigError           a config key or value
│   ├── TaskError             a task directory: path, key, reason
│   ├── CheckpointError       a checkpoint that does not fit
│   └── RunError              a run directory: missing, locked, of another configuration
├── InfrastructureError       not the policy's doing: no reward, no training, launched again, counted
│   ├── SandboxError
│   │   ├── SandboxUnavailable    this host or provider cannot open sandboxes at all (not retried)
│   │   ├── SandboxVanished       an open sandbox is gone
│   │   └── SandboxTimeout        open, run, stop or close took longer than its bound
│   ├── EngineError
│   │   ├── EngineUnavailable
│   │   ├── EngineTimeout
│   │   └── PromptMismatch        the engine saw other ids than were sent
│   ├── ProcessLost               a process of the cluster died, hung, or cannot be reached
│   ├── AgentError                a foreign agent program never called the model
│   ├── RoutingError              missing, short, repeated, all-zero, out-of-range or wrong-version capture
│   └── VerifierError             the verifier could not run, hung, or wrote nonsense
├── RolloutDropped            the run's own policy gives an attempt no score; not launched again
└── IntegrityError            a law of design.md is broken: the program stops
"""

from __future__ import annotations

import errno
from pathlib import Path


class T1Error(Exception):
    """Base of all errors that T1 raises on purpose."""


class UserError(T1Error):
    """Something that the person who started the command can fix."""


class ConfigError(UserError):
    """A config key or value is wrong."""


class TaskError(UserError):
    """A task directory is broken. `path` is the file, `key` the place in it."""

    def __init__(self, path: Path, reason: str, key: str = "") -> None:
        self.path, self.key, self.reason = path, key, reason
        super().__init__(f"{path}: {f'{key}: ' if key else ''}{reason}")


class CheckpointError(UserError):
    """A checkpoint is missing, broken or of another shape."""


class RunError(UserError):
    """A run directory is missing, in use or belongs to another configuration."""


class InfrastructureError(T1Error):
    """The infrastructure spoiled the rollout, not the policy."""


class SandboxError(InfrastructureError):
    """A sandbox did not do its part."""


class SandboxUnavailable(SandboxError):
    """This host or provider cannot open sandboxes; the message says how to allow them."""


class SandboxVanished(SandboxError):
    """An open sandbox is gone."""


class SandboxTimeout(SandboxError):
    """A sandbox did not open, run, stop or close within its bound."""


class EngineError(InfrastructureError):
    """A sampler did not do its part."""


class EngineUnavailable(EngineError):
    """The engine is down or closed."""


class EngineTimeout(EngineError):
    """The engine did not answer within the bound."""


class PromptMismatch(EngineError):
    """The engine saw other prompt ids than were sent (case T7)."""


class ProcessLost(InfrastructureError):
    """A process of the cluster died, hung, or cannot be reached."""


class AgentError(InfrastructureError):
    """A foreign agent program never called the model: it is not installed, or cannot reach the gateway."""


class RoutingError(InfrastructureError):
    """A routing capture breaks the contract of design law 4."""


class VerifierError(InfrastructureError):
    """The verifier could not run: no score."""


class RolloutDropped(T1Error):
    """The run's policy drops this attempt: no score, no training, and no other attempt in its place."""


class IntegrityError(T1Error):
    """A law of the design is broken; going on would train on wrong numbers."""


def disk_reason(error: OSError) -> str:
    """Why something could not be written, for the person who has to make room."""
    return "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
