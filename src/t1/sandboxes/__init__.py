"""Private machines for agents: Linux namespaces through bubblewrap, containers through podman or docker, and whatever
Harbor drives, behind `protocols.SandboxProvider`.
"""

from t1.sandboxes.confinement import Confinement, SandboxProbe, probe
from t1.sandboxes.container import ContainerSandbox
from t1.sandboxes.containers import ContainerProvider
from t1.sandboxes.harbor import HarborProvider
from t1.sandboxes.leases import sweep
from t1.sandboxes.namespaces import NamespaceProvider, NamespaceSandbox
from t1.sandboxes.pool import PoolLimits, SandboxPool
from t1.sandboxes.providers import make_provider
from t1.sandboxes.proxy import AllowLists

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
