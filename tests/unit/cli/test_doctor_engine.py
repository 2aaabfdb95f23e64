"""`t1 doctor --engine URL` over a real socket: a table for people, an exit status for scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import Qwen3MoeConfig

from t1.cli import main
from t1.inference import TorchEngine, load_model
from t1.inference.captures import ModelShape
from t1.inference.models import no_progress_bar
from t1.testing import serving
from t1.testing.dialects import FakeVllm
from t1.testing.engines import Faults

CONFIG = Qwen3MoeConfig(
    vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
    intermediate_size=32, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
    initializer_range=0.3,
)  # fmt: skip


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    with no_progress_bar():
        load_model(CONFIG).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@contextmanager
def listening(path: Path, faults: Faults | None = None) -> Iterator[str]:
    """The URL of a fake vLLM with the model in it."""
    engine = TorchEngine(load_model(path), max_context=96, num_threads=1)
    fake = FakeVllm(engine, model=ModelShape.from_pretrained(path), faults=faults, chunk=64)
    try:
        with serving.listening(fake.app) as url:
            yield url
    finally:
        asyncio.run(engine.aclose())


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """(exit status, what was printed, on one line)"""
    status = main(["doctor", *arguments])
    captured = capsys.readouterr()
    return status, " ".join((captured.out + captured.err).split())


def test_a_right_engine_is_fit_to_train_from(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(model_path) as url:
        status, said = doctor(
            capsys, "--engine", url, "--model", str(model_path), "--weights-dir", str(tmp_path / "weights")
        )
    assert status == 0, said
    assert "Fit to train from." in said
    assert "publish changed weights" in said


def test_an_engine_that_reports_other_numbers_is_not_and_the_flag_is_named(
    model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case L2 stands for all: what fails names its flag, and the exit status is 1."""
    with listening(model_path, Faults(raw_logprobs=True)) as url:
        status, said = doctor(capsys, "--engine", url, "--engine-kind", "vllm", "--model", str(model_path))
    assert status == 1, said
    assert "--logprobs-mode processed_logprobs" in said


def test_nobody_at_the_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = doctor(capsys, "--engine", "http://127.0.0.1:9")
    assert status != 0
    assert "is the server running" in said
    assert "Traceback" not in said
