"""Clients of fake engines, built alike by the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from t1.inference.captures import ModelShape
from t1.inference.remote import RemoteSampler
from t1.inference.sglang import SglangSampler
from t1.inference.vllm import VllmSampler
from t1.protocols import Sampler
from t1.testing.dialects import FakeSglang, FakeVllm
from t1.testing.engines import EngineTransport, FakeEngine
from t1.testing.samplers import RoutingShape, ScriptedSampler

VOCABULARY = 64
SHAPE = ModelShape(VOCABULARY, num_layers=2, num_experts=8, top_k=2, num_hidden_layers=2, moe_layers=(0, 1))
PROMPT = np.arange(1, 41, dtype=np.int32)
KINDS = ("vllm", "sglang")


def scripted(**settings: Any) -> ScriptedSampler:
    """Repeats four tokens, with made-up routes."""
    return ScriptedSampler(lambda prompt: [9, 10, 11, 12], max_context=512, routing=RoutingShape(2, 8, 2), **settings)


def fake(kind: str, inside: Sampler | None = None, **settings: Any) -> FakeEngine:
    """A fake server whose weights are labelled 0."""
    make: Any = {"vllm": FakeVllm, "sglang": FakeSglang}[kind]
    known = {"model": SHAPE, "read": lambda path: {}}
    engine = make(inside or scripted(), **{**known, **settings})
    engine.label = "0"
    return engine


def client(engine: FakeEngine, **settings: Any) -> RemoteSampler:
    """A client of a fake server."""
    make: type[RemoteSampler] = SglangSampler if isinstance(engine, FakeSglang) else VllmSampler
    known = {"model": engine.model, "max_context": 128, "transport": EngineTransport(engine)}
    return make("http://engine", **{**known, **settings})


def checkpoint(path: Path) -> Path:
    """A directory that a fake engine takes for weights; only with a ScriptedSampler inside, which looks at none."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.safetensors").write_bytes(b"12345678")
    return path
