"""A judge model, asked about what no probe can see. Its opinion is recorded apart and rejects nothing.

Boundary: any endpoint that speaks OpenAI's chat completions; answers are validated, and a judge that cannot be had is
written down as such.
"""

from __future__ import annotations

import json
from importlib import resources

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from t1.synthesis.audit.report import Opinion
from t1.synthesis.audit.sources import Source, Sources

MAX_TEXT = 12_000
"""Characters of each text that the judge is shown."""
MAX_CONCERNS = 10


class Answer(BaseModel):
    """What the judge must say."""

    model_config = ConfigDict(extra="forbid")

    score: float = Field(ge=0, le=1)
    concerns: list[str] = Field(max_length=MAX_CONCERNS)


class Judge:
    """Asks one model, with a bound on time and on what it is shown."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str = "",
        timeout_s: float = 120.0,
        attempts: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`url`: the endpoint's base, such as http://127.0.0.1:8000/v1."""
        self.model = model
        self._transport = transport
        self._url, self._timeout_s, self._attempts = f"{url.rstrip('/')}/chat/completions", timeout_s, attempts
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def opinion(self, sources: Sources) -> Opinion:
        """The judge's opinion; without one, the reason."""
        error = ""
        async with httpx.AsyncClient(
            timeout=self._timeout_s, headers=self._headers, transport=self._transport
        ) as client:
            for _ in range(self._attempts):
                try:
                    answer = await self._ask(client, sources)
                    return Opinion(self.model, answer.score, tuple(answer.concerns))
                except httpx.HTTPError as failure:
                    error = f"{self._url}: {type(failure).__name__}: {failure}"
                except (ValueError, KeyError, IndexError, TypeError) as failure:
                    error = f"the answer is not what was asked for: {str(failure)[:200]}"
        return Opinion(self.model, 0.0, error=error)

    async def _ask(self, client: httpx.AsyncClient, sources: Sources) -> Answer:
        """One request. Raises httpx.HTTPError, or ValueError for an answer of another form."""
        body = {
            "model": self.model,
            "temperature": 0,
            "response_format": {"type": "json_object"},
            "messages": [{"role": "system", "content": _prompt()}, {"role": "user", "content": _shown(sources)}],
        }
        response = await client.post(self._url, json=body)
        response.raise_for_status()
        text = response.json()["choices"][0]["message"]["content"]
        try:
            return Answer.model_validate_json(text)
        except ValidationError as errors:
            raise ValueError(errors.errors(include_url=False)[0]["msg"]) from None


def _prompt() -> str:
    """The judge's instructions, from the file beside this module."""
    return resources.files("t1.synthesis.audit").joinpath("judge.md").read_text(encoding="utf-8")


def _shown(sources: Sources) -> str:
    """The task as JSON: texts in it are material and cannot pass for instructions."""

    def texts(files: tuple[Source, ...]) -> dict[str, str]:
        return {f.path: f.text[:MAX_TEXT] for f in files if not f.binary}

    return json.dumps({
        "instruction": sources.instruction[:MAX_TEXT],
        "environment": texts(sources.environment),
        "tests": texts(sources.tests),
        "solution": texts(sources.solution),
    })[: 4 * MAX_TEXT]  # fmt: skip
