"""The chaos suite: faults under a run, and an account of each. `make test-chaos` runs it; `make test` does not.

A test states its fault by the fixture `account`, and says in it what was expected, what was trained on, how often, and
whether everything ended within its bound. Whole runs are bounded by what the same run takes here and now when nothing
happens to it: a machine that is slow for everyone does not hang. The suite ends with a table and one JSON object.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

ACCOUNTS: list[Account] = []


@dataclass(slots=True)
class Account:
    """What one fault did."""

    fault: str
    bound_s: float
    expected: int = 0
    lost: int = 0
    doubled: int = 0
    relaunched: int = 0
    passed: bool = False
    began: float = field(default_factory=time.monotonic)
    took_s: float = 0.0

    @property
    def hung(self) -> bool:
        """Longer than its bound."""
        return self.took_s > self.bound_s

    def settle(self, expected: Iterable[Any], trained: Iterable[Any], *, relaunched: int = 0) -> None:
        """Compare what should have been trained on with what was, and how often."""
        wanted, found = Counter(expected), Counter(trained)
        self.expected, self.relaunched = wanted.total(), relaunched
        self.lost = (wanted - found).total()
        self.doubled = (found - wanted).total()
        self.took_s = time.monotonic() - self.began
        assert (self.lost, self.doubled, self.hung) == (0, 0, False), self


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs where it is asked for (`-m chaos`)."""
    for item in items:
        if "tests/chaos/" not in item.path.as_posix():
            continue
        item.add_marker(pytest.mark.chaos)
        if "chaos" not in (config.option.markexpr or ""):
            item.add_marker(pytest.mark.skip(reason="faults under a run: make test-chaos"))


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    """The account of the test's fault: `@pytest.mark.fault("name", bound_s=60)`.

    Or `runs=4`: as long as so many runs like `whole`, which the test then asks for.
    """
    marker = request.node.get_closest_marker("fault")
    runs = marker.kwargs.get("runs")
    bound_s = marker.kwargs["bound_s"] if runs is None else runs * request.getfixturevalue("whole").seconds
    made = Account(marker.args[0], bound_s)
    ACCOUNTS.append(made)
    yield made
    made.took_s = made.took_s or time.monotonic() - made.began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Note what passed."""
    report = yield
    account = getattr(item, "funcargs", {}).get("account")
    if call.when == "call" and account is not None:
        account.passed = report.passed
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """The table, and the last line."""
    if not ACCOUNTS:
        return
    print(
        f"\n{'fault':44} {'rollouts':>8} {'again':>5} {'lost':>4} {'doubled':>7} {'seconds':>7} {'bound':>5}  verdict"
    )
    for one in ACCOUNTS:
        verdict = "HUNG" if one.hung else "ok" if one.passed else "FAILED"
        print(
            f"{one.fault:44} {one.expected:8} {one.relaunched:5} {one.lost:4} {one.doubled:7} {one.took_s:7.1f} "
            f"{one.bound_s:5.0f} {verdict}"
        )
    total = {
        "faults": len(ACCOUNTS),
        "lost": sum(one.lost for one in ACCOUNTS),
        "doubled": sum(one.doubled for one in ACCOUNTS),
        "hung": sum(one.hung for one in ACCOUNTS),
        "failed": sum(not one.passed for one in ACCOUNTS),
    }
    print(json.dumps(total))
