# ruff: noqa: E501  (sentences stay in one piece)
"""The proposer that asks a model: prompts from files, answers checked against a schema, mistakes told back.

Boundary: it speaks to a ChatClient and knows no stage; what is wrong with a task comes back as a `problem`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources

import jinja2

from t1.errors import ConfigError
from t1.synthesis.candidate import Candidate, Rewrite, Seed, StageResult
from t1.synthesis.config import ProposerSection
from t1.synthesis.journal import Journal
from t1.synthesis.llm.client import ChatClient, Message, Prices
from t1.synthesis.llm.replies import TaskReply, candidate_of_reply, parse_reply
from t1.synthesis.proposer import ProposalRejected

GOALS: Mapping[Rewrite, str] = {
    Rewrite.HARDER: "make it harder for an expert, without making the instruction vaguer.",
    Rewrite.LONGER: "add one more step that builds on the last result, with assertions of its own.",
    Rewrite.DOMAIN: "move it to another domain (files, text, data, git, archives, permissions, scripts), as hard as before.",
    Rewrite.FORMAT: "let its data come, or go, in another format (CSV, TSV, JSON, JSON lines, INI, plain text).",
    Rewrite.REQUIREMENT: "add one more requirement that the result must meet, and assert it.",
    Rewrite.OBSERVATION: "take a value out of the instruction; it must be found by looking at a file that the instruction names.",
    Rewrite.DISTRACTORS: "add files that look relevant and are not; the instruction stays unambiguous.",
    Rewrite.REPAIR: "mend what the last version was rejected for.",
}


class LLMProposer:
    """See `proposer.Proposer`."""

    def __init__(self, client: ChatClient, *, model: str = "", max_attempts: int = 3) -> None:
        """`max_attempts`: answers that may be asked for until one fits the schema."""
        self.name = f"llm {model}".strip()
        self._client = client
        self._max_attempts = max_attempts
        self._prompts = {name: _prompt(name) for name in ("system", "propose", "rewrite")}

    @staticmethod
    def configured(config: ProposerSection, journal: Journal) -> LLMProposer:
        """The proposer of a configuration. Raises ConfigError where it lacks an endpoint or a model."""
        for key in ("base_url", "model"):
            if not getattr(config, key):
                raise ConfigError(f"proposer.{key} is not set: proposer.kind = llm needs an endpoint and a model")
        parameters: dict[str, object] = {"temperature": config.temperature, "max_tokens": config.max_tokens}
        if config.schema_format:
            schema = {"name": "task", "schema": TaskReply.model_json_schema()}
            parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
        client = ChatClient(
            config.base_url,
            config.model,
            journal,
            api_key=os.environ.get(config.api_key_env, ""),
            prices=Prices(config.prompt_price, config.completion_price, config.max_cost),
            parameters=parameters,
            timeout_s=config.timeout_s,
            max_attempts=config.max_attempts,
        )
        return LLMProposer(client, model=config.model)

    async def propose(self, seed: Seed) -> Candidate:
        """See `Proposer.propose`."""
        reply = await self._ask(self._prompts["propose"].render(seed=seed), salt=str(seed.index))
        return candidate_of_reply(reply, seed)

    async def rewrite(self, seed: Seed, candidate: Candidate, kind: Rewrite, problem: StageResult | None) -> Candidate:
        """See `Proposer.rewrite`."""
        task = json.dumps(dict(candidate.recipe), indent=1, sort_keys=True)
        prompt = self._prompts["rewrite"].render(goal=GOALS[kind], problem=problem, task=task)
        reply = await self._ask(prompt, salt=f"{seed.index} {candidate.num_rounds}")
        made = candidate_of_reply(reply, seed, (*candidate.rewrites, kind))
        if made.recipe == candidate.recipe:
            raise ProposalRejected("unchanged", f"the model changed nothing when asked for {kind}")
        return made

    async def _ask(self, prompt: str, *, salt: str) -> TaskReply:
        """An answer that fits the schema; what was wrong with one is told to the model."""
        first: list[Message] = [
            {"role": "system", "content": self._prompts["system"].render()},
            {"role": "user", "content": prompt},
        ]
        messages, problem = first, ""
        for attempt in range(self._max_attempts):
            answer = await self._client.complete(messages, salt=f"{salt} {attempt}")
            try:
                return parse_reply(answer)
            except ValueError as error:
                problem = str(error)
                told = f"This does not fit: {problem}. Answer again with the whole JSON object."
                messages = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": told}]
        raise ProposalRejected("bad-answer", f"no answer in {self._max_attempts} fits the schema: {problem}")

    async def aclose(self) -> None:
        """See `Proposer.aclose`."""
        await self._client.aclose()


def _prompt(name: str) -> jinja2.Template:
    """A prompt from its file; an unknown variable in it is an error."""
    text = (resources.files("t1.synthesis.llm") / "prompts" / f"{name}.md").read_text(encoding="utf-8")
    return jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(text)
