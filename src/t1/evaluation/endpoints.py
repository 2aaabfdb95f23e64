"""Policies behind an HTTP API that speaks text: any OpenAI-compatible or Anthropic endpoint, as a Sampler.

Such a server hands out no token ids and no log-probabilities. So that harness, sandboxes, verifier and records stay
what they are, "ids" here are characters: one a Unicode code point, and five marks above them for roles and the end of
a message. A rollout then holds the exact text of both sides. It must never be trained on, and its token counts are
those that the server reports (`spent_on`), not the lengths of its turns. Boundary: text in, text out, with bounds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import numpy as np

from t1.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable
from t1.rollouts.cost import FREE, Prices, Usage
from t1.types import FinishReason, IntArray, Rollout, Sample, SampleTimings, SamplingParams

END = sys.maxunicode + 1
ROLES = {"system": END + 1, "user": END + 2, "assistant": END + 3, "tool": END + 4}
_NAMES = {mark: role for role, mark in ROLES.items()}
NUM_TRIES = 4
BACKOFF_S = 1.0
MAX_REPLY_BYTES = 16 << 20
KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
ANTHROPIC_VERSION = "2023-06-01"
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504, 529)

Kind = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a model answers: `openai:MODEL@URL`, `anthropic:MODEL`, `anthropic:MODEL@URL`."""

    kind: Kind
    model: str
    url: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ConfigError where the text names no endpoint."""
        kind, _, rest = text.partition(":")
        model, _, url = rest.rpartition("@") if "@http" in rest else (rest, "", "")
        if kind == "openai" and model and url:
            return cls("openai", model, url.rstrip("/"))
        if kind == "anthropic" and model:
            return cls("anthropic", model, (url or "https://api.anthropic.com").rstrip("/"))
        raise ConfigError(
            f"policy {text!r}: an endpoint is openai:MODEL@http://host:port/v1 or anthropic:MODEL[@http://host:port]"
        )


def is_endpoint(policy: str) -> bool:
    """True for what `Address.parse` is meant for."""
    return policy.startswith(tuple(f"{kind}:" for kind in KEYS))


class CharacterRenderer:
    """Messages to characters: role mark, text, end mark. Append-only, and exact in both directions."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end mark."""
        return (END,)

    @property
    def boundary_ids(self) -> frozenset[int]:
        """The end mark."""
        return frozenset({END})

    def open(self, messages: Sequence[tuple[str, str]]) -> IntArray:
        """[P] the messages and the mark that the assistant's turn begins with."""
        parts = [self._message(role, text) for role, text in messages]
        return np.concatenate([*parts, np.array([ROLES["assistant"]], dtype=np.int32)])

    def extend(self, completion: IntArray, messages: Sequence[tuple[str, str]]) -> IntArray:
        """What follows `completion` [C]: its end mark where it was cut, the messages, the assistant's mark."""
        closed = len(completion) and completion[-1] == END
        return np.concatenate([np.array([] if closed else [END], dtype=np.int32), self.open(messages)])

    def encode(self, text: str) -> IntArray:
        """[T] code points."""
        return np.array([ord(character) for character in text], dtype=np.int32)

    def decode(self, ids: IntArray) -> str:
        """The text of ids [T], without marks."""
        return "".join(chr(i) for i in ids if i < END)

    def _message(self, role: str, text: str) -> IntArray:
        marks = (np.array([mark], dtype=np.int32) for mark in (ROLES[role], END))
        return np.concatenate([next(marks), self.encode(text), next(marks)])


def read_messages(prompt: IntArray) -> list[tuple[str, str]]:
    """(role, text) of a prompt [P] that `CharacterRenderer` made; the open turn of the assistant is left out."""
    messages: list[tuple[str, str]] = []
    for ids in np.split(prompt, np.flatnonzero(prompt > END)):
        if len(ids):
            messages.append((_NAMES[int(ids[0])], "".join(chr(i) for i in ids[1:] if i < END)))
    return messages[:-1]


class EndpointSampler:
    """A remote model as a Sampler of characters. Use with `CharacterRenderer`, and for evaluation alone."""

    def __init__(
        self,
        address: Address,
        *,
        request_s: float = 600.0,
        max_context: int = 4_000_000,
        backoff_s: float = BACKOFF_S,
        prices: Prices = FREE,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`max_context` in characters: the server knows its own limit in tokens, and refuses beyond it."""
        key = os.environ.get(KEYS[address.kind], "")
        if not key and address.url.startswith("https://"):
            raise ConfigError(f"policy {address.model}: set {KEYS[address.kind]} for {address.url}")
        self._address, self._prices, self._backoff_s, self._max_context = address, prices, backoff_s, max_context
        self._client = httpx.AsyncClient(timeout=request_s, headers=_headers(address.kind, key), transport=transport)
        self._spent: defaultdict[str, Usage] = defaultdict(Usage)
        self.reported_model = address.model
        """The model as the server names it in its replies."""

    @property
    def version(self) -> int:
        """A foreign policy is never published to."""
        return 0

    @property
    def max_context(self) -> int:
        """In characters."""
        return self._max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """Complete `prompt` [P], with the server's own sampling at the given temperature and top-p."""
        started = time.monotonic()
        path, body = self._request(read_messages(prompt), params)
        reply = await self._post(path, body)
        text, finish, usage = _READ[self._address.kind](reply)
        self.reported_model = str(reply.get("model") or self.reported_model)
        self._spent[session] += self._priced(usage)
        characters = [ord(character) for character in text]
        completion = np.array([*characters, *([END] if finish is FinishReason.STOP else [])] or [END], dtype=np.int32)
        return Sample(
            prompt=prompt,
            completion=completion,
            logprobs=np.zeros(len(completion), dtype=np.float32),
            versions=np.zeros(len(completion), dtype=np.int32),
            finish=finish,
            routing=None,
            timings=SampleTimings(decode_s=time.monotonic() - started),
        )

    def spent_on(self, rollout: Rollout, *, prices: Prices = FREE) -> Usage:
        """What a rollout used: seconds as we measured them, tokens of its last attempt as the server counted them."""
        counted = self._spent.get(f"{rollout.id}#{rollout.attempts}", Usage())
        spent = rollout.timings
        hours = (spent.engine_s * prices.engine_per_hour + spent.wall_s * prices.sandbox_per_hour) / 3600
        return counted + Usage(
            queue_s=spent.queue_s,
            engine_s=spent.engine_s,
            sandbox_s=spent.sandbox_s,
            verifier_s=spent.verifier_s,
            trial_s=spent.wall_s,
            money=hours,
        )

    async def close_session(self, session: str) -> None:
        """Servers of this kind keep no session."""

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Refused: the weights are not ours."""
        raise EngineError(f"{self._address.model}: an endpoint takes no weights")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _request(self, messages: Sequence[tuple[str, str]], params: SamplingParams) -> tuple[str, dict[str, Any]]:
        """Path and body. Observations are the user's messages: a `tool` role needs a declared call."""
        said = [{"role": "user" if role == "tool" else role, "content": _sendable(text)} for role, text in messages]
        body: dict[str, Any] = {"model": self._address.model, "max_tokens": params.max_tokens}
        body["temperature"] = params.temperature
        if params.top_p < 1:
            body["top_p"] = params.top_p
        if self._address.kind == "openai":
            return f"{self._address.url}/chat/completions", body | {"messages": said}
        system = "\n\n".join(message["content"] for message in said if message["role"] == "system")
        body |= {"messages": [message for message in said if message["role"] != "system"]}
        return f"{self._address.url}/v1/messages", body | ({"system": system} if system else {})

    async def _post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply's JSON object; a busy server is asked again, with growing pauses, a few times."""
        problem = ""
        for attempt in range(NUM_TRIES):
            if attempt:
                await asyncio.sleep(self._backoff_s * 2 ** (attempt - 1))
            try:
                answer = await self._client.post(url, json=body)
            except httpx.TimeoutException as error:
                raise EngineTimeout(f"{url}: no reply within the bound ({type(error).__name__})") from error
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code in (401, 403):
                raise ConfigError(f"{url}: refused the key ({answer.status_code}); set {KEYS[self._address.kind]}")
            if answer.status_code in _BUSY:
                problem = f"status {answer.status_code}"
                continue
            if answer.is_error or len(answer.content) > MAX_REPLY_BYTES:
                raise EngineError(f"{url}: status {answer.status_code}: {answer.text[:300]}")
            try:
                reply = answer.json()
            except ValueError as error:
                raise EngineError(f"{url}: the reply is not JSON: {answer.text[:100]!r}") from error
            if not isinstance(reply, dict):
                raise EngineError(f"{url}: expected a JSON object, got {type(reply).__name__}")
            return reply
        raise EngineUnavailable(f"{url}: {problem}, {NUM_TRIES} times")

    def _priced(self, usage: Usage) -> Usage:
        prices = self._prices
        money = (usage.tokens_in - usage.tokens_cached) * prices.input_per_million
        money += usage.tokens_cached * prices.cached_per_million + usage.tokens_out * prices.output_per_million
        return usage + Usage(money=money / 1e6)


def _sendable(text: str) -> str:
    """Text as JSON over HTTP takes it: not empty, and without lone surrogates."""
    return text.encode("utf-8", "replace").decode() or " "


def _headers(kind: Kind, key: str) -> dict[str, str]:
    if kind == "anthropic":
        return {"x-api-key": key or "none", "anthropic-version": ANTHROPIC_VERSION}
    return {"Authorization": f"Bearer {key or 'none'}"}


def _read_openai(reply: Mapping[str, Any]) -> tuple[str, FinishReason, Usage]:
    try:
        choice, usage = reply["choices"][0], reply.get("usage") or {}
        text = choice["message"].get("content") or ""
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        counts = Usage(int(usage.get("prompt_tokens", 0)), int(cached), int(usage.get("completion_tokens", 0)))
        return str(text), _finish(choice.get("finish_reason") == "length"), counts
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"not a chat completion: {str(reply)[:200]}") from error


def _read_anthropic(reply: Mapping[str, Any]) -> tuple[str, FinishReason, Usage]:
    try:
        text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
        usage = reply.get("usage") or {}
        cached = int(usage.get("cache_read_input_tokens") or 0)
        fed = int(usage.get("input_tokens", 0)) + int(usage.get("cache_creation_input_tokens") or 0) + cached
        counts = Usage(fed, cached, int(usage.get("output_tokens", 0)))
        return text, _finish(reply.get("stop_reason") == "max_tokens"), counts
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"not a message of Anthropic's: {str(reply)[:200]}") from error


def _finish(cut: bool) -> FinishReason:
    return FinishReason.LENGTH if cut else FinishReason.STOP


_READ = {"openai": _read_openai, "anthropic": _read_anthropic}
