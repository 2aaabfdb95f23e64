"""Stops a run whose infrastructure is failing, with a verdict, instead of burning hours on launches that cannot work.

Boundary: counts attempts; what failed and why is told to it.
"""

from __future__ import annotations

from collections import Counter, deque

from t1.errors import InfrastructureError


class InfrastructureDown(InfrastructureError):
    """Too many attempts fail for reasons that are not the policy's: the run stops."""


class CircuitBreaker:
    """Looks at the last `window` attempts; opens when more than `max_share` of at least `min_failures` failed."""

    def __init__(self, *, max_share: float = 0.5, window: int = 200, min_failures: int = 20) -> None:
        self._max_share, self._min_failures = max_share, min_failures
        self._last: deque[str] = deque(maxlen=window)

    def ended(self, failure: str = "") -> None:
        """One attempt ended; `failure` names what the infrastructure did to it. Raises InfrastructureDown."""
        self._last.append(failure)
        kinds = Counter(filter(None, self._last))
        failed = kinds.total()
        if failed >= self._min_failures and failed > self._max_share * len(self._last):
            reasons = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
            raise InfrastructureDown(
                f"{failed} of the last {len(self._last)} attempts were spoiled by the infrastructure ({reasons}), "
                f"more than the {self._max_share:.0%} that rollouts.max_failure_share allows. "
                "Mend it (`t1 doctor` looks at sandboxes and engine), then go on with --resume"
            )
