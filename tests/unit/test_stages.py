"""What a stage refuses before it begins."""

from __future__ import annotations

import pytest

from t1.config import load_config
from t1.errors import ConfigError
from t1.harness.config import SamplingConfig
from t1.stages import check_distribution, check_method


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"top_p": 0.9}, {"top_k": 20}])
def test_a_distribution_that_the_trainer_does_not_know_is_not_learned_from(wrong: dict[str, float]) -> None:
    """Case L3."""
    with pytest.raises(ConfigError, match=r"harness\.sampling"):
        check_distribution(SamplingConfig(**wrong))  # type: ignore[arg-type]


def test_any_temperature_is() -> None:
    check_distribution(SamplingConfig(temperature=0.7))


@pytest.mark.parametrize(
    ("overrides", "advice"),
    [
        (["ppo.baseline=group"], "set rollouts.group_size"),
        (["tito.keep=text"], "set ppo.replay_routing=false"),
    ],
)
def test_choices_that_mean_nothing_together_are_refused(overrides: list[str], advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        check_method(load_config(None, overrides))
    check_method(load_config(None, [*overrides, "rollouts.group_size=2", "ppo.replay_routing=false"]))
