"""The embedded engine: a Sampler over a transformers model in this process.

One background thread steps `EngineCore` while there is work; asyncio loops, any number of them, only submit and await.
Boundary: threads and futures; what a step does is in `core.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from t1.errors import EngineError, EngineUnavailable
from t1.inference.core import EngineCore, Request
from t1.inference.sampling import check_params, derive_seed
from t1.types import IntArray, Sample, SamplingParams

Result = TypeVar("Result")


class TorchEngine:
    """Samples from a transformers causal language model, which it owns from now on (its weights change on publish)."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_context: int,
        max_rows: int = 64,
        version: int = 0,
        seed: int = 0,
        num_threads: int | None = None,
        max_step_tokens: int = 4096,
    ) -> None:
        """`max_rows` requests run at once and as many sessions stay cached; `max_step_tokens` prompt tokens a step."""
        self._core = EngineCore(
            model, max_context=max_context, max_rows=max_rows, version=version, max_step_tokens=max_step_tokens
        )
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._seed, self._counter = seed, itertools.count()
        self._num_threads = num_threads
        self._wake = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._closed: str | None = None
        """Why no more requests are taken."""
        self._thread = threading.Thread(target=self._run, name="t1-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The weights version that new tokens are sampled with."""
        return self._core.version

    @property
    def max_context(self) -> int:
        """Longest prompt + completion, in tokens."""
        return self._core.max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """Complete `prompt` [P]; requests of one session run one after another, those of different ones together.

        Cancelling the awaiting task frees the row. Raises ValueError for what can never be sampled, EngineUnavailable
        when the engine is closed or broken.
        """
        self._check(prompt, params, routing_start)
        counter = next(self._counter)
        seed = params.seed if params.seed is not None else derive_seed(self._seed, counter)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sample] = loop.create_future()

        def finish(result: Sample | EngineError) -> None:
            _settle(loop, future, result)

        request = Request(np.array(prompt, dtype=np.int32), params, session, routing_start, seed, finish)
        self._command(lambda: self._core.submit(request))
        try:
            return await future
        finally:
            if future.cancelled() or not future.done():  # nobody waits any more
                self._command(lambda: self._core.cancel(request), must=False)

    async def close_session(self, session: str) -> None:
        """Forget the session's cache (when its request ends, if one runs). Unknown sessions are fine."""
        self._command(lambda: self._core.close_session(session), must=False)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Copy `weights` in between two steps and drop every cache; running requests go on under the new version.

        Returns when the copy is done. Raises ValueError, and changes nothing, when the weights do not fit the model.
        Weights that lie on a disk are read here, beside the running requests.
        """
        weights = await asyncio.to_thread(dict, weights)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def apply() -> None:
            try:
                self._core.publish(weights, version)
            except ValueError as error:
                _settle(loop, future, error)
            except BaseException as error:
                _settle(loop, future, EngineUnavailable(f"publish failed: {error!r}"))
                raise
            else:
                _settle(loop, future, None)

        self._command(apply)
        await future

    async def aclose(self) -> None:
        """Stop after the current step; pending requests end with EngineUnavailable. Safe to call twice."""
        with self._wake:
            self._closed = self._closed or "the engine is closed"
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    def _check(self, prompt: IntArray, params: SamplingParams, routing_start: int) -> None:
        """Refuse a request before it can disturb others."""
        check_params(params)
        prompt = np.asarray(prompt)
        if prompt.ndim != 1 or prompt.dtype.kind not in "iu" or len(prompt) == 0:
            raise ValueError(f"prompt: expected int32 [P ≥ 1], got {prompt.dtype} {list(prompt.shape)}")
        if len(prompt) + 1 > self.max_context:
            raise ValueError(f"prompt: {len(prompt)} tokens leave no room in a context of {self.max_context}")
        if prompt.min() < 0 or prompt.max() >= self._vocabulary:
            raise ValueError(f"prompt: ids must lie in [0, {self._vocabulary}), got {prompt.min()} to {prompt.max()}")
        if not 0 <= routing_start <= len(prompt):
            raise ValueError(f"routing_start: expected 0 to {len(prompt)}, got {routing_start}")

    def _command(self, command: Callable[[], None], *, must: bool = True) -> None:
        """Have the engine's thread run `command` before its next step; `must`: refuse when there is no next step."""
        with self._wake:
            if self._closed is None:
                self._commands.append(command)
                self._wake.notify()
            elif must:
                raise EngineUnavailable(self._closed)

    def _run(self) -> None:
        """The thread: commands, a step, and so on, until closed or broken; nobody is left waiting."""
        try:
            if self._num_threads is not None:
                torch.set_num_threads(self._num_threads)
            while self._obey():
                self._core.step()
        except BaseException as error:
            with self._wake:
                self._closed = f"the engine broke: {type(error).__name__}: {error}"
        while self._commands:  # their callers wait too
            with contextlib.suppress(Exception):
                self._commands.popleft()()
        self._core.fail(self._closed or "the engine is closed")

    def _obey(self) -> bool:
        """Wait until there is something to do, run the commands; False when closed."""
        with self._wake:
            while not (self._commands or self._core.has_work or self._closed):
                self._wake.wait()
            if self._closed:
                return False
        while self._commands:  # one by one: if one breaks the engine, the others still find their callers
            self._commands.popleft()()
        return True


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any) -> None:
    """Complete a future of another thread's loop, unless it was cancelled or its loop is gone."""

    def complete() -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(complete)
