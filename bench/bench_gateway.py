"""What the gateway costs: time per call over HTTP, tokens that are encoded, memory of a session.

    python bench/bench_gateway.py

The sampler answers at once, so that what is measured is ours, from the client's request to its reply. Beside it
(`http_ms_*`): the same bytes to the same server with nothing behind it; and (`*_cpu_ms_*`) the processor's time of this
process, client included, which says on a busy machine what a quiet one would take. Real HTTP on loopback, 64 sessions
with histories of 30 000 tokens, one call at a time, and the shipped tokenizer. The last line is one JSON object.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import asyncio
import gc
import json
import statistics
import time
import tracemalloc

import httpx
import numpy as np

from t1.base import base_path
from t1.gateway.app import serve
from t1.gateway.conversation import Message, Request, Role
from t1.gateway.rendering import renderer_for
from t1.gateway.sessions import Gateway, Opened
from t1.testing.gateways import ScriptedCompleter
from t1.testing.samplers import ScriptedSampler
from t1.types import FinishReason, IntArray, Sample, SamplingParams

NUM_SESSIONS = 64
NUM_TURNS = 300
HISTORY_TOKENS = 30_000
WORDS = "the file north list copy every line of it into a new place and count what is there again".split()


class InstantSampler(ScriptedSampler):
    """Gives the same reply always, and keeps nothing of what it was asked."""

    def __init__(self, reply: IntArray) -> None:
        super().__init__([])
        self._reply = reply
        self._logprobs = np.full(len(reply), -1.0, dtype=np.float32)
        self._versions = np.zeros(len(reply), dtype=np.int32)

    @property
    def max_context(self) -> int:
        """As long as anything here gets."""
        return 1 << 20

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """[C] of it."""
        return Sample(prompt, self._reply, self._logprobs, self._versions, FinishReason.STOP, None, 0)


def text_of(rng: np.random.Generator, num_words: int) -> str:
    """Words in no order."""
    return " ".join(rng.choice(WORDS, num_words))


class Bench:
    """A gateway over an instant sampler, and conversations that fill its sessions."""

    def __init__(self, num_turns: int = NUM_TURNS, history_tokens: int = HISTORY_TOKENS) -> None:
        self.rng = np.random.default_rng(0)
        self.renderer = renderer_for(base_path())
        reply = self.renderer.encode(text_of(self.rng, 20))
        self.reply = self.renderer.parse(reply).content
        self.gateway = Gateway(InstantSampler(reply), self.renderer)
        sample = " ".join(WORDS * 20)
        per_word = len(self.renderer.encode(sample)) / len(sample.split())
        framing = len(reply) + 12
        self.num_words = max(1, round((history_tokens / num_turns - framing) / per_word))
        self.num_turns = num_turns

    def observation(self) -> str:
        """What a tool printed."""
        return text_of(self.rng, self.num_words)

    async def fill(self, opened: Opened) -> list[dict[str, str]]:
        """Play a whole conversation through the core; the client's copy of it."""
        messages: list[Message] = []
        for _ in range(self.num_turns):
            messages.append(Message(Role.USER, self.observation()))
            reply = await self.gateway.complete(opened.session, Request("t1", tuple(messages)))
            messages.append(reply.message)
        return [{"role": str(message.role), "content": message.content} for message in messages]


Times = dict[str, list[float]]
"""Milliseconds of each call: `gateway` through it, `http` to the same server with nothing behind it; `_cpu` of both."""


async def _time_calls(bench: Bench, num_sessions: int, calls: int) -> Times:
    """One more message in a session of a full history, the sessions in turn; the same bytes to both servers."""
    opened = [bench.gateway.open() for _ in range(num_sessions)]
    histories = [await bench.fill(one) for one in opened]
    nothing = ScriptedCompleter(lambda request: bench.reply, models=("t1",), sessions={"s": "key"})
    took: Times = {name: [] for name in ("gateway", "http", "gateway_cpu", "http_cpu")}
    async with (
        await serve(bench.gateway) as served,
        await serve(nothing) as bare,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        for number in range(calls):
            one, history = opened[number % num_sessions], histories[number % num_sessions]
            history.append({"role": "user", "content": bench.observation()})
            body = json.dumps({"model": "t1", "messages": history}).encode()
            for name, url, key in (("http", bare.base_url, "key"), ("gateway", served.base_url, one.key)):
                headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
                started, busy = time.perf_counter(), time.process_time()
                response = await client.post(f"{url}/v1/chat/completions", content=body, headers=headers)
                took[name].append((time.perf_counter() - started) * 1000)
                took[f"{name}_cpu"].append((time.process_time() - busy) * 1000)
                response.raise_for_status()
            nothing.asked.clear()
            history.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})
    return took


def overhead(num_sessions: int = NUM_SESSIONS, calls: int = 512) -> dict[str, float]:
    """Milliseconds per call from request sent to reply read, of all and (`http_ms_*`) of HTTP and JSON alone."""

    async def run() -> Times:
        bench = Bench()
        try:
            return await _time_calls(bench, num_sessions, calls)
        finally:
            await bench.gateway.aclose()

    result = {}
    for name, took in asyncio.run(run()).items():
        result[f"{name}_ms_p50"] = round(statistics.median(took), 3)
        result[f"{name}_ms_p99"] = round(sorted(took)[int(len(took) * 0.99)], 3)
    return result


async def _grow() -> dict[str, float]:
    """One rollout: its memory, what was encoded, and what rendering every prompt anew would have encoded."""
    bench = Bench()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    opened = bench.gateway.open()
    history = await bench.fill(opened)
    sizes = {"messages": sum(len(message["content"]) for message in history)}
    del history
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    recorded = await bench.gateway.close(opened.session)
    last = recorded.turns[-1]
    transcript = len(last.prompt) + len(last.completion)
    prompts = sum(len(turn.prompt) for turn in recorded.turns)
    return {
        "session_bytes_per_token": round(held / transcript, 2),
        "text_bytes_per_token": round(sizes["messages"] / transcript, 2),
        "encode_ratio": round(recorded.counts["encoded_tokens"] / transcript, 4),
        "rerender_ratio": round(prompts / transcript, 2),
        "rollout_tokens": transcript,
    }


def session_memory() -> dict[str, float]:
    """Bytes that a session of 300 turns holds per token, and tokens encoded per token of the transcript."""
    return asyncio.run(_grow())


def main() -> None:
    result = session_memory()
    print(result)
    print(json.dumps(overhead() | result))


if __name__ == "__main__":
    main()
