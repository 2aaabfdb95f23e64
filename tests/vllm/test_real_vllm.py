"""T1 against a real vLLM: the contract of samplers, the preflight, publishing, and a short run of PPO."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t1.base import base_path
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.models import no_progress_bar
from t1.inference.preflight import preflight
from t1.inference.reference import TransformersReference
from t1.inference.vllm import VllmApi, VllmSampler
from t1.routing import disagreement
from t1.testing.vllm_server import serving
from t1.types import SamplingParams
from t1.workshop import capture_check

from .conftest import PYTHON


def load_contract() -> Any:
    """The module of the sampler contract, whose tests run here against another fixture."""
    path = Path(__file__).parent.parent / "contract" / "test_sampler_contract.py"
    spec = importlib.util.spec_from_file_location("sampler_contract", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contract = load_contract()
globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
CONTEXT = 4096
CUT_TOKENS = 3500


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vllm") / "model"
    with no_progress_bar():
        contract.tiny_model().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url(model_path: Path) -> Iterator[str]:
    with serving(PYTHON, model_path, model_path.parent / "vllm.log", max_context=CONTEXT) as url:
        yield url


def open_client(url: str, path: Path, api: VllmApi = VllmApi.GENERATE, **settings: Any) -> VllmSampler:
    """A client that publishes from disk."""
    shape = ModelShape.from_pretrained(path)
    known = {
        "model": shape,
        "max_context": CONTEXT,
        "check_rows": capture_check(shape.num_layers, shape.num_experts, shape.top_k),
        "checkpoints": CheckpointWriter(path.parent / "weights", path),
    }
    return VllmSampler(url, **{**known, **settings}).use(api)


@pytest.fixture(params=list(VllmApi))
async def open_sampler(request: pytest.FixtureRequest, url: str, model_path: Path) -> AsyncIterator[Any]:
    """What the contract asks for: a function (slow=…) → a sampler with weights version 5."""
    opened = []

    def make(*, slow: bool = False) -> VllmSampler:
        context = CONTEXT if slow else contract.MAX_CONTEXT
        opened.append(open_client(url, model_path, request.param, version=5, max_context=context))
        return opened[-1]

    labeller = open_client(url, model_path, request.param, version=5)
    await labeller.connect()
    await labeller.aclose()
    yield make
    for sampler in opened:
        await sampler.aclose()


async def scored(sampler: VllmSampler, model: Any, count: int = 4) -> tuple[float, float]:
    """(largest |Δlogprob|, largest share of differing expert sets) of a few samples against transformers."""
    reference, rng = TransformersReference(model), np.random.default_rng(0)
    prompts = [rng.integers(0, contract.VOCABULARY, 70).astype(np.int32) for _ in range(count)]
    params = SamplingParams(max_tokens=40)
    samples = await asyncio.gather(*(sampler.sample(p, params, session=str(i)) for i, p in enumerate(prompts)))
    gap = flipped = 0.0
    for sample in samples:
        tokens = np.concatenate([sample.prompt, sample.completion])
        logprobs, routing = reference.score(tokens, len(sample.prompt), 1.0)
        assert routing is not None
        assert sample.routing is not None
        gap = max(gap, float(np.abs(sample.logprobs - logprobs).max()))
        flipped = max(flipped, disagreement(sample.routing, routing))
    return gap, flipped


def noisy_model(seed: int) -> Any:
    """The tiny model with other weights."""
    model = contract.tiny_model()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.05)
    return model


@pytest.mark.parametrize("api", list(VllmApi))
async def test_numbers_are_transformers_own_after_every_publish(url: str, model_path: Path, api: VllmApi) -> None:
    """vLLM's own reload keeps old experts and a tied head and says nothing; T1's worker extension does not."""
    sampler = open_client(url, model_path, api)
    await sampler.connect()
    for version in range(1, 4):
        model = noisy_model(version)
        await sampler.publish(model.state_dict(), version)
        gap, flipped = await scored(sampler, model)
        assert gap < 1e-4, f"version {version}"
        assert flipped < 0.005, f"version {version}"
    await sampler.aclose()


async def test_the_preflight_passes_with_publishes_in_between(url: str, model_path: Path) -> None:
    sampler = open_client(url, model_path)
    await sampler.connect()
    model = contract.tiny_model()
    await sampler.publish(model.state_dict(), 0)
    report = await preflight(
        sampler, TransformersReference(model), vocab_size=contract.VOCABULARY, routed=True, publish=True
    )
    await sampler.aclose()
    report.raise_if_failed()
    assert any("128 tokens cached" in check.found for check in report.checks)


async def test_a_request_that_a_publish_cuts_in_two_is_whole(url: str, model_path: Path) -> None:
    """Cases R5, R7 and L1 on a real engine: versions by token, rows of the first feeding, no stale cache."""
    sampler = open_client(url, model_path)
    await sampler.connect()
    old, new = noisy_model(1), noisy_model(2)
    await sampler.publish(old.state_dict(), 1)
    prompt = np.arange(1, 31, dtype=np.int32)
    pending = asyncio.create_task(sampler.sample(prompt, SamplingParams(max_tokens=CUT_TOKENS), session="a"))
    await asyncio.sleep(0.5)  # some of it, and far from all
    await sampler.publish(new.state_dict(), 2)
    sample = await pending
    await sampler.aclose()
    cut = int((sample.versions == 1).sum())
    assert 0 < cut < CUT_TOKENS
    tokens = np.concatenate([sample.prompt, sample.completion])
    for model, part in ((old, slice(0, cut)), (new, slice(cut, None))):
        logprobs, routing = TransformersReference(model).score(tokens, len(prompt), 1.0)
        assert np.abs(logprobs - sample.logprobs)[part].max() < 1e-3
        assert routing is not None
        assert sample.routing is not None
        fed = slice(0, len(prompt) + cut - 1) if model is old else slice(len(prompt) + cut - 1, None)
        assert disagreement(sample.routing[fed], routing[fed]) < 0.005


def test_the_wrong_flags_are_named_by_the_doctor(model_path: Path, tmp_path: Path) -> None:
    """Case L2: of two values of a flag vLLM takes the last one, here its own default, the raw log-probabilities."""
    wrong = ("--logprobs-mode", "raw_logprobs")
    with serving(PYTHON, model_path, tmp_path / "vllm.log", max_context=512, more=wrong) as url:
        done = t1("doctor", "--engine", url, "--model", str(model_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--logprobs-mode processed_logprobs" in " ".join(done.stdout.split())


def t1(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command."""
    return subprocess.run(
        [sys.executable, "-m", "t1", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_ppo_runs_against_vllm_and_the_gap_is_that_of_float32(tmp_path: Path) -> None:
    """Tasks, sandboxes, harness, vLLM, PPO, publish: two steps of the smoke configuration."""
    config = Path(__file__).parent.parent.parent / "configs" / "smoke.toml"
    with serving(PYTHON, base_path(), tmp_path / "vllm.log", max_context=1024) as url:
        done = t1(
            "train", str(config), "--out", str(tmp_path / "run"), "engine.kind=vllm", f'engine.urls=["{url}"]',
            "engine.preflight=full", "model.max_context=768",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [step for step in steps if step.get("stage") == "rl"]
    assert [step["version"] for step in steps] == [0, 1]
    assert all(step["gap"] < 1e-4 and step["failures"] == 0 and step["findings"] == 0 for step in steps)
    assert steps[-1]["tokens_cached"] > 0
