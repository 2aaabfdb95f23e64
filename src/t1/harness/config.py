"""Settings of the token-native terminal harness."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from t1.harness.actions import ActionFormat


class SamplingConfig(BaseModel):
    """The distribution that completions are drawn from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)


class TerminalConfig(BaseModel):
    """Format and limits of `TerminalHarness`. Every limit has its own stop reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action_format: ActionFormat = "bare"
    system_prompt: str = ""
    observation_role: str = "tool"
    max_turns: int = Field(10, ge=1)
    max_tokens_per_turn: int = Field(64, ge=1)
    max_sampled_tokens: int = Field(512, ge=1)
    max_observation_chars: int = Field(400, ge=16)
    command_timeout_s: float = Field(10.0, gt=0)
    sampling: SamplingConfig = SamplingConfig()
