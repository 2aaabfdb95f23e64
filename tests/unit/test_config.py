"""Configuration: one file, overrides on top, and mistakes answered in one line."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from t1.config import RunConfig, config_keys, differing_keys, load_config, nearest_key, write_config
from t1.errors import ConfigError

ROOT = Path(__file__).parents[2]


def refused(*overrides: str, path: Path | None = None) -> str:
    """The message that a bad configuration gets."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_defaults_stand_without_a_file():
    assert load_config() == RunConfig()


def test_overrides_win_over_the_file(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text('[ppo]\nlr = 1e-3\nepochs = 3\n[tasks]\npath = "suite"\n')
    config = load_config(path, ["ppo.lr=5e-5", "harness.sampling.temperature=0.5", "tasks.path=other/suite"])
    assert (config.ppo.lr, config.ppo.epochs) == (5e-5, 3)
    assert config.harness.sampling.temperature == 0.5
    assert config.tasks.path == "other/suite"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ppo.clip_hihg=0.3", "ppo.clip_high"),
        ("lr=1e-4", "ppo.lr"),
        ("pppo.lr=1e-4", "ppo"),
        ("harness.samplng.temperature=1", "harness.sampling"),
        ("rollouts.groupsize=4", "rollouts.group_size"),
        ("temperature=1", "harness.sampling.temperature"),
    ],
)
def test_an_unknown_key_names_the_nearest_right_one(wrong, right):
    message = refused(wrong)
    assert message.startswith(f"command line: {wrong.split('=')[0].split('.')[0]}")
    assert right in message.split("did you mean ")[1]


def test_a_key_that_looks_like_nothing_gets_no_guess():
    assert "did you mean" not in refused("zzqqxx=1")


def test_a_mistake_in_the_file_names_the_file_and_the_key(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[rollouts]\ngroup_siz = 4\n")
    assert refused(path=path) == f"{path}: rollouts.group_siz: unknown key; did you mean rollouts.group_size?"


@pytest.mark.parametrize(
    "override",
    [
        "ppo.lr=fast",
        "rollouts.group_size=2.5",
        "rollouts.group_size=0",
        "ppo.whiten=1",
        "reward.kind=binry",
        "ppo=3",
        "run.seed=-1",
        'run.seed="3"',
    ],
)
def test_a_wrong_value_is_shown_with_its_key(override):
    key, _, value = override.partition("=")
    message = refused(override)
    assert message.startswith(f"command line: {key}: ") and value.strip('"') in message


def test_further_mistakes_are_counted():
    assert refused("ppo.lr=-1", "run.steps=0").endswith("(and 1 more)")


@pytest.mark.parametrize("override", ["ppo.lr", "=3", "ppo..lr=3", "ppo.lr.x=3"])
def test_an_override_of_another_form_is_refused(override):
    assert "command line" in refused("ppo.lr=1e-3", override)


def test_a_file_that_is_no_toml_or_not_there_is_one_line(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text("[ppo\nlr = 1")
    assert str(path) in refused(path=path)
    assert f"did you mean {path}?" in refused(path=tmp_path / "rum.toml")


def sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = field.default
        yield from (
            sections(type(inner), f"{prefix}{name}.") if isinstance(inner, BaseModel) else [(prefix + name, field)]
        )


def test_a_key_that_can_be_unset_is_unset_by_default():
    """TOML has no null: what is unset is absent from a run's config.toml, and an absent key reads as its default."""
    assert not [
        key for key, field in sections(RunConfig) if "None" in str(field.annotation) and field.default is not None
    ]


def test_a_written_configuration_reads_back_the_same(tmp_path: Path):
    config = load_config(None, ["ppo.lr=3e-7", "reward.normalizer=7", "tasks.path=a 'quoted' \"path\"", "run.seed=5"])
    write_config(config, tmp_path / "config.toml")
    assert load_config(tmp_path / "config.toml") == config
    assert "# PPO steps." in (tmp_path / "config.toml").read_text()


def test_differences_are_named_by_key():
    new = load_config(None, ["ppo.lr=3e-7", "harness.sampling.top_p=0.9"])
    assert differing_keys(RunConfig(), new).keys() == {"ppo.lr", "harness.sampling.top_p"}


def test_every_key_is_its_own_nearest():
    assert all(nearest_key(key) == key for key in config_keys())


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path: Path):
    assert isinstance(load_config(path), RunConfig)


def test_the_quickstart_file_holds_the_defaults():
    assert load_config(ROOT / "configs" / "quickstart.toml") == RunConfig()


def test_the_reference_page_is_up_to_date():
    page = runpy.run_path(str(ROOT / "docs" / "configuration.py"))["page"]()
    assert page == (ROOT / "docs" / "configuration.md").read_text(), "run `make docs`"
