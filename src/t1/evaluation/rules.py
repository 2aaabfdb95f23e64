"""The rules of a verdict: each looks at one thing that would make a run's numbers mean something else.

A rule takes the evidence and gives a `Check`: pass, warn or fail, the number, a command that shows it again, and the
place to look. None where the rule does not apply (no PPO, a dense policy, no evaluation). A number that should be
there and is not is a warning, never a pass. Boundary: pure; bounds are data, the evidence is given.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from t1.errors import RolloutDropped
from t1.evaluation.evidence import DEMONSTRATIONS, EVALUATIONS, Evidence, Sighting
from t1.evaluation.metrics import wilson
from t1.types import RewardSource, Severity

LAST_STEPS = 10
"""Steps at the end of a run that a mean is taken over: what the final policy was made of."""
MAX_DETAILS = 20
"""Single cases that a check spells out."""


class Grade(StrEnum):
    """How a rule was met."""

    PASS = "pass"
    WARN = "warn"
    """The numbers stand, with the reservation that the sentence says."""
    FAIL = "fail"
    """The numbers do not mean what they seem to."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Above `warn` a number warns, above `fail` it fails."""

    warn: float
    fail: float

    def grade(self, number: float) -> Grade:
        """The grade of a number of which less is better."""
        if number > self.fail:
            return Grade.FAIL
        return Grade.WARN if number > self.warn else Grade.PASS


RESIDUAL = Bounds(0.0, 0.01)
"""Share of context tokens that the sampler saw otherwise. 0 by construction in the token-native harness."""
GAP_WARN = 0.02
"""T1's published gap is 0.021 without TITO and replay and 0.013 with both: above this neither seems to work.
The run's own `ppo.gap_alarm` is where it fails."""
DISAGREEMENT = Bounds(0.01, 0.2)
"""Share of routing rows that a later prefill of the same token contradicts. It is counted, rows are not replaced."""
FALLBACK_FAIL = 0.25
"""With a quarter of the rewards binary, dense and binary rewards are mixed (case V4). The warning is the run's own
`reward.max_fallback_share`."""
BIAS = Bounds(0.05, 0.25)
"""The largest of the meter's biases, as a share (case B2)."""
FAILURES = Bounds(0.01, 0.1)
"""Final infrastructure failures over all rollouts. 1–3 % of vanished sandboxes are reported in the wild (case F5)."""
VALUE_FIT = (0.2, 0.0)
"""Explained variance below the first warns; below the second the critic is worse than a constant, which fails."""
HALF_WIDTH = 0.05
"""Half of a 95 % interval: a wider one cannot tell apart policies that differ by five points."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, as this run met it."""

    rule: str
    grade: Grade
    number: float | None
    """What was compared with the bounds; None where it was not measured."""
    says: str
    command: str
    """Shows the number again."""
    look: str
    """Where to go on."""
    details: tuple[str, ...] = ()
    """Single cases, at most MAX_DETAILS."""


Rule = Callable[[Evidence], Check | None]


def drift(e: Evidence) -> Check:
    """Trained tokens that are not the sampled ones, audited anew from the raw turns (design law 3)."""
    count = e.audit.counters["loss_region_drift"]
    sampled = e.audit.counters["sampled_tokens"]
    says = f"{count} of {sampled:,} trained tokens differ from what was sampled"
    return Check("drift", _zero(count), count, says, _audit(e), "docs/audit.md")


def findings(e: Evidence) -> Check:
    """What else the auditor objects to: masks, log-probabilities, versions, routing, ownership."""
    errors = e.audit.num_errors
    warnings = len(e.audit.findings) - errors
    grade = Grade.FAIL if errors else Grade.WARN if warnings else Grade.PASS
    ordered = sorted(e.audit.findings, key=lambda found: found[1].severity is not Severity.ERROR)
    cases = [f"{file}: {f.severity} {f.rule} {f.rollout} {f.where}: {f.message}" for file, f in ordered]
    says = f"{errors} errors and {warnings} warnings of the auditor in {e.audit.rollouts:,} rollouts"
    return Check("findings", grade, errors, says, _audit(e), "docs/audit.md", _some(cases))


def residual(e: Evidence) -> Check:
    """Context that the sampler saw otherwise than the trainer: TITO's own approximation."""
    counters = e.audit.counters
    context = counters["tokens"] - counters["sampled_tokens"]
    share = counters["residual"] / max(context, 1)
    says = f"{share:.3%} of the context tokens are not what the sampler saw; tito.on_residual=split makes it exact"
    if not counters["residual"]:
        says = "every context token is what the sampler saw"
    return Check("residual", RESIDUAL.grade(share), share, says, _audit(e), "docs/audit.md")


def gap(e: Evidence) -> Check | None:
    """Mean |log π_trainer − log π_sampler| at the same weights, over the last steps."""
    if not e.steps:
        return None
    bounds = Bounds(min(GAP_WARN, e.config.ppo.gap_alarm), e.config.ppo.gap_alarm)
    command, look = f"t1 gap {_run(e)} --json", _metrics("gap, gap_p99, gap_ess")
    value = _mean(_last(e.steps, "gap"))
    if value is None:
        return _unmeasured("gap", "no step logged its gap", command, look)
    alarms = [f"step {r['step']}: looks like {r['gap_alarm']}" for r in e.steps if r.get("gap_alarm")]
    grade = max(bounds.grade(value), Grade.WARN if alarms else Grade.PASS, key=list(Grade).index)
    says = f"engine and trainer differ by {value:.2g} nats a token; the alarm is at {e.config.ppo.gap_alarm:g}"
    says += f" and rang in {len(alarms)} steps" if alarms else ""
    return Check("gap", grade, value, says, command, look, _some(alarms))


def routing(e: Evidence) -> Check | None:
    """Rows of experts for every token that was fed (design law 4), and their replay."""
    counters = e.audit.counters
    sampled = [seen for seen in e.rollouts if seen.file != DEMONSTRATIONS]
    fed = sum(seen.num_fed for seen in sampled)
    if not e.routed or not fed:
        return None
    coverage = sum(seen.num_routed for seen in sampled) / fed
    disagreement = counters["routing_disagreements"] / max(counters["routing_rows"], 1)
    grade = Grade.FAIL if coverage < 1 else DISAGREEMENT.grade(disagreement)
    says = f"{coverage:.2%} of {fed:,} fed tokens have their row; later prefills contradict {disagreement:.2%} of them"
    if not e.config.ppo.replay_routing:
        grade, says = max(grade, Grade.WARN, key=list(Grade).index), f"{says}; ppo.replay_routing is off"
    return Check("routing", grade, coverage, says, _audit(e), "docs/audit.md")


def fallback(e: Evidence) -> Check | None:
    """Rewards that fell back to the binary outcome, because a verifier's report was missing (case V4)."""
    scored = [s for s in e.rollouts if s.outcome.reward_source is not RewardSource.NONE]
    if not scored or e.config.reward.kind == "binary":
        return None
    fell = [s for s in scored if s.outcome.reward_source is RewardSource.BINARY_FALLBACK]
    share = len(fell) / len(scored)
    grade = Bounds(e.config.reward.max_fallback_share, FALLBACK_FAIL).grade(share)
    says = f"{len(fell)} of {len(scored):,} rewards are binary because the per-assertion report was missing"
    reasons = Counter(s.outcome.verdict.report_error for s in fell if s.outcome.verdict is not None)
    cases = [f"{count} × {reason or 'no reason on record'}" for reason, count in reasons.most_common()]
    return Check("fallback", grade, share, says, _again(e, "fallback"), _metrics("fallback_share"), _some(cases))


def tampering(e: Evidence) -> Check:
    """Agents that reached for their own verifier; worst where such a rollout counts as solved."""
    cases = [s for s in e.rollouts if s.outcome.verdict is not None and s.outcome.verdict.tampered]
    paid = [s for s in cases if s.outcome.solved]
    grade = Grade.FAIL if paid else Grade.WARN if cases else Grade.PASS
    says = f"{len(cases)} of {len(e.rollouts):,} rollouts tampered with their verification, {len(paid)} count as solved"
    details = [
        f"{s.file} {s.rollout}: {piece.rule} {piece.path}"
        for s in sorted(cases, key=lambda s: not s.outcome.solved)
        for piece in (s.outcome.verdict.tamper if s.outcome.verdict else ())
    ]
    look = "reward.tamper, and the rollouts named by the command"
    return Check("tampering", grade, len(cases), says, _again(e, "tampering"), look, _some(details))


def bias(e: Evidence) -> Check | None:
    """Rollouts that were started and never trained on, and how they differ from the others (case B2)."""
    if not e.steps:
        return None
    command, look = _again(e, "bias"), "rollouts.admission, and ledger.sqlite: trials with state 'dropped'"
    last = e.steps[-1]
    if last.get("admitted_share") is None:
        return _unmeasured("bias", "the steps carry no bias meter", command, look)
    meters = {name: float(last[name]) for name in last if name.startswith("bias_") and last[name] is not None}
    worst = max(meters, key=lambda name: abs(meters[name]), default="")
    number = abs(meters[worst]) if worst else 0.0
    says = f"{last['admitted_share']:.1%} of the settled trials were trained on"
    says += f"; the largest bias is {worst} = {meters[worst]:+.3f}" if number else ", without bias"
    details = [f"{name} = {value:+.4f}" for name, value in meters.items()]
    return Check("bias", BIAS.grade(number), number, says, command, look, tuple(details))


def lag(e: Evidence) -> Check | None:
    """How much older than the learner the weights were that sampled."""
    lags = [float(r["lag_max"]) for r in e.steps if r.get("lag_max") is not None]
    if not lags:
        return None
    allowed = e.config.rollouts.max_lag
    grade = Grade.FAIL if max(lags) > allowed else Grade.PASS
    says = f"rollouts are at most {max(lags):g} steps older than the weights that learn; {allowed} are allowed"
    return Check("lag", grade, max(lags), says, _again(e, "lag"), _metrics("lag_mean, lag_max"))


def failures(e: Evidence) -> Check:
    """Rollouts that the infrastructure spoiled; evaluated tasks that have no score at all weigh most."""
    kinds = Counter(
        f"{s.outcome.failure.kind} while it was to {s.outcome.failure.where or 'run'}"
        for s in e.rollouts
        if s.outcome.failure is not None and s.outcome.failure.kind != RolloutDropped.__name__
    )
    count = sum(kinds.values())
    share = count / max(len(e.rollouts), 1)
    lost = sorted(_unscored(e.rollouts))
    grade = max(FAILURES.grade(share), Grade.WARN if lost else Grade.PASS, key=list(Grade).index)
    again = sum(s.attempts - 1 for s in e.rollouts)
    says = f"{count} of {len(e.rollouts):,} rollouts were spoiled by the infrastructure, {again} launched again"
    says += f"; {len(lost)} evaluated tasks have no score" if lost else ""
    details = [f"{n} × {kind}" for kind, n in kinds.most_common()] + [f"no score: {task}" for task in lost]
    look = _metrics("failures, relaunched")
    return Check("failures", grade, share, says, _again(e, "failures"), look, _some(details))


def value_fit(e: Evidence) -> Check | None:
    """Explained variance of the critic on the last steps: below zero it is worse than a constant."""
    if not e.steps or e.config.ppo.baseline != "critic":
        return None
    command, look = _again(e, "value_fit"), _metrics("explained_variance, value_loss")
    values = _last(e.steps[e.config.ppo.critic_warmup_steps :], "explained_variance")
    value = _mean(values)
    if value is None:
        return _unmeasured("value_fit", "no step after the critic's warm-up logged its fit", command, look)
    warn, fail = VALUE_FIT
    grade = Grade.FAIL if value < fail else Grade.WARN if value < warn else Grade.PASS
    says = f"the critic explains {value:.0%} of the returns' variance over the last {len(values)} steps"
    return Check("value_fit", grade, value, says, command, look)


def finite(e: Evidence) -> Check | None:
    """Numbers that are not: nan and infinity are null in metrics.jsonl."""
    if not e.steps:
        return None
    cases = [f"step {r['step']}: {key}" for r in e.steps for key, value in r.items() if value is None]
    says = f"{len(cases)} numbers of {len(e.steps)} steps are not finite"
    return Check("finite", _zero(len(cases)), len(cases), says, _again(e, "finite"), _metrics("null"), _some(cases))


def contamination(e: Evidence) -> Check | None:
    """Evaluated tasks that were trained on: by digest, or by the very same first prompt."""
    evaluated = {s.rollout.task: s for s in e.rollouts if s.evaluated}
    if not evaluated:
        return None
    trained = [s for s in e.rollouts if not s.evaluated]
    digests = {s.digest: s for s in trained}
    prompts = {s.prompt: s for s in trained if s.prompt}
    cases = []
    for task, seen in sorted(evaluated.items()):
        twin = digests.get(seen.digest) or prompts.get(seen.prompt)
        if twin is not None:
            cases.append(f"{task} is {twin.rollout.task} of {twin.file}")
    says = f"{len(cases)} of {len(evaluated)} evaluated tasks were trained on (same files, or same prompt)"
    look = "the suite's split: train/ and heldout/"
    return Check("contamination", _zero(len(cases)), len(cases), says, _again(e, "contamination"), look, _some(cases))


def pairing(e: Evidence) -> Check | None:
    """All stages must have been measured on the same tasks, else their difference is one of tasks."""
    stages: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for seen in e.rollouts:
        if seen.evaluated and seen.outcome.failure is None:
            stages[seen.file.removeprefix(EVALUATIONS)].add((seen.rollout.task, seen.digest))
    if len(stages) < 2:
        return None
    every, shared = set.union(*stages.values()), set.intersection(*stages.values())
    share = 1 - len(shared) / max(len(every), 1)
    changed = {task for task, count in Counter(task for task, _ in every).items() if count > 1}
    grade = Grade.FAIL if changed else Bounds(0.0, 0.1).grade(share)
    says = f"{len(shared)} of {len(every)} tasks were scored in all of {', '.join(stages)}"
    says += f"; {len(changed)} changed between stages" if changed else ""
    cases = [f"changed: {task}" for task in sorted(changed)] + [f"not in all: {t}" for t, _ in sorted(every - shared)]
    return Check("pairing", grade, share, says, _again(e, "pairing"), "rollouts/eval-*.parquet", _some(cases))


def precision(e: Evidence) -> Check | None:
    """How wide the interval of an evaluated solve rate is."""
    widths = {}
    for stage, rates in _rates(e.rollouts).items():
        low, high = wilson(sum(rates) / len(rates), len(rates))
        widths[stage] = (high - low) / 2
    if not widths:
        return None
    stage = max(widths, key=lambda name: widths[name])
    grade = Grade.WARN if widths[stage] > HALF_WIDTH else Grade.PASS
    says = f"the solve rate of {stage} is known to ± {100 * widths[stage]:.1f} points (95 %)"
    details = [f"{name}: ± {100 * width:.1f} points" for name, width in widths.items()]
    look = "evaluation.num_tasks and evaluation.rollouts_per_task"
    return Check("precision", grade, widths[stage], says, _again(e, "precision"), look, tuple(details))


def provenance(e: Evidence) -> Check:
    """Can the code that ran be found again?"""
    commit = e.environment.get("git_commit") or ""
    version = (e.environment.get("packages") or {}).get("t1")
    if commit and not commit.endswith("+"):
        says, grade = f"ran at commit {commit[:12]}, unchanged", Grade.PASS
    elif commit:
        says, grade = f"ran at commit {commit[:12]} with changed files: the code cannot be found again", Grade.WARN
    elif version:
        says, grade = f"ran from the installed version {version}", Grade.PASS
    else:
        says, grade = "no commit and no version are on record", Grade.WARN
    number = float(grade is not Grade.PASS)
    return Check("provenance", grade, number, says, _again(e, "provenance"), "environment.json")


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(drift, findings, residual, gap, routing, fallback, tampering, bias, lag, failures, value_fit, finite),
        *(contamination, pairing, precision, provenance),
    )
}
"""By name, in the order of display."""


# --------------------------------------------------------------------------------------------------------------------


def _unmeasured(rule: str, why: str, command: str, look: str) -> Check:
    """A number that should be there and is not."""
    return Check(rule, Grade.WARN, None, f"not measured: {why}", command, look)


def _zero(count: int) -> Grade:
    """The grade of something of which one case is too many."""
    return Grade.FAIL if count else Grade.PASS


def _last(steps: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """The finite values of a metric over the last steps."""
    values = [record.get(key) for record in steps[-LAST_STEPS:]]
    return [float(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rates(rollouts: Iterable[Sighting]) -> dict[str, list[float]]:
    """Stage → the solve rate of each of its evaluated tasks."""
    solved: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for seen in rollouts:
        if seen.evaluated and seen.outcome.failure is None:
            solved[seen.file.removeprefix(EVALUATIONS)][seen.rollout.task].append(seen.outcome.solved)
    return {stage: [sum(wins) / len(wins) for wins in tasks.values()] for stage, tasks in solved.items()}


def _unscored(rollouts: Sequence[Sighting]) -> set[str]:
    """`stage task` of every evaluated task without a single score."""
    evaluated = [seen for seen in rollouts if seen.evaluated]
    scored = {(seen.file, seen.rollout.task) for seen in evaluated if seen.outcome.failure is None}
    return {f"{s.file} {s.rollout.task}" for s in evaluated if (s.file, s.rollout.task) not in scored}


def _some(cases: Sequence[str]) -> tuple[str, ...]:
    """The first cases, and how many more there are."""
    more = len(cases) - MAX_DETAILS
    return tuple(cases[:MAX_DETAILS]) + ((f"… and {more} more",) if more > 0 else ())


def _run(e: Evidence) -> str:
    return shlex.quote(str(e.run))


def _audit(e: Evidence) -> str:
    return f"t1 audit {_run(e)} --json"


def _again(e: Evidence, rule: str) -> str:
    return f"t1 verdict {_run(e)} --rule {rule}"


def _metrics(keys: str) -> str:
    return f"metrics.jsonl: {keys}"
