"""PPO as pure maths on tensors: advantages, losses, diagnostics.

Boundary: no models, no packs, no optimizers, and no array but over action tokens [A].
"""

from t1.ppo.advantages import gae, group_advantages, turn_gae, whiten
from t1.ppo.diagnostics import entropy, explained_variance, gap, policy_drift
from t1.ppo.losses import importance_weights, policy_loss, token_mean, value_loss

__all__ = [
    "entropy",
    "explained_variance",
    "gae",
    "gap",
    "group_advantages",
    "importance_weights",
    "policy_drift",
    "policy_loss",
    "token_mean",
    "turn_gae",
    "value_loss",
    "whiten",
]
