"""`t1 train` with ranks: the numbers of one process, a checkpoint that goes on, an end that says why."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from t1.base import base_path
from t1.errors import InfrastructureError
from t1.inference.models import load_model
from t1.sandboxes import probe

from . import ranked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]
LEARNED = ("loss", "value_loss", "grad_norm", "critic_grad_norm", "gap", "explained_variance", "value_mean")
SAMPLED = ("reward", "mean_turns", "mean_sampled_tokens", "num_actions", "num_tokens", "failures", "findings")
LAST = Path("checkpoints") / "rl" / "step-000003"


@pytest.fixture
def sandboxes() -> Iterator[Path]:
    with ranked.sandbox_root() as path:
        yield path


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return ranked.write_suite(tmp_path / "suite")


@pytest.mark.long
def test_two_ranks_measure_and_learn_what_one_process_does(suite: Path, tmp_path: Path, sandboxes: Path) -> None:
    """Up to the order of sums: metrics within a thousandth, weights within 2e-5 after they moved by 4e-4."""
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    ranked.train(alone, suite, sandboxes)
    checkpoint = ranked.train(spread, suite, sandboxes, "trainer.ranks=2")
    for one, two in zip(ranked.steps_of(alone), ranked.steps_of(spread), strict=True):
        assert {name: one[name] for name in SAMPLED} == {name: two[name] for name in SAMPLED}
        for name in LEARNED:
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
    assert checkpoint == spread / LAST
    assert (checkpoint / "shards").is_dir() and (checkpoint / "tokenizer.json").is_file()
    base, one, two = (load_model(path).state_dict() for path in (base_path(), alone / LAST, spread / LAST))
    assert all((two[name] - weight).abs().max() > 3e-4 for name, weight in base.items())
    for name, weight in two.items():
        np.testing.assert_allclose(weight, one[name], atol=2e-5, err_msg=name)


@pytest.mark.spread
def test_a_rank_that_is_killed_ends_the_run_with_its_last_words_and_the_run_goes_on(
    suite: Path, tmp_path: Path, sandboxes: Path
) -> None:
    run = tmp_path / "run"

    def kill() -> None:
        victim = ranked.pid_of_post("trainer-1")
        deadline = time.monotonic() + 120
        while not (run / "checkpoints" / "rl" / "step-000001").is_dir() and time.monotonic() < deadline:
            time.sleep(0.05)
        with (run / "logs" / "trainer-1.log").open("a", encoding="utf-8") as log:
            log.write("the straw that breaks this rank's back\n")
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(InfrastructureError, match=r"(?s)rank 1 of the trainer was lost.*--resume.*straw that breaks"):
        ranked.train(run, suite, sandboxes, "trainer.ranks=2", "run.steps=3")
    killer.join(10)
    with pytest.raises(TimeoutError):
        ranked.pid_of_post("trainer-0", timeout_s=0.0)
    assert ranked.train(run, suite, sandboxes) == run / LAST
    assert [step["step"] for step in ranked.steps_of(run)] == [0, 1, 2]
