"""The whole method in one go: suite → base → demonstrations → SFT → PPO → the same held-out tasks for all three.

Read it top to bottom: it is the pipeline of the commands `t1 tasks make`, `sft`, `train` and `eval` in one process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.config import RunConfig
from t1.evaluation.metrics import StageResult, evaluate
from t1.evaluation.report import build_report, pick_examples, write_report
from t1.evaluation.spending import bias_meter, spending
from t1.evaluation.verdict import judge, write_verdict
from t1.progress import ProgressDisplay
from t1.rollouts.cost import FREE, Prices
from t1.rollouts.demotions import demoted_tasks
from t1.rundir import RunDir
from t1.sandboxes import make_provider
from t1.stages import Stages, open_tracker
from t1.tasks import Suite, read_suite
from t1.tasks.shell_basics import generate
from t1.tracking import read_metrics
from t1.training.checkpoints import steps_done
from t1.types import Rollout, Task
from t1.workshop import Workshop, model_path, normalizer_of

FINAL_EVALUATION_SHARE = 0.06
"""Of `run.budget_s`, kept for the last evaluation and the report."""


def quickstart(config: RunConfig, run: RunDir, show: ProgressDisplay) -> dict[str, Any]:
    """Run every stage into the run directory `run`; returns the report that is also written there.

    Stages that an interrupted run had finished are read from it; PPO goes on from its latest checkpoint.
    """
    started = time.monotonic()
    suite = open_suite(config, run, show)
    normalizer = normalizer_of(config, suite.train)
    run.pin("normalizer", normalizer)
    heldout = suite.heldout[: config.evaluation.num_tasks]
    base = model_path(config)
    rollouts: dict[str, list[Rollout]] = {}
    done = steps_done(run.checkpoints / "rl")
    with (
        open_tracker(config, run, before_step=done) as tracker,
        Workshop(config, base, normalizer=normalizer, logs=run.logs) as shop,
    ):
        stages = Stages(shop, run, tracker, show)
        rollouts["base"] = stages.evaluate("base", heldout)
        shown, unseen = split_train(suite, config.sft.num_demonstrations)
        demonstrations = stages.demonstrate(shown)
        sft = stages.finetune(base, demonstrations)
        rollouts["sft"] = stages.evaluate("sft", heldout)
        stages.reinforce(sft, unseen, deadline=rl_deadline(config, started))
        rollouts["rl"] = stages.evaluate("rl", heldout)
    prices = Prices(**config.cost.model_dump())
    return report(run, suite, rollouts, stages.audit, wall_s=time.monotonic() - started, prices=prices)


def open_suite(config: RunConfig, run: RunDir, show: ProgressDisplay) -> Suite:
    """The configured suite, or `shell-basics` generated into the run; pinned by digest."""
    path = Path(config.tasks.path) if config.tasks.path else run.path / "suite"
    # A kill while generating leaves no `suite`: it gets its name when the last task is proven.
    made = bool(config.tasks.path) or path.is_dir()
    suite = read_suite(path) if made else asyncio.run(_generate(config, path, show))
    run.pin("suite_digest", suite.digest)
    return suite


async def _generate(config: RunConfig, out: Path, show: ProgressDisplay) -> Suite:
    """Write `shell-basics`, every task proven in a sandbox before it leaves the generator."""
    tasks = config.tasks
    show.stage("tasks", total=tasks.num_train + tasks.num_heldout, unit="tasks")
    provider = make_provider(**config.sandboxes.model_dump())
    try:
        return await generate(
            out,
            seed=config.run.seed,
            num_train=tasks.num_train,
            num_heldout=tasks.num_heldout,
            min_requirements=tasks.min_requirements,
            max_requirements=tasks.max_requirements,
            provider=provider,
            progress=show.reached,
        )
    finally:
        await provider.close()


def split_train(suite: Suite, num_demonstrations: int) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Training tasks to demonstrate, and those that PPO learns from: what was shown is mostly solved already.

    A suite with nothing beyond the demonstrations is used for both.
    """
    shown, rest = suite.train[:num_demonstrations], suite.train[num_demonstrations:]
    return shown, rest or suite.train


def rl_deadline(config: RunConfig, started: float) -> float | None:
    """When PPO must begin no further step, so that the whole fits the budget."""
    if not config.run.budget_s:
        return None
    return started + config.run.budget_s * (1 - FINAL_EVALUATION_SHARE)


def report(
    run: RunDir,
    suite: Suite,
    rollouts: Mapping[str, Sequence[Rollout]],
    audit: Mapping[str, int],
    *,
    wall_s: float,
    prices: Prices = FREE,
) -> dict[str, Any]:
    """Evaluate the stages, write report.json and report.html, return the former."""
    results: dict[str, StageResult] = {name: evaluate(some) for name, some in rollouts.items()}
    metrics = read_metrics(run.metrics)
    steps = [m for m in metrics if m.get("stage") == "rl"]
    gaps = [m["gap"] for m in steps if m.get("gap") is not None]
    verdict = judge(run.path)
    write_verdict(verdict)
    result = build_report(
        results,
        wall_s=wall_s,
        gap=sum(gaps) / len(gaps) if gaps else None,
        audit=audit,
        rl_steps=len(steps),
        normalizer=run.pins()["normalizer"],
        verdict=verdict.as_dict(),
        spending=spending(rollouts, steps, ledger=run.path / "ledger.sqlite", prices=prices),
        bias=bias_meter(steps),
        demoted=demoted_tasks(run.path),
    )
    instructions = {task.id: task.instruction for task in suite.heldout}
    write_report(
        run.path,
        result,
        metrics=metrics,
        examples=pick_examples(rollouts, instructions),
        title=f"T1 · {run.path.name}",
    )
    return result
