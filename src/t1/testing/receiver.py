"""The receiving side of `SglangTransfer`, without SGLang: a server that joins the group and takes every broadcast.

A program of its own (`python -m t1.testing.receiver PORT BACKEND DEVICE`), since a process has one side of a group.
`GET /received` tells what arrived: name → sha256 of the bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

START_S = 120.0


class Receiver:
    """One worker of an engine."""

    def __init__(self, backend: str, device: str) -> None:
        self._backend, self._device = backend, torch.device(device)
        self._group: Any = None
        self.received: dict[str, str] = {}
        paths = {"/init_weights_update_group": self._join, "/update_weights_from_distributed": self._take}
        posts = [Route(path, self._answering(act), methods=["POST"]) for path, act in paths.items()]
        self.app = Starlette(routes=[*posts, Route("/received", self._tell)])

    def _answering(self, act: Any) -> Any:
        async def handle(request: Request) -> JSONResponse:
            await asyncio.to_thread(act, json.loads(await request.body()))
            return JSONResponse({"success": True})

        return handle

    async def _tell(self, request: Request) -> JSONResponse:
        return JSONResponse(self.received)

    def _join(self, body: Any) -> None:
        from t1.inference.nccl import open_group

        self._group = open_group(
            body["master_address"], body["master_port"], body["world_size"], 60.0, rank=body["rank_offset"],
            backend=self._backend,
        )  # fmt: skip

    def _take(self, body: Any) -> None:
        for name, dtype, shape in zip(body["names"], body["dtypes"], body["shapes"], strict=True):
            weight = torch.empty(shape, dtype=getattr(torch, dtype), device=self._device)
            torch.distributed.broadcast(weight, src=0, group=self._group)
            self.received[name] = digest(weight)


def digest(weight: torch.Tensor) -> str:
    """sha256 of the bytes of a tensor."""
    return hashlib.sha256(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


@contextmanager
def receiving(port: int, *, backend: str, device: str) -> Iterator[str]:
    """The URL of a receiver in a process of its own."""
    url = f"http://127.0.0.1:{port}"
    line = [sys.executable, "-m", "t1.testing.receiver", str(port), backend, device]
    server = subprocess.Popen(line, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                httpx.get(f"{url}/received", trust_env=False)
                break
            except httpx.TransportError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait(20)


if __name__ == "__main__":
    uvicorn.run(Receiver(sys.argv[2], sys.argv[3]).app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
