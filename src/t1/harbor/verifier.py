"""Harbor's verifier on T1's verification: pristine, per assertion, with the evidence beside it.

The stock verifier runs in the agent's own environment and believes the reward file it finds. This one kills the agent's
processes, carries its files into a fresh sandbox, and only then brings the tests. Boundary: needs `T1Environment`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal

from harbor.models.verifier.result import VerifierResult
from harbor.verifier.base import BaseVerifier

from t1.harbor.environment import T1Environment
from t1.types import AssertionStatus, Verdict
from t1.verification import PristineVerifier, score


class T1Verifier(BaseVerifier):
    """Rewards: `reward` (dense where a normalizer is given, else binary), `solved`, and the assertions' counts.

    `--verifier-kwarg normalizer=N` sets the run's one number of design law 5.
    """

    def __init__(self, *, normalizer: float | None = None, **kwargs: Any) -> None:
        """`normalizer`: assertions that a reward of 1 stands for."""
        super().__init__(**kwargs)
        self._normalizer = None if normalizer is None else float(normalizer)

    async def verify(self) -> VerifierResult:
        """Stop the agent's sandbox and judge what it left. An error here is an exception of the trial, never a 0."""
        environment = self.environment
        if not isinstance(environment, T1Environment) or environment.sandbox is None:
            raise TypeError("T1Verifier needs a started T1Environment: -e t1.harbor.environment:T1Environment")
        verdict = await PristineVerifier(environment.provider).verify(environment.task, environment.sandbox)
        self._record(verdict)
        return VerifierResult(rewards=self._rewards(verdict))

    def _rewards(self, verdict: Verdict) -> dict[str, float | int]:
        kind: Literal["binary", "dense"] = "binary" if self._normalizer is None else "dense"
        reward, source = score(verdict, normalizer=self._normalizer or 1.0, kind=kind)
        rewards: dict[str, float | int] = {"reward": reward, "solved": int(verdict.solved)}
        if verdict.assertions is not None:
            passed = sum(found.status is AssertionStatus.PASSED for found in verdict.assertions)
            rewards |= {"passed": passed, "assertions": len(verdict.assertions)}
        self.logger.info("reward %.4f from %s", reward, source.value)
        return rewards

    def _record(self, verdict: Verdict) -> None:
        """The whole verdict, beside Harbor's own files of the trial."""
        self.trial_paths.verifier_dir.mkdir(parents=True, exist_ok=True)
        path = self.trial_paths.verifier_dir / "verdict.json"
        path.write_text(json.dumps(asdict(verdict), indent=1, default=str), encoding="utf-8")
