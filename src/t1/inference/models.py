"""Opens a causal language model, the same way for the engine and the trainers.

Boundary: local files or a config in, a transformers model out; nothing is ever fetched.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from t1.errors import CheckpointError


def load_model(
    source: Path | str | PreTrainedConfig,
    *,
    dtype: torch.dtype | Literal["float32", "bfloat16"] = torch.float32,
    attn_implementation: str = "sdpa",
    experts_implementation: str | None = None,
) -> PreTrainedModel:
    """A model from a local checkpoint, or with fresh random weights from a config; in evaluation mode.

    `experts_implementation` None leaves the choice to transformers, which is `grouped_mm` where it can run: the fastest
    by measurement from two tokens on, forward and backward, on the CPU too. Raises CheckpointError.
    """
    loader: Any = AutoModelForCausalLM
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    kernels = {"attn_implementation": attn_implementation}
    if experts_implementation is not None:
        kernels["experts_implementation"] = experts_implementation
    if isinstance(source, PreTrainedConfig):
        model: PreTrainedModel = loader.from_config(copy.deepcopy(source), dtype=dtype, **kernels)
    else:
        path = Path(source)
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path}: no config.json; expected a checkpoint in Hugging Face format")
        try:
            with no_progress_bar():
                model = loader.from_pretrained(path, dtype=dtype, local_files_only=True, **kernels)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"{path}: {error}") from error
    model.train(False)
    return model


def empty_model(path: Path, *, dtype: torch.dtype | Literal["float32", "bfloat16"] = torch.float32) -> PreTrainedModel:
    """The model of a local checkpoint on the meta device: names and shapes, no numbers. Raises CheckpointError."""
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    with torch.device("meta"):
        return load_model(config, dtype=dtype)


def use_threads(num_threads: int) -> None:
    """Set the threads of torch's operators for the calling thread, and for threads that begin to use torch later.

    On purpose, always: two busy processes with two threads each slow one another down tenfold and more.
    """
    torch.set_num_threads(num_threads)


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Keep transformers from drawing over the run's own display."""
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
