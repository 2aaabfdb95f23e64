"""The audit of a finished run: every stored trajectory against the raw turns beside it, step by step.

Boundary: reads what the run left (`rollouts/*.parquet`, the policy's `config.json` and tokenizer) and changes nothing.
No torch. What is read offline is what was trained: a rollout without trajectories is counted and not judged.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t1.errors import CheckpointError, RunError
from t1.harness.renderer import ChatMLRenderer
from t1.rollouts.store import read_step
from t1.tito import audit
from t1.tito.audit_location import Place
from t1.types import Case, Finding, IntArray, RolloutId, Severity, Trajectory

MAX_SHOWN = 20
"""Findings that the table spells out; all are counted."""


@dataclass(frozen=True, slots=True)
class RunAudit:
    """What the audit of a run found."""

    steps: int
    """Files read."""
    rollouts: int
    untrained: int
    """Rollouts without a trajectory: evaluated only, failed, or kept out of training."""
    counters: Counter[str]
    """The auditor's counters, summed over all trained rollouts."""
    findings: tuple[tuple[str, Finding], ...]
    """(file, finding)"""

    @property
    def num_errors(self) -> int:
        """Findings of severity error: something unsound was trained on."""
        return sum(finding.severity is Severity.ERROR for _, finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: all that was trained is sound. 1: at least one finding of severity error."""
        return 1 if self.num_errors else 0

    def as_dict(self) -> dict[str, Any]:
        """The audit as JSON would have it; findings by rule."""
        counters = self.counters
        return {
            "steps": self.steps,
            "rollouts": self.rollouts,
            "untrained_rollouts": self.untrained,
            "segments": counters["segments"],
            "tokens": counters["tokens"],
            "sampled_tokens": counters["sampled_tokens"],
            "turns_by_case": {str(case): counters[f"case_{case}"] for case in Case},
            "completions_in_next_prompt": {str(place): counters[f"completion_{place}"] for place in Place},
            "drift_inside_loss_region": counters["loss_region_drift"],
            "drift_outside_loss_region": counters["residual"],
            "routing_rows": counters["routing_rows"],
            "routing_disagreements": counters["routing_disagreements"],
            "errors": self.num_errors,
            "findings": dict(sorted(Counter(finding.rule for _, finding in self.findings).items())),
        }

    def __str__(self) -> str:
        """A table for people: cases, where completions were found again, drift, findings."""
        facts = self.as_dict()
        shares = {name: facts.pop(name) for name in ("turns_by_case", "completions_in_next_prompt")}
        rules, errors = facts.pop("findings"), facts.pop("errors")
        lines = [f"{_words(name):<28}{value:>14,}" for name, value in facts.items()]
        for name, counts in shares.items():
            total = sum(counts.values())
            lines += ["", f"{_words(name):<28}{total:>14,}"]
            lines += [f"  {_words(key):<26}{n:>14,}{n / max(total, 1):>9.2%}" for key, n in counts.items()]
        lines += ["", f"{'findings':<28}{len(self.findings):>14,}"]
        lines += [f"  {rule:<26}{n:>14,}" for rule, n in rules.items()]
        lines += [
            f"  {file}: {f.severity} {f.rule} {f.rollout} {f.where}: {f.message}"
            for file, f in self.findings[:MAX_SHOWN]
        ]
        if len(self.findings) > MAX_SHOWN:
            lines.append(f"  … and {len(self.findings) - MAX_SHOWN} more")
        if rules:
            lines.append("  docs/audit.md says what each rule means and what to do.")
        return "\n".join([*lines, "", f"unsound: {errors} errors" if errors else "sound: no errors"])


def _words(name: str) -> str:
    return name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """What is known of the policy that was trained; what is not known is not checked."""

    vocab_size: int | None = None
    num_experts: int | None = None
    decode: Callable[[IntArray], str] | None = None
    boundary_ids: frozenset[int] | None = None


def audit_run(
    run_dir: Path,
    *,
    vocab_size: int | None = None,
    num_experts: int | None = None,
    decode: Callable[[IntArray], str] | None = None,
    boundary_ids: frozenset[int] | None = None,
) -> RunAudit:
    """Audit a run directory, a folder of step files, or one step file.

    What is not given is read from the policy in the run's checkpoints, where there is one.
    """
    files = _step_files(run_dir)
    known = policy_facts(run_dir)
    facts = PolicyFacts(
        vocab_size=known.vocab_size if vocab_size is None else vocab_size,
        num_experts=known.num_experts if num_experts is None else num_experts,
        decode=decode or known.decode,
        boundary_ids=known.boundary_ids if boundary_ids is None else boundary_ids,
    )
    counters: Counter[str] = Counter()
    findings: list[tuple[str, Finding]] = []
    rollouts = untrained = 0
    for file in files:
        stored, trajectories = read_step(file)
        by_rollout: defaultdict[RolloutId, list[Trajectory]] = defaultdict(list)
        for trajectory in trajectories:
            by_rollout[trajectory.rollout].append(trajectory)
        rollouts += len(stored)
        for rollout in stored:
            if rollout.id not in by_rollout:
                untrained += 1
                continue
            report = audit(
                rollout,
                by_rollout[rollout.id],
                vocab_size=facts.vocab_size,
                num_experts=facts.num_experts,
                decode=facts.decode,
                boundary_ids=facts.boundary_ids,
            )
            counters.update(report.counters)
            findings += [(file.name, finding) for finding in report.findings]
    return RunAudit(len(files), rollouts, untrained, counters, tuple(findings))


def _step_files(run_dir: Path) -> list[Path]:
    """The step files of a run, in the order of their names."""
    if run_dir.is_file():
        return [run_dir]
    folder = run_dir / "rollouts" if (run_dir / "rollouts").is_dir() else run_dir
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))
    if not files:
        raise RunError(f"{run_dir}: holds no rollouts (expected rollouts/*.parquet, or a .parquet file)")
    return files


def policy_facts(run_dir: Path) -> PolicyFacts:
    """Ranges and tokenizer of the run's policy, as far as the run says."""
    for path in _configs(run_dir):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        text = config.get("text_config", config)
        if isinstance(text.get("vocab_size"), int):
            experts = next((text[key] for key in _EXPERT_KEYS if isinstance(text.get(key), int)), None)
            return _with_tokenizer(PolicyFacts(text["vocab_size"], experts), path.parent)
    return PolicyFacts()


def _with_tokenizer(facts: PolicyFacts, checkpoint: Path) -> PolicyFacts:
    """The facts, and how the policy's tokens read, where its checkpoint holds a tokenizer with a ChatML frame."""
    try:
        renderer = ChatMLRenderer.from_pretrained(checkpoint)
    except CheckpointError:
        return facts
    return replace(facts, decode=renderer.decode, boundary_ids=renderer.boundary_ids)


def _configs(run_dir: Path) -> Iterator[Path]:
    """`config.json` files of the checkpoints beside the rollouts."""
    for root in (run_dir, run_dir.parent, run_dir.parent.parent):
        if (root / "checkpoints").is_dir():
            yield from sorted((root / "checkpoints").glob("**/config.json"))
            return


_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
