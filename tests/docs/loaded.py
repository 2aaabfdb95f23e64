"""Runs `t1` commands, each in a process of its own in which torch and transformers are loaded already.

Loading them is most of what a small command takes, so one server does it once and forks: nothing else is shared, and
what a command leaves in its process ends with it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

LOADED = (
    "t1.ablate", "t1.base", "t1.cli", "t1.cluster.learning", "t1.evaluation.verdict", "t1.inference", "t1.loop",
    "t1.quickstart", "t1.redteam", "t1.synthesis", "t1.training", "t1.viewer", "t1.workshop",
    "transformers.conversion_mapping", "transformers.integrations.finegrained_fp8", "transformers.loss.loss_utils",
)  # fmt: skip
END_S = 60

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(LOADED))


def t1(words: Sequence[str], place: Path, *, bound_s: float) -> tuple[int, str]:
    """(exit code, what it printed) of a command. It ends within a bound, and with it all that it started."""
    output = place / f"printed-{os.getpid()}.txt"
    process = _context.Process(target=_command, args=(list(words), str(place), str(output)))
    process.start()
    try:
        process.join(bound_s)
        if process.exitcode is None:
            raise TimeoutError(f"t1 {' '.join(words)}: not ended after {bound_s:g} s")
        return process.exitcode, output.read_text(encoding="utf-8", errors="replace")
    finally:
        if process.exitcode is None and process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join(END_S)
        process.close()
        output.unlink(missing_ok=True)


def _command(words: list[str], place: str, output: str) -> None:
    """In the new process: what `python -m t1` does there."""
    from t1.cli import main

    os.setsid()
    os.chdir(place)
    target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(target, stream)
    os.close(target)
    sys.argv = ["t1", *words]
    code = main(words)
    atexit._run_exitfuncs()
    sys.exit(code)
