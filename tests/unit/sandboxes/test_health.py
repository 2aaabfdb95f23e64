"""A sandbox is ready when its task's check says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from t1.errors import SandboxError, TaskError
from t1.sandboxes import NamespaceProvider
from t1.types import Healthcheck, Task


async def test_a_check_is_asked_again_until_it_agrees(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    check = "echo x >> /tmp/asked; test $(wc -l < /tmp/asked) = 3"
    sandbox = await provider.open(make_task(healthcheck=Healthcheck(check, interval_s=0.001)))
    assert (await sandbox.run("wc -l < /tmp/asked", timeout_s=10)).output == "3\n"


async def test_a_check_that_never_agrees_is_an_infrastructure_failure_and_leaves_nothing(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    with pytest.raises(SandboxError, match="unhealthy after 2 tries: false"):
        await provider.open(make_task(healthcheck=Healthcheck("false", interval_s=0.001, retries=2)))
    assert not provider._open


async def test_a_user_that_namespaces_cannot_have_is_refused(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    with pytest.raises(TaskError, match="no user 'someone'; use containers"):
        await provider.open(make_task(user="someone"))
