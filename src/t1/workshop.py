"""The parts of a run, built from its configuration: sandboxes, verifier, renderer, harness, engine.

The commands and the quickstart share it. Config stops here: below, every part asks for what it uses.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from t1.agents import harness_of, sandbox_needs
from t1.base import base_path
from t1.cluster.checks import capture_check, check_episode
from t1.cluster.opening import Policy, Spread, is_spread, spread
from t1.cluster.posts import Cluster
from t1.config import RunConfig
from t1.errors import ConfigError
from t1.harness import ChatMLRenderer, DemonstrationHarness, TerminalHarness
from t1.inference import TorchEngine, load_model, use_threads
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.connect import EngineKind, connect
from t1.inference.preflight import Reference, preflight
from t1.inference.reference import TransformersReference
from t1.inference.remote import EngineBounds
from t1.protocols import Harness, Sampler
from t1.rollouts import (
    Admission,
    Bounds,
    CircuitBreaker,
    Collector,
    Demotions,
    Ledger,
    Lockstep,
    Lookahead,
    LoopThread,
    Prices,
    Rule,
    TaskStream,
    collect_all,
)
from t1.rollouts.collect import Scorer, TurnsCheck
from t1.rollouts.pool import Collects, Progress
from t1.routing.replay_families import num_experts, routers
from t1.sandboxes import make_provider
from t1.training.checkpoints import policy_at
from t1.types import Rollout, RolloutId, SamplingParams, Task
from t1.verification import PristineVerifier, score


class Workshop:
    """Opens the parts once; use as a context manager so that sandboxes and engine are gone on any exit."""

    def __init__(
        self, config: RunConfig, model_path: Path, *, normalizer: float, version: int = 0, logs: Path | None = None
    ) -> None:
        """`logs`: where the processes of a spread run say what goes wrong; None = nothing is kept."""
        self.config, self._logs = config, logs
        self.renderer, self.harness = harness_of(config, model_path)
        self.runner = LoopThread()
        self.normalizer = normalizer
        # Training has the machine for itself; while the engine decodes, the sandboxes need a core.
        threads = config.run.threads or min(2, len(os.sched_getaffinity(0)))
        use_threads(threads)
        model = load_model(model_path, dtype=config.model.dtype)
        text = model.config.get_text_config()
        self.num_experts = num_experts(model) or None
        self._check_turns: TurnsCheck | None = None
        found: tuple[int, int, int] | None = None
        if (num_layers := len(routers(model))) and config.tito.keep == "tokens":
            assert self.num_experts is not None
            found = (num_layers, self.num_experts, text.num_experts_per_tok)
            check = capture_check(*found)
            self._check_turns = partial(check_episode, check, self.renderer.boundary_ids)
        self.vocab_size = int(text.vocab_size)
        self.provider = make_provider(**config.sandboxes.model_dump(), **sandbox_needs(config))
        self.verifier = PristineVerifier(self.provider, partial=config.reward.partial_reports)
        self._weights = tempfile.TemporaryDirectory(prefix="t1-weights-")
        self.engine: Sampler
        self._spread: Spread | None = None
        if is_spread(config):
            policy = Policy(model_path, normalizer, version, found)
            self.engine = self._start(policy, TransformersReference(model))
        elif config.engine.kind == "embedded":
            self.engine = TorchEngine(
                model,
                max_context=config.model.max_context,
                max_rows=config.rollouts.max_concurrent,
                version=version,
                seed=config.run.seed,
                num_threads=max(1, threads - 1),
            )
        else:
            self.engine = self._connect(TransformersReference(model), model_path, version)
        self.bounds = Bounds(max_attempts=config.rollouts.max_attempts)
        self.prices = Prices(**config.cost.model_dump())

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.runner.run(self._close())
        finally:
            self.runner.close()

    async def _close(self) -> None:
        try:
            await (self.engine if self._spread is None else self._spread).aclose()
        finally:
            await self.provider.close()
            self._weights.cleanup()

    def _start(self, policy: Policy, reference: Reference) -> Sampler:
        """The processes of a spread run; servers among its engines are proved to sample from this very model."""
        try:
            opening = spread(self.config, policy, weights_dir=Path(self._weights.name), logs=self._logs)
            self._spread = self.runner.run(opening)
            if self.config.engine.kind != "embedded":
                self.runner.run(self._prove(self._spread.engines, reference, policy.version))
        except BaseException:
            if self._spread is not None:
                self.runner.run(self._spread.aclose())
            self.runner.close()
            self._weights.cleanup()
            raise
        return self._spread.engines

    def _connect(self, reference: Reference, path: Path, version: int) -> Sampler:
        """Clients of the configured servers, proved to sample from this very model."""
        config = self.config.engine
        shape = ModelShape.from_pretrained(path)
        opening = connect(
            EngineKind(config.kind),
            config.urls,
            model=shape,
            max_context=self.config.model.max_context,
            version=version,
            checkpoints=CheckpointWriter(Path(config.weights_dir or self._weights.name), path),
            check_rows=capture_check(shape.num_layers, shape.num_experts, shape.top_k) if shape.num_layers else None,
            bounds=EngineBounds(request_s=config.request_s, publish_s=config.publish_s),
        )
        engine: Sampler | None = None
        try:
            engine = self.runner.run(opening)
            self.runner.run(self._prove(engine, reference, version))
        except BaseException:
            if engine is not None:
                self.runner.run(engine.aclose())
            self.runner.close()
            self._weights.cleanup()
            raise
        return engine

    async def _prove(self, engine: Sampler, reference: Reference, version: int) -> None:
        """Publish the policy as it is now, then the preflight."""
        await engine.publish(reference.weights(), version)
        if self.config.engine.preflight != "off":
            report = await preflight(
                engine,
                reference,
                vocab_size=self.vocab_size,
                routed=self._check_turns is not None,
                params=SamplingParams(**self.config.harness.sampling.model_dump()),
                publish=self.config.engine.preflight == "full",
            )
            report.raise_if_failed()

    @property
    def cluster(self) -> Cluster | None:
        """Where a spread run has its processes; None when all of it happens here."""
        return None if self._spread is None else self._spread.cluster

    def collector(self, harness: Harness | None = None) -> Collects:
        """A collector with the run's reward; another harness than the policy's works here, without routes to check."""
        if self._spread is not None and harness is None:
            return self._spread.crew
        return Collector(
            harness=harness or self.harness,
            provider=self.provider,
            verifier=self.verifier,
            sampler=self.engine,
            scorer=self._scorer(),
            check_turns=self._check_turns if harness is None else None,
            bounds=self.bounds,
            breaker=CircuitBreaker(max_share=self.config.rollouts.max_failure_share),
        )

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Give the engine its own copy of these weights; it samples with them from now on."""
        self.runner.run(self.engine.publish(weights, version))

    def _scorer(self) -> Scorer:
        reward = self.config.reward
        return partial(score, normalizer=self.normalizer, kind=reward.kind, tamper=reward.tamper)

    def evaluate(
        self, tasks: Sequence[Task], *, rollouts_per_task: int = 1, seed: int = 0, progress: Progress | None = None
    ) -> list[Rollout]:
        """Roll the engine's policy out on every task; the same seed draws the same uniforms for every policy."""
        return self._collect(self.collector(), tasks, rollouts_per_task, seed, progress)

    def demonstrate(self, tasks: Sequence[Task], *, progress: Progress | None = None) -> list[Rollout]:
        """Play every task's reference solution through the same harness, sandboxes and verifier."""
        config, style = self.config, self.config.harness.action_format
        if not isinstance(self.harness, TerminalHarness) or not isinstance(self.renderer, ChatMLRenderer):
            raise ConfigError(f"agent.name: {config.agent.name} cannot play demonstrations; collect them with terminal")
        harness = DemonstrationHarness(self.harness, self.renderer, style, max_context=config.model.max_context)
        return self._collect(self.collector(harness), tasks, 1, 0, progress)

    def _collect(
        self, collector: Collects, tasks: Sequence[Task], members: int, seed: int, progress: Progress | None
    ) -> list[Rollout]:
        launches = [
            (task, RolloutId(task.id, 0, member), draw_seed(seed, index, member))
            for index, task in enumerate(tasks)
            for member in range(members)
        ]
        return self.runner.run(
            collect_all(
                collector,
                launches,
                max_concurrent=self.config.rollouts.max_concurrent,
                progress=progress,
                watchdog_s=self._watchdog_s(tasks),
            )
        )

    def source(
        self,
        tasks: Sequence[Task],
        *,
        first_step: int = 0,
        ledger: Ledger | None = None,
        stored: Callable[[int], Sequence[Rollout] | None] = lambda step: None,
        keep: Callable[[Rollout], Rollout] = lambda rollout: rollout,
        progress: Progress | None = None,
        demotions: Demotions | None = None,
    ) -> Lockstep | Lookahead:
        """The source of training rollouts that the configuration names."""
        rollouts = self.config.rollouts
        kind = Lockstep if rollouts.source == "lockstep" else Lookahead
        return kind(
            self.collector(),
            TaskStream(tasks, seed=self.config.run.seed),
            rule=Rule(
                Admission(rollouts.admission),
                num_needed=rollouts.tasks_per_step * rollouts.group_size,
                max_lag=rollouts.max_lag,
                oversample=rollouts.oversample,
            ),
            runner=self.runner,
            num_tasks=rollouts.tasks_per_step,
            group_size=rollouts.group_size,
            max_concurrent=rollouts.max_concurrent,
            seed=self.config.run.seed,
            version=lambda: self.engine.version,
            watchdog_s=self._watchdog_s(tasks),
            first_step=first_step,
            ledger=ledger,
            stored=stored,
            keep=keep,
            prices=self.prices,
            progress=progress,
            demotions=demotions,
        )

    def _watchdog_s(self, tasks: Sequence[Task]) -> float:
        """The configured bound, or what the slowest task may take."""
        return self.config.rollouts.watchdog_s or max(self.bounds.longest_s(task) for task in tasks)


def draw_seed(*entropy: int) -> int:
    """A 32-bit seed from a path of numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def model_path(config: RunConfig) -> Path:
    """The configured policy, or the base that ships with T1. Raises ConfigError where it is a folder of several."""
    if not config.model.path:
        return base_path()
    path = Path(config.model.path)
    if (newest := policy_at(path)) != path:
        raise ConfigError(f"model.path is {path}, which holds checkpoints, and it names one: {newest}, say")
    return path


def normalizer_of(config: RunConfig, tasks: Sequence[Task]) -> float:
    """Design law 5: one number for the whole run, by default the largest assertion count of the training pool."""
    if config.reward.normalizer is not None:
        return config.reward.normalizer
    return float(max((task.num_assertions or 1) for task in tasks))
