"""The stages of a pipeline, each over an open Workshop and an open RunDir: demonstrations, SFT, PPO, evaluation.

A stage shows its progress, logs its metrics and stores what it saw. The commands call one of them, the quickstart all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from t1.cluster.learning import Learner, open_learner
from t1.config import RunConfig
from t1.errors import ConfigError, InfrastructureError, RunError
from t1.evaluation.metrics import is_tampered, tamper_cases
from t1.harness.config import SamplingConfig
from t1.inference import load_model
from t1.loop import train
from t1.progress import ProgressDisplay
from t1.protocols import Tracker
from t1.rollouts import DemotionPolicy, Demotions, Ledger, Prices
from t1.rollouts.captures import Captures
from t1.rollouts.cost import FREE, total, usage_of
from t1.rollouts.sources import Scheduled
from t1.rollouts.store import read_step, write_step
from t1.rollouts.token_stats import write_token_stats
from t1.rundir import RunDir
from t1.tracking import JsonLinesTracker, Trackers, make_tracker
from t1.training.checkpoints import checkpoint_path, latest_checkpoint, prune_checkpoints
from t1.training.experience import Experience, as_text_stack, prepare
from t1.training.gap.alarm import diagnose
from t1.training.sft import SFTTrainer
from t1.types import RewardSource, Rollout, Severity, Task, Trajectory
from t1.workshop import Workshop

STEP_FILE = "step.arrow"
"""In a run's directory while a step is trained on: its trajectories, which every rank maps."""


@dataclass(slots=True)
class Stages:
    """What all stages of one run share."""

    shop: Workshop
    run: RunDir
    tracker: Tracker
    show: ProgressDisplay
    audit: Counter[str] = field(default_factory=Counter)
    """Counters of the auditor over everything that was trained on."""

    def evaluate(self, name: str, tasks: Sequence[Task]) -> list[Rollout]:
        """Roll the engine's policy out on held-out tasks and store everything; a resumed run reads what it stored."""
        if (stored := self._stored(f"eval-{name}")) is not None:
            return stored[0]
        config = self.shop.config.evaluation
        total = len(tasks) * config.rollouts_per_task
        self.show.stage(f"evaluate {name}", total=total, unit="rollouts")
        rollouts = self.shop.evaluate(
            tasks,
            rollouts_per_task=config.rollouts_per_task,
            seed=config.seed,
            progress=self.show.reached,
        )
        experience = self._prepare(rollouts)
        write_step(self.run.rollouts / f"eval-{name}.parquet", rollouts, experience.flat)
        self.show.advance(0, summarize(rollouts, experience))
        return rollouts

    def demonstrate(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Play the reference solutions; a demonstration that its own verifier does not accept is left out."""
        if (stored := self._stored("demonstrations")) is not None:
            return accepted(*stored)
        self.show.stage("demonstrations", total=len(tasks), unit="rollouts")
        rollouts = self.shop.demonstrate(tasks, progress=self.show.reached)
        experience = self._prepare(rollouts)
        write_step(self.run.rollouts / "demonstrations.parquet", rollouts, experience.flat)
        kept = accepted(rollouts, experience.flat)
        if not kept:
            raise RunError("no demonstration was accepted by its verifier: check the suite with `t1 tasks check`")
        if len(kept) < len(rollouts):
            self.show.note(f"{len(rollouts) - len(kept)} of {len(rollouts)} demonstrations were not accepted")
        return kept

    def finetune(self, start: Path, demonstrations: Sequence[Trajectory]) -> Path:
        """SFT from the checkpoint `start`; returns the new checkpoint, whose weights the engine has afterwards."""
        config, path = self.shop.config.sft, self.run.checkpoints / "sft"
        trainer = SFTTrainer(load_model(path if path.is_dir() else start), config)
        if path.is_dir():  # finished before this run was resumed
            self.shop.publish(trainer.weights(), 0)
            return path
        self.show.stage("sft", total=config.steps)
        for step, batch in enumerate(epochs(demonstrations, config.batch_size, config.steps, config.seed)):
            stats = trainer.step(batch)
            rate = stats["num_tokens"] / stats["update_s"]
            self.tracker.log({"stage": "sft", "step": step, **stats, "tokens_per_s": rate})
            self.show.advance(1, {"loss": stats["loss"], "tokens_per_s": rate})
        trainer.save(path, tokenizer_from=start)
        self.shop.publish(trainer.weights(), 0)
        return path

    def reinforce(self, start: Path, tasks: Sequence[Task], *, deadline: float | None = None) -> Path:
        """PPO from the policy `start`, or on from the run's latest checkpoint; returns the last checkpoint.

        `deadline` (time.monotonic seconds) ends the stage early, at a step's end; the report says how far it came.
        """
        config = self.shop.config
        check_distribution(config.harness.sampling)
        check_method(config)
        folder = self.run.checkpoints / "rl"
        opening = open_learner(
            config,
            start,
            normalizer=self.shop.normalizer,
            folder=self.run.path,
            runner=self.shop.runner,
            cluster=self.shop.cluster,
        )
        with opening as trainer, closing(Ledger(self.run.path / "ledger.sqlite")) as ledger:
            if (latest := latest_checkpoint(folder)) is not None:
                trainer.load(latest)
            first, last = trainer.num_steps, config.run.steps
            self.shop.publish(trainer.weights(), first)
            self.show.stage("rl", total=last, done=first)
            ledger.rewind(first)
            source = self._source(tasks, first, ledger)
            recorder = Recorder(self, trainer, folder, start, ledger=ledger, source=source)
            with closing(source):
                train(
                    source=source,
                    prepare=self._trainable,
                    trainer=trainer,
                    publish=self.shop.publish,
                    record=recorder,
                    steps=until(deadline, range(first, last)),
                )
            return recorder.checkpoint()

    def _source(self, tasks: Sequence[Task], first: int, ledger: Ledger) -> Scheduled:
        """Where the rollouts of PPO come from, from step `first` on."""
        rollouts = self.shop.config.rollouts
        batch = rollouts.tasks_per_step * rollouts.group_size
        source = self.shop.source(
            tasks,
            first_step=first,
            ledger=ledger,
            stored=self._rollouts_of,
            keep=Captures(self.run.path).keep,
            demotions=Demotions(
                DemotionPolicy(**self.shop.config.demotion.model_dump()), self.run.path / "demotions.json"
            ),
            progress=lambda done, _: self.show.advance(0, {"collected": f"{done}/{batch}"}),
        )
        source.pool.recall(range(first))
        return source

    def _rollouts_of(self, step: int) -> list[Rollout] | None:
        """What an earlier run of this directory stored of a PPO step."""
        path = self.run.rollouts / f"rl-{step:05d}.parquet"
        return read_step(path)[0] if path.is_file() else None

    def _stored(self, name: str) -> tuple[list[Rollout], list[Trajectory]] | None:
        """What a stage of this run stored before it was resumed, if it got that far; audited again."""
        path = self.run.rollouts / f"{name}.parquet"
        if not path.is_file():
            return None
        rollouts, trajectories = read_step(path)
        self._prepare(rollouts)
        return rollouts, trajectories

    def _trainable(self, rollouts: Sequence[Rollout]) -> Experience:
        """What a PPO step trains on, by reference; a step with nothing left stops the run with the reasons."""
        experience = self._prepare(rollouts, store=self.run.path / STEP_FILE)
        if self.shop.config.tito.keep == "text":
            renderer = self.shop.renderer
            experience = as_text_stack(experience, decode=renderer.decode, encode=renderer.encode)
        if not experience.rollouts:
            reasons = ", ".join(f"{count} × {reason}" for reason, count in experience.dropped.items())
            raise InfrastructureError(f"no rollout of this step can be trained on: {reasons}")
        return experience

    def _prepare(self, rollouts: Sequence[Rollout], *, store: Path | None = None) -> Experience:
        renderer = self.shop.renderer
        experience = prepare(
            rollouts,
            boundary_ids=renderer.boundary_ids,
            decode=renderer.decode,
            on_residual=self.shop.config.tito.on_residual,
            vocab_size=self.shop.vocab_size,
            num_experts=self.shop.num_experts,
            store=store,
        )
        self.audit.update(experience.counters)
        self.audit["tampered_rollouts"] += sum(map(is_tampered, rollouts))
        self.audit["findings_error"] += sum(f.severity is Severity.ERROR for f in experience.findings)
        self.audit["findings_warning"] += sum(f.severity is Severity.WARNING for f in experience.findings)
        return experience


@contextmanager
def open_tracker(config: RunConfig, run: RunDir, *, before_step: int | None = None) -> Iterator[Tracker]:
    """The run's trackers. A resumed run drops the records from PPO step `before_step` on: they will be made again."""

    def keep(record: Mapping[str, Any]) -> bool:
        return before_step is None or record.get("stage") != "rl" or int(record["step"]) < before_step

    trackers: list[Tracker] = [JsonLinesTracker(run.metrics, keep=keep)]
    kinds = dict.fromkeys([*(["tensorboard"] if config.tracker.tensorboard else []), *config.tracker.also])
    trackers += [make_tracker(kind, run.logs, run.path.resolve().name) for kind in kinds]
    tracker = Trackers(trackers)
    try:
        yield tracker
    finally:
        tracker.close()


class Recorder:
    """What happens to a finished PPO step: stored, logged, shown, and checkpointed now and then."""

    def __init__(
        self,
        stages: Stages,
        trainer: Learner,
        folder: Path,
        tokenizer_from: Path,
        *,
        ledger: Ledger,
        source: Scheduled,
    ) -> None:
        self._stages, self._ledger, self._source = stages, ledger, source
        self._trainer = trainer
        self._folder = folder
        self._tokenizer_from = tokenizer_from
        self._step_started = time.monotonic()

    def __call__(
        self, step: int, rollouts: Sequence[Rollout], experience: Experience, stats: Mapping[str, float]
    ) -> None:
        stages, config = self._stages, self._stages.shop.config
        write_step(stages.run.rollouts / f"rl-{step:05d}.parquet", rollouts, experience.flat)
        (stages.run.path / STEP_FILE).unlink(missing_ok=True)
        self._keep_token_stats(step, experience, max_mb=config.run.token_stats_mb)
        self._ledger.updated(step, len(rollouts))
        wall_s = time.monotonic() - self._step_started
        collect_s = wall_s - stats["score_s"] - stats["update_s"]
        metrics = summarize(rollouts, experience, collect_s=collect_s, prices=stages.shop.prices)
        metrics |= {**self._source.metrics(), **stats, **self._explain_gap(step, experience, stats)}
        stages.tracker.log({"stage": "rl", "step": step, "version": step, "wall_s": wall_s, **metrics})
        stages.show.advance(1, metrics | {"collected": ""})
        for task in self._source.left:
            stages.show.note(f"step {step}: {task} leaves the pool: {self._source.demotions.out[task].reason}")
        if metrics["fallback_share"] > config.reward.max_fallback_share:
            stages.show.note(
                f"step {step}: {metrics['fallback_share']:.1%} of the rewards fell back to the binary outcome: "
                "the verifiers' per-assertion reports are missing or unreadable"
            )
        if (step + 1) % config.run.checkpoint_every == 0:
            self.checkpoint()
        self._step_started = time.monotonic()

    def _keep_token_stats(self, step: int, experience: Experience, *, max_mb: float) -> None:
        """Write what the trainer said of each token, where the run wants it."""
        if max_mb and (credit := self._trainer.credit) is not None:
            path = self._stages.run.token_stats / f"rl-{step:05d}.parquet"
            write_token_stats(path, list(credit.of(experience.trajectories)), max_bytes=int(max_mb * 1e6))

    def _explain_gap(self, step: int, experience: Experience, stats: Mapping[str, float]) -> dict[str, Any]:
        """What a gap above `ppo.gap_alarm` looks like, said once a step; and how far captures disagree."""
        rows = max(experience.counters.get("routing_rows", 0), 1)
        metrics: dict[str, Any] = {"routing_disagreement": experience.counters.get("routing_disagreements", 0) / rows}
        if (evidence := self._trainer.gap_evidence) is not None:
            found = diagnose(evidence, evidence.cached(experience.rollouts))
            metrics["gap_alarm"] = str(found.kind)
            self._stages.show.note(f"step {step}: the gap is {stats['gap']:.3g} and looks like {found}")
        return metrics

    def checkpoint(self) -> Path:
        """Write the trainer's state, unless it is there already; prune the older ones."""
        path = checkpoint_path(self._folder, self._trainer.num_steps)
        if latest_checkpoint(self._folder) != path:
            self._trainer.save(path, tokenizer_from=self._tokenizer_from)
            prune_checkpoints(self._folder, keep=self._stages.shop.config.run.keep_checkpoints)
        return path


def check_distribution(sampling: SamplingConfig) -> None:
    """Refuse (ConfigError) to learn from tokens whose log-probability the trainer cannot compute (case L3)."""
    if sampling.temperature == 0:
        raise ConfigError("harness.sampling.temperature is 0: greedy tokens have no log-probability; set it above 0")
    if sampling.top_p < 1 or sampling.top_k > 0:
        raise ConfigError(
            "harness.sampling: the trainer knows neither top_p nor top_k, so tokens that they cut from would be "
            "learned from with wrong log-probabilities; train with top_p = 1 and top_k = 0, and evaluate as you like"
        )


def check_method(config: RunConfig) -> None:
    """Refuse (ConfigError) choices that have no meaning together."""
    if config.ppo.baseline == "group" and config.rollouts.group_size < 2:
        raise ConfigError("ppo.baseline is group: a rollout needs others to be compared with; set rollouts.group_size")
    if config.ppo.baseline == "group" and config.trainer.critic_ranks:
        raise ConfigError("ppo.baseline is group: there is no critic to have ranks; set trainer.critic_ranks=0")
    if config.tito.keep == "text" and config.ppo.replay_routing:
        raise ConfigError("tito.keep is text: ids that nobody sampled have no routes; set ppo.replay_routing=false")


def accepted(rollouts: Sequence[Rollout], trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories of those rollouts that solved their task."""
    solved = {rollout.id for rollout in rollouts if rollout.outcome.solved}
    return [trajectory for trajectory in trajectories if trajectory.rollout in solved]


def summarize(
    rollouts: Sequence[Rollout],
    experience: Experience,
    *,
    collect_s: float | None = None,
    prices: Prices = FREE,
) -> dict[str, Any]:
    """The numbers of a set of rollouts that a step logs."""
    scored = [r for r in rollouts if r.outcome.failure is None]
    count = max(len(scored), 1)
    passed = [r.outcome.verdict.num_passed or 0 for r in scored if r.outcome.verdict is not None]
    fallbacks = sum(r.outcome.reward_source is RewardSource.BINARY_FALLBACK for r in scored)
    sampled = sum(r.num_sampled for r in rollouts)
    metrics: dict[str, Any] = {
        "reward": sum(r.outcome.reward or 0.0 for r in scored) / count,
        "solve_rate": sum(r.outcome.solved for r in scored) / count,
        "mean_passed_assertions": sum(passed) / count,
        "mean_turns": sum(len(r.turns) for r in scored) / count,
        "mean_sampled_tokens": sampled / max(len(rollouts), 1),
        "fallback_share": fallbacks / count,
        "failures": sum(r.outcome.failure is not None for r in rollouts),
        "relaunched": sum(r.attempts - 1 for r in rollouts),
        "dropped": sum(experience.dropped.values()),
        "findings": len(experience.findings),
        **asdict(total(usage_of(rollout, prices) for rollout in rollouts)),
        "stops": dict(Counter(str(r.outcome.stop) for r in rollouts)),
        "tampered": sum(is_tampered(r) for r in rollouts),
        "tamper": list(tamper_cases(rollouts)),
    }
    if collect_s is not None:
        metrics |= {
            "collect_s": collect_s,
            "tokens_per_s": sampled / collect_s,
            "trials_per_s": len(rollouts) / collect_s,
        }
    return metrics


def epochs(
    trajectories: Sequence[Trajectory], batch_size: int, num_steps: int, seed: int
) -> Iterator[list[Trajectory]]:
    """`num_steps` batches, each epoch a fresh permutation of the trajectories."""
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for _ in range(num_steps):
        while len(order) < batch_size:
            order += rng.permutation(len(trajectories)).tolist()
        yield [trajectories[i] for i in order[:batch_size]]
        del order[:batch_size]


def until(deadline: float | None, steps: range) -> Iterator[int]:
    """The steps that begin before the deadline."""
    for step in steps:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield step
