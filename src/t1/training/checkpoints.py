"""Checkpoints on disk: a Hugging Face directory that also holds what a trainer needs to go on bit for bit.

    config.json, model.safetensors, tokenizer files    the policy: `AutoModelForCausalLM.from_pretrained(path)` reads it
    critic.safetensors                                 the critic, where there is one
    trainer.pt                                         optimizers and random states
    progress.json                                      step counter, reward normalizer
    manifest.json                                      sha256 of every other file, written last

Boundary: it moves state between memory and disk and knows no training. A checkpoint appears by one rename, after all of
it has reached the disk: what a kill leaves behind is a whole checkpoint or a hidden directory that nobody reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from t1.errors import CheckpointError
from t1.inference.models import no_progress_bar

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
MANIFEST, PROGRESS, CRITIC, TRAINER = "manifest.json", "progress.json", "critic.safetensors", "trainer.pt"


def save_checkpoint(
    path: Path,
    *,
    policy: PreTrainedModel,
    critic: nn.Module | None = None,
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator] | None = None,
    progress: Mapping[str, Any],
    tokenizer_from: Path | None = None,
) -> None:
    """Write a checkpoint to `path`, replacing one that is there. Raises CheckpointError, leaving nothing, if it cannot.

    `tokenizer_from`: a directory whose tokenizer files are copied beside the weights. `progress` is JSON.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with no_progress_bar():
            policy.save_pretrained(partial)
        if critic is not None:
            save_file({name: weight.contiguous() for name, weight in critic.state_dict().items()}, partial / CRITIC)
        torch.save(_trainer_state(optimizers, generators or {}), partial / TRAINER)
        (partial / PROGRESS).write_text(json.dumps(dict(progress)))
        copy_tokenizer(tokenizer_from, partial)
        (partial / MANIFEST).write_text(json.dumps(digests(partial), indent=1))
        publish(partial, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"{path}: could not be written, earlier checkpoints are untouched: {error}") from error


def load_checkpoint(
    path: Path,
    *,
    policy: PreTrainedModel,
    critic: nn.Module | None = None,
    optimizers: Mapping[str, torch.optim.Optimizer],
    generators: Mapping[str, torch.Generator] | None = None,
    expect: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Restore all of it in place and return `progress`. Everything is checked before anything is changed.

    Raises CheckpointError for a missing or broken file, another shape, other optimizers, or a `progress` entry that is
    not the one in `expect`.
    """
    verify_checkpoint(path)
    progress: dict[str, Any] = json.loads((path / PROGRESS).read_text())
    for name, wanted in (expect or {}).items():
        if progress.get(name) != wanted:
            raise CheckpointError(f"{path}: its {name} is {progress.get(name)}, this run has {wanted}")
    saved = _read_policy(path, policy)
    saved_critic = _read_critic(path, critic)
    state = torch.load(path / TRAINER, weights_only=True)
    for kind, owned in (("optimizers", optimizers), ("generators", generators or {})):
        if set(state[kind]) != set(owned):
            raise CheckpointError(f"{path}: has the {kind} {sorted(state[kind])}, this trainer needs {sorted(owned)}")
    policy.load_state_dict(saved)
    if critic is not None:
        critic.load_state_dict(saved_critic)
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict(state["optimizers"][name])
    for name, generator in (generators or {}).items():
        generator.set_state(state["generators"][name])
    torch.set_rng_state(state["rng"])
    return progress


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError unless every file that the manifest names is there and unchanged."""
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"{path}: no complete checkpoint here (it has no {MANIFEST})")
    try:
        wanted = json.loads((path / MANIFEST).read_text())
        found = digests(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    for name, digest in wanted.items():
        if found.get(name) != digest:
            raise CheckpointError(f"{path}: {name} is {'missing' if name not in found else 'not as it was written'}")


def checkpoint_path(root: Path, step: int) -> Path:
    """Where the checkpoint of a step belongs."""
    return root / f"step-{step:06d}"


def checkpoints_in(root: Path) -> list[Path]:
    """Finished checkpoints of a run, oldest first; contents unchecked."""
    return sorted(folder for folder in root.glob("step-*") if (folder / MANIFEST).is_file())


def latest_checkpoint(root: Path) -> Path | None:
    """The newest checkpoint whose files are all as they were written, or None."""
    for path in reversed(checkpoints_in(root)):
        try:
            verify_checkpoint(path)
        except CheckpointError:
            continue
        return path
    return None


def policy_at(path: Path) -> Path:
    """The checkpoint that a path means to a person: of a run, or of its checkpoints, the newest; else what it names."""
    for root in (path, path / "rl", path / "checkpoints" / "rl"):
        if (newest := latest_checkpoint(root)) is not None:
            return newest
    sft = path / "checkpoints" / "sft"
    return sft if sft.is_dir() else path


def steps_done(root: Path) -> int:
    """How many steps the newest checkpoint has behind it; 0 without one."""
    latest = latest_checkpoint(root)
    return 0 if latest is None else int(latest.name.rpartition("-")[2])


def prune_checkpoints(root: Path, *, keep: int) -> None:
    """Remove all but the newest `keep` ≥ 1 checkpoints."""
    for path in checkpoints_in(root)[: -max(1, keep)]:
        shutil.rmtree(path)


def _trainer_state(
    optimizers: Mapping[str, torch.optim.Optimizer], generators: Mapping[str, torch.Generator]
) -> dict[str, Any]:
    """Everything of a trainer that is not a weight."""
    return {
        "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers.items()},
        "generators": {name: generator.get_state() for name, generator in generators.items()},
        "rng": torch.get_rng_state(),
    }


def _read_policy(path: Path, policy: PreTrainedModel) -> dict[str, Tensor]:
    """The policy's weights in `path`, under the names that `policy` has in memory."""
    kind = json.loads((path / "config.json").read_text()).get("model_type")
    if kind != policy.config.model_type:
        raise CheckpointError(f"{path}: holds a {kind} model, this run has {policy.config.model_type}")
    with no_progress_bar():
        saved: dict[str, Tensor] = type(policy).from_pretrained(path, dtype=policy.dtype).state_dict()
    _check_shapes(path, "policy", saved, policy)
    return saved


def _read_critic(path: Path, critic: nn.Module | None) -> dict[str, Tensor]:
    """The critic's weights in `path`; none where this trainer has no critic."""
    if critic is None:
        return {}
    if not (path / CRITIC).is_file():
        raise CheckpointError(f"{path}: holds no critic; start PPO from its weights instead of resuming it")
    saved = load_file(path / CRITIC)
    _check_shapes(path, "critic", saved, critic)
    return saved


def _check_shapes(path: Path, what: str, saved: Mapping[str, Tensor], model: nn.Module) -> None:
    """Refuse weights that are not those of `model`, with both shapes."""
    wanted = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    found = {name: list(weight.shape) for name, weight in saved.items()}
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise CheckpointError(
                f"{path}: {what} {name}: expected {wanted.get(name, 'nothing')}, got {found.get(name, 'nothing')}"
            )


def copy_tokenizer(source: Path | None, folder: Path) -> None:
    """Put the tokenizer files of the directory `source`, those that it has, beside the weights."""
    for file in (source / name for name in TOKENIZER_FILES) if source is not None else ():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)


def digests(folder: Path) -> dict[str, str]:
    """sha256 hex of every file in `folder` but the manifest, by its path in there."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.name != MANIFEST and file.is_file():
            with file.open("rb") as stream:
                found[str(file.relative_to(folder))] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def publish(partial: Path, path: Path) -> None:
    """Let `partial` become `path` once all of it is on the disk."""
    for file in partial.rglob("*"):
        _sync(file)
    _sync(partial)
    replaced = path.with_name(f".{path.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if path.exists():
        path.rename(replaced)
    partial.rename(path)
    _sync(path.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
