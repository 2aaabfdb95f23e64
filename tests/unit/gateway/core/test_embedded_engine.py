"""Branches over the real engine: each reply, and each row, is what the whole prompt alone would have given."""

import asyncio

import numpy as np

from t1.base import base_path
from t1.gateway.config import GatewayConfig
from t1.gateway.rendering import renderer_for
from t1.gateway.sessions import Gateway
from t1.inference import TorchEngine, load_model
from t1.routing import disagreement
from t1.testing.chat_clients import ChatClient
from t1.tito import assemble, audit
from t1.types import Outcome, RewardSource, Rollout, RolloutId, SamplingParams, StopReason

ID = RolloutId("task", 0, 0)


async def play(gateway, client):
    """A conversation with branches at once, a rewind, a second sample, and more branches than caches."""
    await client.say("list the files", max_tokens=8)
    forks = [client.fork() for _ in range(3)]
    await asyncio.gather(*(fork.say(f"in directory {n}", max_tokens=6) for n, fork in enumerate(forks)))
    for _ in range(2):
        for fork in forks:
            await fork.say("again", max_tokens=5)
    client.history.append(forks[0].history[2])
    await client.ask(max_tokens=4)
    return await gateway.close(client.session)


async def test_branches_share_nothing_but_their_history():
    renderer, model = renderer_for(base_path()), load_model(base_path())
    engine = TorchEngine(model, max_context=512, max_rows=4, num_threads=1)
    try:
        gateway = Gateway(engine, renderer, GatewayConfig(max_lanes=2))
        recorded = await play(gateway, ChatClient(gateway, gateway.open(seed=5).session))
        turns = recorded.turns
        assert len(turns) == 11
        trajectories = assemble(ID, turns, boundary_ids=renderer.boundary_ids, decode=renderer.decode)
        rollout = Rollout(ID, "", turns, Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY))
        assert not audit(rollout, trajectories, vocab_size=None, num_experts=None, decode=renderer.decode).findings
        for number, turn in enumerate(turns):
            alone = SamplingParams(
                max_tokens=len(turn.completion), seed=_seed_of(recorded, turn), stop_ids=renderer.stop_ids
            )
            fresh = await engine.sample(turn.prompt, alone, session=f"fresh {number}")
            np.testing.assert_array_equal(fresh.completion, turn.completion)
            np.testing.assert_allclose(fresh.logprobs, turn.logprobs, atol=1e-4)
            assert disagreement(fresh.routing[turn.routing_start :], turn.routing) < 0.01
    finally:
        await engine.aclose()


def _seed_of(recorded, turn):
    """Calls are numbered as they began; without orphans the turns of one version stand in that order."""
    assert not recorded.orphans
    return 5 * 4096 + next(number for number, one in enumerate(recorded.turns) if one is turn)
