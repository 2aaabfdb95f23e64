"""Weights from a Hugging Face directory into sharded nets, without a whole model in any process.

    rank 0: files ─ a layer at a time, converted by transformers ─▶ broadcast, weight by weight ─▶ each rank's part

Nets begin on the meta device (`inference.models.empty_model`), are sharded there and get memory for their shards alone
(`sharding.materialize`). Boundary: files in, shards filled; which nets there are, and on which ranks, is the trainer's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig

from t1.errors import CheckpointError
from t1.inference.models import no_progress_bar
from t1.training.forward import body_of
from t1.training.nets import Net

LAYER = re.compile(r"layers\.\d+\.")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PREFIXES = {"policy": "model.", "critic": "body."}
"""By net: what its module puts before the names of the model in it, of the critic before those of the model's body."""


def load_nets(path: Path, policy: PreTrainedModel, nets: Mapping[str, Net]) -> None:
    """Fill a trainer's nets with the weights at `path`; `policy` is the unsharded model on the meta device.

    Called by every rank of the default group. The critic begins with the policy's body and a head that says 0. On
    rank 0 `policy` remembers how transformers converted the names, as after `from_pretrained`.
    Raises CheckpointError, on every rank, for files that cannot be read, do not fit, or lack a weight.
    """
    body = next(name for name, module in policy.named_modules() if module is body_of(policy))
    beneath = {"policy": "", "critic": f"{body}."}
    missing = {kind: {name for name, _ in net.module.named_parameters()} for kind, net in nets.items()}
    device = next(next(iter(nets.values())).module.parameters()).device
    for name, weight in _to_all(_read_by_layer(path, policy), device):
        for kind, net in nets.items():
            if name.startswith(beneath[kind]):
                own = PREFIXES[kind] + name.removeprefix(beneath[kind])
                net.fill({own: weight})
                missing[kind].discard(own)
    if "critic" in nets:
        missing["critic"] -= _say_nothing(nets["critic"].module)
    for kind, names in missing.items():
        if names:
            raise CheckpointError(f"{path}: holds no weights for {len(names)} of the {kind}'s, such as {min(names)}")


def _say_nothing(critic: nn.Module) -> set[str]:
    """Make the critic's head say 0 everywhere; the names of its weights."""
    heads = {name: weight for name, weight in critic.named_parameters() if name.startswith("head.")}
    for weight in heads.values():
        nn.init.zeros_(weight)
    return set(heads)


def _to_all(layers: Iterator[dict[str, Tensor]], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """(name, whole weight) on every rank, one after another; only rank 0 draws from `layers`. If it fails, all do."""
    while True:
        layer, said = None, [None]  # type: dict[str, Tensor] | None, list[Any]
        try:
            if dist.get_rank() == 0 and (layer := next(layers, None)) is not None:
                said = [[(name, weight.shape, weight.dtype) for name, weight in layer.items()]]
        except CheckpointError as error:
            said = [str(error)]
        dist.broadcast_object_list(said, src=0)
        if said[0] is None:
            return
        if isinstance(said[0], str):
            raise CheckpointError(said[0])
        for name, shape, dtype in said[0]:
            weight = torch.empty(shape, dtype=dtype, device=device) if layer is None else layer.pop(name).to(device)
            dist.broadcast(weight, src=0)
            yield name, weight


def _read_by_layer(path: Path, policy: PreTrainedModel) -> Iterator[dict[str, Tensor]]:
    """The model's weights under its own names, a layer at a time.

    transformers converts them, as in `from_pretrained`.
    """
    conversions: Any = get_model_conversion_mapping(policy)
    for group in _groups(path):
        with ExitStack() as stack:
            try:
                opened = {file: stack.enter_context(safe_open(path / file, "pt")) for file in set(group.values())}
                slices = {name: opened[file].get_slice(name) for name, file in group.items()}
                config = LoadStateDictConfig(dtype=policy.dtype, weight_mapping=conversions)
                with no_progress_bar():
                    found, _ = convert_and_load_state_dict_in_model(policy, slices, config)
            except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
                raise CheckpointError(f"{path}: {error}") from error
        for problem in (*found.mismatched_keys, *found.conversion_errors.items()):
            raise CheckpointError(f"{path}: does not fit the model that its config.json describes: {problem}")
        yield _taken(policy)


def _groups(path: Path) -> list[dict[str, str]]:
    """[layers] name in the files → file; what belongs to no layer comes first."""
    groups: dict[str, dict[str, str]] = {"": {}}
    for name, file in _placed(path).items():
        match = LAYER.search(name)
        groups.setdefault(match.group() if match else "", {})[name] = file
    return list(groups.values())


def _placed(path: Path) -> dict[str, str]:
    """Every name in the files, and its file."""
    try:
        if (path / INDEX).is_file():
            return dict(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"])
        with safe_open(path / SINGLE, "pt") as file:
            return dict.fromkeys(file.keys(), SINGLE)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{path}: no readable safetensors in Hugging Face format: {error}") from error


def _taken(model: PreTrainedModel) -> dict[str, Tensor]:
    """What was loaded into the model, which is on the meta device again afterwards."""
    taken: dict[str, Tensor] = {}
    for prefix, module in model.named_modules():
        for kept in (module._parameters, module._buffers):
            for name, tensor in kept.items():
                if tensor is None or tensor.is_meta:
                    continue
                taken[f"{prefix}.{name}" if prefix else name] = tensor.detach()
                empty = torch.empty_like(tensor, device="meta")
                kept[name] = nn.Parameter(empty, tensor.requires_grad) if kept is module._parameters else empty
    return taken
