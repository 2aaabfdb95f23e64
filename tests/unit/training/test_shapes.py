"""A model's sizes are those that its name and its page give."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import Qwen3Config

from t1.errors import ConfigError
from t1.training.planning.known_models import known_model, known_names
from t1.training.planning.memory import meta_model
from t1.training.planning.shapes import Shape, shape_of


def shape_named(name: str) -> Shape:
    """That of a shipped model."""
    return shape_of(meta_model(known_model(name).config, torch.bfloat16))


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("Qwen3.5-122B-A10B", 122e9, 10e9), ("Qwen3.5-35B-A3B", 35e9, 3e9), ("Qwen3-30B-A3B", 30.5e9, 3.3e9)],
)
def test_shipped_shapes_have_the_parameters_of_their_names(name, total, active):
    shape = shape_named(name)
    assert shape.parameters == pytest.approx(total, rel=0.02)
    assert shape.active == pytest.approx(active, rel=0.15)


def test_every_shipped_shape_names_its_page():
    for name in known_names():
        assert known_model(name).source.startswith(f"https://huggingface.co/Qwen/{name}")


def test_a_token_of_122b_is_routed_in_384_bytes_and_attends_cheaply():
    shape = shape_named("Qwen/Qwen3.5-122B-A10B")
    assert shape.row_bytes == 384
    # 12 of 48 layers attend, with 32 heads of 256: the square matters from about 100 000 tokens on.
    assert shape.attention_width == 12 * 32 * 256
    assert 90_000 < shape.quadratic_at < 110_000
    at = round(shape.quadratic_at)
    assert shape.forward_operations(at) == pytest.approx(2 * 2.0 * at * shape.active, rel=1e-4)


def test_a_dense_model_has_no_experts_and_a_shared_table_counts_once():
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    tied, apart = (
        shape_of(meta_model(Qwen3Config(**sizes, **heads, tie_word_embeddings=tied), torch.float32))
        for tied in (True, False)
    )
    assert (tied.num_experts, tied.row_bytes, tied.routed) == (0, 0, 0)
    assert tied.attention_width == 2 * 2 * 16
    assert apart.parameters - tied.parameters == 64 * 32
    assert apart.active == tied.active == tied.parameters


def test_a_file_that_is_no_config_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    with pytest.raises(ConfigError, match=r"config\.json is not the config of a model that transformers knows"):
        known_model(str(tmp_path))


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean Qwen3.5-122B-A10B\?"):
        known_model("qwen3.5-122b")
