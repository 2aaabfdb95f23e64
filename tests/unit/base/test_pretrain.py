"""Pre-training is reproducible by steps, balances experts, and leaves a checkpoint that transformers loads."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from t1.base import base_path
from t1.base.corpus import corpus_digest
from t1.base.muon import Muon, orthogonalized
from t1.base.pretrain import PretrainConfig, balance_loss, build_model, packed_rows, pretrain, rate, train

TINY = PretrainConfig(steps=3, num_rows=2, row_length=32, num_probes=2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The shipped one."""
    return Tokenizer.from_file(str(base_path() / "tokenizer.json"))


def test_the_shipped_base_is_small_and_is_what_its_provenance_says() -> None:
    provenance = json.loads((base_path() / "provenance.json").read_text())
    weights = (base_path() / "model.safetensors").read_bytes()
    assert sum(file.stat().st_size for file in base_path().iterdir()) <= 8_000_000
    assert sha256(weights).hexdigest() == provenance["weights_sha256"]
    assert provenance["command"].startswith("python -m t1.base.pretrain --out")


def test_the_sources_still_make_what_the_shipped_base_was_trained_on() -> None:
    provenance = json.loads((base_path() / "provenance.json").read_text())
    assert corpus_digest(provenance["config"]["seed"]) == provenance["corpus_sha256"]
    assert PretrainConfig(**provenance["config"]) == PretrainConfig()


def test_the_shipped_base_loads_as_a_causal_language_model_without_balancing_loss() -> None:
    model = AutoModelForCausalLM.from_pretrained(base_path())
    assert model.dtype is torch.bfloat16 and model.config.router_aux_loss_coef == 0.0
    assert (model.config.num_experts, model.config.num_experts_per_tok, model.config.norm_topk_prob) == (8, 2, True)


def test_the_same_seed_and_steps_give_the_same_weights(tmp_path: Path) -> None:
    runs = [pretrain(tmp_path / name, TINY, log=lambda _: None) for name in ("a", "b")]
    other = pretrain(tmp_path / "c", replace(TINY, seed=1), log=lambda _: None)
    assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"] != other["weights_sha256"]


def test_a_few_steps_lower_the_loss(tokenizer: Tokenizer) -> None:
    losses: list[float] = []
    for steps in (1, 12):
        config = PretrainConfig(steps=steps, num_rows=4, row_length=64)
        losses.append(train(build_model(0, tokenizer), tokenizer, config, log=lambda _: None)["final_loss"])
    assert losses[1] < losses[0]


def test_every_row_starts_with_the_start_of_a_document(tokenizer: Tokenizer) -> None:
    rows = packed_rows(tokenizer, seed=0, row_length=40)
    for row in (next(rows) for _ in range(50)):
        assert len(row) == 40 and row[0] != tokenizer.token_to_id("<|endoftext|>")


def test_the_balance_loss_is_one_when_even_and_the_number_of_experts_over_top_k_when_one_sided() -> None:
    even = torch.eye(8).repeat(4, 1) * 1e-3
    one_sided = torch.zeros(32, 8)
    one_sided[:, :2] = 50.0
    assert balance_loss((even,), 1).item() == pytest.approx(1.0, abs=1e-3)
    assert balance_loss((one_sided, one_sided), 2).item() == pytest.approx(4.0, abs=1e-3)


def test_an_expert_idle_in_one_layer_is_not_excused_by_another_layer() -> None:
    first, second = torch.zeros(32, 4), torch.zeros(32, 4)
    first[:, :2], second[:, 2:] = 50.0, 50.0
    assert balance_loss((first, second), 2).item() == pytest.approx(2.0, abs=1e-3)


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    config = PretrainConfig(warmup=0.1, decay=0.5)
    assert rate(0.0, config) < rate(0.05, config) < rate(0.1, config) == rate(0.5, config) == 1.0
    assert rate(0.75, config) == pytest.approx(0.5) and rate(1.0, config) == 0.0


@pytest.mark.parametrize("shape", [(6, 6), (3, 8, 5), (2, 5, 9)])
def test_orthogonalizing_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    values = torch.linalg.svdvals(orthogonalized(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert values.min() > 0.4 and values.max() < 1.4


def test_muon_treats_a_stack_as_its_matrices() -> None:
    start = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
    stack = torch.nn.Parameter(start.clone())
    single = [torch.nn.Parameter(matrix.clone()) for matrix in start]
    for params in ([stack], single):
        optimizer = Muon(params, lr=0.1)
        for _ in range(2):
            loss = sum((param**3).sum() for param in params)
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(stack.detach(), torch.stack([param.detach() for param in single]))
