"""A preflight passes an engine that is right, and names the flag for each way of being wrong."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.errors import EngineError
from t1.inference import TorchEngine
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.models import no_progress_bar
from t1.inference.preflight import PreflightReport, State, preflight
from t1.inference.reference import TransformersReference
from t1.inference.remote import RemoteSampler
from t1.protocols import Sampler
from t1.testing.engines import Faults, RoutesFault
from t1.types import SamplingParams

from .conftest import MOE, VOCABULARY, moe_model
from .engines import KINDS, client, fake

SHAPE = ModelShape.from_config(MOE.to_dict())


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("preflight") / "model"
    with no_progress_bar():
        moe_model().save_pretrained(path)
    return path


@pytest.fixture
async def served(model_path: Path) -> AsyncIterator[Callable[..., RemoteSampler]]:
    """Makes clients of fake servers with a real, tiny model in each, that publish from disk."""
    async with contextlib.AsyncExitStack() as engines:

        def serve(kind: str, faults: Faults | None = None) -> RemoteSampler:
            inside = TorchEngine(moe_model(), max_context=96, num_threads=1)
            engines.push_async_callback(inside.aclose)
            engine = fake(kind, inside, model=SHAPE, faults=faults, chunk=64, read=None)
            writer = CheckpointWriter(model_path.parent / f"weights-{id(engine)}", model_path)
            return client(engine, max_context=96, checkpoints=writer)

        yield serve


async def prove(sampler: Sampler, *, publish: bool = True, params: SamplingParams | None = None) -> PreflightReport:
    """The whole preflight against the model that should be inside."""
    try:
        return await preflight(
            sampler,
            TransformersReference(moe_model()),
            vocab_size=VOCABULARY,
            routed=True,
            publish=publish,
            params=params,
        )
    finally:
        await sampler.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_right_engine_passes_every_check_with_publishes_in_between(
    kind: str, served: Callable[..., RemoteSampler]
) -> None:
    report = await prove(served(kind))
    report.raise_if_failed()
    assert {check.state for check in report.checks} == {State.PASSED}
    assert len(report.checks) >= 25
    assert any("32 tokens cached" in check.found for check in report.checks)


async def test_the_embedded_engine_passes_too() -> None:
    report = await prove(TorchEngine(moe_model(), max_context=96, num_threads=1))
    assert report.passed, report


@pytest.mark.parametrize(
    ("faults", "check", "flag"),
    [
        (Faults(routes=RoutesFault.NONE), "ids in are ids seen", "--enable-return-routed-experts"),
        (Faults(routes=RoutesFault.SHORT), "ids in are ids seen", "--enable-return-routed-experts"),
        (Faults(routes=RoutesFault.HIT), "routes of a prompt that is cached", "external KV caches"),
        (Faults(echo=True), "ids in are ids seen", "--tokens-only"),
        (Faults(raw_logprobs=True), "log-probabilities at temperature 1.5", "--logprobs-mode processed_logprobs"),
        (Faults(bad_reload=True), "log-probabilities after changed weights", "--worker-extension-cls"),
        (Faults(refuses_reload=True), "publish changed weights", "log"),
        (Faults(keeps_cache=True), "log-probabilities of an old prompt after changed weights", "prefix-caching"),
    ],
    ids=["R1", "R3", "R6", "T7", "L2", "reload", "refused", "L1"],
)
async def test_each_fault_fails_its_own_check_and_names_its_flag(
    faults: Faults, check: str, flag: str, served: Callable[..., RemoteSampler]
) -> None:
    """Cases R1, R3, R6, T7, L1 and L2: found by a handful of requests before anything is trained."""
    report = await prove(served("vllm", faults))
    failed = {found.name: found for found in report.checks if found.state is State.FAILED}
    assert check in failed, report
    assert flag in failed[check].fix
    with pytest.raises(EngineError, match="preflight"):
        report.raise_if_failed()


@pytest.mark.parametrize(
    "params", [SamplingParams(top_p=0.9), SamplingParams(top_k=20), SamplingParams(temperature=0.0)]
)
async def test_a_run_that_samples_what_the_trainer_does_not_score_is_refused(params: SamplingParams) -> None:
    """Case L3: top-p or top-k in the engine, none in the trainer."""
    report = await prove(TorchEngine(moe_model(), max_context=96, num_threads=1), publish=False, params=params)
    assert [found.name for found in report.checks if found.state is State.FAILED] == [
        "the sampled distribution is one that is trained"
    ]


async def test_another_model_behind_the_engine_is_found_out() -> None:
    report = await prove(TorchEngine(moe_model(seed=1), max_context=96, num_threads=1), publish=False)
    failed = [found for found in report.checks if found.state is State.FAILED]
    assert failed[0].name == "log-probabilities are the trainer's"
    assert "--model" in failed[0].fix


async def test_without_a_reference_numbers_are_skipped_by_name_and_shapes_are_checked() -> None:
    sampler = TorchEngine(moe_model(), max_context=96, num_threads=1)
    report = await preflight(sampler, vocab_size=VOCABULARY, routed=True)
    await sampler.aclose()
    assert report.passed
    skipped = [found for found in report.checks if found.state is State.SKIPPED]
    assert all("reference" in found.found or "asked" in found.found for found in skipped)
    assert skipped
