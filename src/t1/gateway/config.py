"""Settings of the gateway."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from t1.harness.config import SamplingConfig


class GatewayConfig(BaseModel):
    """What the gateway's sessions are given where `open` says nothing else, and the bounds of every wait and store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: tuple[str, ...] = Field(("t1",), min_length=1)
    """Names that clients may ask for; all mean the one policy."""
    sampling: Literal["session", "client"] = "session"
    """Whose distribution is sampled. A run trains on its own: what a client wishes is then overridden, and counted."""
    distribution: SamplingConfig = SamplingConfig()
    max_tokens: int = Field(4096, ge=1)
    """For one reply."""
    max_turns: int | None = Field(None, ge=1)
    """For a session."""
    max_sampled_tokens: int | None = Field(None, ge=1)
    """For a session."""
    sample_timeout_s: float = Field(600.0, gt=0)
    max_pending: int = Field(32, ge=1)
    """Calls of one session that may be sampled at once; 429 beyond."""
    max_lanes: int = Field(8, ge=1)
    """Branches of one session that each have a cache of their own in the sampler."""
    max_sessions: int = Field(4096, ge=1)
    """Open at once; 503 beyond."""
    open_keys: bool = False
    """Any new key opens a session of its own. For one person on one machine: never beyond loopback."""
    fsync_s: float = Field(1.0, ge=0)
    """Recorded replies reach the disk at most so much later; 0 = each one at once."""
    max_capture_behind: int = Field(65536, ge=1)
    """Entries that the recording thread may be behind by; no more sessions are opened beyond that."""
