"""The embedded engine says what a full forward says, whatever it batches, keeps, evicts or reloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from t1.errors import ConfigError, EngineError, EngineUnavailable
from t1.inference import TorchEngine, load_model
from t1.inference.core import EngineCore, Request
from t1.routing import disagreement, join
from t1.routing.replay import replaying
from t1.training.attention import attend_within_segments
from t1.types import Sample, SamplingParams, Turn

from .conftest import DENSE, MAX_CONTEXT, MOE, OpenEngine, dense_model, full_forward, moe_model, random_prompt

PARAMS = SamplingParams(max_tokens=12, seed=1)


def assert_agrees(model: PreTrainedModel, sample: Sample, *, rows_from: int = 0) -> None:
    """Log-probabilities within 1e-4 of a full forward; routes equal as sets."""
    logprobs, routing = full_forward(model, sample)
    np.testing.assert_allclose(sample.logprobs, logprobs, atol=1e-4, rtol=0)
    if routing is None:
        assert sample.routing is None
    else:
        assert sample.routing is not None
        assert disagreement(sample.routing, routing[rows_from:]) == 0


def extend(sample: Sample, *tokens: int) -> np.ndarray:
    """The next prompt of the conversation."""
    return np.concatenate([sample.prompt, sample.completion, np.array(tokens, dtype=np.int32)])


def as_turn(sample: Sample) -> Turn:
    """The turn that a harness makes of a sample."""
    return Turn(
        sample.prompt, sample.completion, sample.logprobs, sample.versions, sample.finish, sample.routing,
        sample.routing_start,
    )  # fmt: skip


@pytest.mark.parametrize("make", [moe_model, dense_model])
async def test_a_ragged_batch_says_what_full_forwards_say(
    open_engine: OpenEngine, make: Callable[[], PreTrainedModel]
) -> None:
    engine = open_engine(make())
    prompts = [random_prompt(i, 1 + 5 * i) for i in range(9)]
    samples = await asyncio.gather(
        *(engine.sample(p, replace(PARAMS, seed=i), session=str(i)) for i, p in enumerate(prompts))
    )
    for sample in samples:
        assert_agrees(make(), sample)


async def test_a_seeded_request_does_not_depend_on_its_neighbours(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    prompts = [random_prompt(i, 3 + 4 * i) for i in range(6)]
    together = await asyncio.gather(*(engine.sample(p, PARAMS, session=f"a{i}") for i, p in enumerate(prompts)))
    for i, prompt in enumerate(prompts):
        alone = await engine.sample(prompt, PARAMS, session=f"b{i}")
        assert alone.completion.tolist() == together[i].completion.tolist()
        np.testing.assert_allclose(alone.logprobs, together[i].logprobs, atol=1e-4)


async def test_requests_without_a_seed_differ_and_an_engine_repeats_itself(open_engine: OpenEngine) -> None:
    prompt, params = random_prompt(0, 5), SamplingParams(max_tokens=12)
    runs = []
    for seed in (7, 7, 8):
        engine = open_engine(moe_model(), seed=seed)
        runs.append([(await engine.sample(prompt, params, session=str(i))).completion.tolist() for i in range(3)])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1] != runs[0][2]


async def test_turns_feed_only_new_tokens_and_say_what_a_full_forward_says(open_engine: OpenEngine) -> None:
    engine, turns = open_engine(moe_model()), []
    prompt, held = random_prompt(0, 20), 0
    for turn in range(4):
        sample = await engine.sample(prompt, replace(PARAMS, seed=turn), session="a", routing_start=held)
        assert sample.timings.cached_tokens == held
        assert_agrees(moe_model(), sample, rows_from=held)
        turns.append(sample)
        prompt = extend(sample, 5, 6, 7)
        held = len(sample.prompt) + len(sample.completion) - 1
    assert len(join([as_turn(sample) for sample in turns])) == held


async def test_a_prompt_that_forks_from_what_was_fed_keeps_the_common_part(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    first = await engine.sample(random_prompt(0, 20), PARAMS, session="a")
    fork = np.concatenate([first.prompt[:15], random_prompt(9, 30)])
    fork[15] = (first.prompt[15] + 1) % 48
    second = await engine.sample(fork, PARAMS, session="a")
    assert second.timings.cached_tokens == 15
    assert_agrees(moe_model(), second)


async def test_the_same_prompt_again_feeds_only_its_last_token(open_engine: OpenEngine) -> None:
    engine, prompt = open_engine(moe_model()), random_prompt(0, 20)
    first = await engine.sample(prompt, PARAMS, session="a")
    second = await engine.sample(prompt, PARAMS, session="a")
    assert second.timings.cached_tokens == 19
    assert second.completion.tolist() == first.completion.tolist()
    assert_agrees(moe_model(), second)


async def test_sessions_beyond_the_slots_are_evicted_and_fed_again(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_rows=2)
    samples = {}
    for name in ("a", "b", "a", "c"):  # c takes the place of b, which rested longest
        samples[name] = await engine.sample(random_prompt(ord(name), 10), PARAMS, session=name)
    again = await engine.sample(extend(samples["a"], 3), PARAMS, session="a")
    assert again.timings.cached_tokens > 10
    evicted = await engine.sample(extend(samples["b"], 3), PARAMS, session="b")
    assert evicted.timings.cached_tokens == 0
    assert_agrees(moe_model(), evicted)


async def test_more_requests_than_slots_all_end(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_rows=3)
    prompts = [random_prompt(i, 2 + i) for i in range(11)]
    samples = await asyncio.gather(*(engine.sample(p, PARAMS, session=str(i)) for i, p in enumerate(prompts)))
    for sample in samples:
        assert_agrees(moe_model(), sample)


async def test_requests_of_one_session_run_one_after_another(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    both = await asyncio.gather(*(engine.sample(random_prompt(i, 9), PARAMS, session="a") for i in range(2)))
    for sample in both:
        assert_agrees(moe_model(), sample)


async def test_a_long_prompt_is_fed_in_parts_beside_rows_that_decode(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_step_tokens=8)
    prompts = [random_prompt(0, 3), random_prompt(1, 70), random_prompt(2, 25)]
    samples = await asyncio.gather(*(engine.sample(p, PARAMS, session=str(i)) for i, p in enumerate(prompts)))
    for sample in samples:
        assert_agrees(moe_model(), sample)


async def test_sessions_outgrow_the_first_capacity(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_context=600)
    first = await engine.sample(random_prompt(0, 200), PARAMS, session="a")
    second = await engine.sample(np.concatenate([extend(first), random_prompt(1, 300)]), PARAMS, session="a")
    assert second.timings.cached_tokens == 211
    assert_agrees(moe_model(), second)


async def test_publish_drops_caches_and_changes_what_is_said(open_engine: OpenEngine) -> None:
    """Case L1: keys and values of old weights are never read under new ones."""
    engine = open_engine(moe_model(0))
    first = await engine.sample(random_prompt(0, 20), PARAMS, session="a")
    await engine.publish(moe_model(1).state_dict(), 1)
    second = await engine.sample(extend(first, 4), PARAMS, session="a")
    assert (first.versions[0], second.versions[0], engine.version) == (0, 1, 1)
    assert second.timings.cached_tokens == 0
    assert_agrees(moe_model(1), second)


async def test_publishing_the_same_weights_many_times_changes_nothing(open_engine: OpenEngine) -> None:
    """Case L4: the gap does not grow with the number of publishes."""
    engine = open_engine(moe_model())
    sample = await engine.sample(random_prompt(0, 20), PARAMS, session="a")
    for version in range(1, 51):
        await engine.publish(moe_model().state_dict(), version)
    again = await engine.sample(random_prompt(0, 20), PARAMS, session="a")
    assert again.completion.tolist() == sample.completion.tolist()
    assert np.abs(again.logprobs - sample.logprobs).max() < 1e-6


def test_a_request_in_flight_goes_on_under_the_new_version_and_keeps_its_first_rows() -> None:
    """Cases R5 and R7: a row is of the first feeding of its token; what is sampled after is of the new weights."""
    core = EngineCore(moe_model(0), max_context=MAX_CONTEXT, max_rows=2, version=0, max_step_tokens=64)
    prompt, ended = random_prompt(0, 20), []
    core.submit(Request(prompt, SamplingParams(max_tokens=30), "a", 0, 1, ended.append))
    for _ in range(10):
        core.step()
    core.publish(moe_model(1).state_dict(), 1)
    while core.has_work:
        core.step()
    (sample,) = ended
    assert sample.versions.tolist() == [0] * 10 + [1] * 20
    old_logprobs, old_routing = full_forward(moe_model(0), sample)
    new_logprobs, new_routing = full_forward(moe_model(1), sample)
    np.testing.assert_allclose(sample.logprobs[:10], old_logprobs[:10], atol=1e-4)
    np.testing.assert_allclose(sample.logprobs[10:], new_logprobs[10:], atol=1e-4)
    fed = len(prompt) + 9  # the token sampled last under the old weights was first fed under the new ones
    assert disagreement(sample.routing[:fed], old_routing[:fed]) == 0
    assert disagreement(sample.routing[fed:], new_routing[fed:]) == 0


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape"])
async def test_weights_that_do_not_fit_are_refused_before_any_is_copied(open_engine: OpenEngine, damage: str) -> None:
    """Case T9: validate before changing anything."""
    engine = open_engine(moe_model(0))
    weights = dict(moe_model(1).state_dict())
    name = next(reversed(weights))
    tensor = weights.pop(name)
    if damage != "missing":
        weights[f"{name}.more" if damage == "unknown" else name] = tensor[:1]
    if damage == "unknown":
        weights[name] = tensor
    with pytest.raises(ValueError, match="weights: "):
        await engine.publish(weights, 1)
    sample = await engine.sample(random_prompt(0, 9), PARAMS, session="a")
    assert sample.versions[0] == 0
    assert_agrees(moe_model(0), sample)


async def test_weights_of_a_tied_pair_may_come_once(open_engine: OpenEngine) -> None:
    tied = type(DENSE)(**{**DENSE.to_dict(), "tie_word_embeddings": True})
    torch.manual_seed(0)
    engine, weights = open_engine(load_model(tied)), dict(load_model(tied).state_dict())
    del weights["lm_head.weight"]
    await engine.publish(weights, 1)
    assert engine.version == 1


async def test_a_cancelled_request_frees_its_row_and_keeps_its_cache(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_rows=1, max_context=1000)
    prompt = random_prompt(0, 20)
    task = asyncio.create_task(engine.sample(prompt, SamplingParams(max_tokens=900), session="a"))
    waiting = asyncio.create_task(engine.sample(prompt, SamplingParams(max_tokens=900), session="b"))
    await asyncio.sleep(0.03)
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task, waiting])
    again = await engine.sample(prompt, PARAMS, session="a")
    assert again.timings.cached_tokens == 19
    assert_agrees(moe_model(), again)


async def test_a_step_that_fails_ends_pending_and_later_requests_by_name(open_engine: OpenEngine) -> None:
    model = moe_model()

    def explode(*_: object) -> None:
        raise MemoryError("no room for logits")

    model.lm_head.register_forward_hook(explode)
    engine = open_engine(model)
    pending = [engine.sample(random_prompt(i, 5), PARAMS, session=str(i)) for i in range(3)]
    for result in await asyncio.gather(*pending, return_exceptions=True):
        assert isinstance(result, EngineUnavailable)
        assert "MemoryError: no room for logits" in str(result)
    with pytest.raises(EngineUnavailable, match="MemoryError"):
        await engine.sample(random_prompt(0, 5), PARAMS, session="later")
    with pytest.raises(EngineUnavailable, match="MemoryError"):
        await engine.publish(moe_model().state_dict(), 1)


async def test_logits_that_are_not_finite_are_an_engine_error(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    weights = dict(moe_model().state_dict())
    weights["lm_head.weight"] = torch.full_like(weights["lm_head.weight"], float("nan"))
    await engine.publish(weights, 3)
    with pytest.raises(EngineError, match="not finite under weights version 3"):
        await engine.sample(random_prompt(0, 5), PARAMS, session="a")


async def test_ids_outside_the_vocabulary_are_refused_and_disturb_nobody(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    for bad in (np.array([48], dtype=np.int32), np.array([-1], dtype=np.int32)):
        with pytest.raises(ValueError, match=r"ids must lie in \[0, 48\)"):
            await engine.sample(bad, PARAMS, session="a")
    assert_agrees(moe_model(), await engine.sample(random_prompt(0, 5), PARAMS, session="a"))


async def test_two_event_loops_may_share_an_engine(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    here = engine.sample(random_prompt(0, 9), PARAMS, session="a")
    there = asyncio.to_thread(lambda: asyncio.run(engine.sample(random_prompt(0, 9), PARAMS, session="b")))
    one, other = await asyncio.gather(here, there)
    assert one.completion.tolist() == other.completion.tolist()


async def test_bfloat16_weights_sample_with_float32_logprobs(open_engine: OpenEngine) -> None:
    sample = await open_engine(moe_model().to(torch.bfloat16)).sample(random_prompt(0, 9), PARAMS, session="a")
    assert sample.logprobs.dtype == np.float32
    assert len(sample.completion) == 12


async def test_captured_rows_replayed_in_a_plain_forward_give_the_sampled_logprobs(open_engine: OpenEngine) -> None:
    sample = await open_engine(moe_model()).sample(random_prompt(0, 30), replace(PARAMS, max_tokens=40), session="a")
    assert sample.routing is not None
    model, tokens = moe_model(), torch.from_numpy(np.concatenate([sample.prompt, sample.completion])).long()
    with torch.no_grad(), replaying(model, torch.from_numpy(sample.routing)):
        logprobs = model(input_ids=tokens[None, :-1], use_cache=False).logits[0].log_softmax(-1)
    replayed = logprobs[29:].gather(1, tokens[30:, None])[:, 0].numpy()
    assert np.abs(replayed - sample.logprobs).max() < 1e-4


async def test_captured_rows_replayed_in_a_packed_training_forward_give_the_sampled_logprobs(
    open_engine: OpenEngine,
) -> None:
    engine, model = open_engine(moe_model()), moe_model()
    prompts = [random_prompt(i, 4 + 6 * i) for i in range(5)]
    samples = await asyncio.gather(*(engine.sample(p, PARAMS, session=str(i)) for i, p in enumerate(prompts)))
    streams = [torch.from_numpy(np.concatenate([s.prompt, s.completion])).long() for s in samples]
    attend_within_segments(model)
    with torch.no_grad(), replaying(model, torch.from_numpy(np.concatenate([s.routing for s in samples]))):
        logits = model(
            input_ids=torch.cat([stream[:-1] for stream in streams])[None],
            position_ids=torch.cat([torch.arange(len(stream) - 1) for stream in streams])[None],
            use_cache=False,
            segment_lengths=tuple(len(stream) - 1 for stream in streams),
        ).logits[0]
    parts = torch.split(logits.log_softmax(-1), [len(stream) - 1 for stream in streams])
    for sample, stream, part in zip(samples, streams, parts, strict=True):
        start = len(sample.prompt)
        replayed = part[start - 1 :].gather(1, stream[start:, None])[:, 0].numpy()
        assert np.abs(replayed - sample.logprobs).max() < 1e-4


async def test_a_command_that_breaks_the_engine_leaves_nobody_waiting(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model())
    broken = {name: object() for name in moe_model().state_dict()}
    results = await asyncio.gather(
        engine.publish(broken, 1), engine.sample(random_prompt(0, 5), PARAMS, session="a"), return_exceptions=True
    )
    assert all(isinstance(result, EngineUnavailable) for result in results)
    assert "AttributeError" in str(results[1])


async def test_an_event_loop_that_is_gone_does_not_break_the_engine_for_others(open_engine: OpenEngine) -> None:
    engine = open_engine(moe_model(), max_context=1000)

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(engine.sample(random_prompt(0, 5), SamplingParams(max_tokens=60), session="a"))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        task.get_coro().close()

    await asyncio.to_thread(abandon)
    for seed in range(3):
        assert_agrees(moe_model(), await engine.sample(random_prompt(seed, 5), PARAMS, session="b"))


@pytest.mark.parametrize("settings", [{"max_rows": 0}, {"max_step_tokens": 1}, {"max_context": 1}])
def test_an_engine_without_room_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no room to work in"):
        TorchEngine(moe_model(), **{"max_context": MAX_CONTEXT, **settings})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sliding_window": 64, "use_sliding_window": True}, "sliding window 64"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "linear_attention"),
        ({"max_position_embeddings": 64}, "64 positions"),
    ],
)
def test_models_that_the_engine_cannot_serve_are_refused_by_name(changes: dict[str, object], reason: str) -> None:
    model = moe_model()
    for key, value in changes.items():
        setattr(model.config, key, value)
    with pytest.raises(ConfigError, match=reason):
        TorchEngine(model, max_context=MAX_CONTEXT)


def test_two_models_of_one_config_keep_their_own_kernels() -> None:
    one, other = moe_model(), moe_model()
    one.set_attn_implementation("eager")
    assert other.config._attn_implementation == "sdpa"
    assert MOE._attn_implementation != "eager"
