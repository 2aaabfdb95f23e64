"""Weights for engines are written whole, under the hub's names, and old ones are removed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen3MoeConfig

from t1.inference import load_model
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.models import no_progress_bar

from .conftest import MOE, moe_model


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    with no_progress_bar():
        moe_model().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return tmp_path / "model"


def test_what_is_written_loads_as_what_was_given(model_path: Path, tmp_path: Path) -> None:
    trained = moe_model(seed=5).state_dict()
    path = CheckpointWriter(tmp_path / "weights", model_path).write(trained, 3)
    assert path == tmp_path / "weights" / "v3"
    loaded = load_model(path).state_dict()
    assert all(torch.equal(loaded[name], trained[name]) for name in trained)
    assert (path / "tokenizer.json").is_file()


def test_experts_are_written_one_by_one_as_engines_expect_them(model_path: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    path = CheckpointWriter(tmp_path / "weights", model_path).write(moe_model().state_dict(), 0)
    with safe_open(path / "model.safetensors", "pt") as tensors:
        assert "model.layers.0.mlp.experts.7.down_proj.weight" in tensors.keys()  # noqa: SIM118 — no mapping


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    tied = Qwen3MoeConfig(**{**MOE.to_dict(), "tie_word_embeddings": True})
    model = load_model(tied)
    with no_progress_bar():
        model.save_pretrained(tmp_path / "model")
    path = CheckpointWriter(tmp_path / "weights", tmp_path / "model").write(model.state_dict(), 0)
    assert torch.equal(load_model(path).state_dict()["lm_head.weight"], model.state_dict()["lm_head.weight"])


def test_only_the_newest_are_kept_and_nothing_half_written_stays(model_path: Path, tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path / "weights", model_path, keep=2)
    for version in (8, 9, 10, 9):
        writer.write(moe_model().state_dict(), version)
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["v10", "v9"]


def test_weights_of_another_model_are_refused_before_anything_is_written(model_path: Path, tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path / "weights", model_path)
    weights = dict(moe_model().state_dict())
    with pytest.raises(ValueError, match=r"1 names are missing or unknown, first 'lm_head\.weight'"):
        writer.write({name: weights[name] for name in weights if name != "lm_head.weight"}, 0)
    with pytest.raises(ValueError, match=r"lm_head\.weight: expected \[48, 32\], got \[3\]"):
        writer.write({**weights, "lm_head.weight": torch.zeros(3)}, 0)
    assert not (tmp_path / "weights").exists()
