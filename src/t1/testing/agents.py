"""An AgentProgram that is a small text client: what an agent does to a model, and no more.

It asks over HTTP, runs what it is told in the sandbox, sends the output back, and ends at the word `exit`.
"""

from __future__ import annotations

import time
from typing import Any

import httpx

from t1.gateway.harness import AgentExit, Endpoint
from t1.protocols import Sandbox
from t1.types import Task


class TextAgent:
    """Implements `t1.gateway.harness.AgentProgram`. A call that is refused ends it with status 1."""

    def __init__(self, *, exit_code: int = 0) -> None:
        """`exit_code`: what it ends with when it is told to exit."""
        self._exit_code = exit_code

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """See `AgentProgram.run`."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": task.instruction}]
        headers = {"authorization": f"Bearer {endpoint.key}"}
        async with httpx.AsyncClient(base_url=endpoint.openai_url, headers=headers, trust_env=False) as client:
            while (left := deadline - time.monotonic()) > 0:
                body = {"model": endpoint.model, "messages": messages}
                response = await client.post("/chat/completions", json=body, timeout=left)
                if response.status_code != 200:
                    return AgentExit(1, response.text)
                said = response.json()["choices"][0]["message"]["content"]
                if said == "exit":
                    return AgentExit(self._exit_code, "told to exit")
                seen = await sandbox.run(said, timeout_s=left)
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": seen.output}]
        return AgentExit(1, "out of time")
