"""Private machines for agents: Linux namespaces through bubblewrap, behind `protocols.SandboxProvider`."""

from t1.sandboxes.confinement import Confinement, SandboxProbe, probe
from t1.sandboxes.leases import sweep
from t1.sandboxes.namespaces import NamespaceProvider, NamespaceSandbox

__all__ = ["Confinement", "NamespaceProvider", "NamespaceSandbox", "SandboxProbe", "probe", "sweep"]
