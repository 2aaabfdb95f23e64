"""From what an agent left behind to a verdict, and from a verdict to a reward (design law 5)."""

from t1.verification.reports import parse_ctrf, parse_reward
from t1.verification.reward import score
from t1.verification.verifier import PristineVerifier

__all__ = ["PristineVerifier", "parse_ctrf", "parse_reward", "score"]
