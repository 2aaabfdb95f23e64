"""Configs of models by name, with their source, or from a checkpoint's directory; nothing is fetched.

Boundary: the shape of a model, never its weights.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from t1.errors import ConfigError

_SHIPPED = resources.files("t1.training.planning") / "models"


@dataclass(frozen=True, slots=True)
class Known:
    """A model's shape, and how it is known."""

    config: PreTrainedConfig
    """Of the text model, where there is more to it."""
    source: str
    """A page or a file."""
    assumed: tuple[str, ...] = ()
    """What the source does not say."""


def known_names() -> list[str]:
    """Models whose shape ships with T1."""
    return sorted(file.name.removesuffix(".json") for file in _SHIPPED.iterdir() if file.name.endswith(".json"))


def known_model(model: str) -> Known:
    """A shipped model (with or without its organisation's name), or that of a directory or its config.json.

    Raises ConfigError with the names there are.
    """
    name = model.rpartition("/")[2]
    if name in known_names():
        facts: dict[str, Any] = json.loads((_SHIPPED / f"{name}.json").read_text())
        return Known(AutoConfig.for_model(**facts["config"]), facts["source"], tuple(facts["assumed"]))
    path = Path(model)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        return _from_file(file)
    by_lower = {known.lower(): known for known in known_names()}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.4)
    meant = f"; did you mean {by_lower[near[0]]}?" if near else ""
    raise ConfigError(
        f"model: {model!r} is neither a directory with a config.json nor one of {', '.join(known_names())}{meant}"
    )


def _from_file(file: Path) -> Known:
    """The shape in a config.json. Raises ConfigError where transformers cannot read it."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(file, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"model: {file} is not the config of a model that transformers knows: {reason}") from None
    text = config.get_text_config()
    assumed = () if text is config else (f"the text model alone, of {type(config).__name__}",)
    return Known(text, str(file), assumed)
