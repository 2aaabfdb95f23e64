"""Private machines for agents: Linux namespaces through bubblewrap, containers through podman or docker, and whatever
Harbor drives, behind `protocols.SandboxProvider`.
"""

from t1.sandboxes.containers.provider import ContainerProvider
from t1.sandboxes.containers.sandbox import ContainerSandbox
from t1.sandboxes.harbor.provider import HarborProvider
from t1.sandboxes.leases import sweep
from t1.sandboxes.namespaces.confinement import Confinement, SandboxProbe, probe
from t1.sandboxes.namespaces.provider import NamespaceProvider
from t1.sandboxes.namespaces.sandbox import NamespaceSandbox
from t1.sandboxes.network.proxy import AllowLists
from t1.sandboxes.pool import PoolLimits, SandboxPool
from t1.sandboxes.providers import make_provider

__all__ = [
    "AllowLists",
    "Confinement",
    "ContainerProvider",
    "ContainerSandbox",
    "HarborProvider",
    "NamespaceProvider",
    "NamespaceSandbox",
    "PoolLimits",
    "SandboxPool",
    "SandboxProbe",
    "make_provider",
    "probe",
    "sweep",
]
