"""Where the runs of an ablation go, and which of them may stand in for one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from t1.ablate import place_of, start_config
from t1.config import RunConfig, load_config, write_config
from t1.errors import RunError
from t1.evaluation.ablations import KINDS, arms_of, seeded

BASE = load_config(None, ["rollouts.group_size=2", "rollouts.oversample=1.5", "run.seed=3", "sft.steps=7"])


def arm(kind: str, name: str, seed: int = 0) -> RunConfig:
    """The run of one arm."""
    return seeded(arms_of(kind, BASE)[name], seed, suite=Path("suite"), start=Path("sft"))


def written(config: RunConfig, path: Path) -> Path:
    """A run directory of that configuration."""
    path.mkdir(parents=True)
    write_config(config, path / "config.toml")
    return path


def test_an_arm_that_another_ablation_made_is_found_under_its_name(tmp_path: Path) -> None:
    live = written(arm("replay", "live"), tmp_path / "seed-0" / "live")
    assert place_of(tmp_path, 0, "tokens", arm("tito", "tokens")) == live
    assert place_of(tmp_path, 0, "text", arm("tito", "text")) == tmp_path / "seed-0" / "text"
    assert place_of(tmp_path, 1, "tokens", arm("tito", "tokens", 1)) == tmp_path / "seed-1" / "tokens"


def test_a_run_of_another_configuration_is_never_taken_for_the_arm(tmp_path: Path) -> None:
    written(arm("replay", "live").model_copy(update={"ppo": BASE.ppo}), tmp_path / "seed-0" / "live")
    with pytest.raises(RunError, match=r"ppo\.replay_routing was True and is False; choose another --out"):
        place_of(tmp_path, 0, "live", arm("replay", "live"))


@pytest.mark.parametrize("kind", KINDS)
def test_all_arms_of_all_kinds_have_the_same_start(kind: str) -> None:
    starts = [start_config(config) for config in arms_of(kind, BASE).values()]
    assert starts == [start_config(BASE)] * 2
    assert (starts[0].run.seed, starts[0].sft.steps) == (3, 7)


def test_what_decides_the_start_is_part_of_it() -> None:
    other = BASE.model_copy(update={"sft": BASE.sft.model_copy(update={"steps": 8})})
    assert start_config(other) != start_config(BASE)
