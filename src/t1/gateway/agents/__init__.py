"""Foreign agents, each as an `AgentProgram`: unmodified programs that find their model at the gateway."""

from t1.gateway.agents.claude_code import ClaudeCode
from t1.gateway.agents.codex import Codex
from t1.gateway.agents.mini_swe_agent import MiniSweAgent

__all__ = ["ClaudeCode", "Codex", "MiniSweAgent"]
