"""A model opens from files or from a config, or says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from t1.errors import CheckpointError
from t1.inference import load_model

from .conftest import moe_model


def test_a_saved_model_opens_with_the_same_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = moe_model()
    model.save_pretrained(tmp_path)
    capfd.readouterr()
    opened = load_model(tmp_path)
    assert capfd.readouterr() == ("", "")
    assert not opened.training
    for (name, ours), theirs in zip(opened.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_a_model_opens_in_the_wanted_dtype(tmp_path: Path) -> None:
    moe_model().save_pretrained(tmp_path)
    assert load_model(tmp_path, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_the_experts_run_by_the_fastest_kernel() -> None:
    assert moe_model().config._experts_implementation == "grouped_mm"


def test_a_folder_without_a_model_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        load_model(tmp_path / "nothing")


def test_a_broken_checkpoint_is_a_checkpoint_error_that_names_the_path(tmp_path: Path) -> None:
    moe_model().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        load_model(tmp_path)
