"""Checkpoints of nets that are sharded over many ranks, in the directory of `training.checkpoints`:

    config.json, model-*.safetensors, tokenizer files   the policy, gathered weight by weight: Hugging Face's format
    shards/                                             weights and Adam's moments, each rank its own (torch's DCP)
    progress.json                                       step counter, reward normalizer
    trainer.pt                                          random states
    manifest.json                                       sha256 of every other file, written last

`shards/` is read back under any layout: a run goes on with more ranks, fewer, or in one process; and ranks take over
what one process wrote.
Boundary: every function is called by all ranks; the files of `path` are seen by all of them.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from t1.errors import CheckpointError
from t1.inference.models import empty_model
from t1.training.checkpoints import (
    CRITIC,
    MANIFEST,
    PROGRESS,
    TRAINER,
    copy_tokenizer,
    digests,
    publish,
    verify_checkpoint,
)
from t1.training.nets import MOMENTS, Net
from t1.training.parallel.loading import LAYER, load_nets

SHARDS = "shards"
MODEL = "model."
"""Prefix of the policy's own names inside its module."""


def save_sharded(
    path: Path,
    nets: Mapping[str, Net],
    *,
    policy: PreTrainedModel | None,
    generators: Mapping[str, torch.Generator],
    progress: Mapping[str, Any],
    tokenizer_from: Path | None = None,
) -> None:
    """Write a checkpoint to `path`, all or nothing. Raises CheckpointError, on every rank, if it cannot be written."""
    partial = path.with_name(f".{path.name}.partial")

    def write() -> None:
        if _leads():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        dist.barrier()
        save(_state(nets), checkpoint_id=partial / SHARDS)
        if policy is not None:
            export(partial, policy, nets["policy"])
        dist.barrier()
        if _leads():
            torch.save({name: one.get_state() for name, one in generators.items()}, partial / TRAINER)
            (partial / PROGRESS).write_text(json.dumps(dict(progress)))
            copy_tokenizer(tokenizer_from, partial)
            (partial / MANIFEST).write_text(json.dumps(digests(partial), indent=1))
            publish(partial, path)

    _together(write, f"{path}: could not be written, earlier checkpoints are untouched")


def load_sharded(
    path: Path, nets: Mapping[str, Net], *, generators: Mapping[str, torch.Generator], expect: Mapping[str, Any]
) -> dict[str, Any]:
    """Restore all of it in place and return `progress`; the layout may be another than the one that saved it.

    Raises CheckpointError, on every rank, for files that are not as they were written, another shape, or a `progress`
    entry that is not the one in `expect`.
    """
    progress: dict[str, Any] = {}

    def check() -> None:
        if _leads():
            verify_checkpoint(path)
        progress.update(json.loads((path / PROGRESS).read_text()))
        for name, wanted in expect.items():
            if progress.get(name) != wanted:
                raise CheckpointError(f"{path}: its {name} is {progress.get(name)}, this run has {wanted}")

    def read() -> None:
        saved = torch.load(path / TRAINER, weights_only=True, mmap=True)
        if (path / SHARDS).is_dir():
            with warnings.catch_warnings():  # of a process without peers torch says that it has none
                warnings.filterwarnings("ignore", message="torch.distributed is")
                load(_state(nets), checkpoint_id=path / SHARDS)
        else:
            _take_over(path, nets, saved["optimizers"])
            saved = saved["generators"]
        for name, state in saved.items():
            generators[name].set_state(state)

    _together(check, str(path))
    _together(read, f"{path}: could not be read")
    return progress


def _take_over(path: Path, nets: Mapping[str, Net], optimizers: Mapping[str, Any]) -> None:
    """Weights and moments of a checkpoint that one process wrote, which holds them whole and moments by number."""
    load_nets(path, empty_model(path), nets)
    for kind, net in nets.items():
        if kind == "critic":
            with safe_open(path / CRITIC, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    net.fill({name: file.get_tensor(name)})
        weights = [(name, weight) for name, weight in net.module.named_parameters() if weight.requires_grad]
        numbered = sorted(weights, key=lambda one: one[1].ndim < 2)  # matrices first: see `optimization.adamw`
        for number, moments in optimizers[kind]["state"].items():
            net.fill_moments(numbered[number][0], float(moments["step"]), {name: moments[name] for name in MOMENTS})


def export(folder: Path, policy: PreTrainedModel, net: Net) -> None:
    """Write the policy to `folder` in Hugging Face's format, one file a layer: no rank ever holds more than a layer.

    The leading rank raises what went wrong once all ranks went through all weights: the others wait in collectives.
    """
    placed: dict[str, str] = {}
    total, problem = 0, None  # type: int, Exception | None
    for number, weights in enumerate(_by_layer(policy, net)):
        if not net.ranks.leads or problem is not None:
            continue
        file = f"model-{number:05d}.safetensors"
        tensors = {name: weight.contiguous() for name, weight in revert_weight_conversion(policy, weights).items()}
        try:
            save_file(tensors, folder / file, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            problem = error
        placed.update(dict.fromkeys(tensors, file))
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if problem is not None:
        raise problem
    if net.ranks.leads:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
        config: Any = policy.config
        config.architectures = [type(policy).__name__.removeprefix("FSDP")]
        config.save_pretrained(folder)


def _by_layer(policy: PreTrainedModel, net: Net) -> Iterator[dict[str, Tensor]]:
    """Whole weights on the leading rank's host memory, a layer at a time; the other ranks get empty ones."""
    own = {name for name, _ in policy.named_parameters()} | {name for name, _ in policy.named_buffers()}
    layer, weights = "", {}  # type: tuple[str, dict[str, Tensor]]
    for full_name, weight in net.full_weights():
        name = full_name.removeprefix(MODEL)
        if name not in own:  # a second name of a tied weight
            continue
        match = LAYER.search(name)
        if (here := match.group() if match else "") != layer and weights:
            yield weights
            weights = {}
        layer = here
        weights[name] = weight.detach().cpu() if net.ranks.leads else weight.new_empty(0)
    yield weights


def _state(nets: Mapping[str, Net]) -> dict[str, Any]:
    """What torch's distributed checkpoint saves and loads in place."""
    return {f"{net_name}.{name}": tensor for net_name, net in nets.items() for name, tensor in net.state().items()}


def _leads() -> bool:
    """Whether this rank writes what is written once."""
    return not dist.is_initialized() or bool(dist.get_rank() == 0)


def _together(work: Any, what: str) -> None:
    """Do `work` on every rank; if it fails on one, it fails on all, with that one's reason."""
    problem = ""
    try:
        work()
    except CheckpointError as error:
        problem = str(error)
    except (OSError, RuntimeError, KeyError, ValueError, SafetensorError, CheckpointException) as error:
        problem = f"{what}: {error}"
    problems = [problem]
    if dist.is_initialized():
        problems *= dist.get_world_size()
        dist.all_gather_object(problems, problem)
    if found := [text for text in problems if text]:
        raise CheckpointError(found[0])
