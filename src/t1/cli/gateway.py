"""`t1 gateway`: serve a policy to any agent that speaks to OpenAI or Anthropic, and record what it samples."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from t1.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from t1.gateway.config import GatewayConfig
    from t1.gateway.sessions import Gateway
    from t1.protocols import Sampler

WATCH_S = 5.0


def gateway(
    model: Annotated[
        Path | None,
        typer.Argument(help="A checkpoint or a run: tokenizer, template, and weights. Default: the shipped base."),
    ] = None,
    engine_url: Annotated[
        list[str] | None, typer.Option(help="A running engine that samples; again for several. Default: this process.")
    ] = None,
    engine_kind: Annotated[Literal["vllm", "sglang"], typer.Option(help="What runs at the engine's URL.")] = "vllm",
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 = any free one.")] = 8484,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Allow an address beyond loopback.")] = False,
    open_keys: Annotated[bool, typer.Option("--open", help="Any new key opens a session of its own.")] = False,
    record: Annotated[Path | None, typer.Option(help="Keep sessions in this directory; open ones go on later.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the model for clients; again for several.")] = None,
    sampling: Annotated[
        Literal["session", "client"], typer.Option(help="Whose temperature, top_p and top_k are sampled.")
    ] = "session",
    temperature: Annotated[float, typer.Option(min=0, help="The session's.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 4096,
    max_context: Annotated[
        int | None, typer.Option(min=2, help="Longest prompt and reply together. Default: all that the model has.")
    ] = None,
) -> None:
    """Serve a policy at /v1/chat/completions, /v1/responses and /v1/messages, until Ctrl-C.

    Every call is answered from recorded token ids, so that what agents do can be trained on exactly.

    Example: **t1 gateway runs/quickstart/checkpoints/sft --open --record sessions**
    """
    check_address(host, allow_remote=allow_remote, open_keys=open_keys)

    from t1.gateway.config import GatewayConfig
    from t1.harness.config import SamplingConfig

    config = GatewayConfig(
        models=tuple(name or ["t1"]),
        sampling=sampling,
        distribution=SamplingConfig(temperature=temperature),
        max_tokens=max_tokens,
        open_keys=open_keys,
    )

    if model is not None and not (model / "config.json").exists():
        from t1.training.checkpoints import policy_at

        model = policy_at(model)

    async def run() -> None:
        sampler = await open_sampler(model, engine_kind, engine_url or [], max_context)
        try:
            await serve_until_cancelled(sampler, model, config, host, port, record)
        finally:
            await sampler.aclose()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        typer.echo("stopped" + (f"; open sessions go on with --record {record}" if record is not None else ""))


def check_address(host: str, *, allow_remote: bool, open_keys: bool) -> None:
    """Refuse to be reached from elsewhere unless that is wanted, and never without a key of ours."""
    try:
        loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"--host {host}: expected an IP address or localhost") from None
    if loopback:
        return
    if open_keys:
        raise ConfigError(f"--open lets anybody in: not at {host}, only on loopback")
    if not allow_remote:
        raise ConfigError(f"--host {host} is reachable from elsewhere, without encryption: add --allow-remote to do it")


def longest_context(path: Path) -> int:
    """Positions that a checkpoint's config has."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        return int(config.get("text_config", config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path / 'config.json'}: no context length: {error!r}; give --max-context") from error


async def open_sampler(model: Path | None, kind: str, urls: list[str], longest: int | None) -> Sampler:
    """The engine of the command line: in this process, or one that runs."""
    from t1.base import base_path

    path = model or base_path()
    max_context = longest or longest_context(path)
    if urls:
        from t1.inference.captures import ModelShape
        from t1.inference.connect import EngineKind, connect

        return await connect(EngineKind(kind), urls, model=ModelShape.from_pretrained(path), max_context=max_context)

    from t1.inference import TorchEngine, load_model

    return TorchEngine(load_model(path), max_context=max_context)


async def serve_until_cancelled(
    sampler: Sampler, model: Path | None, config: GatewayConfig, host: str, port: int, record: Path | None
) -> None:
    """Serve, say how to connect, and tell when recording fails."""
    from rich.console import Console

    from t1.base import base_path
    from t1.gateway.app import serve
    from t1.gateway.rendering import renderer_for
    from t1.gateway.sessions import Gateway

    console = Console(highlight=False)
    renderer = renderer_for(model or base_path())
    gateway = Gateway(sampler, renderer, config, record=record)
    try:
        try:
            served = await serve(gateway, host, port)
        except OSError as error:
            raise ConfigError(f"{host}:{port}: {error.strerror or error}; choose another --port") from error
        async with served:
            key = "any" if config.open_keys else gateway.open().key
            console.print(greeting(served.base_url, key, config.models[0]))
            for one in gateway.restored:
                lost = f", {one.lost_bytes} torn bytes cut off" if one.lost_bytes else ""
                console.print(f"restored {one.session}: {one.num_exchanges} calls{lost}", markup=False)
            await _watch(gateway, console)
    finally:
        await gateway.aclose(keep_open=record is not None)


async def _watch(gateway: Gateway, console: Console) -> None:
    """Until cancelled: say so when sessions cannot be recorded any more, and when they can again."""
    told = ""
    while True:
        await asyncio.sleep(WATCH_S)
        if (error := gateway.capture_error) != told:
            told = error
            console.print(f"not recorded: {error}" if error else "recorded again", markup=False)


def greeting(url: str, key: str, model: str) -> object:
    """How to point an agent here, in a panel."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    shown = "any word: each is a session of its own" if key == "any" else key
    word = "my-session" if key == "any" else key
    rows = {
        "base URL": f"{url}/v1 (OpenAI), {url} (Anthropic)",
        "key": shown,
        "model": model,
        "OpenAI": f"OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={word}",
        "Anthropic": f"ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={word}",
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows.items():
        grid.add_row(label, Text(value))
    return Panel(grid, title="t1 gateway", subtitle="Ctrl-C stops it", expand=False)
