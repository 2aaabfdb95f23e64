"""How a synthesis is configured: one TOML file, `section.key=value` on top; unknown keys name the nearest known one.

Boundary: configuration stops at the constructors of the parts.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from t1.config import Section
from t1.errors import ConfigError
from t1.synthesis.attacks import Attacks
from t1.synthesis.candidate import DIFFICULTIES, MAX_ROUNDS


class RunSection(Section):
    """The run as a whole."""

    out: str = "suites/synth"
    """Where it goes: tasks/, rejected/, journal.sqlite, index.parquet, datasheet.md and .json."""
    seed: int = Field(0, ge=0)
    num_seeds: int = Field(1000, ge=1)
    """Lineages to begin; each gives one task or a reason why not."""
    num_tasks: int = Field(0, ge=0)
    """Stop after the batch in which so many tasks are accepted; 0 = go through all seeds."""
    batch: int = Field(64, ge=1)
    """Lineages that go through selection together; novelty is decided in the order of their seeds."""
    at_once: int = Field(8, ge=1)
    """Lineages at work at the same time."""


class SeedsSection(Section):
    """Where lineages begin."""

    domains: tuple[str, ...] = ()
    """Only these domains of the taxonomy; empty = all."""
    difficulties: tuple[str, ...] = DIFFICULTIES
    tasks: tuple[str, ...] = ()
    """Suites or task directories to begin from, instead of the taxonomy."""


class RewriteSection(Section):
    """Rounds of rewriting before the first selection; repairs come on top, up to `max_rounds` altogether."""

    min_evolutions: int = Field(0, ge=0, le=MAX_ROUNDS)
    max_evolutions: int = Field(4, ge=0, le=MAX_ROUNDS)
    max_rounds: int = Field(MAX_ROUNDS, ge=0, le=MAX_ROUNDS)
    max_repairs: int = Field(3, ge=0, le=MAX_ROUNDS)

    @model_validator(mode="after")
    def _is_a_range(self) -> RewriteSection:
        if not self.min_evolutions <= self.max_evolutions <= self.max_rounds:
            raise ValueError("expected min_evolutions ≤ max_evolutions ≤ max_rounds")
        return self


class ProposerSection(Section):
    """Who proposes; the keys below `kind` are for the model behind an endpoint."""

    kind: Literal["programmatic", "llm"] = "programmatic"
    base_url: str = ""
    """Of an OpenAI-compatible API, `/v1` included."""
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; it may be unset for a local server."""
    temperature: float = Field(1.0, ge=0)
    max_tokens: int = Field(8192, ge=1)
    timeout_s: float = Field(300.0, gt=0)
    max_attempts: int = Field(4, ge=1)
    """Requests for one answer: server errors, limits, and answers that are not what was asked for."""
    prompt_price: float = Field(0.0, ge=0)
    """Of a million prompt tokens, in the currency of `max_cost`."""
    completion_price: float = Field(0.0, ge=0)
    max_cost: float = Field(10.0, gt=0)
    """When it is reached nothing more is asked. Without prices nothing costs anything."""
    schema_format: bool = True
    """Send the JSON schema as `response_format`; switch off for servers that refuse it."""


class SolvableSection(Section):
    """Stage 2."""

    repeats: int = Field(2, ge=1)
    vary: bool = True
    """Also under another clock, locale and user."""


class DiscriminatingSection(Section):
    """Stage 3."""

    max_mutants: int = Field(8, ge=2)
    min_score: float = Field(0.8, gt=0, le=1)
    attacks: Attacks = Attacks.VOLLEY
    """Which attacks of the red team must earn nothing: none; volley: all that leave files, in one sandbox; each: one by
    one, those too that compile, race or replace programs."""


class NovelSection(Section):
    """Stage 4: similarities are Jaccard indices of word trigrams."""

    max_text: float = Field(0.7, gt=0, le=1)
    """Of two instructions."""
    max_shape: float = Field(0.85, gt=0, le=1)
    """Of instruction and solution with names, numbers and literals masked."""
    max_contamination: float = Field(0.5, gt=0, le=1)
    """Of an instruction and any of an evaluation set."""
    held_out: tuple[str, ...] = ()
    """Evaluation sets: directories of tasks to stay away from."""


class UsefulSection(Section):
    """Stage 5."""

    policy: str = ""
    """A run's configuration (TOML) whose model attempts every task; empty = nobody does."""
    rollouts: int = Field(8, ge=1)
    low: float = Field(0.05, ge=0, le=1)
    high: float = Field(0.95, ge=0, le=1)
    audit: bool = True
    min_audit: float = Field(0.6, ge=0, le=1)

    @model_validator(mode="after")
    def _is_a_band(self) -> UsefulSection:
        if self.low >= self.high:
            raise ValueError("expected low < high")
        return self


class SynthConfig(Section):
    """Everything that a synthesis is told."""

    run: RunSection = RunSection()
    seeds: SeedsSection = SeedsSection()
    rewrite: RewriteSection = RewriteSection()
    proposer: ProposerSection = ProposerSection()
    solvable: SolvableSection = SolvableSection()
    discriminating: DiscriminatingSection = DiscriminatingSection()
    novel: NovelSection = NovelSection()
    useful: UsefulSection = UsefulSection()

    def pinned(self) -> str:
        """What a resumed run must not change: all but how much, how fast, and what it may cost."""
        free = {"run": {"out", "num_seeds", "num_tasks", "at_once"},
                "proposer": {"max_cost", "timeout_s", "max_attempts", "api_key_env", "base_url"}}  # fmt: skip
        return self.model_dump_json(exclude=free)


def load_synth_config(path: Path | None, overrides: Sequence[str] = ()) -> SynthConfig:
    """The configuration in the TOML file at `path` (None = defaults) with `section.key=value` overrides on top."""
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read as TOML: {error}") from None
    for override in overrides:
        _apply(raw, override)
    try:
        return SynthConfig.model_validate(raw)
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        near = difflib.get_close_matches(key, _keys(), n=1) if first["type"] == "extra_forbidden" else []
        reason = f"no such key; did you mean {near[0]}?" if near else first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path or 'command line'}: {key}: {reason}") from None


def _apply(raw: dict[str, Any], override: str) -> None:
    """`section.key=value`, the value in JSON or else text."""
    key, _, text = override.partition("=")
    section, _, name = key.partition(".")
    if not name or not isinstance(raw.setdefault(section, {}), dict):
        raise ConfigError(f"command line: {override}: expected section.key=value, such as run.num_seeds=100")
    try:
        raw[section][name] = json.loads(text)
    except json.JSONDecodeError:
        raw[section][name] = text


def _keys() -> list[str]:
    """Every key, dotted."""
    sections: Mapping[str, Any] = SynthConfig.model_fields
    return [f"{name}.{key}" for name, field in sections.items() for key in field.annotation.model_fields]
