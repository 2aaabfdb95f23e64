"""mini-swe-agent, unmodified, on our side: its loop in a thread of this process, its commands in our sandbox.

The package is asked for where it is used: it is slow to import, and no part of T1's own dependencies.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import threading
import time
from typing import Any

from t1.errors import InfrastructureError, UserError
from t1.gateway.harness import AgentExit, Endpoint
from t1.protocols import Sandbox
from t1.types import Task

SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""First line of the output of the command that ends an episode: mini-swe-agent's convention."""
SLACK_S = 5.0
"""How much longer than its command an environment waits for the sandbox's answer."""


class SandboxEnvironment:
    """mini-swe-agent's environment protocol over one of our sandboxes; its calls come from another thread."""

    def __init__(self, sandbox: Sandbox, loop: asyncio.AbstractEventLoop, *, timeout_s: float) -> None:
        self.config = None
        self._sandbox, self._loop, self._timeout_s = sandbox, loop, timeout_s
        self._over = threading.Event()

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run an action's command in a shell of its own, as the agent's prompt promises.

        Raises the agent's own Submitted where the command says so, and InfrastructureError where the sandbox fails.
        """
        from minisweagent.exceptions import Submitted

        if self._over.is_set():
            raise RuntimeError("the episode is over")
        command = f"bash -c {shlex.quote(str(action.get('command', '')))}"
        if cwd:
            command = f"(cd {shlex.quote(cwd)} && {command})"
        running = self._sandbox.run(command, timeout_s=self._timeout_s)
        ended = asyncio.run_coroutine_threadsafe(running, self._loop).result(self._timeout_s + SLACK_S)
        first, _, rest = ended.output.lstrip().partition("\n")
        if first.strip() == SUBMITTED and ended.exit_code == 0:
            outcome = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": outcome})
        late = f"the command ran longer than {self._timeout_s:g} s and was killed" if ended.timed_out else ""
        code = -1 if ended.exit_code is None else ended.exit_code
        return {"output": ended.output, "returncode": code, "exception_info": late}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """What prompts may name; nothing of this process's environment."""
        return {**platform.uname()._asdict(), "node": "sandbox", "timeout": self._timeout_s, **kwargs}

    def serialize(self) -> dict[str, Any]:
        """What a saved trajectory says of its environment."""
        return {"info": {"config": {"environment_type": f"{type(self).__module__}.{type(self).__name__}"}}}

    def end(self) -> None:
        """Run nothing more."""
        self._over.set()


class MiniSweAgent:
    """An `AgentProgram`: the package's DefaultAgent with the prompts of its own `mini.yaml`."""

    def __init__(self, *, command_timeout_s: float = 30.0, step_limit: int = 0) -> None:
        """`step_limit`: 0 = none but the session's."""
        self._command_timeout_s, self._step_limit = command_timeout_s, step_limit

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """See `harness.AgentProgram.run`. A thread cannot be cancelled: the agent ends at its next command or call."""
        environment = SandboxEnvironment(sandbox, asyncio.get_running_loop(), timeout_s=self._command_timeout_s)
        try:
            return await asyncio.to_thread(self._work, task.instruction.strip(), environment, endpoint, deadline)
        finally:
            environment.end()

    def _work(
        self, instruction: str, environment: SandboxEnvironment, endpoint: Endpoint, deadline: float
    ) -> AgentExit:
        try:
            agent = self._agent(environment, endpoint, deadline)
        except ImportError as error:
            raise UserError(f"mini-swe-agent is not installed ({error}): pip install 't1[clients]'") from error
        try:
            ended = agent.run(instruction)
        except InfrastructureError:
            raise
        except Exception as error:  # the agent's own end, whatever it is
            return AgentExit(1, f"{type(error).__name__}: {error}")
        finally:
            _close_clients(endpoint.key)
        status = ended.get("exit_status", "")
        return AgentExit(0 if status == "Submitted" else 1, f"{status}\n{ended.get('submission', '')}")

    def _agent(self, environment: SandboxEnvironment, endpoint: Endpoint, deadline: float) -> Any:
        os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")  # it greets whoever imports it
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # and asks the internet for prices
        import litellm
        from minisweagent.agents.default import DefaultAgent
        from minisweagent.config import builtin_config_dir, get_config_from_spec
        from minisweagent.models.litellm_model import LitellmModel

        litellm.suppress_debug_info = True  # or it prints with every call
        config = get_config_from_spec(builtin_config_dir / "mini.yaml")
        asked = {**config["model"].get("model_kwargs", {}), "api_base": endpoint.openai_url, "api_key": endpoint.key}
        name = f"openai/{endpoint.model}"
        model = LitellmModel(
            **{**config["model"], "model_name": name, "model_kwargs": asked, "cost_tracking": "ignore_errors"}
        )
        model.abort_exceptions = [Exception]  # the gateway retries what can be retried, and says what cannot
        left = max(1, int(deadline - time.monotonic()))
        limits = {"cost_limit": 0.0, "step_limit": self._step_limit, "wall_time_limit_seconds": left}
        return DefaultAgent(model, environment, **{**config["agent"], **limits})


def _close_clients(key: str) -> None:
    """Close the connections that litellm keeps for a key which no call will have again."""
    import litellm

    kept = litellm.in_memory_llm_clients_cache
    for name, client in list(kept.cache_dict.items()):
        if getattr(client, "api_key", None) == key:
            kept.delete_cache(name)
            client.close()
