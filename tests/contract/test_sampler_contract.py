"""What every Sampler keeps: the fake, the embedded engine, clients of engines behind a wire, and a fleet of them.

The wire leads to fake servers here; `make test-vllm` runs the same tests against a real vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig

from t1.errors import EngineUnavailable
from t1.inference import TorchEngine, load_model
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.fleet import Fleet
from t1.inference.models import no_progress_bar
from t1.inference.remote import RemoteSampler
from t1.inference.sglang import SglangSampler
from t1.inference.vllm import VllmApi, VllmSampler
from t1.protocols import Sampler
from t1.routing import check_capture
from t1.testing.dialects import FakeSglang, FakeVllm
from t1.testing.engines import EngineTransport
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.types import FinishReason, IntArray, Sample, SamplingParams

VOCABULARY, MAX_CONTEXT, SHAPE = 32, 48, RoutingShape(num_layers=2, num_experts=8, top_k=2)
PROMPT = np.arange(1, 9, dtype=np.int32)
Open = Callable[..., Sampler]


def tiny_model() -> PreTrainedModel:
    """Two layers whose router has preferences."""
    torch.manual_seed(3)
    return load_model(
        Qwen3MoeConfig(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            head_dim=32, intermediate_size=32, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2,
            norm_topk_prob=True, max_position_embeddings=4096, initializer_range=0.3,
        )
    )  # fmt: skip


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model on disk, for those that publish from there."""
    path = tmp_path_factory.mktemp("tiny") / "model"
    with no_progress_bar():
        tiny_model().save_pretrained(path)
    return path


def scripted(*, slow: bool) -> ScriptedSampler:
    """Seconds for a request if slow."""
    context = 4096 if slow else MAX_CONTEXT
    return ScriptedSampler(
        lambda prompt: [9, 10, 11, 12], max_context=context, version=5, routing=SHAPE, delay_s=30.0 * slow
    )


def behind_a_wire(kind: str, inside: Sampler, path: Path) -> RemoteSampler:
    """A client of a fake server around a sampler."""
    shape = ModelShape.from_pretrained(path)
    fake = FakeSglang(inside, model=shape) if kind == "sglang" else FakeVllm(inside, model=shape)
    fake.label = "5"
    settings: dict[str, Any] = {
        "model": shape, "max_context": inside.max_context, "version": 5, "transport": EngineTransport(fake),
        "checkpoints": CheckpointWriter(path.parent / f"weights-{id(fake)}", path),
    }  # fmt: skip
    if kind == "sglang":
        return SglangSampler("http://fake", **settings)
    return VllmSampler("http://fake", **settings).use(VllmApi(kind))


KINDS = ["scripted", "torch", "generate", "completions", "sglang", "fleet"]


@pytest.fixture(params=KINDS)
async def open_sampler(request: pytest.FixtureRequest, model_path: Path) -> AsyncIterator[Open]:
    """A function (slow=…) → a sampler with weights version 5; `slow` ones keep a long request pending for seconds."""
    opened: list[Sampler] = []

    def make(*, slow: bool = False) -> Sampler:
        sampler: Sampler
        if request.param == "scripted":
            sampler = scripted(slow=slow)
        elif request.param == "torch":
            context = 4096 if slow else MAX_CONTEXT
            sampler = TorchEngine(tiny_model(), max_context=context, max_rows=4, version=5, num_threads=1)
        elif request.param == "fleet":
            sampler = Fleet([behind_a_wire(kind, scripted(slow=slow), model_path) for kind in ("generate", "sglang")])
        else:
            sampler = behind_a_wire(request.param, scripted(slow=slow), model_path)
        opened.append(sampler)
        return sampler

    yield make
    for sampler in opened:
        await sampler.aclose()


def check(sample: Sample, prompt: IntArray, routing_start: int = 0) -> None:
    """The promises that hold for any sample."""
    assert np.array_equal(sample.prompt, prompt)
    assert sample.prompt.dtype == np.int32
    assert np.isfinite(sample.logprobs).all()
    assert (sample.logprobs <= 0).all()
    assert sample.routing_start == routing_start
    tokens = np.concatenate([sample.prompt, sample.completion])[routing_start:-1]
    check_capture(
        sample.routing, num_rows=len(tokens), num_experts=SHAPE.num_experts, top_k=SHAPE.top_k,
        num_layers=SHAPE.num_layers, tokens=tokens,
    )  # fmt: skip


def is_sampler(sampler: Sampler) -> bool:
    return isinstance(sampler, Sampler)


async def test_a_sample_echoes_its_prompt_and_says_version_logprobs_and_routes(open_sampler: Open) -> None:
    """Case T7: the ids that the engine saw can be compared with those that were sent."""
    sampler = open_sampler()
    assert is_sampler(sampler)
    sample = await sampler.sample(PROMPT, SamplingParams(max_tokens=6), session="a")
    check(sample, PROMPT)
    assert len(sample.completion) == 6
    assert sample.versions.tolist() == [5] * 6


async def test_a_completion_ends_after_max_tokens_with_length(open_sampler: Open) -> None:
    sample = await open_sampler().sample(PROMPT, SamplingParams(max_tokens=3), session="a")
    assert (len(sample.completion), sample.finish) == (3, FinishReason.LENGTH)


async def test_a_completion_ends_with_the_stop_id_and_keeps_it(open_sampler: Open) -> None:
    everything = tuple(range(VOCABULARY))
    sample = await open_sampler().sample(PROMPT, SamplingParams(max_tokens=9, stop_ids=everything), session="a")
    assert (len(sample.completion), sample.finish) == (1, FinishReason.STOP)
    assert sample.completion[-1] in everything


async def test_a_completion_ends_where_the_context_ends(open_sampler: Open) -> None:
    sample = await open_sampler().sample(PROMPT, SamplingParams(max_tokens=1000), session="a")
    assert len(PROMPT) + len(sample.completion) == MAX_CONTEXT
    assert sample.finish is FinishReason.LENGTH


async def test_turns_of_a_session_carry_only_the_rows_from_routing_start(open_sampler: Open) -> None:
    sampler = open_sampler()
    first = await sampler.sample(PROMPT, SamplingParams(max_tokens=4), session="a")
    held = len(PROMPT) + len(first.completion)
    prompt = np.concatenate([PROMPT, first.completion, np.array([3, 4], dtype=np.int32)])
    second = await sampler.sample(prompt, SamplingParams(max_tokens=4), session="a", routing_start=held - 1)
    check(second, prompt, held - 1)
    assert second.routing is not None
    assert len(second.routing) == 2 + 4


async def test_rows_that_were_captured_once_are_the_same_when_asked_for_again(open_sampler: Open) -> None:
    sampler = open_sampler()
    first = await sampler.sample(PROMPT, SamplingParams(max_tokens=4), session="a")
    prompt = np.concatenate([PROMPT, first.completion])
    second = await sampler.sample(prompt, SamplingParams(max_tokens=2), session="a")
    assert first.routing is not None
    assert second.routing is not None
    assert np.array_equal(second.routing[: len(first.routing)], first.routing)


async def test_many_sessions_at_once_are_all_answered(open_sampler: Open) -> None:
    sampler = open_sampler()
    prompts = [PROMPT[: 1 + i % 8] for i in range(20)]
    params = SamplingParams(max_tokens=5)
    samples = await asyncio.gather(*(sampler.sample(p, params, session=str(i)) for i, p in enumerate(prompts)))
    for prompt, sample in zip(prompts, samples, strict=True):
        check(sample, prompt)


async def test_publish_puts_a_new_version_on_what_is_sampled_afterwards(open_sampler: Open) -> None:
    sampler = open_sampler()
    await sampler.publish(tiny_model().state_dict(), 6)
    sample = await sampler.sample(PROMPT, SamplingParams(max_tokens=2), session="a")
    assert sampler.version == 6
    assert sample.versions.tolist() == [6, 6]


async def test_closing_a_session_is_safe_whether_it_exists_or_not(open_sampler: Open) -> None:
    sampler = open_sampler()
    await sampler.close_session("never seen")
    await sampler.sample(PROMPT, SamplingParams(max_tokens=2), session="a")
    await sampler.close_session("a")
    await sampler.close_session("a")
    check(await sampler.sample(PROMPT, SamplingParams(max_tokens=2), session="a"), PROMPT)


@pytest.mark.parametrize(
    ("prompt", "changes", "routing_start"),
    [
        (PROMPT[:0], {}, 0),
        (np.ones(MAX_CONTEXT, dtype=np.int32), {}, 0),
        (PROMPT, {"max_tokens": 0}, 0),
        (PROMPT, {}, -1),
        (PROMPT, {}, len(PROMPT) + 1),
    ],
)
async def test_what_can_never_be_sampled_is_a_value_error(
    open_sampler: Open, prompt: IntArray, changes: dict[str, Any], routing_start: int
) -> None:
    sampler = open_sampler()
    with pytest.raises(ValueError, match=r"expected|no room"):
        await sampler.sample(prompt, replace(SamplingParams(), **changes), session="a", routing_start=routing_start)
    check(await sampler.sample(PROMPT, SamplingParams(max_tokens=2), session="a"), PROMPT)


async def test_closing_ends_pending_requests_and_refuses_later_ones(open_sampler: Open) -> None:
    sampler = open_sampler(slow=True)
    pending = [
        asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=4000), session=str(i))) for i in range(6)
    ]
    await asyncio.sleep(0.02)
    await sampler.aclose()
    for task in pending:
        with pytest.raises(EngineUnavailable):
            await task
    with pytest.raises(EngineUnavailable):
        await sampler.sample(PROMPT, SamplingParams(), session="later")
    await sampler.aclose()


async def test_a_cancelled_request_leaves_the_session_usable(open_sampler: Open) -> None:
    sampler = open_sampler(slow=True)
    task = asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=4000), session="a"))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sampler.close_session("a")
