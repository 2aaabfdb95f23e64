"""A handful of requests that prove an engine fit to train from, before a run begins; what fails names its flag.

Boundary: any Sampler, and optionally the trainer's model as a `Reference` to compare numbers with; no torch. Without a
reference the checks of shape still run, and those of numbers are skipped by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from t1.errors import EngineError, PromptMismatch, RoutingError, T1Error
from t1.protocols import Sampler
from t1.types import FloatArray, IntArray, RoutingArray, Sample, SamplingParams

TOKENS = 12
"""Sampled in each request."""
TURN = 5
"""Tokens between two turns of the conversation that is played."""
FLAG_ROUTES = "start the engine with --enable-return-routed-experts (vLLM and SGLang)"
FLAG_LOGPROBS = "start vLLM with --logprobs-mode processed_logprobs; SGLang without --enable-return-original-logprob"
FLAG_RELOAD = (
    "start vLLM with --worker-extension-cls t1.inference.vllm_extension.WeightReloader and VLLM_SERVER_DEV_MODE=1"
)
FLAG_MODEL = "serve the checkpoint that the trainer begins with, in the same dtype (--model, --dtype)"
FLAG_CACHE = "the prefix cache outlives its weights: start the engine with --no-enable-prefix-caching (vLLM) or "
FLAG_CACHE += "--disable-radix-cache (SGLang), or let T1 reset it (VLLM_SERVER_DEV_MODE=1)"


class Reference(Protocol):
    """The trainer's model, as far as a preflight needs it."""

    def score(self, tokens: IntArray, num_prompt: int, temperature: float) -> tuple[FloatArray, RoutingArray | None]:
        """(log-probabilities [T − num_prompt] of what follows the prompt, routes [T − 1, L, K]) of `tokens` [T]."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """All tensors by name, for publishing."""
        ...

    def perturb(self) -> None:
        """Change the weights so much that a model which kept its old ones is found out."""
        ...

    def restore(self) -> None:
        """Undo `perturb` exactly."""
        ...


class State(StrEnum):
    """How a check went."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """One thing that was proved, or not."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """All checks, in the order in which they ran."""

    checks: tuple[PreflightCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; what was skipped was not proved."""
        return all(check.state is not State.FAILED for check in self.checks)

    def raise_if_failed(self) -> None:
        """EngineError that names every failure and its fix."""
        failed = [check for check in self.checks if check.state is State.FAILED]
        if failed:
            lines = "; ".join(f"{check.name}: {check.found} → {check.fix}" for check in failed)
            raise EngineError(f"preflight: {len(failed)} of {len(self.checks)} checks failed: {lines}")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far engine and trainer may lie apart: wide enough for bfloat16, narrow enough for every mistake known."""

    mean_gap: float = 0.05
    """Mean |Δlogprob|. A stale cache measures 0.87, experts that were not reloaded 2.2, bfloat16 about 0.01."""
    flipped: float = 0.1
    """Share of (token, layer) pairs with another set of experts; bfloat16 against float32 measures 0.01 to 0.06."""


async def preflight(
    sampler: Sampler,
    reference: Reference | None = None,
    *,
    vocab_size: int,
    routed: bool,
    params: SamplingParams | None = None,
    publish: bool = False,
    tolerance: Tolerance | None = None,
    seed: int = 0,
) -> PreflightReport:
    """Prove `sampler` fit to train from. `routed`: a Mixture-of-Experts model; `params`: what the run samples with.

    `publish` loads changed weights and then the reference's again, which needs a reference; do it before a run only.
    """
    probe = _Preflight(
        sampler,
        reference,
        vocab_size,
        routed,
        tolerance or Tolerance(),
        np.random.default_rng(seed),
        f"preflight-{seed}",
    )
    await probe.run(params or SamplingParams(), publish=publish)
    return PreflightReport(tuple(probe.checks))


@dataclass(slots=True, eq=False)
class _Preflight:
    """The requests of one preflight and what they showed."""

    sampler: Sampler
    reference: Reference | None
    vocab_size: int
    routed: bool
    tolerance: Tolerance
    rng: np.random.Generator
    session: str
    checks: list[PreflightCheck] = field(default_factory=list)

    async def run(self, params: SamplingParams, *, publish: bool) -> None:
        """Every check; a check that cannot be done does not keep the others from it."""
        self._check_truncation(params)
        length = min(160, self.sampler.max_context // 2)
        prompt = self._prompt(length)
        first = await self._ask("ids in are ids seen", prompt, self._say_ids)
        if first is None:
            return  # an engine that answers nothing has nothing to show
        self._check_numbers("log-probabilities are the trainer's", first, 1.0, FLAG_MODEL)
        self._check_routes("routes of a prompt that is new", first)
        hit = await self._ask("routes of a prompt that is cached", prompt, self._say_hit)
        if hit is not None:
            self._compare_routes("cached routes are those of the first feeding", first, hit)
        await self._check_turn(first)
        await self._check_temperature(prompt)
        longest = self._prompt(self.sampler.max_context - 2)
        found = await self._ask("the longest prompt", longest, self._say_rows, max_tokens=2)
        if found is not None:
            self._check_numbers("log-probabilities after the longest prompt", found, 1.0, FLAG_MODEL)
        await self._check_publish(prompt, publish=publish)

    def _prompt(self, length: int) -> IntArray:
        """[length] random ids, without runs."""
        return self.rng.integers(1, self.vocab_size, length).astype(np.int32)

    def _note(self, name: str, state: State, found: str, fix: str = "") -> None:
        self.checks.append(PreflightCheck(name, state, found, fix if state is not State.PASSED else ""))

    async def _ask(
        self,
        name: str,
        prompt: IntArray,
        say: Callable[[Sample], str],
        *,
        start: int = 0,
        temperature: float = 1.0,
        max_tokens: int = TOKENS,
    ) -> Sample | None:
        """One request as one check: failed by the error that it ends with, passed with what `say` says of it."""
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=int(self.rng.integers(2**31)))
        sample: Sample | None = None

        async def work() -> str:
            nonlocal sample
            sample = await self.sampler.sample(prompt, params, session=self.session, routing_start=start)
            if self.routed and sample.routing is None:
                raise RoutingError("no routes for a Mixture-of-Experts model")
            return say(sample)

        await self._attempt(name, work)
        return sample

    async def _attempt(self, name: str, work: Callable[[], Awaitable[str]]) -> bool:
        """Do `work`; note what it says, or how it failed and what helps."""
        try:
            found = await work()
        except (T1Error, ValueError) as error:
            self._note(name, State.FAILED, str(error), _fix(error))
            return False
        self._note(name, State.PASSED, found)
        return True

    def _say_ids(self, sample: Sample) -> str:
        return f"{len(sample.prompt)} of {len(sample.prompt)}, weights version {sample.versions[0]}"

    def _say_rows(self, sample: Sample) -> str:
        rows = "dense model" if sample.routing is None else f"{len(sample.routing)} rows"
        return f"{len(sample.prompt)} + {len(sample.completion)} tokens, {rows}"

    def _say_hit(self, sample: Sample) -> str:
        cached = sample.timings.cached_tokens
        return f"{self._say_rows(sample)}, " + (f"{cached} tokens cached" if cached else "no hit was reported")

    def _check_truncation(self, params: SamplingParams) -> None:
        """Case L3: the trainer scores the whole distribution, so that is what must be sampled."""
        if params.temperature == 0.0 or params.top_p < 1.0 or params.top_k:
            said = f"temperature {params.temperature:g}, top_p {params.top_p:g}, top_k {params.top_k}"
            fix = "set temperature above 0, top_p = 1 and top_k = 0: the trainer has no such cut"
            self._note("the sampled distribution is one that is trained", State.FAILED, said, fix)
        else:
            said = f"temperature {params.temperature:g}, nothing cut off"
            self._note("the sampled distribution is one that is trained", State.PASSED, said)

    def _check_numbers(self, name: str, sample: Sample, temperature: float, fix: str) -> None:
        """Log-probabilities against the trainer's model."""
        if self.reference is None:
            self._note(name, State.SKIPPED, "no reference model was given", "t1 doctor --engine URL --model PATH")
            return
        tokens = np.concatenate([sample.prompt, sample.completion])
        logprobs, _ = self.reference.score(tokens, len(sample.prompt), temperature)
        gap = np.abs(sample.logprobs - logprobs)
        fits = bool(gap.mean() <= self.tolerance.mean_gap)
        said = f"mean |Δ| {gap.mean():.2g}, largest {gap.max():.2g} over {len(gap)} tokens"
        self._note(name, State.PASSED if fits else State.FAILED, said, fix)

    def _check_routes(self, name: str, sample: Sample) -> None:
        """Expert sets against the trainer's model; their number and sense were checked when they came."""
        if sample.routing is None:
            self._note(name, State.SKIPPED, "a dense model has none")
            return
        if self.reference is None:
            self._note(name, State.PASSED, f"{len(sample.routing)} rows, not compared: no reference model was given")
            return
        tokens = np.concatenate([sample.prompt, sample.completion])
        _, routing = self.reference.score(tokens, len(sample.prompt), 1.0)
        if routing is None:
            self._note(name, State.FAILED, "the engine has routes, the trainer's model is dense", FLAG_MODEL)
            return
        self._note_flipped(name, sample.routing, routing[sample.routing_start :], FLAG_MODEL)

    def _compare_routes(self, name: str, one: Sample, other: Sample) -> None:
        """Rows of the common prompt."""
        if one.routing is None or other.routing is None:
            self._note(name, State.SKIPPED, "a dense model has none")
            return
        common = len(one.prompt) - 1
        self._note_flipped(name, other.routing[:common], one.routing[:common], FLAG_CACHE)

    def _note_flipped(self, name: str, one: RoutingArray, other: RoutingArray, fix: str) -> None:
        if one.shape != other.shape:
            self._note(name, State.FAILED, f"{list(one.shape)} rows against {list(other.shape)}", FLAG_MODEL)
            return
        flipped = float((np.sort(one, axis=2) != np.sort(other, axis=2)).any(axis=2).mean()) if one.size else 0.0
        fits = flipped <= self.tolerance.flipped
        said = f"{len(one)} rows, {flipped:.1%} of the expert sets differ"
        self._note(name, State.PASSED if fits else State.FAILED, said, fix)

    async def _check_turn(self, first: Sample) -> None:
        """A second turn brings only the rows that the first one has not."""
        prompt = np.concatenate([first.prompt, first.completion, self._prompt(TURN)])
        if len(prompt) + TOKENS > self.sampler.max_context:
            self._note("routes of a second turn", State.SKIPPED, "the context is too short for two turns")
            return
        start = len(first.prompt) + len(first.completion) - 1
        second = await self._ask("a second turn sends only its own rows", prompt, self._say_rows, start=start)
        if second is not None:
            self._check_routes("routes of a second turn", second)
            self._check_numbers("log-probabilities of a second turn", second, 1.0, FLAG_MODEL)

    async def _check_temperature(self, prompt: IntArray) -> None:
        """Case L2: at another temperature, the reported numbers must be of the distribution at that temperature."""
        for temperature in (0.5, 1.5):
            name = f"a request at temperature {temperature:g}"
            found = await self._ask(name, prompt, self._say_rows, temperature=temperature)
            if found is not None:
                told = f"log-probabilities at temperature {temperature:g}"
                self._check_numbers(told, found, temperature, FLAG_LOGPROBS)

    async def _check_publish(self, prompt: IntArray, *, publish: bool) -> None:
        """Changed weights arrive, those before come back, and no cache outlives either (case L1)."""
        reference = self.reference
        if not publish or reference is None:
            said = "not asked for" if not publish else "no reference model was given"
            self._note("publish", State.SKIPPED, said, "needs a model and a directory that engine and trainer share")
            return
        reference.perturb()
        try:
            await self._after_publish("changed weights", prompt)
        finally:
            reference.restore()
            await self._after_publish("the first weights again", prompt)

    async def _after_publish(self, what: str, prompt: IntArray) -> None:
        """Publish the reference's weights and ask what was asked before."""
        reference, sampler = self.reference, self.sampler
        assert reference is not None

        async def work() -> str:
            await sampler.publish(reference.weights(), sampler.version)
            return f"loaded as version {sampler.version}"

        if not await self._attempt(f"publish {what}", work):
            return
        fresh = await self._ask(f"a new prompt after {what}", self._prompt(len(prompt)), self._say_rows)
        if fresh is not None:
            self._check_numbers(f"log-probabilities after {what}", fresh, 1.0, FLAG_RELOAD)
            self._check_routes(f"routes after {what}", fresh)
        again = await self._ask(f"an old prompt after {what}", prompt, self._say_hit)
        if again is not None:
            self._check_numbers(f"log-probabilities of an old prompt after {what}", again, 1.0, FLAG_CACHE)


def _fix(error: Exception) -> str:
    """What helps against an error of a request."""
    if isinstance(error, RoutingError):
        return (
            f"{FLAG_ROUTES}; rows that lack or repeat: without pipeline parallelism, external KV caches or preemption"
        )
    if isinstance(error, PromptMismatch):
        return "send ids: vLLM with --enable-scale-out or --tokens-only, both engines with --skip-tokenizer-init"
    return "see the engine's own log"
