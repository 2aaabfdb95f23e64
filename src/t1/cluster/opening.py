"""From a configuration to a spread run: the cluster, its engines, its rollout workers.

The recipes here run in the processes that they make, from the configuration alone: model, tasks and, for engines that
read disks, `engine.weights_dir` must lie at the same path on every machine. A rollout worker imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from t1.agents import harness_of, sandbox_needs
from t1.cluster.checks import capture_check, check_episode
from t1.cluster.crew import Crew
from t1.cluster.engines import Engines, EngineSeat, PlacedEngines
from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster, Needs, Recipe
from t1.cluster.roster import Care, Roster
from t1.cluster.worker import Parts, RolloutWorker
from t1.config import RunConfig
from t1.errors import ConfigError
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.connect import EngineKind, connect
from t1.inference.remote import EngineBounds
from t1.rollouts import Bounds, CircuitBreaker
from t1.rollouts.collect import TurnsCheck
from t1.sandboxes import make_provider
from t1.verification import PristineVerifier, score


@dataclass(frozen=True, slots=True)
class Policy:
    """What the processes of a run must know of its model."""

    path: Path
    normalizer: float
    version: int
    routers: tuple[int, int, int] | None
    """(MoE layers, experts, experts per token); None for a dense model."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The processes of a run, open."""

    cluster: Cluster
    engines: PlacedEngines
    crew: Crew

    async def aclose(self) -> None:
        """Workers first, since they hold on to engines."""
        try:
            await self.crew.roster.close()
            await self.engines.aclose()
        finally:
            await self.cluster.close()


def is_spread(config: RunConfig) -> bool:
    """Whether rollouts are collected in other processes than the run's own."""
    return config.cluster.kind == "ray" or config.cluster.workers > 0


async def spread(config: RunConfig, policy: Policy, *, weights_dir: Path, logs: Path | None = None) -> Spread:
    """Start engines and workers. InfrastructureError, with nothing left behind, where none of a kind starts.

    `logs`: where the processes' standard error is kept.
    """
    cluster = _cluster(config, logs)
    try:
        engines = await _engines(config, policy, cluster, weights_dir)
        try:
            return Spread(cluster, engines, await _crew(config, policy, cluster, engines))
        except BaseException:
            await engines.aclose()
            raise
    except BaseException:
        await cluster.close()
        raise


def _cluster(config: RunConfig, logs: Path | None) -> Cluster:
    if config.cluster.kind == "local":
        return LocalCluster(logs=logs)
    try:
        from t1.cluster.ray import RayCluster
    except ImportError as error:
        raise ConfigError(f"cluster.kind: ray is not installed ({error}); pip install 't1[ray]'") from error
    return RayCluster(address=config.cluster.address, logs=logs)


async def _engines(config: RunConfig, policy: Policy, cluster: Cluster, weights_dir: Path) -> PlacedEngines:
    section, recipes = config.cluster, dict[str, Recipe]()
    needs, checkpoints = Needs(cpus=section.engine_cpus, gpus=section.engine_gpus), None
    if config.engine.kind == "embedded":
        recipes = {f"engine-{i}": partial(open_embedded, config, policy) for i in range(section.engines)}
    else:
        if section.kind == "ray" and not config.engine.weights_dir:
            raise ConfigError("engine.weights_dir: set it to a directory that engines and driver share")
        recipes = {f"engine-{i}": partial(open_client, config, policy, url) for i, url in enumerate(config.engine.urls)}
        checkpoints = CheckpointWriter(Path(config.engine.weights_dir or weights_dir), policy.path)
        needs = Needs(cpus=section.engine_cpus)
    engines = PlacedEngines(
        cluster,
        recipes,
        needs,
        version=policy.version,
        max_context=config.model.max_context,
        checkpoints=checkpoints,
        care=Care(silent_s=section.silent_s),
    )
    await engines.open()
    return engines


async def _crew(config: RunConfig, policy: Policy, cluster: Cluster, engines: PlacedEngines) -> Crew:
    section = config.cluster
    needs = Needs(cpus=section.worker_cpus, memory_mb=section.worker_memory_mb)
    taken = math.ceil(len(engines.roster.members) * section.engine_cpus / section.worker_cpus)
    number = section.workers or max(1, cluster.room(needs) - taken)
    recipes: Mapping[str, Recipe] = {
        f"worker-{i}": partial(open_worker, config, policy, engines.copy()) for i in range(number)
    }
    roster = Roster(cluster, recipes, needs, care=Care(silent_s=section.silent_s))
    await roster.open()
    return Crew(
        roster,
        trials_per_worker=section.trials_per_worker,
        max_attempts=config.rollouts.max_attempts,
        breaker=CircuitBreaker(max_share=config.rollouts.max_failure_share),
    )


# --------------------------------------------------------------------------------------------------------------------
# Recipes


async def open_worker(config: RunConfig, policy: Policy, engines: Engines) -> RolloutWorker:
    """A rollout worker as the configuration wants it."""
    renderer, harness = harness_of(config, policy.path)
    provider = make_provider(**config.sandboxes.model_dump(), **sandbox_needs(config))
    check: TurnsCheck | None = None
    if policy.routers is not None:
        check = partial(check_episode, capture_check(*policy.routers), renderer.boundary_ids)
    reward = config.reward
    parts = Parts(
        harness=harness,
        provider=provider,
        verifier=PristineVerifier(provider, partial=reward.partial_reports),
        sampler=engines,
        scorer=partial(score, normalizer=policy.normalizer, kind=reward.kind, tamper=reward.tamper),
        check_turns=check,
        bounds=Bounds(max_attempts=config.rollouts.max_attempts),
    )
    return RolloutWorker(parts)


async def open_embedded(config: RunConfig, policy: Policy) -> EngineSeat:
    """An engine in the post's own process."""
    from t1.inference import TorchEngine, load_model, use_threads

    use_threads(max(1, int(config.cluster.engine_cpus)))
    engine = TorchEngine(
        load_model(policy.path, dtype=config.model.dtype),
        max_context=config.model.max_context,
        max_rows=config.rollouts.max_concurrent,
        version=policy.version,
        seed=config.run.seed,
    )
    return EngineSeat(engine)


async def open_client(config: RunConfig, policy: Policy, url: str) -> EngineSeat:
    """The client of an engine that was found by its URL."""
    client = await connect(
        EngineKind(config.engine.kind),
        [url],
        model=ModelShape.from_pretrained(policy.path),
        max_context=config.model.max_context,
        version=policy.version,
        check_rows=None if policy.routers is None else capture_check(*policy.routers),
        bounds=EngineBounds(request_s=config.engine.request_s, publish_s=config.engine.publish_s),
    )
    return EngineSeat(client)
