"""The provider that a configuration asks for. Boundary: plain settings in, a provider out; nothing is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from t1.errors import ConfigError
from t1.protocols import SandboxProvider
from t1.sandboxes.containers import ContainerProvider
from t1.sandboxes.namespaces import NamespaceProvider
from t1.sandboxes.proxy import AllowLists


def make_provider(
    kind: str = "namespaces",
    *,
    root: str = "",
    rootfs: str = "",
    image: str = "",
    network: str = "none",
    label: str = "",
    reach: Mapping[int, tuple[str, int]] | None = None,
    readable: Sequence[Path] = (),
) -> SandboxProvider:
    """Sandboxes of this kind.

    `network`: "none", "listed" (the hosts that a task's allow-list names), or "all" (also every public host, for tasks
    that ask for the network); always through a proxy. `rootfs` is of namespaces, `image` of containers: what a task
    without an image of its own starts from. `reach` and `readable`: see NamespaceProvider. Raises ConfigError for a
    setting that the kind does not have.
    """
    place = Path(root) if root else None
    lists = None if network == "none" else AllowLists(internet=network == "all")
    if kind == "containers":
        if rootfs:
            raise ConfigError("sandboxes.rootfs: containers have images; set sandboxes.image")
        if reach or readable:
            raise ConfigError("agent.name: an agent inside the sandbox needs sandboxes.kind = namespaces")
        return ContainerProvider(place, default_image=image or None, allow_lists=lists, label=label)
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
