"""What a rollout captured lies in a file without a name, and is the same."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t1.errors import RunError
from t1.harness import TerminalConfig, TerminalHarness
from t1.rollouts import Collector
from t1.rollouts.captures import Captures
from t1.testing.renderers import CharacterRenderer
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier
from t1.types import RewardSource, Rollout, RolloutId

RENDERER = CharacterRenderer()


@pytest.fixture
async def rollout() -> Rollout:
    """Three turns with routes."""
    collector = Collector(
        harness=TerminalHarness(RENDERER, TerminalConfig()),
        provider=FakeSandboxProvider(),
        verifier=FakeVerifier(),
        sampler=ScriptedSampler([RENDERER.encode(t).tolist() for t in ("pwd", "true", "exit")], routing=RoutingShape()),
        scorer=lambda verdict: (0.5, RewardSource.ASSERTIONS),
    )
    return await collector.collect(example_task(), RolloutId("example", 0, 0))


def spools(folder: Path) -> int:
    """Files of this folder that are mapped and have no name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(str(folder) in line and line.endswith("(deleted)") for line in lines)


def test_rows_are_the_same_and_lie_in_a_file_that_nobody_sees(rollout: Rollout, tmp_path: Path) -> None:
    kept = Captures(tmp_path, small_bytes=0).keep(rollout)
    assert list(tmp_path.iterdir()) == []
    for ours, theirs in zip(kept.turns, rollout.turns, strict=True):
        assert ours.routing is not None and theirs.routing is not None
        assert not ours.routing.flags.owndata and not ours.routing.flags.writeable
        assert ours.routing.dtype == theirs.routing.dtype
        np.testing.assert_array_equal(ours.routing, theirs.routing)
        assert (ours.routing_start, ours.action) == (theirs.routing_start, theirs.action)


def test_many_rollouts_share_a_spool_and_later_rows_leave_earlier_ones_alone(rollout: Rollout, tmp_path: Path) -> None:
    captures = Captures(tmp_path, small_bytes=0, spool_bytes=1 << 16)
    kept = [captures.keep(rollout) for _ in range(20)]
    assert 1 <= spools(tmp_path) < 20
    for one in kept:
        for ours, theirs in zip(one.turns, rollout.turns, strict=True):
            np.testing.assert_array_equal(ours.routing, theirs.routing)


def test_a_spool_goes_with_its_last_view(rollout: Rollout, tmp_path: Path) -> None:
    captures = Captures(tmp_path, small_bytes=0, spool_bytes=8)  # every turn its own
    kept = captures.keep(rollout)
    assert spools(tmp_path) > 1
    del kept, captures
    gc.collect()
    assert spools(tmp_path) == 0


def test_few_rows_stay_where_they_are(rollout: Rollout, tmp_path: Path) -> None:
    assert Captures(tmp_path).keep(rollout) is rollout
    dense = replace(rollout, turns=tuple(replace(turn, routing=None) for turn in rollout.turns))
    assert Captures(tmp_path, small_bytes=1).keep(dense) is dense


def test_a_disk_without_room_is_an_error_with_its_folder(rollout: Rollout, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no room for the routing of \d+ bytes"):
        Captures(tmp_path, small_bytes=0, spool_bytes=1 << 60).keep(rollout)
