"""`t1 plan` says what fits, what does not and why, for GPUs that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t1.cli import main


@pytest.fixture
def small(tmp_path) -> Path:
    """The config of a small dense model."""
    shape = {
        "model_type": "qwen3", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 128,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(shape))
    return tmp_path


def test_a_small_model_fits_and_every_kind_of_memory_is_named(small, capsys):
    assert main(["plan", "--model", str(small), "--gpus", "4", "--tokens", "256", "--rollouts", "8"]) == 0
    output = capsys.readouterr().out
    for words in ("Adam's moments, critic", "gathered weights", "published to the samplers", "updates", "It fits."):
        assert words in output


def test_one_json_object_says_the_same_and_what_does_not_fit(small, capsys):
    options = ["--gpus", "64", "--tokens", "128", "--rollouts", "8", "--json"]
    assert main(["plan", "--model", str(small / "config.json"), *options]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["fits"]
    assert found["problems"] == ["64 ranks draw packs and there are 8 rollouts: some would idle"]
    assert found["total_bytes"] == sum(found["memory"].values()) < found["usable_bytes"]
    assert found["published_bytes"] == 2 * found["shape"]["parameters"]
    assert found["routed_bytes"] == 0  # it is dense
    assert found["layout"] == {"world": 64, "experts": 1, "context": 1}
    assert any("nothing overlaps" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "qwen3.5-122b"], "did you mean Qwen3.5-122B-A10B?"),
        (["--model", "Qwen3-30B-A3B", "--gpu", "h20"], "did you mean h200?"),
        (["--model", "Qwen3-30B-A3B", "--gpus", "6", "--context", "4"], "does not divide 6 ranks; choose one of 1, 2"),
        (["--model", "Qwen3-30B-A3B", "--gpus", "12", "--experts", "3"], "128 experts; choose one of 1, 2, 4"),
    ],
)
def test_mistakes_are_answered_with_the_choices(options, words, capsys):
    assert main(["plan", *options]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
