"""Stage 5: a reference policy inside a band, with an interval, remembered attempt by attempt; a small real one, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from t1.cli import main
from t1.sandboxes import NamespaceProvider, probe
from t1.synthesis.attacks import Attacks
from t1.synthesis.config import load_synth_config
from t1.synthesis.factory import Factory, Parts, Synthesis
from t1.synthesis.journal import Journal
from t1.synthesis.seeds import taxonomy_seeds
from t1.synthesis.selection.useful import useful
from t1.synthesis.trials import Ground
from t1.testing.proposers import FakeProposer
from t1.testing.tasks import example_task
from t1.types import Task

needs_sandboxes = pytest.mark.skipif(probe().confinement is None, reason="no namespaces here")


@pytest.mark.parametrize(("solved", "reason"), [(0, "too-hard"), (1, ""), (7, ""), (8, "too-easy")])
async def test_a_task_must_be_solved_sometimes_and_the_rate_has_an_interval(solved, reason):
    async def attempt(task: Task, number: int) -> bool:
        return number < solved

    found = await useful(example_task(), attempt=attempt, num_rollouts=8, band=(0.05, 0.95), audit=None, min_audit=0.0)
    assert (found.passed, found.reason) == (not reason, reason)
    low, high = found.evidence["ci95"]
    assert low <= solved / 8 <= high and 0.2 < high - low < 0.7


async def synthesized(out: Path, attempts: list[tuple[str, int]], stop_after: int | None) -> Synthesis:
    """Three seeds of the fake proposer; the policy solves every second attempt, and breaks down after some."""
    config = load_synth_config(
        None,
        [f"run.out={out}", "run.num_seeds=3", "run.at_once=1", "rewrite.max_evolutions=0", "rewrite.max_repairs=0",
         "solvable.repeats=1", "discriminating.max_mutants=2", f"discriminating.attacks={Attacks.NONE}",
         "useful.rollouts=4"],
    )  # fmt: skip

    async def attempt(task: Task, number: int) -> bool:
        if stop_after is not None and len(attempts) >= stop_after:
            raise RuntimeError("the power fails")
        attempts.append((task.id, number))
        return number % 2 == 0

    provider = NamespaceProvider()
    try:
        with Journal(out / "journal.sqlite") as journal:
            parts = Parts(FakeProposer(), Ground(provider), attempt=attempt)
            return await Factory(config, taxonomy_seeds(3), parts, journal).run()
    finally:
        await provider.close()


@needs_sandboxes
async def test_no_attempt_is_made_twice_by_a_run_that_was_interrupted(tmp_path):
    attempts: list[tuple[str, int]] = []
    with pytest.raises(ExceptionGroup):
        await synthesized(tmp_path, attempts, stop_after=6)
    made = await synthesized(tmp_path, attempts, stop_after=None)
    assert len(made.accepted) == 3
    assert len(attempts) == len(set(attempts)) == 12


@needs_sandboxes
def test_the_small_base_model_is_asked_and_its_rate_is_in_the_index(tmp_path):
    (tmp_path / "policy.toml").write_text("[harness]\nmax_turns = 2\n[rollouts]\nmax_concurrent = 2\n")
    words = [f"run.out={tmp_path / 'out'}", f"useful.policy={tmp_path / 'policy.toml'}", "useful.rollouts=2",
             "useful.low=0.0", "useful.high=1.0", "useful.audit=false", "run.num_seeds=1", "rewrite.max_evolutions=0",
             "solvable.vary=false", "solvable.repeats=1", "discriminating.max_mutants=2",
             "discriminating.attacks=none", "rewrite.max_repairs=0"]  # fmt: skip
    assert main(["tasks", "synth", *words]) == 0
    (row,) = pq.read_table(tmp_path / "out" / "index.parquet").to_pylist()
    assert '"rollouts": 2' in str(row) and "ci95" in str(row), row
