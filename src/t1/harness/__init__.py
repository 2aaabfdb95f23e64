"""Harnesses: how a policy works on a task."""

from t1.harness.actions import ActionFormat, parse_action, write_action
from t1.harness.config import SamplingConfig, TerminalConfig
from t1.harness.demonstrations import DemonstrationHarness
from t1.harness.renderer import ChatMLRenderer
from t1.harness.terminal import TerminalHarness

__all__ = [
    "ActionFormat",
    "ChatMLRenderer",
    "DemonstrationHarness",
    "SamplingConfig",
    "TerminalConfig",
    "TerminalHarness",
    "parse_action",
    "write_action",
]
