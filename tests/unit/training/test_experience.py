"""Rollouts to experience: what is unsound stays out, is counted, and stops nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from t1.harness import TerminalConfig, TerminalHarness
from t1.rollouts import Collector
from t1.testing.renderers import CharacterRenderer
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier
from t1.training.experience import Experience, as_text_stack, prepare
from t1.types import Failure, Outcome, RewardSource, Rollout, RolloutId, Severity, StopReason

RENDERER = CharacterRenderer()
SHAPE = RoutingShape()


@pytest.fixture
async def rollout() -> Rollout:
    """Three turns with routes, solved."""
    collector = Collector(
        harness=TerminalHarness(RENDERER, TerminalConfig()),
        provider=FakeSandboxProvider(),
        verifier=FakeVerifier(),
        sampler=ScriptedSampler([RENDERER.encode(t).tolist() for t in ("pwd", "true", "exit")], routing=SHAPE),
        scorer=lambda verdict: (0.5, RewardSource.ASSERTIONS),
    )
    return await collector.collect(example_task(), RolloutId("example", 0, 0))


def prepared(*rollouts: Rollout) -> Experience:
    return prepare(rollouts, boundary_ids=RENDERER.boundary_ids, decode=RENDERER.decode, num_experts=SHAPE.num_experts)


def test_a_sound_rollout_is_kept_whole(rollout: Rollout) -> None:
    experience = prepared(rollout)
    ((segments, reward),) = experience.rewarded
    assert (len(segments), reward, experience.dropped, experience.findings) == (1, 0.5, {}, ())
    assert sum(t.num_actions for t in experience.flat) == rollout.num_sampled


def test_what_is_kept_can_be_a_file_of_which_everyone_has_views(rollout: Rollout, tmp_path) -> None:
    failure = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure("SandboxVanished", "gone"))
    rollouts, rules = [rollout, replace(rollout, outcome=failure)], {"boundary_ids": RENDERER.boundary_ids}
    held, stored = prepare(rollouts, **rules), prepare(rollouts, **rules, store=tmp_path / "step.arrow")
    assert (stored.rollouts, stored.rewards, stored.dropped) == (held.rollouts, held.rewards, held.dropped)
    assert stored.counters == held.counters and stored.rewarded is stored.stored
    for ours, theirs in zip(stored.flat, held.flat, strict=True):
        assert ours.routing is not None and theirs.routing is not None
        assert not ours.routing.flags.owndata
        for name in ("tokens", "mask", "logprobs", "turn", "version", "routing"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert ours.boundaries == theirs.boundaries


def test_a_failure_is_counted_by_its_kind(rollout: Rollout) -> None:
    failure = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure("SandboxVanished", "gone"))
    experience = prepared(replace(rollout, outcome=failure), rollout)
    assert experience.rollouts == (rollout,)
    assert experience.dropped == {"failure:SandboxVanished": 1}


def test_an_episode_without_turns_has_nothing_to_train(rollout: Rollout) -> None:
    empty = replace(rollout, turns=(), outcome=replace(rollout.outcome, stop=StopReason.TOKEN_LIMIT))
    assert prepared(empty).dropped == {"no turns": 1}


def test_an_error_of_the_auditor_keeps_the_whole_rollout_out(rollout: Rollout) -> None:
    """A log-probability that is no probability."""
    first, *rest = rollout.turns
    wrong = replace(first, logprobs=np.full(len(first.completion), np.nan, dtype=np.float32))
    experience = prepared(rollout, replace(rollout, turns=(wrong, *rest)))
    assert experience.rollouts == (rollout,)
    (reason,) = experience.dropped
    assert reason.startswith("audit:") and experience.dropped[reason] == 1
    assert {f.severity for f in experience.findings} == {Severity.ERROR}


def test_captures_that_do_not_join_keep_a_rollout_out_and_stop_nothing(rollout: Rollout) -> None:
    """Case R8: the collector refuses such a rollout; one that comes another way is counted here."""
    first, second, last = rollout.turns
    lost = replace(second, routing=None)
    experience = prepared(replace(rollout, turns=(first, lost, last)), rollout)
    assert experience.rollouts == (rollout,)
    assert experience.dropped == {"assemble:RoutingError": 1}
    (finding,) = experience.findings
    assert (finding.rule, finding.severity, finding.rollout) == ("routing-join", Severity.ERROR, rollout.id)


def test_a_text_stack_trains_on_the_same_text_without_routes(rollout: Rollout) -> None:
    whole = prepared(rollout, rollout)
    retold = as_text_stack(whole, decode=RENDERER.decode, encode=RENDERER.encode)
    assert (retold.rollouts, retold.rewards, retold.dropped) == (whole.rollouts, whole.rewards, {})
    for ours, theirs in zip(retold.flat, whole.flat, strict=True):
        assert np.array_equal(ours.tokens, theirs.tokens), "a character has one spelling"
        assert ours.routing is None and np.array_equal(ours.logprobs, theirs.logprobs)
