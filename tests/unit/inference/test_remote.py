"""Clients of engines behind a wire: what they send, what they refuse, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest

from t1.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable, PromptMismatch, RoutingError
from t1.inference.remote import EngineBounds
from t1.inference.vllm import VllmApi, VllmSampler
from t1.testing.dialects import FakeVllm
from t1.testing.engines import EngineTransport, Faults, RoutesFault
from t1.types import FinishReason, SamplingParams
from t1.workshop import capture_check

from .engines import KINDS, PROMPT, SHAPE, checkpoint, client, fake, scripted

PARAMS = SamplingParams(max_tokens=12)
both = pytest.mark.parametrize("kind", KINDS)


@both
@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        (Faults(echo=True), PromptMismatch, "prompt id 39 was sent as 40"),
        (Faults(truncated_logprobs=True), EngineError, "log-probabilities"),
        (Faults(routes=RoutesFault.NONE), RoutingError, "--enable-return-routed-experts"),
        (Faults(routes=RoutesFault.SHORT), RoutingError, "expected 51 rows"),
        (Faults(routes=RoutesFault.ZERO), RoutingError, "all zero"),
        (Faults(routes=RoutesFault.REPEATED), RoutingError, "one row repeated"),
    ],
    ids=["T7", "logprobs", "R1", "R3", "R8", "R4"],
)
async def test_an_answer_that_cannot_be_true_is_a_typed_error(
    kind: str, faults: Faults, error: type[Exception], message: str
) -> None:
    """Cases T7, R1, R3, R4 and R8, at the border: before anything is trained on."""
    sampler = client(fake(kind, faults=faults), check_rows=capture_check(2, 8, 2))
    with pytest.raises(error, match=message):
        await sampler.sample(PROMPT, PARAMS, session="a")
    await sampler.aclose()


@both
async def test_rows_that_a_cache_lost_are_refused(kind: str) -> None:
    """Case R6: the first request is complete; of the second, whose prompt is cached, the engine knows no rows."""
    sampler = client(fake(kind, faults=Faults(routes=RoutesFault.HIT)))
    await sampler.sample(PROMPT, PARAMS, session="a")
    with pytest.raises(RoutingError, match="32 of 51 rows are all zero"):
        await sampler.sample(PROMPT, PARAMS, session="b")
    await sampler.aclose()


@both
async def test_only_new_rows_are_asked_for_and_old_ones_cost_nothing(kind: str) -> None:
    for faults, wasted in ((None, False), (Faults(all_routes=True), True)):
        sampler = client(fake(kind, faults=faults))
        sample = await sampler.sample(PROMPT, PARAMS, session="a", routing_start=30)
        assert sample.routing is not None
        assert len(sample.routing) == 40 + 12 - 1 - 30
        assert (sampler.meter.wasted_bytes > 0) is wasted
        await sampler.aclose()


async def test_vllm_names_tokens_in_three_ways_and_all_are_read() -> None:
    """`token_id:N` in 0.30, integers from 0.32 on, lists from `/v1/completions`."""
    plain = await client(fake("vllm")).sample(PROMPT, PARAMS, session="a")
    integers = await client(fake("vllm", integers=True)).sample(PROMPT, PARAMS, session="a")
    sampler = client(fake("vllm", generate=False))
    await sampler.connect()
    completions = await sampler.sample(PROMPT, PARAMS, session="a")
    for other in (integers, completions):
        assert other.completion.tolist() == plain.completion.tolist()
        assert np.array_equal(other.logprobs, plain.logprobs)
        assert np.array_equal(other.routing, plain.routing)


async def test_connecting_takes_the_way_in_that_the_server_has() -> None:
    for has, path in ((True, "/inference/v1/generate"), (False, "/v1/completions")):
        engine = fake("vllm", generate=has)
        sampler = client(engine)
        await sampler.connect()
        await sampler.sample(PROMPT, PARAMS, session="a")
        assert ("sampling_params" in engine.asked[0]) is has, path


@both
async def test_an_engine_with_a_shorter_context_is_refused_with_the_flag(kind: str) -> None:
    sampler = client(fake(kind), max_context=1000)
    with pytest.raises(ConfigError, match="--max-model-len"):
        await sampler.connect()


@both
async def test_connecting_labels_the_weights_with_our_version(kind: str) -> None:
    engine = fake(kind)
    sampler = client(engine, version=7)
    await sampler.connect()
    assert engine.label == "7"
    assert (await sampler.sample(PROMPT, PARAMS, session="a")).versions.tolist() == [7] * 12


@both
async def test_a_publish_interrupts_a_request_which_goes_on_under_the_new_weights(kind: str, tmp_path: Path) -> None:
    """Cases R5 and R7: each token keeps the version that sampled it, each row is the one of its first feeding."""
    engine = fake(kind, step_s=0.01)
    sampler = client(engine)
    whole = await sampler.sample(PROMPT, SamplingParams(max_tokens=60), session="a")
    pending = asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=60), session="b"))
    await asyncio.sleep(0.05)
    await sampler.load(checkpoint(tmp_path / "v1"), 1)
    sample = await pending
    versions = sample.versions.tolist()
    assert versions == sorted(versions)
    assert set(versions) == {0, 1}
    assert sampler.meter.num_interrupted == 1
    assert sample.completion.tolist() == whole.completion.tolist()
    assert np.array_equal(sample.routing, whole.routing)
    assert sample.finish is FinishReason.LENGTH
    await sampler.aclose()


@both
async def test_old_keys_and_values_are_never_met_after_a_publish(kind: str, tmp_path: Path) -> None:
    """Case L1: the prefix cache is reset, and salted with the version in case that a reset is missed."""
    engine = fake(kind)
    sampler = client(engine)
    before = await sampler.sample(PROMPT, PARAMS, session="a")
    await sampler.load(checkpoint(tmp_path / "v1"), 1)
    after = await sampler.sample(PROMPT, PARAMS, session="a")
    assert np.array_equal(before.logprobs, after.logprobs)
    assert {"/reset_prefix_cache", "/flush_cache"} & set(engine.calls)
    salts = [body["cache_salt"] for body in engine.asked]
    assert salts[0] != salts[1]


@both
async def test_weights_that_did_not_arrive_stop_the_engine_until_they_do(kind: str, tmp_path: Path) -> None:
    engine = fake(kind, faults=Faults(refuses_reload=True))
    sampler = client(engine)
    with pytest.raises(EngineError, match="out of memory"):
        await sampler.load(checkpoint(tmp_path / "v1"), 1)
    assert sampler.version == 0
    assert not engine.paused
    with pytest.raises(EngineUnavailable, match="publish again"):
        await sampler.sample(PROMPT, PARAMS, session="a")
    engine.faults = Faults()
    await sampler.load(checkpoint(tmp_path / "v1"), 1)
    assert (await sampler.sample(PROMPT, PARAMS, session="a")).versions.tolist() == [1] * 12


@both
async def test_an_engine_that_was_started_anew_is_found_out(kind: str) -> None:
    """It has its first weights again and answers as if nothing were."""
    engine = fake(kind)
    sampler = client(engine, version=3, bounds=EngineBounds(quiet_s=0.0))
    engine.label = "3"
    await sampler.sample(PROMPT, PARAMS, session="a")
    engine.restart()
    with pytest.raises(EngineUnavailable, match="not version 3"):
        await sampler.sample(PROMPT, PARAMS, session="a")


async def test_an_answer_under_another_version_is_a_routing_error() -> None:
    """Case R5: somebody else published meanwhile; SGLang says so with every answer."""
    engine = fake("sglang")
    sampler = client(engine, bounds=EngineBounds(quiet_s=1000.0))
    await sampler.sample(PROMPT, PARAMS, session="a")
    engine.label = "4"
    with pytest.raises(RoutingError, match="version 4, sent under 0"):
        await sampler.sample(PROMPT, PARAMS, session="a")


@both
async def test_cancelling_ends_the_request_in_the_engine_before_it_returns(kind: str) -> None:
    engine = fake(kind, step_s=0.01)
    sampler = client(engine)
    pending = asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=80), session="a"))
    await asyncio.sleep(0.03)
    assert engine.running == 1
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert engine.running == 0
    assert {"/abort_requests", "/abort_request"} & set(engine.calls)


@both
async def test_a_request_that_takes_too_long_is_aborted_and_a_timeout(kind: str) -> None:
    engine = fake(kind, scripted(delay_s=30.0))
    sampler = client(engine, bounds=EngineBounds(request_s=0.05))
    with pytest.raises(EngineTimeout, match=r"0\.05 s"):
        await sampler.sample(PROMPT, PARAMS, session="a")
    await asyncio.sleep(0)
    assert engine.running == 0


@both
async def test_an_engine_that_is_down_is_unavailable_and_works_when_it_is_back(kind: str) -> None:
    engine = fake(kind)
    sampler = client(engine)
    engine.down = True
    with pytest.raises(EngineUnavailable, match="is the server running"):
        await sampler.sample(PROMPT, PARAMS, session="a")
    engine.down = False
    assert len((await sampler.sample(PROMPT, PARAMS, session="a")).completion) == 12


class Flaky(EngineTransport):
    """Fails the first so many requests."""

    def __init__(self, engine: FakeVllm, failures: int) -> None:
        super().__init__(engine)
        self.failures = failures

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.failures:
            self.failures -= 1
            raise httpx.ReadError("reset by peer", request=request)
        return await super().handle_async_request(request)


async def test_a_connection_that_breaks_is_tried_again_but_a_load_is_not(tmp_path: Path) -> None:
    engine = fake("vllm")
    transport = Flaky(engine, 2)  # type: ignore[arg-type]
    sampler = client(engine, transport=transport)
    await sampler.sample(PROMPT, PARAMS, session="a")
    assert transport.failures == 0

    class BreaksAtLoad(EngineTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            answer = await super().handle_async_request(request)
            if request.url.path == "/collective_rpc":
                raise httpx.ReadError("reset by peer", request=request)
            return answer

    loading = client(engine, transport=BreaksAtLoad(engine))
    with pytest.raises(EngineUnavailable, match="--worker-extension-cls"):
        await loading.load(checkpoint(tmp_path / "v1"), 1)
    assert engine.calls.count("/collective_rpc") == 1


@both
async def test_pause_holds_requests_and_resume_lets_them_go_on(kind: str) -> None:
    engine = fake(kind, step_s=0.01)
    sampler = client(engine)
    pending = asyncio.create_task(sampler.sample(PROMPT, SamplingParams(max_tokens=40), session="a"))
    await asyncio.sleep(0.03)
    await sampler.pause()
    assert engine.running == 0
    await asyncio.sleep(0.03)
    assert not pending.done()
    await sampler.resume()
    assert len((await pending).completion) == 40


@both
async def test_an_unknown_id_never_reaches_the_engine(kind: str) -> None:
    """One id outside the vocabulary takes a whole vLLM down, and every other session with it."""
    engine = fake(kind)
    with pytest.raises(ValueError, match=r"expected ids in \[0, 64\)"):
        await client(engine).sample(np.array([64], dtype=np.int32), PARAMS, session="a")
    assert engine.asked == []


async def test_nonsense_from_an_engine_is_an_engine_error() -> None:
    for content in (b"[1, 2", b"[]", b'{"choices": []}', b'{"choices": [{"token_ids": [1e99]}]}', b"[" * 100_000):
        transport = httpx.MockTransport(lambda request, content=content: httpx.Response(200, content=content))
        bounds = EngineBounds(quiet_s=float("inf"))
        sampler = VllmSampler("http://x", model=SHAPE, max_context=128, transport=transport, bounds=bounds)
        with pytest.raises(EngineError):
            await sampler.use(VllmApi.GENERATE).sample(PROMPT, PARAMS, session="a")
