"""The gap between engine and trainer at learning rate 0: nothing in publishing itself may add to it."""

from __future__ import annotations

import asyncio

import numpy as np

from t1.types import SamplingParams

from .conftest import OpenEngine, full_forward, moe_model, random_prompt


async def test_the_gap_stays_flat_over_fifty_publishes_of_the_same_weights(open_engine: OpenEngine) -> None:
    """Case L4: a gap that grows at learning rate 0 is a leak of caches, of precision or of state."""
    engine, trainer = open_engine(moe_model()), moe_model()
    gaps = []
    for version in range(1, 51):
        await engine.publish(trainer.state_dict(), version)
        params = SamplingParams(max_tokens=8, seed=version)
        prompts = [random_prompt(0, 20), random_prompt(version, 12)]  # one that is always cached, one that is new
        samples = await asyncio.gather(*(engine.sample(p, params, session=str(i)) for i, p in enumerate(prompts)))
        for sample in samples:
            assert set(sample.versions.tolist()) == {version}
        gaps.append(max(np.abs(full_forward(trainer, s)[0] - s.logprobs).mean() for s in samples))
    first, last = np.array(gaps[:10]), np.array(gaps[-10:])
    assert max(gaps) < 1e-5
    assert last.mean() < 2 * first.mean() + 1e-7
