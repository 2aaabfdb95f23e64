"""The provider that a configuration asks for. Boundary: plain settings in, a provider out; nothing is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.errors import ConfigError
from t1.protocols import SandboxProvider
from t1.sandboxes.containers.provider import ContainerProvider
from t1.sandboxes.harbor.provider import HarborProvider
from t1.sandboxes.namespaces.provider import NamespaceProvider
from t1.sandboxes.network.proxy import AllowLists
from t1.sandboxes.pool import PoolLimits, SandboxPool

_DEFAULT = PoolLimits()


def make_provider(
    kind: str = "namespaces", *, pool: Mapping[str, Any] | None = None, **settings: Any
) -> SandboxProvider:
    """A `plain_provider`, behind a pool where `pool` (keys of `[sandboxes.pool]`) bounds anything."""
    provider, limits = plain_provider(kind, **settings), pool_limits(**(pool or {}))
    return provider if limits is None else SandboxPool(provider, limits)


def plain_provider(
    kind: str,
    *,
    root: str = "",
    rootfs: str = "",
    image: str = "",
    network: str = "none",
    label: str = "",
    reach: Mapping[int, tuple[str, int]] | None = None,
    readable: Sequence[Path] = (),
    environment: str = "",
    options: Mapping[str, Any] | None = None,
    python: str = "",
) -> SandboxProvider:
    """Sandboxes of this kind.

    `network`: "none", "listed" (the hosts that a task's allow-list names), or "all" (also every public host, for tasks
    that ask for the network); always through a proxy, of harbor by the provider's own means, and "provider" leaves it
    alone. `rootfs` is of namespaces, `image` of the others: what a task without an image of its own starts from.
    `environment`, `options` and `python` are of harbor, see HarborProvider; `reach` and `readable` of the others, see
    NamespaceProvider. Raises ConfigError for a setting that the kind does not have.
    """
    place = Path(root) if root else None
    if kind == "harbor":
        if rootfs:
            raise ConfigError("sandboxes.rootfs: Harbor's environments have images; set sandboxes.image")
        if reach or readable:
            raise ConfigError("agent.name: an agent inside the sandbox needs sandboxes.kind = namespaces or containers")
        return HarborProvider(
            place,
            environment=environment or "docker",
            options=options,
            python=Path(python).expanduser().absolute() if python else None,
            default_image=image or None,
            network=network,
            label=label,
        )
    for key, value in (("environment", environment), ("options", options), ("python", python)):
        if value:
            raise ConfigError(f"sandboxes.{key}: is of sandboxes.kind = harbor, and the kind is {kind}")
    if network == "provider":
        raise ConfigError(f"sandboxes.network: provider is of sandboxes.kind = harbor, and the kind is {kind}")
    lists = None if network == "none" else AllowLists(internet=network == "all")
    if kind == "containers":
        if rootfs:
            raise ConfigError("sandboxes.rootfs: containers have images; set sandboxes.image")
        return ContainerProvider(
            place,
            default_image=image or None,
            allow_lists=lists,
            label=label,
            reach=reach or {},
            readable=readable,
        )
    if image:
        raise ConfigError("sandboxes.image: namespaces have no images; set sandboxes.rootfs, or kind to containers")
    return NamespaceProvider(
        place,
        rootfs=Path(rootfs) if rootfs else None,
        allow_lists=lists,
        label=label,
        reach=reach or {},
        readable=tuple(readable),
    )


def pool_limits(
    *,
    max_open: int = 0,
    opens_per_s: float | None = None,
    wait_s: float = _DEFAULT.wait_s,
    lease_s: float | None = None,
    num_warm: int = 0,
    ready_s: float = _DEFAULT.ready_s,
) -> PoolLimits | None:
    """What a pool is to bound; None where it would bound nothing."""
    if not max_open and opens_per_s is None and lease_s is None and not num_warm:
        return None
    lease = _DEFAULT.lease_s if lease_s is None else lease_s
    return PoolLimits(max_open or None, opens_per_s, wait_s, lease, num_warm, ready_s)
