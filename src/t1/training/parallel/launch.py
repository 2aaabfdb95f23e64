"""Starts the ranks of a local group: processes of this machine that run one function together.

Boundary: processes and their process group; what they compute is the function's. Whoever spreads ranks over machines
starts them by other means, sets the same group up with `group`, and calls the same functions.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from t1.errors import InfrastructureError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""Device type → backend; flat arrays are added up in the host's memory, over gloo, everywhere."""
PRELOADED = ("torch", "transformers", "t1.training.ppo")
"""Imported once, by the server that ranks are forked from."""

RankFunction: TypeAlias = Callable[..., Any]
"""Called as function(*arguments) inside an open default process group."""


@contextmanager
def group(
    rank: int, world: int, init_method: str, *, device_type: str = "cpu", timeout_s: float = 600.0
) -> Iterator[None]:
    """The default process group, while this is open. A collective that waits longer than `timeout_s` fails."""
    if device_type == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        BACKENDS[device_type],
        init_method=init_method,
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_ranks(
    num_ranks: int,
    function: RankFunction,
    *arguments: Any,
    timeout_s: float,
    num_threads: int = 1,
    device_type: str = "cpu",
) -> list[Any]:
    """What `function(*arguments)` returned on each of `num_ranks` new processes of one group, by rank.

    `function` is importable and its arguments and results can be pickled. The first rank that fails, dies or is late
    ends all of them, and its reason is raised: InfrastructureError. No process is left behind.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    deadline = time.monotonic() + timeout_s
    with tempfile.TemporaryDirectory(prefix="t1-ranks-") as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"
        processes: list[BaseProcess] = []
        ends: list[Connection] = []
        grace_s = 0.0
        try:
            for rank in range(num_ranks):
                ours, theirs = context.Pipe(duplex=False)
                setting = (rank, num_ranks, meeting, device_type, timeout_s, num_threads)
                process = context.Process(target=_rank, args=(theirs, setting, function, arguments), daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                ends.append(ours)
            answers = _collect(processes, ends, deadline)
            grace_s = 5.0
            return answers
        finally:
            _end(processes, grace_s)
            for end in ends:
                end.close()


def _rank(
    end: Connection, setting: tuple[int, int, str, str, float, int], function: RankFunction, arguments: tuple[Any, ...]
) -> None:
    """The life of one rank."""
    rank, world, meeting, device_type, timeout_s, num_threads = setting
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(num_threads)
    try:
        with group(rank, world, meeting, device_type=device_type, timeout_s=timeout_s):
            answer = (True, pickle.dumps(function(*arguments)))
    except BaseException:
        answer = (False, traceback.format_exc().encode())
    with contextlib.suppress(BrokenPipeError):
        end.send(answer)


def _collect(processes: list[BaseProcess], ends: list[Connection], deadline: float) -> list[Any]:
    """Every rank's answer, by rank."""
    answers: dict[int, Any] = {}
    while len(answers) < len(ends):
        missing = [rank for rank in range(len(ends)) if rank not in answers]
        ready = wait([ends[rank] for rank in missing], timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise InfrastructureError(f"ranks {missing} did not answer in time; a collective may be waiting for a peer")
        for rank in missing:
            if ends[rank] not in ready:
                continue
            try:
                done, answer = ends[rank].recv()
            except EOFError:
                processes[rank].join(5.0)
                raise InfrastructureError(
                    f"rank {rank} died without a word (exit code {processes[rank].exitcode})"
                ) from None
            if not done:
                raise InfrastructureError(f"rank {rank} failed:\n{answer.decode()}")
            answers[rank] = pickle.loads(answer)
    return [answers[rank] for rank in range(len(ends))]


def _end(processes: list[BaseProcess], grace_s: float) -> None:
    """See every process out; those that linger longer than `grace_s` are killed."""
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join(5.0)
        process.close()
