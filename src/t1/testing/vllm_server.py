"""Starts a real vLLM in a process of its own, from another Python environment: for `make test-vllm` and benches.

The flags are those that a trainer needs, with float32 and one thread, so that numbers can be compared with
transformers' to the last digits on a small machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

SRC = Path(__file__).parent.parent.parent
START_S = 180.0
FLAGS = (
    "--dtype float32 --block-size 32 --enforce-eager --no-enable-chunked-prefill --enable-scale-out "
    "--skip-tokenizer-init --tokens-only --enable-return-routed-experts --logprobs-mode processed_logprobs "
    "--enable-prompt-tokens-details --host 127.0.0.1 "
    "--worker-extension-cls t1.inference.vllm_extension.WeightReloader"
).split()
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(SRC),
}


@contextmanager
def serving(python: str, model: Path, log: Path, *, max_context: int, more: tuple[str, ...] = ()) -> Iterator[str]:
    """The URL of a server of `model` under the interpreter `python`; `more` are flags after the right ones."""
    port = _free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port), "--model", str(model)]
    command += ["--max-model-len", str(max_context), "--max-num-batched-tokens", str(max(2048, max_context))]
    command += [*FLAGS, *more]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **ENVIRONMENT}, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await_health(server, url, log)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(20)


def _free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_health(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the server answers, or show the end of its log."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.25)
    tail = log.read_text(errors="replace")[-3000:]
    raise RuntimeError(f"vLLM did not start (exit status {server.poll()}):\n{tail}")
