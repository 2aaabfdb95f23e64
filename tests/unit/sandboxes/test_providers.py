"""What a configuration's section makes."""

from __future__ import annotations

import pytest

from t1.errors import ConfigError, SandboxUnavailable
from t1.sandboxes import ContainerProvider, NamespaceProvider, make_provider


def test_namespaces_are_the_default() -> None:
    assert isinstance(make_provider(), NamespaceProvider)


def test_containers_are_made_where_there_is_an_engine() -> None:
    try:
        assert isinstance(make_provider("containers", image="x", network="listed"), ContainerProvider)
    except SandboxUnavailable as error:
        assert "To fix it" in str(error)


@pytest.mark.parametrize(("kind", "setting"), [("containers", "rootfs"), ("namespaces", "image")])
def test_a_setting_of_the_other_kind_is_refused_by_name(kind: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"sandboxes.{setting}"):
        make_provider(kind, **{setting: "x"})
