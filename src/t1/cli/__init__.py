"""The command line: one thin file per command, one place that turns errors into lines and exit codes.

Exit codes: 0 done · 1 done, and what was asked about is not well (`audit`, `doctor`, `tasks check`) · 2 the person can
fix it · 3 the infrastructure failed · 130 interrupted.
Boundary: commands read options, call the parts and print. Heavy imports stand inside the commands, so that help,
`doctor` and mistakes answer at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence

import typer

from t1.cli.ablate import ablate
from t1.cli.audit import audit
from t1.cli.doctor import doctor
from t1.cli.eval import evaluate
from t1.cli.gap import gap
from t1.cli.gateway import gateway
from t1.cli.plan import plan
from t1.cli.quickstart import quickstart
from t1.cli.redteam import redteam
from t1.cli.rollout import rollout
from t1.cli.sandboxes import sandboxes
from t1.cli.sft import sft
from t1.cli.tasks import tasks
from t1.cli.train import train
from t1.cli.verdict import verdict
from t1.cli.view import view
from t1.errors import InfrastructureError, UserError

__all__ = ["app", "main"]

INTERRUPTED = 130

app = typer.Typer(
    name="t1",
    help="T1: reinforcement learning for terminal agents. Begin with `t1 doctor` and `t1 quickstart`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(quickstart)
app.add_typer(tasks, name="tasks")
app.command()(rollout)
app.command()(sft)
app.command()(train)
app.command("eval")(evaluate)
app.command()(ablate)
app.command()(audit)
app.command()(view)
app.command()(verdict)
app.command()(gap)
app.command()(gateway)
app.command()(plan)
app.command()(doctor)
app.command()(redteam)
app.add_typer(sandboxes, name="sandboxes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Mistakes are one line on stderr, never a traceback."""
    # Before torch is imported: OpenMP threads that spin while they wait are fast on a quiet machine and ruinous on a
    # busy one (measured: 5x slower beside one other process). A short spin keeps nearly all of the gain.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="t1", standalone_mode=False)
    except BaseException as error:
        return _answer(_first(error))
    return _answer(KeyboardInterrupt()) if code == INTERRUPTED else int(code or 0)


def _interrupt(number: int, frame: object) -> None:
    """`kill` cleans up as Ctrl-C does, through whichever handler of Ctrl-C is in force (asyncio has its own)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def _first(error: BaseException) -> BaseException:
    """The first leaf of an exception group: its siblings were cancelled because of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _answer(error: BaseException) -> int:
    """One line on stderr and the exit code; what is no mistake of a person or the infrastructure is raised again."""
    match error:
        case typer.TyperException():
            return _complain(error.format_message(), error.exit_code)
        case UserError():
            return _complain(str(error), 2)
        case InfrastructureError():
            return _complain(f"{type(error).__name__}: {error}", 3)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS):
            return _complain(f"{error.filename or 'the disk'}: {error.strerror}", 2)
        case KeyboardInterrupt() | typer.Abort():
            return _complain("interrupted; a run that had begun goes on with `t1 train --resume RUN`", INTERRUPTED)
    raise error


def _complain(message: str, code: int) -> int:
    """Say it in one line on stderr."""
    line = " ".join(message.split())
    print(f"t1: {line}", file=sys.stderr)
    return code
