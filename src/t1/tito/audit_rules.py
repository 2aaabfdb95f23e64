"""Every rule of the audit: its severity, what it means, and what to do about it.

Boundary: words and severities only; where a rule is checked is the business of the other `audit_*` modules.
docs/audit.md is written from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from t1.types import Finding, RolloutId, Severity

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that the audit checks."""

    name: str
    severity: Severity
    group: str
    """What it is about: a heading of docs/audit.md."""
    meaning: str
    """What a finding says."""
    remedy: str
    """What to do."""


_BUG = "A bug between recording and training: keep the run's rollouts and report it with the rollout's id."
_CAPTURE = (
    "The engine's capture is wrong: run the preflight again, compare the engine's version with the supported one."
)

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("not-trained", _ERROR, "Loss region", "Sampled tokens of a turn are missing from the segments.", _BUG),
        Rule(
            "trained-twice", _ERROR, "Loss region", "Sampled tokens of a turn stand in the loss more than once.", _BUG
        ),
        Rule("loss-drift", _ERROR, "Loss region", "A trained id is not the id that was sampled.", _BUG),
        Rule("wrong-logprob", _ERROR, "Loss region", "A trained log-probability is not the one reported.", _BUG),
        Rule(
            "wrong-version",
            _ERROR,
            "Loss region",
            "The version column differs from what sampled the token or, for context, the first token after it.",
            _BUG,
        ),
        Rule(
            "wrong-turn",
            _ERROR,
            "Loss region",
            "The turn column names other turns than those that brought the tokens, or not in time order.",
            _BUG,
        ),
        Rule("mask", _ERROR, "Loss region", "The mask does not train whole completions, each in one piece.", _BUG),
        Rule(
            "context-logprob",
            _ERROR,
            "Loss region",
            "A token that nobody sampled carries a log-probability.",
            _BUG,
        ),
        Rule(
            "segments",
            _ERROR,
            "Stream",
            "Segments are numbered wrongly, out of time order, or of another rollout.",
            _BUG,
        ),
        Rule(
            "context",
            _ERROR,
            "Stream",
            "The tokens before a completion are not what the sampler saw, and no boundary accounts for it.",
            _BUG,
        ),
        Rule("boundary", _ERROR, "Stream", "A boundary's turn, case or counts contradict stream and prompt.", _BUG),
        Rule("residual", _ERROR, "Stream", "A boundary's residual is not the number that a recount gives.", _BUG),
        Rule(
            "other-text",
            _ERROR,
            "Stream",
            "A turn was joined as normalized or retokenized, but its prompt says something else than the stream.",
            "Check that `boundary_ids` and `decode` are those of the policy's own tokenizer, in training and here.",
        ),
        Rule(
            "completion-lost",
            _ERROR,
            "Stream",
            "A stream goes on although its next prompt lacks the completion.",
            "Check `boundary_ids` and `decode`; a client that edits its history must split.",
        ),
        Rule(
            "needless-split",
            _WARNING,
            "Stream",
            "A turn opened a segment although its prompt begins with an open stream.",
            "Nothing wrong is trained, but context is trained around twice: see how the rollout was assembled.",
        ),
        Rule(
            "logprob-range",
            _ERROR,
            "Numbers",
            "A sampler's log-probability is NaN, infinite or above 0.",
            "The engine's kernels or its temperature are broken: run its preflight.",
        ),
        Rule(
            "token-range",
            _ERROR,
            "Numbers",
            "A token id lies outside of the vocabulary.",
            "Compare the tokenizer of the harness with the policy's `config.json`.",
        ),
        Rule(
            "version-order",
            _ERROR,
            "Numbers",
            "Within one stream, a token was sampled by older weights than the token before it.",
            "Samplers of a fleet serve different versions to one session: pin sessions to a sampler, publish to all.",
        ),
        Rule(
            "reward",
            _ERROR,
            "Outcome",
            "The reward is NaN or infinite.",
            "The verifier's reading of rewards is broken: score the rollout again.",
        ),
        Rule(
            "stop",
            _ERROR,
            "Outcome",
            "The stop reason does not explain the end: nothing was done, or infrastructure failed and it was trained.",
            "Only scored rollouts may be trained; see how the harness ended the episode.",
        ),
        Rule(
            "stop-cut",
            _WARNING,
            "Outcome",
            "The rollout was submitted by a completion that was cut at its token limit.",
            "Raise `max_tokens` if it happens often.",
        ),
        Rule(
            "finish",
            _WARNING,
            "Outcome",
            "A completion's finish reason contradicts its last token.",
            "Check the sampler's stop ids; the tokens are trained as they were sampled.",
        ),
        Rule(
            "routing-join",
            _ERROR,
            "Routing",
            "The assembler refused the rollout: captures are missing, late, or of other weights.",
            _CAPTURE,
        ),
        Rule(
            "routing-missing",
            _ERROR,
            "Routing",
            "Some turns have a capture and the stream or a turn has none.",
            _CAPTURE,
        ),
        Rule("routing-gap", _ERROR, "Routing", "Tokens were fed, and no capture has their rows.", _CAPTURE),
        Rule(
            "routing-row",
            _ERROR,
            "Routing",
            "A row is not the one captured when its token was first fed: shifted, swapped or changed.",
            _BUG,
        ),
        Rule("routing-duplicate", _ERROR, "Routing", "A token chose one expert twice in a layer.", _CAPTURE),
        Rule("routing-zero", _ERROR, "Routing", "Rows hold only zeros: a hole that was filled.", _CAPTURE),
        Rule("routing-range", _ERROR, "Routing", "A row names an expert that the model does not have.", _CAPTURE),
        Rule(
            "routing-repeat",
            _ERROR,
            "Routing",
            "One row stands again and again under different tokens, too often to be chance: padding.",
            _CAPTURE,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What the audit of one rollout has found so far."""

    rollout: RolloutId
    found: list[Finding] = field(default_factory=list)

    def report(self, rule: str, where: str, message: str) -> None:
        """Add a finding; its severity is the rule's."""
        self.found.append(Finding(rule, RULES[rule].severity, self.rollout, where, message))
