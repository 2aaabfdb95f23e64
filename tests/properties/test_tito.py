"""Whatever a client does to the history, every sampled token is trained once, with its own numbers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.errors import RoutingError
from t1.tito import assemble, audit, truncate
from t1.types import Case, FinishReason, Outcome, RewardSource, Rollout, RolloutId, StopReason, Turn

STOP, NEWLINE = 0, 1
BOUNDARY = frozenset({STOP, NEWLINE})
LETTERS = {
    STOP: "",
    NEWLINE: "\n",
    2: "a",
    3: "b",
    4: "c",
    5: "ab",
    6: "bc",
    7: " ",
    8: "\r",
    9: '{"a":',
    10: '"b"}',
    11: "</think>",
}
SPACE, RETURN, KEY, VALUE, THOUGHT = 7, 8, 9, 10, 11
OTHER_IDS = {(2, 3): (5,), (5,): (2, 3), (3, 4): (6,), (6,): (3, 4)}
VOCAB, NUM_EXPERTS = len(LETTERS), 6

ids = st.lists(st.integers(2, 6), min_size=1, max_size=6)
said = st.one_of(
    ids,
    st.tuples(ids, ids).map(lambda two: [*two[0], THOUGHT, *two[1]]),
    st.tuples(ids, ids).map(lambda two: [*two[0], NEWLINE, *two[1]]),
    ids.map(lambda some: [*some, KEY, VALUE]),
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


def with_before(token, new):
    """Put `new` before each `token`."""
    return lambda tokens: [part for one in tokens for part in ([*new, one] if one == token else [one])]


def without(*some):
    return lambda tokens: [token for token in tokens if token not in some]


COPIES = {
    "as it was": lambda tokens: tokens,
    "other ids": retokenize,
    "no stop": without(STOP),
    "newline for stop": lambda tokens: [NEWLINE if token == STOP else token for token in tokens],
    "no white space": without(NEWLINE, SPACE),
    "white space at the end": with_before(STOP, [SPACE, NEWLINE]),
    "newline style": with_before(NEWLINE, [RETURN]),
    "json spacing": with_before(VALUE, [SPACE]),
    "no reasoning": lambda tokens: tokens[tokens.index(THOUGHT) + 1 :] if THOUGHT in tokens else tokens,
    "changed": lambda tokens: [*tokens[:-1], 2],
    "cut": lambda tokens: tokens[: len(tokens) // 2],
    "other ids and white space": lambda tokens: with_before(STOP, [SPACE])(retokenize(tokens)),
}
HISTORIES = ("goes on", "goes on", "goes on", "asks again", "starts anew", "summary", "forgets", "forks", "rewrites")


def captured(index, num_rows):
    """uint8[num_rows, 2, 2] two distinct experts in each layer."""
    rng = np.random.default_rng([index, num_rows])
    first = rng.integers(0, NUM_EXPERTS, (num_rows, 2))
    return np.stack([first, (first + rng.integers(1, NUM_EXPERTS, first.shape)) % NUM_EXPERTS], axis=2).astype(np.uint8)


@st.composite
def conversations(draw, routed):
    """(turns) of a client that edits its copy of the history as it likes, in several branches that take turns."""
    branches = [[("context", draw(ids))]]
    turns = []
    for index in range(draw(st.integers(1, 7))):
        history = draw(st.sampled_from(branches))
        prompt = [token for _, part in history for token in part]
        ending = draw(st.sampled_from([[STOP], [NEWLINE, STOP], []]))
        completion = draw(said) + ending
        fed = len(prompt) + len(completion) - 1
        start = draw(st.integers(0, len(prompt) - 1)) if routed and draw(st.booleans()) else 0
        turns.append(
            Turn(
                prompt=np.array(prompt, dtype=np.int32),
                completion=np.array(completion, dtype=np.int32),
                logprobs=-np.random.default_rng(index).random(len(completion), dtype=np.float32),
                versions=np.full(len(completion), index // 2, dtype=np.int32),
                finish=FinishReason.STOP if ending else FinishReason.LENGTH,
                routing=captured(index, fed - start) if routed else None,
                routing_start=start,
            )
        )
        _go_on(draw, branches, history, completion)
    return tuple(turns)


def _go_on(draw, branches, history, completion):
    """What the client makes of a reply: its copy in the history, and of the history itself."""
    what = draw(st.sampled_from(HISTORIES))
    if what == "asks again":
        return
    if what == "starts anew":
        branches.append([("context", draw(ids))])
        return
    if what == "forks":
        branches.append(list(history))
    if what == "summary":
        history[:] = [history[0], ("context", [NEWLINE, *draw(ids)])]
    if what == "forgets" and len(history) > 2:
        del history[draw(st.integers(0, len(history) - 2))]
    copy = COPIES[draw(st.sampled_from(sorted(COPIES)))]
    history.append(("completion", copy(completion) or [2]))
    if what == "rewrites":  # the whole history is rendered anew
        again = COPIES[draw(st.sampled_from(sorted(COPIES)))]
        history[:] = [(kind, again(part) or [2] if kind == "completion" else part) for kind, part in history]
    closing = [] if STOP in completion else [STOP]
    history.append(("context", [*closing, NEWLINE, *draw(ids), STOP]))


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


def check_rows_of_samples(turns, trajectory):
    """A sampled token's row is its own turn's, the last one's that of the turn which fed it: the next of the stream."""
    owners = [boundary.turn for boundary in trajectory.boundaries]
    for place, owner in enumerate(owners):
        turn, at = turns[owner], np.flatnonzero(trajectory.mask & (trajectory.turn == owner))
        inner = len(turn.completion) - 1
        assert at.tolist() == list(range(at[0], at[0] + inner + 1))
        own = turn.routing[len(turn.routing) - inner :]
        np.testing.assert_array_equal(trajectory.routing[at[0] : at[-1]], own)
        if place + 1 < len(owners):
            following = turns[owners[place + 1]].routing
            brought = int((trajectory.turn == owners[place + 1]).sum())
            np.testing.assert_array_equal(trajectory.routing[at[-1]], following[len(following) - brought])
    assert len(trajectory.routing) == len(trajectory.tokens) - 1


@settings(max_examples=300, deadline=None)
@given(conversations(routed=False), st.fixed_dictionaries(options))
def test_every_sampled_token_is_owned_once_and_the_auditor_agrees(turns, given_options):
    rollout = Rollout(
        RolloutId("task", 0, 0), "", turns, Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY)
    )
    trajectories = assemble(rollout.id, turns, **given_options)
    check_owned_once(turns, trajectories)
    report = audit(
        rollout,
        trajectories,
        vocab_size=VOCAB,
        num_experts=None,
        decode=given_options["decode"],
        boundary_ids=BOUNDARY,
    )
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
    report = audit(
        rollout,
        trajectories,
        vocab_size=VOCAB,
        num_experts=NUM_EXPERTS,
        decode=given_options["decode"],
        boundary_ids=BOUNDARY,
    )
    assert not report.findings
    for trajectory in trajectories:
        check_rows_of_samples(turns, trajectory)
        rows_of = {
            (int(token), row.tobytes())
            for turn in turns
            for token, row in zip(
                np.concatenate([turn.prompt, turn.completion])[turn.routing_start : -1], turn.routing, strict=True
            )
        }
        for token, row in zip(trajectory.tokens[:-1], trajectory.routing, strict=True):
            assert (int(token), row.tobytes()) in rows_of


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
