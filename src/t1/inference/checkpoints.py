"""Writes weights for engines that read them from disk: a Hugging Face directory per version, whole or not there at all.

Boundary: tensors by the trainer's names in, `*.safetensors` by the hub's names out. A checkpoint of a run, with its
optimizer, is another thing and is written by the trainers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t1.inference.published import PublishedWeights, forget_old, version_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COPIED = ("tokenizer*", "special_tokens_map.json", "chat_template*", "vocab.json", "merges.txt")
"""What an engine may look for beside weights and config."""


class CheckpointWriter:
    """Writes `DIRECTORY/v<version>`, and keeps the newest few. The directory must be one that the engines see too."""

    def __init__(self, directory: Path, model: Path, *, keep: int = 2) -> None:
        """`model`: the Hugging Face directory that the policy began with: its config names the tensors."""
        self._directory, self._model, self._keep = directory.absolute(), model, max(1, keep)
        self._skeleton: PreTrainedModel | None = None

    def write(self, weights: Mapping[str, Any], version: int) -> Path:
        """The directory with these weights: their own where they have one, which is another's to remove.

        Raises ValueError when they are not this model's.
        """
        if isinstance(weights, PublishedWeights):
            return weights.path
        skeleton = self._skeleton = self._skeleton or _skeleton(self._model)
        expected = skeleton.state_dict()
        if differing := sorted(set(expected) ^ set(weights)):
            raise ValueError(f"weights: {len(differing)} names are missing or unknown, first {differing[0]!r}")
        for name, tensor in expected.items():
            if tensor.shape != weights[name].shape:
                raise ValueError(f"{name}: expected {list(tensor.shape)}, got {list(weights[name].shape)}")
        self._directory.mkdir(parents=True, exist_ok=True)
        final, partial = version_path(self._directory, version), self._directory / f".v{version}.{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        _save(skeleton, partial, {name: weights[name].detach().cpu() for name in expected})
        for pattern in COPIED:
            for file in self._model.glob(pattern):
                shutil.copy2(file, partial / file.name)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        forget_old(self._directory, keep=self._keep)
        return final


def _skeleton(path: Path) -> PreTrainedModel:
    """The model without any numbers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model: PreTrainedModel = loader.from_config(AutoConfig.from_pretrained(path, local_files_only=True))
    return model


def _save(skeleton: PreTrainedModel, path: Path, weights: Mapping[str, Any]) -> None:
    """Write config and tensors as transformers does: experts one by one, tied weights once, large models in shards."""
    from t1.inference.models import no_progress_bar

    with no_progress_bar():
        skeleton.save_pretrained(path, state_dict=dict(weights))
