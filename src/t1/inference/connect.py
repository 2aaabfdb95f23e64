"""Opens clients of engines that are already running: one URL is a client, several are a fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from enum import StrEnum

import httpx

from t1.errors import ConfigError, EngineError
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.fleet import Fleet
from t1.inference.remote import EngineBounds, RemoteSampler
from t1.inference.replies import RowsCheck
from t1.inference.sglang import SglangSampler
from t1.inference.vllm import VllmSampler
from t1.inference.wire import Wire


class EngineKind(StrEnum):
    """Which engine listens."""

    VLLM = "vllm"
    SGLANG = "sglang"


CLIENTS: dict[EngineKind, type[RemoteSampler]] = {
    EngineKind.VLLM: VllmSampler,
    EngineKind.SGLANG: SglangSampler,
}


async def connect(
    kind: EngineKind,
    urls: Sequence[str],
    *,
    model: ModelShape,
    max_context: int,
    version: int = 0,
    checkpoints: CheckpointWriter | None = None,
    check_rows: RowsCheck | None = None,
    bounds: EngineBounds | None = None,
    transports: Sequence[httpx.AsyncBaseTransport | None] | None = None,
) -> RemoteSampler | Fleet:
    """Clients of all `urls`, each looked over. Raises ConfigError or EngineError, and then leaves nothing open."""
    if not urls:
        raise ConfigError(f"engine.urls: expected the address of at least one {kind} server, got none")
    clients = [
        CLIENTS[kind](
            url,
            model=model,
            max_context=max_context,
            version=version,
            checkpoints=checkpoints,
            check_rows=check_rows,
            bounds=bounds,
            transport=transport,
        )
        for url, transport in zip(urls, transports or [None] * len(urls), strict=True)
    ]
    try:
        for client in clients:
            await client.connect()
    except BaseException:
        for client in clients:
            await client.aclose()
        raise
    return clients[0] if len(clients) == 1 else Fleet(clients, checkpoints=checkpoints)


async def find_engine(url: str, *, timeout_s: float = 10.0) -> tuple[EngineKind, str, int]:
    """(kind, model as the server names it, its context in tokens) of whatever listens at `url`."""
    wire = Wire(url)
    try:
        answer = await wire.get("/v1/models", timeout_s=timeout_s)
        model = answer["data"][0]
        kind = EngineKind.SGLANG
        with contextlib.suppress(EngineError):
            await wire.get("/version", timeout_s=timeout_s)  # vLLM's alone
            kind = EngineKind.VLLM
        return kind, str(model.get("root") or model["id"]), int(model["max_model_len"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise EngineError(f"{url}: its /v1/models is neither vLLM's nor SGLang's") from None
    finally:
        await wire.aclose()
