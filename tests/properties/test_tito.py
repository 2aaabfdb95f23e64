"""Whatever a client does to the history, every sampled token is trained once, with its own numbers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.errors import RoutingError
from t1.tito import assemble, audit, truncate
from t1.types import Case, FinishReason, Outcome, RewardSource, Rollout, RolloutId, StopReason, Turn

STOP, NEWLINE = 0, 1
BOUNDARY = frozenset({STOP, NEWLINE})
LETTERS = {2: "a", 3: "b", 4: "c", 5: "ab", 6: "bc", STOP: "", NEWLINE: "\n"}
OTHER_IDS = {(2, 3): (5,), (5,): (2, 3), (3, 4): (6,), (6,): (3, 4)}
VOCAB, NUM_EXPERTS = 7, 6

ids = st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=6)
edits = st.sampled_from(
    ["keep", "keep", "keep", "other_ids", "no_stop", "newline_for_stop", "strip", "change", "retry", "fresh", "forget"]
)


def decode(tokens):
    return "".join(LETTERS[int(token)] for token in tokens)


def retokenize(tokens):
    """The same text through other ids, where there are any."""
    out, at = [], 0
    while at < len(tokens):
        for size in (2, 1):
            if (other := OTHER_IDS.get(tuple(tokens[at : at + size]))) is not None:
                out += other
                at += size
                break
        else:
            out.append(tokens[at])
            at += 1
    return out


def copied(completion, edit):
    """The harness's copy of a completion."""
    if edit == "other_ids":
        return retokenize(completion)
    if edit == "no_stop":
        return [token for token in completion if token != STOP]
    if edit == "newline_for_stop":
        return [NEWLINE if token == STOP else token for token in completion]
    if edit == "strip":
        return [token for token in completion if token != NEWLINE]
    return [*completion[:-1], 2] if edit == "change" else completion


@st.composite
def conversations(draw, routed):
    """(turns) of a client that edits its copy of the history as it likes."""
    history = [("context", draw(ids))]
    turns = []
    for index in range(draw(st.integers(1, 6))):
        prompt = [token for _, part in history for token in part]
        ending = draw(st.sampled_from([[STOP], [NEWLINE, STOP], []]))
        completion = draw(ids) + ending
        fed = len(prompt) + len(completion) - 1
        rng = np.random.default_rng([index, fed])
        start = draw(st.integers(0, len(prompt) - 1)) if routed and draw(st.booleans()) else 0
        first = rng.integers(0, NUM_EXPERTS, (fed - start, 2))
        second = (first + rng.integers(1, NUM_EXPERTS, first.shape)) % NUM_EXPERTS
        turns.append(
            Turn(
                prompt=np.array(prompt, dtype=np.int32),
                completion=np.array(completion, dtype=np.int32),
                logprobs=-rng.random(len(completion), dtype=np.float32),
                versions=np.full(len(completion), index // 2, dtype=np.int32),
                finish=FinishReason.STOP if ending else FinishReason.LENGTH,
                routing=np.stack([first, second], axis=2).astype(np.uint8) if routed else None,
                routing_start=start,
            )
        )
        edit = draw(edits)
        if edit == "retry":
            continue
        if edit == "fresh":
            history = [("context", draw(ids))]
            continue
        if edit == "forget" and len(history) > 2:
            del history[draw(st.integers(0, len(history) - 2))]
        history.append(("completion", copied(completion, edit)))
        if draw(st.integers(0, 3)) == 0:  # the whole history is rendered anew
            again = draw(st.sampled_from(["other_ids", "strip", "no_stop"]))
            history = [(kind, copied(part, again) if kind == "completion" else part) for kind, part in history]
        history.append(("context", [*([] if ending else [STOP]), NEWLINE, *draw(ids), STOP]))
    return tuple(turns)


options = {
    "boundary_ids": st.sampled_from([frozenset(), BOUNDARY]),
    "decode": st.sampled_from([None, decode]),
    "on_residual": st.sampled_from(["accept", "split"]),
}


def check_owned_once(turns, trajectories):
    """Each sampled token has exactly one place, with its own id, logprob and version."""
    owners = np.concatenate([t.turn[t.mask] for t in trajectories])
    order = np.argsort(owners, kind="stable")
    assert owners[order].tolist() == [index for index, turn in enumerate(turns) for _ in turn.completion]
    for column, source in (("tokens", "completion"), ("logprobs", "logprobs"), ("version", "versions")):
        trained = np.concatenate([getattr(t, column)[t.mask] for t in trajectories])[order]
        np.testing.assert_array_equal(trained, np.concatenate([getattr(turn, source) for turn in turns]))


@settings(max_examples=300, deadline=None)
@given(conversations(routed=False), st.fixed_dictionaries(options))
def test_every_sampled_token_is_owned_once_and_the_auditor_agrees(turns, given_options):
    rollout = Rollout(
        RolloutId("task", 0, 0), "", turns, Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY)
    )
    trajectories = assemble(rollout.id, turns, **given_options)
    check_owned_once(turns, trajectories)
    report = audit(rollout, trajectories, vocab_size=VOCAB, num_experts=None, decode=given_options["decode"])
    assert not report.findings
    assert report.counters["loss_region_drift"] == 0
    if given_options["on_residual"] == "split":
        assert report.counters["residual"] == 0
    for trajectory in trajectories:
        for boundary in trajectory.boundaries:
            assert boundary.kept + boundary.dropped + boundary.inserted == len(turns[boundary.turn].prompt)


@settings(max_examples=300, deadline=None)
@given(conversations(routed=True), st.fixed_dictionaries(options))
def test_each_row_is_one_that_was_captured_for_its_token_or_the_rollout_is_refused(turns, given_options):
    rollout = Rollout(
        RolloutId("task", 0, 0), "", turns, Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY)
    )
    try:
        trajectories = assemble(rollout.id, turns, **given_options)
    except RoutingError:
        return
    check_owned_once(turns, trajectories)
    report = audit(rollout, trajectories, vocab_size=VOCAB, num_experts=NUM_EXPERTS, decode=given_options["decode"])
    assert not report.findings
    for trajectory in trajectories:
        captured = {
            (int(token), row.tobytes())
            for turn in turns
            for token, row in zip(
                np.concatenate([turn.prompt, turn.completion])[turn.routing_start : -1], turn.routing, strict=True
            )
        }
        for token, row in zip(trajectory.tokens[:-1], trajectory.routing, strict=True):
            assert (int(token), row.tobytes()) in captured


@settings(max_examples=100, deadline=None)
@given(conversations(routed=True), st.integers(0, 80))
def test_truncation_is_a_prefix_of_every_column(turns, num_tokens):
    try:
        trajectories = assemble(RolloutId("task", 0, 0), turns, boundary_ids=BOUNDARY, decode=decode)
    except RoutingError:
        return
    for trajectory in trajectories:
        if not trajectory.mask[:num_tokens].any():
            continue
        short = truncate(trajectory, num_tokens)
        size = len(short.tokens)
        assert size <= num_tokens or size == len(trajectory.tokens)
        assert not trajectory.mask[size:num_tokens].any()
        assert short.tokens.tolist() == trajectory.tokens[:size].tolist()
        assert len(short.routing) == size - 1


@settings(max_examples=200, deadline=None)
@given(conversations(routed=False))
def test_strict_means_that_the_stream_is_what_the_sampler_saw(turns):
    for trajectory in assemble(RolloutId("task", 0, 0), turns, boundary_ids=BOUNDARY, decode=decode):
        for boundary in trajectory.boundaries:
            turn = turns[boundary.turn]
            start = int(np.flatnonzero(trajectory.mask & (trajectory.turn == boundary.turn))[0])
            seen = np.array_equal(trajectory.tokens[:start], turn.prompt)
            assert seen == (boundary.residual == 0) == (boundary.case in (Case.OPEN, Case.STRICT, Case.SPLIT))
