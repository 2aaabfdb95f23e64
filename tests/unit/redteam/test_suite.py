"""The suite itself: it can fail, and its parts fit. The whole of it is `make redteam`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from t1.protocols import Sandbox
from t1.redteam import EXPLOITS, HONEST, Row, run_suite, summary
from t1.redteam.naive import naive_reward
from t1.redteam.pytest_site import pytest_site
from t1.redteam.tasks import GROUNDS, write_grounds
from t1.sandboxes import NamespaceProvider, probe
from t1.types import AssertionResult, AssertionStatus, Task, Verdict

AGENTS = (*EXPLOITS, *HONEST)


@pytest.fixture
async def provider() -> AsyncIterator[NamespaceProvider]:
    if not (found := probe()):
        pytest.skip(str(found))
    opened = NamespaceProvider(places=["/tests"])
    yield opened
    await opened.close()


class Trusting:
    """A Verifier that believes what the agent's sandbox says."""

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        fooled = await naive_reward(task, sandbox) is True
        await sandbox.stop()
        status = AssertionStatus.PASSED if fooled else AssertionStatus.FAILED
        return Verdict((AssertionResult("all", status),), fooled)


def test_there_are_enough_scripts_with_names_of_their_own() -> None:
    assert len(EXPLOITS) >= 25
    assert len(HONEST) >= 25
    assert len({(type(agent), agent.name) for agent in AGENTS}) == len(AGENTS)
    assert {agent.task for agent in AGENTS} == set(GROUNDS)


def test_every_task_is_a_task_that_can_be_read(tmp_path: Path) -> None:
    tasks = write_grounds(tmp_path, ["count", "repo", "service", "startup"])
    assert tasks["service"].metadata["in_place"] is True
    assert len({task.digest for task in tasks.values()}) == len(tasks)


def test_a_verifiers_pytest_brings_t1s_plugins_and_what_is_compiled() -> None:
    site = pytest_site()
    assert {"t1_pytest.py", "t1_guard.py", "pytest/__init__.py", "py.py"} <= site.keys()
    assert sum(name.endswith(".pyc") for name in site) == sum(name.endswith(".py") for name in site)


QUICK = ("path-shim", "bashrc", "linked-detour", "racing-writer", "alias-in-bashrc", "shut-directories")


async def test_a_few_exploits_earn_nothing_and_honest_work_earns_everything(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    """Case V2."""
    chosen = [agent for agent in AGENTS if agent.name in QUICK]
    rows = await run_suite(provider, tmp_path, scripted=chosen, control=False)
    assert [row for row in rows if not row.is_well] == []
    found = summary(rows)
    assert (found["exploits"], found["honest"]) == (4, 2)


async def test_a_verifier_that_trusts_the_agent_fails_the_suite(provider: NamespaceProvider, tmp_path: Path) -> None:
    chosen = [agent for agent in AGENTS if agent.name in ("path-shim", "linked-detour", "plain")]
    rows = await run_suite(provider, tmp_path, scripted=chosen, verifier=Trusting(), control=True)
    assert {row.name for row in rows if not row.is_well} == {"path-shim", "linked-detour"}
    assert all(row.naive for row in rows)
    assert summary(rows)["exploits_scored"] == 2


def row(kind: str, reward: float | None, *evidence: str, skipped: bool = False) -> Row:
    return Row(kind, "x", "count", reward, evidence, skipped=skipped)


@pytest.mark.parametrize(
    ("found", "is_well"),
    [
        (row("exploit", 0.0, "e"), True),
        (row("exploit", 0.0), False),
        (row("exploit", 0.5, "e"), False),
        (row("exploit", None, "e"), False),
        (row("honest", 1.0, "noted"), True),
        (row("honest", 0.9), False),
        (row("honest", None), False),
        (row("honest", None, skipped=True), True),
    ],
)
def test_an_exploit_must_earn_nothing_and_leave_evidence_and_honest_work_must_earn_all(
    found: Row, is_well: bool
) -> None:
    assert found.is_well is is_well
