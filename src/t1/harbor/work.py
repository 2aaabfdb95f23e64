"""Runs one of Harbor's agents over a borrowed sandbox: `python -m t1.harbor.work`, a job as JSON on standard input.

The last line of standard output is the result. Boundary: the agent, its language model's address and its bound; no
trial, no verifier, no reward. Exit status 0 whenever the agent ended, whatever it did.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from harbor.agents.factory import AgentFactory
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.config import AgentConfig
from harbor.models.trial.paths import TrialPaths
from pydantic import BaseModel

from t1.harbor.environment import BorrowedEnvironment


class Job(BaseModel):
    """What the trainer asks for."""

    agent: str
    """Name of a stock agent, or `module.path:ClassName`."""
    model: str
    instruction: str
    socket: Path
    """Where the sandbox is lent."""
    logs: Path
    """An empty directory for the agent's own logs."""
    timeout_s: float
    options: dict[str, Any] = {}
    """The agent's own keyword arguments."""


class Result(BaseModel):
    """How the agent ended."""

    ended: str
    """done, time_limit or error."""
    error: str = ""
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    """As the agent counted them."""


async def work(job: Job) -> Result:
    """Set the agent up and let it run within the bound."""
    paths = TrialPaths(trial_dir=job.logs)
    paths.mkdir()
    environment = BorrowedEnvironment(
        job.socket,
        environment_dir=job.logs,
        environment_name="t1",
        session_id=job.logs.name,
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
    )
    config = AgentConfig(name=job.agent, model_name=job.model, kwargs=job.options)
    agent = AgentFactory.create_agent_from_config(config, logs_dir=paths.agent_dir)
    context = AgentContext()
    await environment.start(force_build=False)
    bound = asyncio.timeout(job.timeout_s)
    try:
        async with bound:
            await agent.setup(environment)
            await agent.run(job.instruction, environment, context)
        ended, error = "done", ""
    except TimeoutError as problem:
        ended, error = ("time_limit", "") if bound.expired() else ("error", repr(problem))
    except Exception as problem:  # the agent's own: part of what it did
        ended, error = "error", f"{type(problem).__name__}: {problem}"
    finally:
        await environment.stop(delete=True)
    return Result(
        ended=ended, error=error, num_input_tokens=context.n_input_tokens, num_output_tokens=context.n_output_tokens
    )


def main() -> None:
    """Read the job, work, print the result."""
    result = asyncio.run(work(Job.model_validate_json(sys.stdin.read())))
    sys.stdout.flush()
    print(json.dumps(result.model_dump()), flush=True)


if __name__ == "__main__":
    main()
