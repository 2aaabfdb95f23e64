"""A spread run whose engine is a server that was found by its URL: workers sample there, ranks publish to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.base import base_path
from t1.inference import TorchEngine, load_model
from t1.inference.captures import ModelShape
from t1.sandboxes import probe
from t1.testing.dialects import FakeVllm
from t1.testing.serving import listening

from . import ranked

pytestmark = [
    pytest.mark.spread,
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


@pytest.fixture
def sandboxes() -> Iterator[Path]:
    with ranked.sandbox_root() as path:
        yield path


def test_workers_sample_from_a_server_that_ranks_publish_to(tmp_path: Path, sandboxes: Path) -> None:
    suite, run, weights = ranked.write_suite(tmp_path / "suite"), tmp_path / "run", tmp_path / "weights"
    inside = TorchEngine(load_model(base_path()), max_context=768, num_threads=1)
    fake = FakeVllm(inside, model=ModelShape.from_pretrained(base_path()), chunk=64)
    with listening(fake.app) as url:
        ranked.train(
            run, suite, sandboxes,
            "trainer.ranks=2", "cluster.workers=1", "engine.kind=vllm", f'engine.urls=["{url}"]',
            f"engine.weights_dir={weights}", "rollouts.max_concurrent=4",
        )  # fmt: skip
    asyncio.run(inside.aclose())
    steps = ranked.steps_of(run)
    assert [step["step"] for step in steps] == [0, 1, 2]
    assert all(step["failures"] == step["findings"] == 0 for step in steps)
    assert all(step["gap"] < 1e-4 for step in steps), "the server samples with other weights than the ranks learn from"
    assert steps[1]["policy_updates"] > 0 and steps[1]["grad_norm"] > 0
    assert [path.name for path in weights.iterdir()] == ["v3"]
