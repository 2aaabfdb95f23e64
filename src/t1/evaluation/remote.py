"""An evaluation of a policy behind an HTTP endpoint: our terminal harness, sandboxes and verifier, its text.

Boundary: builds the parts that such an evaluation needs, and no model; torch is not needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from t1.config import RunConfig
from t1.errors import ConfigError
from t1.evaluation.endpoints import Address, CharacterRenderer, EndpointSampler
from t1.harness import TerminalHarness
from t1.protocols import SandboxProvider
from t1.rollouts import Bounds, CircuitBreaker, Collector, Prices, collect_all
from t1.rollouts.cost import Usage
from t1.sandboxes import make_provider
from t1.types import Rollout, RolloutId, Task
from t1.verification import PristineVerifier, score

SYSTEM = """You work in a Linux shell. Each of your messages must hold exactly one block of this form:
```bash
one command line, or several lines
```
It is run in a shell that stays open, and you are shown what it prints. When the task is done, send a block that holds
only `exit`."""
TALKATIVE = (
    *("harness.action_format=fenced", "harness.max_turns=100", "harness.max_tokens_per_turn=4096"),
    *("harness.max_sampled_tokens=4000000", "harness.max_observation_chars=16000", "harness.command_timeout_s=120"),
    *("rollouts.max_concurrent=16",),
)
"""Settings that suit a general model; those of the command line win over them."""


def evaluate_endpoint(
    config: RunConfig,
    address: Address,
    tasks: Sequence[Task],
    *,
    normalizer: float,
    progress: Callable[[int, int], None] | None = None,
    provider: SandboxProvider | None = None,
) -> tuple[list[Rollout], list[Usage], str]:
    """Rollouts, what the server counted for each, and the model's name as the server gives it.

    Raises ConfigError for a harness other than our own: a foreign agent calls an endpoint without us.
    """
    if config.agent.name != "terminal":
        raise ConfigError(f"agent.name: {config.agent.name} needs token ids; an endpoint works with `terminal`")
    if not config.harness.system_prompt:
        harness = config.harness.model_copy(update={"system_prompt": SYSTEM})
        config = config.model_copy(update={"harness": harness})
    return asyncio.run(_evaluate(config, address, tasks, normalizer, progress, provider))


async def _evaluate(
    config: RunConfig,
    address: Address,
    tasks: Sequence[Task],
    normalizer: float,
    progress: Callable[[int, int], None] | None,
    given: SandboxProvider | None,
) -> tuple[list[Rollout], list[Usage], str]:
    prices = Prices(**config.cost.model_dump())
    sampler = EndpointSampler(address, request_s=config.engine.request_s, prices=prices)
    provider = given or make_provider(**config.sandboxes.model_dump())
    bounds = Bounds(max_attempts=config.rollouts.max_attempts)
    collector = Collector(
        harness=TerminalHarness(CharacterRenderer(), config.harness),
        provider=provider,
        verifier=PristineVerifier(provider, partial=config.reward.partial_reports),
        sampler=sampler,
        scorer=partial(score, normalizer=normalizer, kind=config.reward.kind, tamper=config.reward.tamper),
        bounds=bounds,
        breaker=CircuitBreaker(max_share=config.rollouts.max_failure_share),
    )
    launches = [
        (task, RolloutId(task.id, 0, member), None)
        for task in tasks
        for member in range(config.evaluation.rollouts_per_task)
    ]
    try:
        rollouts = await collect_all(
            collector,
            launches,
            max_concurrent=config.rollouts.max_concurrent,
            progress=progress,
            watchdog_s=config.rollouts.watchdog_s or max(bounds.longest_s(task) for task in tasks),
        )
        spent = [sampler.spent_on(rollout, prices=prices) for rollout in rollouts]
        return rollouts, spent, sampler.reported_model
    finally:
        await sampler.aclose()
        await provider.close()
