"""Chat completions of an OpenAI-compatible endpoint: bounded, retried, capped in cost, and never paid for twice.

An answer is in the journal before anybody reads it. Boundary: text in, text out; what it means is the caller's affair.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from t1.errors import EngineUnavailable, UserError
from t1.synthesis.journal import Journal
from t1.synthesis.proposer import BudgetSpent

BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
CHARACTERS_PER_TOKEN = 3.0
"""To estimate a call's cost before it is made: rather too many tokens than too few."""

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens, and what may be spent."""

    prompt: float = 0.0
    completion: float = 0.0
    max_cost: float = float("inf")

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Of one call."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class ChatClient:
    """One model behind one endpoint."""

    def __init__(
        self,
        base_url: str,
        model: str,
        journal: Journal,
        *,
        api_key: str = "",
        prices: Prices = Prices(),
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float = 300.0,
        max_attempts: int = 4,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(base_url=base_url.rstrip("/"), headers=headers, timeout=timeout_s)
        self._model = model
        self._journal = journal
        self._prices = prices
        self._parameters = dict(parameters or {})
        self._max_attempts = max_attempts
        self._backoff_s = backoff_s

    async def complete(self, messages: Sequence[Message], *, salt: str = "") -> str:
        """The model's answer, from the journal where the same was asked before; `salt` asks for another one.

        Raises BudgetSpent, UserError (the endpoint refuses), EngineUnavailable (it is down after all attempts).
        """
        body = {"model": self._model, "messages": list(messages), **self._parameters}
        key = hashlib.sha256(json.dumps([body, salt], sort_keys=True).encode()).hexdigest()
        if (held := self._journal.reply(key)) is not None:
            return held
        longest = float(self._parameters.get("max_tokens", 4096))
        estimate = self._prices.cost(sum(len(m["content"]) for m in messages) / CHARACTERS_PER_TOKEN, longest)
        spent = self._journal.spent()
        if spent + estimate > self._prices.max_cost:
            raise BudgetSpent(
                f"{spent:.4f} is spent and the next call may cost {estimate:.4f}: more than proposer.max_cost = "
                f"{self._prices.max_cost:g}; raise it and start the run again"
            )
        self._journal.begin_call(key, estimate)
        try:
            reply, usage = await self._post(body)
        except Exception:  # answered with a refusal, or not at all: nothing to pay for
            self._journal.end_call(key, None, 0.0)
            raise
        cost = self._prices.cost(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
        self._journal.end_call(key, reply, cost if usage else estimate)
        return reply

    async def _post(self, body: Mapping[str, Any]) -> tuple[str, Mapping[str, int]]:
        """(answer, usage) after as many attempts as it takes and there may be."""
        problem = ""
        for attempt in range(1, self._max_attempts + 1):
            try:
                response = await self._http.post("/chat/completions", json=body)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == 200:
                    return _answer(response)
                problem = f"{response.status_code}: {response.text[:200]}"
                if response.status_code < 500 and response.status_code not in (408, 409, 425, 429):
                    raise UserError(f"{response.url}: the endpoint refuses: {problem}")
            if attempt < self._max_attempts:
                await asyncio.sleep(min(MAX_BACKOFF_S, self._backoff_s * 2.0 ** (attempt - 1)))
        raise EngineUnavailable(f"{self._http.base_url}: no answer in {self._max_attempts} attempts: {problem}")

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()


def _answer(response: httpx.Response) -> tuple[str, Mapping[str, int]]:
    """Text and usage of a completion."""
    try:
        body = response.json()
        content = body["choices"][0]["message"]["content"]
        usage = body.get("usage") or {}
        return str(content or ""), {k: int(v) for k, v in usage.items() if isinstance(v, int | float)}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise UserError(f"{response.url}: is no chat completion: {type(error).__name__}: {error}") from None
