"""Runs `t1` commands, each in a process of its own in which torch and transformers are loaded already.

Loading them is most of what a small command takes, so one process does it once and forks: nothing else is shared, and
what a command leaves in its process ends with it. A process has one forkserver of multiprocessing's, and that is the
trainer's ranks' (`training.parallel.launch`), with less loaded.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

LOADED = (
    "t1.ablate", "t1.base", "t1.cli", "t1.cluster.learning", "t1.evaluation.verdict", "t1.inference", "t1.loop",
    "t1.quickstart", "t1.redteam", "t1.synthesis", "t1.training", "t1.viewer", "t1.workshop",
    "transformers.conversion_mapping", "transformers.integrations.finegrained_fp8", "transformers.loss.loss_utils",
)  # fmt: skip
LOAD_S, END_S = 300, 60
SERVER = r"""
import importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from t1.cli import main
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(asked["place"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(os.open(asked["output"], os.O_WRONLY | os.O_APPEND), stream)
        sys.argv = ["t1", *asked["words"]]
        sys.exit(main(asked["words"]))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class T1(Protocol):
    """Runs a command in a directory: (exit code, what it printed). It ends within a bound, with all that it started."""

    def __call__(self, words: Sequence[str], place: Path, *, bound_s: float) -> tuple[int, str]: ...


@contextmanager
def loaded() -> Iterator[T1]:
    """What runs commands, until the end of `with`."""
    with (
        ThreadPoolExecutor(1) as reader,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, *LOADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        asks, answers = server.stdin, server.stdout

        def t1(words: Sequence[str], place: Path, *, bound_s: float) -> tuple[int, str]:
            output = place / "printed.txt"
            output.write_bytes(b"")
            asks.write(json.dumps({"words": list(words), "place": str(place), "output": str(output)}) + "\n")
            asks.flush()
            pid = int(reader.submit(answers.readline).result(LOAD_S))
            answer = reader.submit(answers.readline)
            try:
                code = int(answer.result(bound_s))
            except TimeoutError:
                os.killpg(pid, signal.SIGKILL)
                answer.result(END_S)
                raise
            return code, output.read_text(encoding="utf-8", errors="replace")

        try:
            yield t1
        finally:
            asks.close()
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                server.kill()
