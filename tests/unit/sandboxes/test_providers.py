"""What a configuration's section makes."""

from __future__ import annotations

import pytest

from t1.config import RunConfig
from t1.errors import ConfigError, SandboxUnavailable
from t1.sandboxes import ContainerProvider, NamespaceProvider, SandboxPool, make_provider


def test_namespaces_are_the_default() -> None:
    assert isinstance(make_provider(), NamespaceProvider)


@pytest.mark.parametrize("bound", [{"max_open": 3}, {"opens_per_s": 0.5}, {"lease_s": 60.0}, {"num_warm": 1}])
def test_a_bound_puts_a_pool_before_the_provider(bound: dict[str, float]) -> None:
    assert isinstance(make_provider(pool=bound), SandboxPool)


def test_the_configuration_s_section_is_what_the_maker_takes_and_bounds_nothing_by_itself() -> None:
    assert isinstance(make_provider(**RunConfig().sandboxes.model_dump()), NamespaceProvider)


def test_containers_are_made_where_there_is_an_engine() -> None:
    try:
        assert isinstance(make_provider("containers", image="x", network="listed"), ContainerProvider)
    except SandboxUnavailable as error:
        assert "To fix it" in str(error)


@pytest.mark.parametrize(("kind", "setting"), [("containers", "rootfs"), ("namespaces", "image")])
def test_a_setting_of_the_other_kind_is_refused_by_name(kind: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"sandboxes.{setting}"):
        make_provider(kind, **{setting: "x"})
