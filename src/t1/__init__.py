"""T1: reinforcement learning for terminal agents, from a laptop to a cluster."""

__version__ = "0.1.0"
