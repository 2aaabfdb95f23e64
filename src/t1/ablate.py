"""Runs the arms of an ablation: one start for all of them, then seed by seed both arms, and the comparison so far.

    OUT/start/           suite, demonstrations, SFT and its evaluation, shared by every arm of every seed
    OUT/seed-0/ARM/      one run of one arm; skipped when it is done, resumed when it is not
    OUT/KIND.md .json .svg

A run ends by its steps; `run.budget_s` is not asked.

The seed is the outer loop: an interruption leaves whole pairs. Ablations in one OUT share their start, and the arms
that are the same run: `tito` and `replay` need three arms and not four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from t1.config import RunConfig, differing_keys
from t1.errors import RunError
from t1.evaluation.ablation_report import write_ablation
from t1.evaluation.ablations import (
    Ablation,
    arms_of,
    compare_arms,
    find_run,
    is_done,
    read_arm,
    seeded,
)
from t1.evaluation.verdict import judge, write_verdict
from t1.progress import ProgressDisplay
from t1.quickstart import open_suite, split_train
from t1.rundir import RunDir, read_run_config
from t1.stages import Stages, open_tracker
from t1.training.checkpoints import steps_done
from t1.workshop import Workshop, model_path, normalizer_of

START = "start"
START_EVALUATION = "eval-sft.parquet"


def ablate(name: str, base: RunConfig, out: Path, seeds: Sequence[int], show: ProgressDisplay) -> Ablation:
    """Run what is missing of the ablation `name` into `out`; returns the comparison of all its pairs."""
    arms = arms_of(name, base)
    suite, start = prepare_start(base, out / START, show)
    found: Ablation | None = None
    for count, seed in enumerate(seeds, start=1):
        for arm, config in arms.items():
            own = seeded(config, seed, suite=suite, start=start)
            place = place_of(out, seed, arm, own)
            show.note(f"seed {seed}, {arm}: {'done already' if is_done(place) else 'runs'} in {place}")
            run_arm(own, place, show)
        found = report(name, arms, out, seeds[:count], suite=suite, start=start)
    if found is None:
        raise RunError("an ablation needs at least one seed")
    return found


def prepare_start(base: RunConfig, path: Path, show: ProgressDisplay) -> tuple[Path, Path]:
    """(suite, SFT checkpoint) that every arm begins with; made once, and refused for another configuration."""
    own = start_config(base)
    suite = Path(own.tasks.path) if own.tasks.path else path / "suite"
    checkpoint = path / "checkpoints" / "sft"
    if (path / "rollouts" / START_EVALUATION).is_file():
        check_same(path, own)
        return suite, checkpoint
    with open_run(path, own) as run, open_tracker(own, run) as tracker:
        tasks = open_suite(own, run, show)
        normalizer = normalizer_of(own, tasks.train)
        run.pin("normalizer", normalizer)
        begin = model_path(own)
        with Workshop(own, begin, normalizer=normalizer) as shop:
            stages = Stages(shop, run, tracker, show)
            stages.finetune(begin, stages.demonstrate(split_train(tasks, own.sft.num_demonstrations)[0]))
            stages.evaluate("sft", tasks.heldout[: own.evaluation.num_tasks])
    return suite, checkpoint


def start_config(base: RunConfig) -> RunConfig:
    """What decides the start: not how PPO is done, so that ablations of all kinds may begin at the same place."""
    fresh = RunConfig()
    run = fresh.run.model_copy(update={"seed": base.run.seed, "threads": base.run.threads})
    unasked = ("rollouts", "reward", "tito", "ppo")
    return base.model_copy(update={"run": run, **{section: getattr(fresh, section) for section in unasked}})


def run_arm(config: RunConfig, path: Path, show: ProgressDisplay) -> None:
    """PPO and its evaluation, from wherever an earlier attempt got to; the verdict ends it."""
    if is_done(path):
        return
    done = steps_done(path / "checkpoints" / "rl")
    with open_run(path, config) as run, open_tracker(config, run, before_step=done) as tracker:
        suite, begin = open_suite(config, run, show), model_path(config)
        normalizer = normalizer_of(config, suite.train)
        run.pin("normalizer", normalizer)
        with Workshop(config, begin, normalizer=normalizer, version=done) as shop:
            stages = Stages(shop, run, tracker, show)
            stages.reinforce(begin, split_train(suite, config.sft.num_demonstrations)[1])
            stages.evaluate("rl", suite.heldout[: config.evaluation.num_tasks])
    write_verdict(judge(path))


def open_run(path: Path, config: RunConfig) -> RunDir:
    """A new run, or an unfinished one with this very configuration."""
    if not (path / "config.toml").is_file():
        return RunDir.create(path, config)
    check_same(path, config)
    return RunDir.resume(path)[0]


def check_same(path: Path, config: RunConfig) -> None:
    """Raise RunError where the run in `path` has another configuration."""
    if differences := differing_keys(read_run_config(path), config):
        changes = ", ".join(f"{key} was {old!r} and is {new!r}" for key, (old, new) in differences.items())
        raise RunError(f"{path}: {changes}; choose another --out, since runs of two configurations match nothing")


def place_of(out: Path, seed: int, arm: str, config: RunConfig) -> Path:
    """The run of this seed that has this very configuration, or where it goes; refused where another one is."""
    folder = out / f"seed-{seed}"
    found = find_run(folder, config)
    if found is None and (folder / arm / "config.toml").is_file():
        check_same(folder / arm, config)
    return folder / arm if found is None else found


def report(
    name: str, arms: Mapping[str, RunConfig], out: Path, seeds: Sequence[int], *, suite: Path, start: Path
) -> Ablation:
    """Compare the pairs of these seeds and write what came out."""
    pairs = []
    for seed in seeds:
        own = {arm: seeded(config, seed, suite=suite, start=start) for arm, config in arms.items()}
        one, other = (read_arm(place_of(out, seed, arm, config), arm) for arm, config in own.items())
        pairs.append((one, other))
    found = compare_arms(name, pairs, start=out / START / "rollouts" / START_EVALUATION)
    write_ablation(out, found)
    return found
