"""Private machines for agents: Linux namespaces through bubblewrap, and containers through podman or docker, behind
`protocols.SandboxProvider`.
"""

from t1.sandboxes.confinement import Confinement, SandboxProbe, probe
from t1.sandboxes.container import ContainerSandbox
from t1.sandboxes.containers import ContainerProvider
from t1.sandboxes.leases import sweep
from t1.sandboxes.namespaces import NamespaceProvider, NamespaceSandbox
from t1.sandboxes.pool import PoolLimits, SandboxPool

__all__ = [
    "Confinement",
    "ContainerProvider",
    "ContainerSandbox",
    "NamespaceProvider",
    "NamespaceSandbox",
    "PoolLimits",
    "SandboxPool",
    "SandboxProbe",
    "probe",
    "sweep",
]
