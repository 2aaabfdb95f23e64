"""The circuit breaker: a run whose infrastructure is down stops with a verdict."""

from __future__ import annotations

import pytest

from t1.rollouts.breaker import CircuitBreaker, InfrastructureDown


def test_it_opens_when_most_attempts_fail_and_says_of_what() -> None:
    breaker = CircuitBreaker(max_share=0.5, min_failures=3)
    for failure in ("", "SandboxVanished", "EngineTimeout"):
        breaker.ended(failure)
    with pytest.raises(InfrastructureDown, match=r"3 of the last 4 .*2 × EngineTimeout, 1 × SandboxVanished.*doctor"):
        breaker.ended("EngineTimeout")


def test_a_few_failures_at_the_start_do_not_open_it() -> None:
    breaker = CircuitBreaker(max_share=0.1, min_failures=5)
    for _ in range(4):
        breaker.ended("SandboxVanished")


def test_old_failures_are_forgotten() -> None:
    breaker = CircuitBreaker(max_share=0.5, window=10, min_failures=4)
    for failure in ["x"] * 3 + [""] * 10 + ["x"] * 3:
        breaker.ended(failure)


def test_a_share_of_one_never_opens_it() -> None:
    breaker = CircuitBreaker(max_share=1.0, min_failures=1)
    for _ in range(50):
        breaker.ended("x")
