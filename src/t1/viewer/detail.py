"""One rollout as the page shows it: its turns as a terminal shows them, its outcome, what it took.

Texts are cut to what a person looks at, with the number of characters left out; the whole text is one question away.
Boundary: turns values into JSON-ready dicts. Nothing is markup here: the page makes text nodes of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from t1.rollouts.cost import FREE, Prices, usage_of
from t1.types import Rollout, Trajectory, Turn
from t1.viewer.pieces import Pieces
from t1.viewer.screen import DEADLINE_S, render, visible

HEAD, TAIL = 12_000, 6_000
"""Characters of a text that are sent at once."""
MAX_SENTENCE = 2_000
"""Characters of a name, a path or a message."""
MAX_TEXT = 400_000
"""Characters of one answer about one text; the page asks for the next ones."""
REPLAY_S = 3.0
"""How long the terminals of one rollout may take; later ones are replayed when somebody asks for them."""


def describe(rollout: Rollout, segments: Sequence[Trajectory], prices: Prices = FREE) -> dict[str, Any]:
    """All about a rollout but its tokens."""
    outcome, verdict = rollout.outcome, rollout.outcome.verdict
    until = time.monotonic() + REPLAY_S
    return {
        "task": rollout.id.task,
        "group": rollout.id.group,
        "member": rollout.id.member,
        "task_digest": rollout.task_digest,
        "attempts": rollout.attempts,
        "stop": str(outcome.stop),
        "reward": outcome.reward,
        "reward_source": str(outcome.reward_source),
        "solved": outcome.solved,
        "failure": None if outcome.failure is None else _said(outcome.failure),
        "assertions": None if verdict is None or verdict.assertions is None else _assertions(verdict.assertions),
        "report_error": "" if verdict is None else visible(verdict.report_error[:MAX_SENTENCE]),
        "tamper": [] if verdict is None else [_said(evidence) for evidence in verdict.tamper],
        "timings": asdict(rollout.timings),
        "usage": asdict(usage_of(rollout, prices)),
        "priced": prices != FREE,
        "turns": [_turn(index, turn, until) for index, turn in enumerate(rollout.turns)],
        "segments": [_segment(part) for part in segments],
        "num_tokens": sum(len(part.tokens) for part in segments),
    }


def _said(value: Any) -> dict[str, str]:
    """The texts of a small value, none of which can act or hide."""
    return {name: visible(str(text)[:MAX_SENTENCE]) for name, text in asdict(value).items()}


def _assertions(assertions: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": visible(one.name[:MAX_SENTENCE]),
            "status": str(one.status),
            "message": cut(one.message, head=3000, tail=1000),
        }
        for one in assertions
    ]


def _turn(index: int, turn: Turn, until: float) -> dict[str, Any]:
    return {
        "index": index,
        "action": cut(turn.action, until=until),
        "observation": cut(turn.observation, until=until),
        "finish": str(turn.finish),
        "prompt_tokens": len(turn.prompt),
        "sampled_tokens": len(turn.completion),
        "versions": sorted(set(turn.versions.tolist())),
        "logprob": float(np.nan_to_num(turn.logprobs.astype(np.float64)).sum()),
        "timings": asdict(turn.timings),
        "sandbox_s": turn.sandbox_s,
    }


def _segment(part: Trajectory) -> dict[str, Any]:
    return {
        "segment": part.segment,
        "num_tokens": len(part.tokens),
        "num_actions": part.num_actions,
        "routing": None if part.routing is None else list(part.routing.shape),
        "boundaries": [{**asdict(boundary), "case": str(boundary.case)} for boundary in part.boundaries],
    }


def cut(text: str, *, head: int = HEAD, tail: int = TAIL, until: float | None = None) -> dict[str, Any]:
    """The beginning and the end of a text that is too long to show, and how much the middle lacks."""
    left_out = max(len(text) - head - tail, 0)
    parts = (text[:head], text[-tail:]) if left_out else (text, "")
    left = DEADLINE_S if until is None else min(DEADLINE_S, until - time.monotonic())
    first, last = (render(part, deadline_s=left) for part in parts)
    return {
        "runs": first.runs,
        "tail": last.runs,
        "left_out": left_out,
        "replayed": first.replayed or last.replayed,
        "dropped": first.dropped + last.dropped,
        "late": first.late or last.late,
    }


def whole(text: str, *, raw: bool, start: int = 0) -> dict[str, Any]:
    """Up to MAX_TEXT characters of a text from `start` on: as a terminal shows them, or `raw`, each one visible."""
    part, end = text[start : start + MAX_TEXT], start + MAX_TEXT
    shown = None if raw else render(part)
    return {
        "runs": [(visible(part), "")] if shown is None else shown.runs,
        "dropped": 0 if shown is None else shown.dropped,
        "late": shown is not None and shown.late,
        "replayed": shown is not None and shown.replayed,
        "next": end if end < len(text) else None,
        "size": len(text),
    }


def prompt_text(rollout: Rollout, pieces: Pieces) -> dict[str, Any]:
    """What the policy was told first, as its tokens read."""
    if not rollout.turns:
        return cut("")
    return cut(pieces.join(rollout.turns[0].prompt))
